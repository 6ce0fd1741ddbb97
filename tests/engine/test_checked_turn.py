"""Held back as long as a check needs it: however a text is split, no piece of a secret goes on."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.guards import SECRET, STARS, WORD, Guards

from antwort.context import Context
from antwort.engine.output.checked_turn import AnswerRefusedError, CheckedTurn
from antwort.engine.output.emitter import AnswerTooLongError
from antwort.functions import FunctionRegistry, Mask, Provider, Verdict, check

CTX = Context("t")


class Taken:
    """A sink that keeps what it is told, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.reason: str | None = None

    def text(self, delta: str, logprobs: Any = None) -> None:
        assert logprobs is None
        self._take("text", delta)

    def reasoning(self, delta: str) -> None:
        self._take("reasoning", delta)

    def summary(self, delta: str) -> None:
        self._take("summary", delta)

    def refusal(self, delta: str) -> None:
        self._take("refusal", delta)

    def opaque(self, content: str) -> None:
        self.said.append(("opaque", content))

    def tool_call(self, index: int, **of: Any) -> None:
        self.said.append(("call", of["arguments"]))

    def finish(self, reason: str) -> None:
        self.reason = reason

    async def flush(self) -> None:
        """Send nothing."""

    def _take(self, kind: str, delta: str) -> None:
        assert delta
        if self.said and self.said[-1][0] == kind:
            self.said[-1] = kind, self.said[-1][1] + delta
        else:
            self.said.append((kind, delta))

    @property
    def text_so_far(self) -> str:
        return "".join(text for _, text in self.said)


def checked(*providers: Provider, longest: int = 10_000) -> tuple[CheckedTurn, Any]:
    registry, taken = FunctionRegistry(), Taken()
    for provider in providers:
        registry.register(provider)
    sink: Any = taken
    return CheckedTurn(registry.checks.current.output, CTX, sink, longest), taken


WORDS = st.lists(st.sampled_from(["a", "hunter2", SECRET, "is", "it", "and so on", "x" * 30, "\n"]), max_size=12)


@settings(max_examples=60, deadline=None)
@given(words=WORDS, glue=st.sampled_from(["", " ", ", "]), data=st.data())
async def test_a_secret_is_masked_wherever_a_text_is_cut(words: list[str], glue: str, data: st.DataObject) -> None:
    whole = glue.join(words)
    turn, taken = checked(Guards("output"))
    rest = whole
    while rest:
        cut = data.draw(st.integers(1, min(12, len(rest))))
        turn.text_burst([rest[:cut]])
        rest = rest[cut:]
        await turn.flush()
        assert SECRET not in taken.text_so_far
    turn.finish("stop")
    await turn.end()
    assert (taken.text_so_far, taken.reason) == (whole.replace(SECRET, STARS), "stop")


async def test_as_much_goes_on_as_can_have_no_secret_in_it() -> None:
    turn, taken = checked(Guards("output"))
    text = "one two three four five six seven eight nine ten "
    turn.text(text)
    await turn.flush()
    assert text.startswith(taken.text_so_far)
    assert len(taken.text_so_far) >= len(text) - len(SECRET) - len("seven ")


async def test_what_is_said_keeps_its_order() -> None:
    turn, taken = checked(Guards("output"))
    turn.reasoning(f"hm {SECRET}")
    turn.summary("in short")
    turn.opaque("sealed")
    turn.text("well")
    turn.tool_call(0, name="f", arguments="{}")
    turn.refusal("no")
    await turn.flush()
    await turn.end()
    kinds = [("reasoning", f"hm {STARS}"), ("summary", "in short"), ("opaque", "sealed"), ("text", "well")]
    assert taken.said == [*kinds, ("call", "{}"), ("refusal", "no")]


async def test_what_was_not_shown_of_a_refused_answer_is_lost() -> None:
    turn, taken = checked(Guards("output"))
    turn.text("some words that are fine, and then it is said: ")
    await turn.flush()
    shown = taken.text_so_far
    assert shown
    turn.text(f"{WORD} words")
    with pytest.raises(AnswerRefusedError):
        await turn.end()
    assert taken.text_so_far == shown


async def test_an_answer_that_is_too_long_is_cut_off_here() -> None:
    turn, taken = checked(Guards("output"), longest=10)
    turn.text("0123456789abc")
    with pytest.raises(AnswerTooLongError):
        await turn.flush()
    await turn.end()
    assert (taken.text_so_far, taken.reason) == ("0123456789", "length")


class Upper(Provider):
    """Writes what it is given anew."""

    @check("output", holds=4)
    async def upper(self, text: str) -> Verdict:
        """Write it large."""
        return Mask(text.upper())


async def test_a_whole_text_in_the_place_of_another_waits_for_the_end() -> None:
    turn, taken = checked(Upper())
    for piece in ("some words ", "and others ") * 20:
        turn.text(piece)
        await turn.flush()
        assert taken.said == []
    await turn.end()
    assert taken.text_so_far == "SOME WORDS AND OTHERS " * 20


async def test_a_check_that_wants_all_of_an_answer_gets_it_after_those_before_it() -> None:
    class Last(Provider):
        """Looks at the whole."""

        seen: list[str]

        @check("output")
        def look(self, text: str) -> Verdict:
            """Look."""
            self.seen = [*getattr(self, "seen", []), text]
            return Mask(text + "!")

    last = Last()
    turn, taken = checked(Guards("output"), last)
    for piece in (f"it is {SECRET} ") * 3:
        turn.text(piece)
        await turn.flush()
    await turn.end()
    assert last.seen == [f"it is {STARS} " * 3]
    assert taken.text_so_far == f"it is {STARS} " * 3 + "!"
