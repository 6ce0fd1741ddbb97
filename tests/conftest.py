"""What holds for every test."""

import inspect
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings
from tests.support.postgres import database_url, postgres_server, postgres_template, postgres_url
from tests.support.qdrant import qdrant, qdrant_server
from tests.support.s3 import bucket, s3_server

from antwort.observability import reset_logging

__all__ = [
    "bucket",
    "database_url",
    "postgres_server",
    "postgres_template",
    "postgres_url",
    "qdrant",
    "qdrant_server",
    "s3_server",
]

# A shell lets what it starts in the background ignore Ctrl-C, and so would every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test leaves this machine, so there is nobody to trust. A client of HTTP that reads the hundred authorities of a
# system takes longer to make than most tests, and there are thousands of them.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support/authority.pem")

# No test is about how quick the machine is.
settings.register_profile("antwort", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("antwort")
patience: httpx.Timeout = inspect.signature(httpx.Client).parameters["timeout"].default  # of each client without one
patience.connect = patience.read = patience.write = patience.pool = 120.0


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test work in an empty folder of its own: an app without a data folder makes one where it stands."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Undo what a command of the test has set: the next tests of this process would not see what is logged."""
    yield
    reset_logging()
