from collections.abc import Iterator

import pytest

from benchmarks.gateway import Bench, Target, bench, reference_target


@pytest.fixture
def place() -> Iterator[Bench]:
    """A bench with its mock backend running."""
    with bench() as place:
        yield place


@pytest.fixture
def reference(place: Bench) -> Target:
    return reference_target(place.mock.port)
