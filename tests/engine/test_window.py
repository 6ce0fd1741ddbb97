"""Dropping the oldest part of a window: as little as needed, and never so that the rest makes no sense."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from antwort.engine.window import LEFT_OUT, shortened
from antwort.types import JSON


@st.composite
def windows(draw: st.DrawFn) -> list[JSON]:
    items: list[JSON] = []
    for number in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["user", "assistant", "system", "developer", "calls", "reasoning"]))
        if kind == "reasoning":
            items.append({"type": "reasoning", "n": number})
        elif kind == "calls":
            ids = [f"c{number}.{one}" for one in range(draw(st.integers(1, 3)))]
            items += [{"type": "function_call", "call_id": name} for name in ids]
            items += [{"type": "function_call_output", "call_id": name} for name in draw(st.permutations(ids))]
        else:
            items.append({"type": "message", "role": kind, "n": number})
    return items


@given(windows(), st.integers(0, 20))
def test_what_is_left_makes_sense(items: list[JSON], room: int) -> None:
    left = shortened(items, lambda some: len(some) <= room)
    if left is None:
        return
    assert len(left) < len(items)
    places = [next(i for i, item in enumerate(items) if item is kept) for kept in left]
    assert places == sorted(places)
    kept = {place: items[place] for place in places}
    for place, item in enumerate(items):
        if item.get("role") in {"system", "developer"}:
            assert place in kept
    users = [place for place, item in enumerate(items) if item.get("role") == "user"]
    assert not users or users[-1] in kept
    calls = {item["call_id"] for item in left if item["type"] == "function_call"}
    outputs = {item["call_id"] for item in left if item["type"] == "function_call_output"}
    assert calls == outputs


def test_of_a_loop_of_calls_the_oldest_turns_are_dropped() -> None:
    question: JSON = {"type": "message", "role": "user"}
    turns = [_turn(number) for number in range(10)]
    items = [question, *(item for turn in turns for item in turn)]
    assert shortened(items, lambda some: len(some) <= 9) == [question, *turns[8], *turns[9]]


def _turn(number: int) -> list[JSON]:
    """Return two calls at once, and their outputs."""
    ids = [f"c{number}.{one}" for one in range(2)]
    kinds = ("function_call", "function_call_output")
    return [{"type": kind, "call_id": name} for kind in kinds for name in ids]


def test_a_note_in_the_place_of_calls_is_not_the_users_last_message() -> None:
    note: JSON = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"{LEFT_OUT} 3.]"}]}
    items: list[JSON] = [{"type": "message", "role": "user", "n": number} for number in range(2)]
    left = shortened([*items, note, *_turn(1), *_turn(2)], lambda some: False)
    assert left == [items[1], note, *_turn(2)]


def test_no_more_is_dropped_than_has_to_be() -> None:
    items: list[JSON] = [{"type": "message", "role": "user", "n": number} for number in range(100)]
    assert shortened(items, lambda some: len(some) <= 60) == items[40:]


def test_a_window_is_measured_a_few_times_only() -> None:
    items: list[JSON] = [{"type": "message", "role": "user"}] * 10_000
    measured = []

    def fits(some: Sequence[JSON]) -> bool:
        measured.append(len(some))
        return len(some) <= 5_000

    shortened(items, fits)
    assert len(measured) < 20


def test_a_window_with_nothing_to_drop_is_left_to_the_caller() -> None:
    assert shortened([{"type": "message", "role": "user"}], lambda some: False) is None
