from collections.abc import Iterator

import pytest
from tests.support.memory import made_in_memory

from benchmarks.gateway import Bench, Target, open_bench, reference_target

__all__ = ["made_in_memory"]


@pytest.fixture(autouse=True)
def _in_memory(made_in_memory: None) -> None:
    """Servers that are measured keep their data in temporary folders."""


@pytest.fixture
def bench(made_in_memory: None) -> Iterator[Bench]:
    """A bench with its mock backend running."""
    with open_bench() as bench:
        yield bench


@pytest.fixture
def reference(bench: Bench) -> Target:
    return reference_target(bench.mock.port)
