"""What a connection remembers: the latest response of each lane, within a number of bytes."""

from antwort.server.sockets.connection import LANES, PRICE, Memory
from antwort.storage.base import JournalEntry
from antwort.storage.call_record import CallRecord


def entries(*texts: str) -> list[JournalEntry]:
    return [JournalEntry("input", {"id": text, "text": text}) for text in texts]


def test_the_latest_response_of_a_lane_takes_the_place_of_the_one_before() -> None:
    memory = Memory(1000 + 2 * PRICE)
    memory.remember(None, "resp_1", entries("a"), previous=None)
    memory.remember("x", "resp_2", entries("b"), previous=None)
    memory.remember(None, "resp_3", entries("a", "c"), previous="resp_1")
    assert set(memory.recall()) == {"resp_2", "resp_3"}
    memory.leave("x")
    assert set(memory.recall()) == {"resp_3"}
    memory.forget("resp_3")
    memory.forget("resp_3")
    memory.forget(None)
    assert not memory.recall()


def test_the_oldest_goes_when_there_is_no_room() -> None:
    memory = Memory(60 + 2 * PRICE)
    for lane in "abc":
        memory.remember(lane, f"resp_{lane}", entries(lane), previous=None)  # 21 bytes each
    assert set(memory.recall()) == {"resp_b", "resp_c"}
    memory.remember("d", "resp_d", entries("x" * 3000), previous=None)
    assert not memory.recall()
    memory.remember("e", "resp_e", entries("e"), previous=None)
    assert set(memory.recall()) == {"resp_e"}


def test_what_is_continued_counts_once_and_whole() -> None:
    memory = Memory(60 + PRICE)
    window = entries("a")
    memory.remember(None, "resp_1", window, previous=None)
    for number in (2, 3):
        window = [*window, *entries("b")]
        memory.remember(None, f"resp_{number}", window, previous=f"resp_{number - 1}")
    assert not memory.recall()  # three entries of 21 bytes are more than 60
    call = JournalEntry("output", {"id": "i"}, call=CallRecord("c", "add", "x" * 100))
    memory.remember(None, "resp_4", [call], previous=None)
    assert not memory.recall()


def test_lanes_that_say_nothing_have_an_end_too() -> None:
    memory = Memory(10**9)
    for number in range(3 * LANES):
        memory.remember(str(number), f"resp_{number}", [], previous=None)
    assert len(memory.recall()) == LANES
