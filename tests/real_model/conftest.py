"""Tests on a real model, for `make test-full`: only it installs the model, so nothing here is collected otherwise."""

import os
from collections.abc import Iterator

import pytest
from openai import OpenAI
from tests.real_model.stage import Stage, staged

collect_ignore_glob = [] if os.environ.get("ANTWORT_TEST_FULL") else ["test_*.py"]


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Serve the model, with antwort before it."""
    with staged(tmp_path_factory.mktemp("real-model")) as stage:
        yield stage


@pytest.fixture
def client(stage: Stage) -> Iterator[OpenAI]:
    """Give an SDK client; what it has read is checked at the end of the test."""
    with stage.client() as client:
        yield client
