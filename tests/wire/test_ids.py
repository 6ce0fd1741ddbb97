"""Identifiers sort by the time they were made at, and nobody can guess one."""

import os
import re
import time
from itertools import pairwise

import pytest

from antwort.wire.ids import new_id


def test_an_id_has_its_prefix_and_48_digits() -> None:
    assert re.fullmatch(r"resp_[0-9a-f]{48}", new_id("resp"))


@pytest.mark.parametrize("now", [1, 1_763_000_000_000_000_000, 4_102_444_800_000_000_000])
def test_ids_that_are_made_later_sort_later(monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    moments = iter(range(now, now + 1_000_000, 1000))
    monkeypatch.setattr(time, "time_ns", lambda: next(moments))
    made = [new_id("resp") for _ in range(1000)]
    assert all(earlier < later for earlier, later in pairwise(made))


def test_ids_of_the_same_moment_differ_in_136_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_763_000_000_000_000_000)
    made = [new_id("resp").removeprefix("resp_") for _ in range(1000)]
    assert len({number[:14] for number in made}) == 1
    randoms = [int(number[14:], 16) for number in made]
    assert len(set(randoms)) == 1000
    for bit in range(136):
        assert 350 < sum(random >> bit & 1 for random in randoms) < 650


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_process_gives_other_ids_than_its_parent() -> None:
    new_id("resp")  # there are digits left of it
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, new_id("resp")[-34:].encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 34).decode() != new_id("resp")[-34:]
    os.close(reading)
    os.close(writing)
