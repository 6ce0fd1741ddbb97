from collections.abc import Iterator

import pytest

from benchmarks.gateway import Bench, Target, open_bench, reference_target


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A bench with its mock backend running."""
    with open_bench() as bench:
        yield bench


@pytest.fixture
def reference(bench: Bench) -> Target:
    return reference_target(bench.mock.port)
