from itertools import islice

import pytest

from antwort.concurrency.backoff import Backoff


def test_each_pause_is_twice_the_last_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 5.0)
    assert list(islice(backoff.pauses(), 6)) == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert list(islice(backoff.pauses(), 2)) == [0.5, 1.0]  # each begins anew


def test_after_any_number_of_tries_it_is_the_longest() -> None:
    assert Backoff(0.001, 30.0).pause(1_000_000) == 30.0


@pytest.mark.parametrize(("share", "least"), [(0.25, 3.0), (0.5, 2.0), (1.0, 0.0)])
def test_a_share_of_a_pause_is_left_to_chance(share: float, least: float) -> None:
    drawn: list[tuple[float, float]] = []

    def jitter(low: float, high: float) -> float:
        drawn.append((low, high))
        return (low + high) / 2

    backoff = Backoff(2.0, 4.0, share, jitter)
    assert backoff.pause(7) == (least + 4.0) / 2
    assert backoff.bound(7) == 4.0
    assert drawn == [(least, 4.0)]


def test_chance_stays_within_its_bounds() -> None:
    pauses = list(islice(Backoff(1.0, 1.0, 0.5).pauses(), 200))
    assert 0.5 <= min(pauses) < max(pauses) <= 1.0
