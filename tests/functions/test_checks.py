"""What a check is: how it is declared, what it is given, and which of its verdicts count."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from typing_extensions import override

from antwort.context import Context
from antwort.errors import DefinitionError
from antwort.functions import (
    Allow,
    Ask,
    CheckedCall,
    CheckSpec,
    FunctionRegistry,
    Mask,
    MaskedSpan,
    Provider,
    Refuse,
    Verdict,
    check,
)
from antwort.functions.checking import RegisteredCheck, checked_arguments, shown_arguments
from antwort.observability import NoTracer

CTX = Context("t")
CALL = CheckedCall("pay", {"amount": 3}, "bank")


def only_check(provider: Provider, **options: Any) -> RegisteredCheck:
    registry = FunctionRegistry(**options)
    registry.register(provider)
    current = registry.checks.current
    [found] = [*current.input, *current.output, *current.call, *current.result]
    return found


def saying(verdict: Any, stage: Any = "input") -> RegisteredCheck:
    """Return a check that always says one thing."""
    if stage == "call":

        class Calls(Provider):
            @check("call")
            async def look(self, call: CheckedCall) -> Any:
                """Look."""
                return verdict

        return only_check(Calls())

    class Texts(Provider):
        @check(stage)
        async def look(self, text: str) -> Any:
            """Look."""
            return verdict

    return only_check(Texts())


# --- declaring -------------------------------------------------------------------------------------------------------


def test_parameters_are_given_by_their_types() -> None:
    class Curious(Provider):
        @check("result")
        async def look(self, who: Context, what: str, of: CheckedCall, more: int = 0) -> Verdict:
            """Look."""
            return Refuse(f"{who.tenant} {what} {of.name} {of.provider} {more}")

    found = only_check(Curious())
    assert found.spec.takes == {"who": "context", "what": "text", "of": "call"}


async def test_a_result_is_looked_at_with_its_call() -> None:
    class Curious(Provider):
        @check("result")
        def look(self, text: str, call: CheckedCall) -> Verdict:
            """Look."""
            return Refuse(f"{text} of {call.name}")

    assert await only_check(Curious()).verdict("three", CTX, CALL) == Refuse("three of pay")


def test_options_and_docstrings_are_kept_and_holds_is_for_answers() -> None:
    class Careful(Provider):
        @check("input", "output", name="care", timeout=2, on_error="allow", holds=7)
        def look(self, text: str) -> Verdict:
            """Look well.

            And again.
            """
            return Allow()

    first, second = Careful().checks()
    assert (first.name, first.timeout, first.on_error, first.holds) == ("care", 2, "allow", None)
    assert (second.stage, second.holds, second.description) == ("output", 7, "Look well.")


def test_settings_have_a_say() -> None:
    class Strict(Provider):
        @check("input", "output")
        def look(self, text: str) -> Verdict:
            """Look."""
            return Allow()

        @override
        def configures(self, check: CheckSpec) -> CheckSpec | None:
            return None if check.stage == "input" else check

    assert [spec.stage for spec in Strict().checks()] == ["output"]


def test_parts_bring_checks_too() -> None:
    class Part:
        @check("input")
        def look(self, text: str) -> Verdict:
            """Look."""
            return Allow()

    class Whole(Provider):
        parts = (Part(),)

    assert [spec.name for spec in Whole().checks()] == ["look"]


def test_what_is_no_stage_or_option_is_refused() -> None:
    nothing: Any = ()
    rubbish: Any = "inputs"
    with pytest.raises(DefinitionError, match="there is no stage 'inputs'"):
        check(rubbish)
    with pytest.raises(DefinitionError, match="needs a stage"):
        check(*nothing)
    options: Any = {"time_out": 3}
    with pytest.raises(DefinitionError, match="did you mean 'timeout'"):
        check("input", **options)


async def _no_text(ctx: Context) -> Verdict:
    return Allow()


async def _untyped(text) -> Verdict:  # type: ignore[no-untyped-def]
    return Allow()


async def _text_of_call(text: str) -> Verdict:
    return Allow()


async def _yielding(text: str) -> Any:
    yield Allow()


@pytest.mark.parametrize(
    ("method", "stage", "options", "problem"),
    [
        (_no_text, "input", {}, "give it `text: str`"),
        (_untyped, "input", {}, "parameters are found by their types"),
        (_text_of_call, "call", {}, "CheckedCall and Context"),
        (_yielding, "input", {}, "return one verdict"),
        (_text_of_call, "input", {"timeout": 0}, "timeout is a number"),
        (_text_of_call, "output", {"holds": 0}, "holds is a number"),
        (_text_of_call, "input", {"on_error": "ask"}, "on_error is"),
    ],
)
def test_a_method_that_is_no_check_is_refused(method: Any, stage: Any, options: Any, problem: str) -> None:
    class Slips(Provider):
        look = staticmethod(check(stage, **options)(method))

    with pytest.raises(DefinitionError, match=problem):
        FunctionRegistry().register(Slips())


def test_two_checks_of_one_name_are_refused() -> None:
    class Twice(Provider):
        @check("input", name="one")
        def first(self, text: str) -> Verdict:
            """Look."""
            return Allow()

        @check("input", name="one")
        def second(self, text: str) -> Verdict:
            """Look."""
            return Allow()

    with pytest.raises(DefinitionError, match="two checks called one"):
        FunctionRegistry().register(Twice())


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "verdict"),
    [
        ("input", Ask("May I?")),
        ("input", None),
        ("input", Allow),
        ("input", Mask(spans=[MaskedSpan(0, 3, ""), MaskedSpan(2, 4, "")])),
        ("input", Mask(spans=[MaskedSpan(2, 99, "")])),
        ("call", Mask("text")),
        ("call", Mask(arguments={"a": object()})),
    ],
)
async def test_what_does_not_fit_refuses(stage: Any, verdict: Any) -> None:
    found = await saying(verdict, stage).verdict(CALL if stage == "call" else "text", CTX)
    assert found == Refuse("It could not be checked (look), so it is not let through.")


async def test_verdicts_are_put_in_order() -> None:
    spans = [MaskedSpan(2, 3, "b\ud800"), MaskedSpan(0, 1, "a")]
    assert await saying(Mask(spans=spans)).verdict("text", CTX) == Mask(
        spans=[MaskedSpan(0, 1, "a"), MaskedSpan(2, 3, "b?")]
    )
    assert await saying(Refuse("")).verdict("text", CTX) == Refuse("It is not allowed here.")
    assert await saying(Refuse("x" * 5000)).verdict("text", CTX) == Refuse("x" * 1000)


async def test_arguments_that_are_no_object_are_looked_at_as_a_text() -> None:
    call = CheckedCall("pay", shown_arguments("[1"))
    assert call.arguments == {"arguments": "[1"}
    found = await checked_arguments([saying(Mask(arguments={"arguments": "[2"}), "call")], call, "[1", CTX)
    assert (found.arguments, found.refusal, found.asks) == ("[2", None, None)


async def test_a_refusal_is_the_last_word_and_the_first_to_ask_is_told() -> None:
    asks = [saying(Ask("one"), "call"), saying(Ask("two"), "call")]
    assert (await checked_arguments(asks, CALL, "{}", CTX)).asks == "one"
    refused = await checked_arguments([*asks, saying(Refuse("no"), "call")], CALL, "{}", CTX)
    assert (refused.refusal, refused.asks) == ("no", None)


async def test_threads_that_do_not_come_back_are_few() -> None:
    gate = threading.Event()

    class Stuck(Provider):
        @check("input", timeout=0.01)
        def look(self, text: str) -> Verdict:
            """Wait."""
            gate.wait(30)
            return Allow()

    found = only_check(Stuck(), max_hanging=1, grace=0.01)
    try:
        for _ in range(3):
            assert isinstance(await found.verdict("text", CTX), Refuse)
        assert found.hanging.count == 1
    finally:
        gate.set()


class Spans(NoTracer):
    """A tracer that keeps what it is told."""

    enabled = True

    def __init__(self) -> None:
        self.told: list[str] = []

    @override
    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Any] | None = None) -> Iterator[Any]:
        self.told.append(f"{name} {attributes}")
        yield self

    def set(self, key: str, value: Any) -> None:
        self.told.append(f"{key}={value}")

    def fail(self, message: str) -> None:
        self.told.append(message)


async def test_a_span_tells_of_a_check_and_not_what_it_has_read() -> None:
    class Loud(Provider):
        @check("input")
        async def look(self, text: str) -> Verdict:
            """Fail."""
            raise RuntimeError(text)

    spans = Spans()
    await only_check(Loud(), tracer=spans).verdict("a secret", CTX)
    assert spans.told == [
        "check look {'antwort.check.provider': 'loud', 'antwort.check.stage': 'input'}",
        "error",
        "antwort.check.outcome=error",
    ]
