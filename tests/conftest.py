"""What holds for every test."""

import contextlib
import functools
import gc
import inspect
import os
import signal
import ssl
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from tests.support.compiled import compile_for_workers
from tests.support.memory import memory_folder
from tests.support.new_databases import start_with_tables
from tests.support.postgres import (
    database_url,
    postgres_programs,
    postgres_server,
    postgres_template,
    postgres_url,
    ready_database,
    ready_url,
)
from tests.support.qdrant import qdrant, qdrant_line, qdrant_server
from tests.support.s3 import bucket, s3_server
from tests.support.warm_start import start_warm
from tests.support.warm_workers import start_workers_warm

import antwort
from antwort.config import installed
from antwort.documents.parser import DocumentParser
from antwort.errors import ConfigError, FunctionUnavailableError
from antwort.functions import provider
from antwort.functions.signature import Signature
from antwort.observability import reset_logging
from antwort.sandbox import disk_kinds, disks
from antwort.sandbox.control_groups import ControlGroups
from antwort.sandbox.disk_kinds import Disk, DiskKind
from antwort.sandbox.process import SandboxProcess

__all__ = [
    "bucket",
    "database_url",
    "postgres_programs",
    "postgres_server",
    "postgres_template",
    "postgres_url",
    "qdrant",
    "qdrant_line",
    "qdrant_server",
    "ready_database",
    "ready_url",
    "s3_server",
]

# As for whoever has antwort installed: the kit is made of assertions, and these say what they compared.
pytest.register_assert_rewrite(
    *(f"antwort.testing.{kit}" for kit in ("contract", "part_contracts", "search_contracts"))
)

# A shell lets what it starts in the background ignore Ctrl-C, and so would every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test leaves this machine, so there is nobody to trust. A client of HTTP that reads the hundred authorities of a
# system takes longer to make than most tests, and there are thousands of them.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support/authority.pem")


# What a test writes is gone when it ends: where there is room it never gets to a disk, and nothing waits for one.
if (_memory := memory_folder()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_memory))


def _made_once(module: Any) -> None:
    """Let clients that trust whom the system does share what says so: two thirds of what it takes to make one."""
    make: Callable[..., ssl.SSLContext] = module.create_ssl_context
    shared = functools.cache(lambda _file, _folder, trust_env: make(trust_env=trust_env))

    def made(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is not True or cert:
            return make(verify=verify, cert=cert, trust_env=trust_env)
        return shared(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"), trust_env)

    module.create_ssl_context = made


_made_once(httpx._transports.default)
_made_once(httpx2._transports.default)

start_warm()
start_with_tables()

# What is installed stays the same. To read it takes a tenth of what it takes to make an app, and there are thousands.
_packages = installed.packages
_packages_on = functools.cache(lambda _path: _packages())
installed.packages = lambda: _packages_on(tuple(sys.path))
installed.own_points = functools.cache(installed.own_points)
_has_extra = installed.has_extra
_extra_on = functools.cache(lambda _path, package, extra: _has_extra(package, extra))
installed.has_extra = lambda package, extra: _extra_on(tuple(sys.path), package, extra)


# So do the functions that come with antwort. What they say of their parameters is most of what a first request takes.
def _read_once(what: str) -> None:
    known: dict[tuple[object, ...], Any] = {}
    read = vars(Signature)[what].func

    def of_shipped(signature: Signature) -> Any:
        handler = signature._handler
        function = getattr(handler, "__func__", handler)
        if not inspect.isfunction(function) or not function.__module__.startswith("antwort.providers."):
            return read(signature)
        if "<locals>" in function.__qualname__:
            return read(signature)
        key = (function, function is handler, signature._name)
        if key not in known:
            known[key] = read(signature)
        return known[key]

    vars(Signature)[what].func = of_shipped


_read_once("adapter")
_read_once("schema")


# And so do their classes: which methods are marked, and whether all of a provider's parts are made as parts are.
def _looked_at_once(name: str, answer: Callable[[Any], Any]) -> None:
    known: dict[tuple[object, ...], Any] = {}
    look = vars(provider)[name]

    def of_shipped(what: object, *others: object) -> Any:
        kind = what if isinstance(what, type) else type(what)
        if not kind.__module__.startswith("antwort.providers."):
            return look(what, *others)
        key = (what is kind, kind, *others)
        if key not in known:
            known[key] = answer(look(what, *others))
        return known[key]

    vars(provider)[name] = of_shipped


_looked_at_once("_marked", tuple)
_looked_at_once("_attributes", tuple)
_looked_at_once("_check_part", lambda nothing: nothing)

# So does what sandboxes can use here. A server that starts finds out by trying it; what has worked is not tried again.
_try_out, _works, _worked = disk_kinds.try_out, ControlGroups._works, set[tuple[object, ...]]()


def _once(what: tuple[object, ...], trial: Callable[[], bool | None]) -> bool:
    if what not in _worked:
        if trial() is False:
            return False
        _worked.add(what)
    return True


def _try_disk_once(kind: DiskKind, disk: Disk) -> None:
    _once((type(kind), disk.folder.stat().st_dev, os.geteuid()), lambda: _try_out(kind, disk))


def _try_groups_once(self: ControlGroups) -> bool:
    return _once(tuple(self._parents.items()), lambda: _works(self))


async def _try_interpreter_once(self: DocumentParser) -> str:
    what = (type(self._sandbox), repr(self._sandbox.rules), sys.executable, os.environ.get("PATH"))
    if what in _worked:
        with contextlib.suppress(ConfigError, FunctionUnavailableError):
            await self._sandbox.prepare()
            return ""
    if not (why := await _why_not(self)):
        _worked.add(what)
    return why


vars(disks)["try_out"] = _try_disk_once
ControlGroups._works = _try_groups_once  # type: ignore[method-assign]
_why_not, DocumentParser._why_not = DocumentParser._why_not, _try_interpreter_once  # type: ignore[method-assign]

# No test is about how quick the machine is.
FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))
settings.register_profile(
    "antwort", deadline=None, max_examples=100 if FULL else 25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("antwort")
# It would read each file of ours that is imported, a thousand, in each process, for constants that may be worth a try.
_SOURCE = f"{Path(antwort.__file__).parent}/"
_CONSTANTS_OF = (_SOURCE,) if FULL else ()
vars(providers)["is_local_module_file"] = lambda path: path.startswith(_CONSTANTS_OF)
patience: httpx.Timeout = inspect.signature(httpx.Client).parameters["timeout"].default  # of each client without one
patience.connect = patience.read = patience.write = patience.pool = 120.0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    compile_for_workers(config)
    start_workers_warm(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without looking for garbage, of which there is none, and never look among them later.

    They and what they import are kept to the end: a million objects, to walk through which takes most of a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        # As in a server that is served. At the interpreter's own values it takes a twentieth of the tests' time.
        gc.set_threshold(20_000, 20, 20)


_SANDBOX = Path(__file__).parent / "sandbox"
_stand_back = SandboxProcess._stand_back


def _stay(self: SandboxProcess, processes: Sequence[int], niceness: int) -> None:
    if not self._memory_is_counted:  # whoever looks at it must not be late
        _stand_back(self, processes, niceness)


@pytest.fixture(autouse=True)
def _beside_other_tests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sandboxes stand back behind their server in tests of sandboxes only.

    Beside tests that compute they would have next to nothing of the processors, and their time is limited.
    """
    if not request.path.is_relative_to(_SANDBOX):
        monkeypatch.setattr(SandboxProcess, "_stand_back", _stay)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test work in an empty folder of its own: an app without a data folder makes one where it stands."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Undo what a command of the test has set: the next tests of this process would not see what is logged."""
    yield
    reset_logging()
