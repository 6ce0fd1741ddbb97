"""What a check is: it looks at texts and calls before anybody acts on them, and says what becomes of them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from msgspec import Struct

from antwort.callables import HandlerKind, handler_kind, is_context, read_docstring, type_hints
from antwort.context import Context
from antwort.errors import DefinitionError

CheckStage = Literal["input", "output", "call", "result"]
"""What a client sends, what a model says, the calls that it makes, and what comes of those that the server executes."""
STAGES: tuple[CheckStage, ...] = get_args(CheckStage)
OnError = Literal["refuse", "allow"]
_TIMEOUT = 30.0
"""Seconds that a check may take if it does not say."""


# --- verdicts --------------------------------------------------------------------------------------------------------


class Allow(Struct, frozen=True):
    """It goes on as it is."""


class Refuse(Struct, frozen=True):
    """It does not go on. Whoever has sent it is told why: the user, or the model if it is a call or its result."""

    reason: str


class Ask(Struct, frozen=True):
    """Somebody has to approve it first, and is told why. Only calls can be asked about."""

    reason: str


class MaskedSpan(Struct, frozen=True):
    """A part of a text, from one character up to another, and what stands in its place."""

    start: int
    end: int
    text: str


class Mask(Struct, frozen=True):
    """Something else goes on in its place: give `spans`, a whole `text`, or the `arguments` of a call.

    An answer that is streamed goes on before and behind the spans at once. With a whole text nobody knows what of it
    is final, so that all of it waits for the end.
    """

    text: str | None = None
    spans: Sequence[MaskedSpan] = ()
    arguments: Mapping[str, Any] | None = None


Verdict: TypeAlias = Allow | Refuse | Ask | Mask
ALLOWED = Allow()


def masked(text: str, spans: Sequence[MaskedSpan]) -> str:
    """Return a text with others in the place of some parts, which are in order."""
    pieces, done = [], 0
    for span in spans:
        pieces += [text[done : span.start], span.text]
        done = span.end
    return "".join([*pieces, text[done:]])


class CheckedCall(Struct, frozen=True):
    """A call, as checks see it."""

    name: str
    """The function, by the name that the model has called it by."""
    arguments: Mapping[str, Any]
    """As the model has given them. What is no JSON object is there as a text, by the name of `arguments`."""
    provider: str = ""
    """Whose function it is; empty if the client executes it."""


# --- checks ----------------------------------------------------------------------------------------------------------


class CheckOptions(TypedDict, total=False):
    """What `@check` takes besides the stages."""

    name: str
    timeout: float | None
    on_error: OnError
    holds: int | None


class CheckSpec(Struct, frozen=True):
    """A check of one stage."""

    name: str
    stage: CheckStage
    handler: Callable[..., Any]
    takes: Mapping[str, Literal["text", "call", "context"]]
    """What its parameters are given, by their names."""
    is_async: bool
    """Whether it runs on the event loop; else on a thread of its provider."""
    description: str = ""
    timeout: float | None = _TIMEOUT
    """Seconds that it may take; None is as long as the response."""
    on_error: OnError = "refuse"
    """What becomes of that which it could not look at: it failed, took too long or said nothing that could be used."""
    holds: int | None = None
    """Characters that it has to see to recognise what it looks for: of an answer that is streamed, so many are held
    back. None is the whole answer.
    """

    @classmethod
    def of(cls, handler: Callable[..., Any], stage: CheckStage, options: CheckOptions) -> "CheckSpec":
        """Make a check of a method; DefinitionError says what is wrong with it."""
        name = options.get("name") or str(getattr(handler, "__name__", "check"))
        kind, takes = handler_kind(handler), _takes(handler, stage, name)
        if kind is HandlerKind.STREAM:
            raise DefinitionError(f"check '{name}' yields; return one verdict")
        on_error, timeout, holds = options.get("on_error", "refuse"), options.get("timeout", _TIMEOUT), None
        if stage == "output":
            holds = options.get("holds")
        if on_error not in get_args(OnError):
            raise DefinitionError(f"check '{name}': on_error is 'refuse' or 'allow', not '{on_error}'")
        if timeout is not None and timeout <= 0:
            raise DefinitionError(f"check '{name}': timeout is a number of seconds above 0, or None")
        if holds is not None and holds < 1:
            raise DefinitionError(f"check '{name}': holds is a number of characters from 1 on, or None for all")
        description = read_docstring(handler)[0].partition("\n")[0]
        return cls(name, stage, handler, takes, kind is HandlerKind.ASYNC, description, timeout, on_error, holds)

    def call(self, subject: str | CheckedCall, call: CheckedCall | None, ctx: Context) -> Any:
        """Call the method with what its parameters ask for; `call` is what a result is of."""
        given = {"text": subject, "call": call if isinstance(subject, str) else subject, "context": ctx}
        return self.handler(**{name: given[what] for name, what in self.takes.items()})


def _takes(handler: Callable[..., Any], stage: CheckStage, name: str) -> dict[str, Literal["text", "call", "context"]]:
    """Return what the parameters of a check are given: they tell by their types."""
    hints = type_hints(handler, name=name)
    found: dict[str, Literal["text", "call", "context"]] = {}
    for parameter in inspect.signature(handler).parameters.values():
        hint = hints.get(parameter.name)
        if is_context(hint):
            found[parameter.name] = "context"
        elif hint is CheckedCall and stage in {"call", "result"}:
            found[parameter.name] = "call"
        elif hint is str and stage != "call":
            found[parameter.name] = "text"
        elif parameter.default is parameter.empty:
            wanted = "CheckedCall and Context" if stage == "call" else "str and Context"
            raise DefinitionError(
                f"check '{name}': nothing is known for its parameter '{parameter.name}' at the stage '{stage}'; "
                f"parameters are found by their types, {wanted}"
            )
    if ("call" if stage == "call" else "text") not in found.values():
        wanted = "call: CheckedCall" if stage == "call" else "text: str"
        raise DefinitionError(f"check '{name}' looks at nothing at the stage '{stage}'; give it `{wanted}`")
    return found


def check_stages(stages: Sequence[str]) -> None:
    """Raise DefinitionError if something is no stage, or there is none."""
    stages = [stage for stage in stages if not callable(stage)]  # of a bare `@check` it is the method
    for stage in stages:
        if stage not in STAGES:
            raise DefinitionError(f"there is no stage '{stage}' of checks; there are {', '.join(STAGES)}")
    if not stages:
        raise DefinitionError(f'@check needs a stage, as in @check("input"); there are {", ".join(STAGES)}')
