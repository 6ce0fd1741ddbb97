"""Stop sequences: however a text is split, it is passed on up to the first one, and never a piece of it more."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antwort.engine.output.stop_sequences import AnswerStoppedError, StopSequences

TEXTS = st.text("ab", max_size=12)


class Taken:
    """A sink that keeps the texts."""

    def __init__(self) -> None:
        self.said = ""
        self.reasons: list[str] = []

    def text(self, delta: str, logprobs: Any = None) -> None:
        assert delta
        self.said += delta

    def text_burst(self, deltas: Any) -> None:
        assert all(deltas)
        self.said += "".join(deltas)

    def finish(self, reason: str) -> None:
        self.reasons.append(reason)

    async def flush(self) -> None:
        """Send nothing."""


@given(pieces=st.lists(TEXTS, max_size=6), sequences=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1))
def test_a_text_ends_before_the_first_stop_sequence(pieces: list[str], sequences: list[str]) -> None:
    taken: Any = Taken()
    sink = StopSequences(sequences, taken)
    whole = "".join(pieces)
    for piece in filter(None, pieces):
        sink.text_burst([piece])
        assert whole.startswith(taken.said)
        assert not any(sequence in taken.said for sequence in sequences)
    sink.finish("length")

    places = [whole.index(sequence) for sequence in sequences if sequence in whole]
    if places:
        if len([*filter(None, pieces)]) == 1:  # else one may be whole before one that began earlier
            assert taken.said == whole[: min(places)]
        assert sink.found in sequences
        assert whole.startswith(taken.said + sink.found)
        assert taken.reasons == ["stop"]
    else:
        assert (taken.said, sink.found, taken.reasons) == (whole, None, ["length"])


async def test_nothing_is_taken_after_a_stop_sequence() -> None:
    taken: Any = Taken()
    sink = StopSequences(["STOP"], taken)
    sink.text("one ST")
    await sink.flush()
    assert taken.said == "one "
    sink.text("OP two")
    sink.text(" three")
    sink.reasoning("hm")
    sink.tool_call(0, name="f")
    with pytest.raises(AnswerStoppedError):
        await sink.flush()
    assert (taken.said, sink.found) == ("one ", "STOP")
