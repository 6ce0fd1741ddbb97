"""Scripts: what a model is going to say, turn by turn, in which dialect, and how strictly the asking is watched."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from typing_extensions import override

from antwort.backends.base import ModelRequest
from antwort.errors import DefinitionError, InternalServerError, did_you_mean
from antwort.wire.responses import Usage

# --- what a step may expect of the request it answers ----------------------------------------------------------------


Fields = Mapping[str, Any]
_FIELDS = frozenset(ModelRequest.__struct_fields__)
_LONGEST = 200
_IDS = frozenset({"id", "call_id"})
"""Keys whose values are no texts: random digits would be found in them now and then."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Properties that a request must have; made by `matching`."""

    tools: tuple[str, ...] = ()
    without_tools: tuple[str, ...] = ()
    last: str | Fields | None = None
    text: str | None = None
    types: tuple[str, ...] | None = None
    fields: Fields = field(default_factory=dict)

    def mismatches(self, request: ModelRequest) -> list[str]:
        """Say in which way a request is not as expected; an empty list if it is."""
        offered = [str(tool.get("name")) for tool in request.tools]
        found = [f"tools: expected '{name}' among {_excerpt(offered)}" for name in self.tools if name not in offered]
        found += [f"without_tools: '{name}' is offered" for name in self.without_tools if name in offered]
        last = request.items[-1] if request.items else {}
        if self.last is not None and not _has(last, self.last):
            found.append(f"last: expected {_excerpt(self.last)} in {_excerpt(last)}")
        if self.text is not None and not any(_has(item, self.text) for item in request.items):
            found.append(f"text: expected {_excerpt(self.text)} in {_excerpt(list(request.items))}")
        types = [item.get("type", "message") for item in request.items]
        if self.types is not None and types != list(self.types):
            found.append(f"types: expected {_excerpt(list(self.types))}, got {_excerpt(types)}")
        return found + self._field_mismatches(request)

    def _field_mismatches(self, request: ModelRequest) -> list[str]:
        return [
            f"{name}: expected {_excerpt(wanted)}, got {_excerpt(value)}"
            for name, wanted in self.fields.items()
            if (value := getattr(request, name)) != wanted
        ]


Matcher = Expectation | Callable[[ModelRequest], object]
"""What `expect` and `by` take: the result of `matching`, or a function that returns False or fails an assertion."""


def matching(
    *,
    tools: Sequence[str] = (),
    without_tools: Sequence[str] = (),
    last: str | Fields | None = None,
    text: str | None = None,
    types: Sequence[str] | None = None,
    **fields: Any,
) -> Expectation:
    """Describe a request, for `expect` and `by` of a step.

    tools           names of functions that must be offered to the model
    without_tools   names that must not be offered
    last            a text in the last item, or a mapping of keys the last item must have with these values
    text            a text in any item
    types           the types of all items, in order
    Any other keyword is a field of `ModelRequest` and its exact value: `model`, `tool_choice`, `temperature`, …
    """
    for name in fields:
        if name not in _FIELDS:
            hint = did_you_mean(name, _FIELDS | {"tools", "without_tools", "last", "text", "types"})
            raise DefinitionError(f"a request has no '{name}'{hint or '; use a field of ModelRequest'}")
    expected = tuple(types) if types is not None else None
    return Expectation(tuple(tools), tuple(without_tools), last, text, expected, fields)


def mismatches(matcher: Matcher, request: ModelRequest) -> list[str]:
    """Say in which way a request does not fit a matcher; an empty list if it does."""
    if isinstance(matcher, Expectation):
        return matcher.mismatches(request)
    try:
        fits = matcher(request)
    except AssertionError as error:
        return [str(error) or f"an assertion in {_name(matcher)} failed"]
    except Exception as error:  # noqa: BLE001 (a matcher that trips over the request does not fit it, and says so)
        return [f"{_name(matcher)} raised {error!r}"]
    return [f"{_name(matcher)} returned False"] if fits is False else []


def described(request: ModelRequest) -> str:
    """Return a request in one line."""
    tools = ", ".join(str(tool.get("name")) for tool in request.tools) or "none"
    last = _excerpt(request.items[-1]) if request.items else "nothing"
    return f"model '{request.model}', tools {tools}, {len(request.items)} items, the last {last}"


def _has(item: Fields, wanted: str | Fields) -> bool:
    if isinstance(wanted, str):
        return any(wanted in text for text in _texts(item))
    return all(key in item and item[key] == value for key, value in wanted.items())


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, inner in value.items() if key not in _IDS for text in _texts(inner)]
    if isinstance(value, Sequence):
        return [text for inner in value for text in _texts(inner)]
    return []


def _excerpt(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _name(matcher: Callable[..., object]) -> str:
    return getattr(matcher, "__name__", repr(matcher))


# --- scripts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dialect:
    """The switches in which servers differ; `Dialect.like("ollama", done=False)` makes a variant of a known one."""

    role_chunk: bool = True
    """A first chunk with the role and an empty content."""
    call_index: bool = True
    """Tool-call deltas carry their index."""
    call_ids: bool = True
    """Tool calls carry an id."""
    whole_calls: bool = False
    """All tool calls come whole, in one chunk."""
    object_arguments: bool = False
    """Arguments are JSON objects, not JSON text; only where calls come whole and the arguments are an object."""
    usage: Literal["chunk", "finish", "after"] = "chunk"
    """In a chunk of its own without choices, in the chunk with the finish reason, or in one with an empty choice."""
    usage_unasked: bool = False
    """Usage is streamed even if the request does not ask for it."""
    done: bool = True
    """The stream ends with `[DONE]`."""
    reasoning: Literal["reasoning_content", "reasoning", "think"] = "reasoning_content"
    """The field for thoughts; `think` puts them into the content, between `<think>` tags."""

    @classmethod
    def like(cls, name: str, **switches: Any) -> "Dialect":
        """Return the dialect of a server, with some switches turned."""
        if name not in DIALECTS:
            known = ", ".join(DIALECTS)
            raise DefinitionError(
                f"there is no dialect '{name}'{did_you_mean(name, DIALECTS) or f'; use one of {known}'}"
            )
        return replace(DIALECTS[name], **switches)


OPENAI = Dialect()
DIALECTS = {
    "openai": OPENAI,
    "vllm": Dialect(usage="after", usage_unasked=True),
    "ollama": Dialect(
        role_chunk=False,
        call_index=False,
        call_ids=False,
        whole_calls=True,
        object_arguments=True,
        usage="finish",
        usage_unasked=True,
        reasoning="reasoning",
    ),
    "llamacpp": Dialect(call_ids=False, usage_unasked=True, done=False, reasoning="think"),
}
"""Harder than any one version of these servers: each shows the habits that were met in some version of it."""


class ScriptError(AssertionError):
    """A script was not played as written: calls it did not foresee, requests it did not expect, steps left over."""


class Waitable(Protocol):
    """A `Gate`, or an `asyncio.Event` of the loop the turn runs on."""

    async def wait(self) -> object:
        """Return when the turn may go on."""


Deltas = str | Sequence[str | Waitable]


@dataclass(frozen=True, slots=True)
class Call:
    """A function call by the model; made by `call`."""

    name: str
    arguments: tuple[str, ...] = ("{}",)
    """The JSON text, in the pieces that are streamed."""
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of the model server; made by `fail`."""

    status: int
    message: str
    type: str = "server_error"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    """What is sent over HTTP instead of the JSON envelope."""
    after: int = 0
    """How many deltas come first."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of a script; made by `turn`, `fail` or `raw`."""

    text: tuple[str | Waitable, ...] = ()
    reasoning: tuple[str | Waitable, ...] = ()
    summary: tuple[str | Waitable, ...] = ()
    opaque: str = ""
    refusal: tuple[str | Waitable, ...] = ()
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
    finish: str = "stop"
    logprobs: bool = False
    error: Failure | None = None
    wait_for: Waitable | None = None
    delay: float = 0
    pace: float = 0
    burst: int = 1
    hang_after: int | None = None
    close_after: int | None = None
    expect: Matcher | None = None
    by: Matcher | None = None
    dialect: Dialect = OPENAI
    raw: tuple[bytes, ...] | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @override
    def __str__(self) -> str:
        if self.raw is not None:
            return f"raw {b''.join(self.raw)[:40]!r}"
        parts = [f"calls {', '.join(one.name for one in self.calls)}"] if self.calls else []
        words = "".join(piece for piece in self.text or self.refusal if isinstance(piece, str))
        parts += [f"text {words[:40]!r}"] if words else []
        parts += [f"error {self.error.status}"] if self.error else []
        return " and ".join(parts) or "an empty turn"


def call(
    name: str,
    arguments: str | Sequence[str] | Mapping[str, Any] | None = None,
    /,
    *,
    call_id: str | None = None,
    **keywords: Any,
) -> Call:
    """Make a function call for a turn: `call("add", a=1, b=2)`.

    Arguments may also be given as a mapping, as raw text (which need not be JSON), or as a list of raw texts that are
    streamed one by one. Without `call_id` the call gets one that is unique in the script.
    """
    if arguments is not None and keywords:
        raise DefinitionError(f"give the arguments of '{name}' as keywords or as one value, not both")
    if arguments is None:
        arguments = keywords
    if isinstance(arguments, Mapping):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return Call(name, (arguments,) if isinstance(arguments, str) else tuple(arguments), call_id)


def fail(
    status: int,
    message: str = "",
    *,
    after: int = 0,
    type: str | None = None,  # noqa: A002 (OpenAI's name)
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    body: str | None = None,
) -> Failure:
    """Make an error for a turn: `turn(error=fail(429, "Slow down.", headers={"retry-after": "2"}))`.

    With `after` so many deltas come first. Over HTTP `body` replaces the JSON envelope (say which content type it has
    in `headers`); in process it is ignored.
    """
    kind = type or (
        "rate_limit_error" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    )
    return Failure(status, message or f"The script answers {status}.", kind, code, headers or {}, body, after)


def turn(
    text: Deltas = (),
    *,
    reasoning: Deltas = (),
    summary: Deltas = (),
    opaque: str = "",
    refusal: Deltas = (),
    calls: Iterable[Call] = (),
    usage: Usage | tuple[int, int] | None = (10, 5),
    finish: str | None = None,
    logprobs: bool = False,
    error: Failure | None = None,
    wait_for: Waitable | None = None,
    delay: float = 0,
    pace: float = 0,
    burst: int = 1,
    hang_after: int | None = None,
    close_after: int | None = None,
    expect: Matcher | None = None,
    by: Matcher | None = None,
    dialect: str | Dialect = OPENAI,
) -> Turn:
    """Make a step of a script: one turn of the model.

    text, reasoning, refusal   a text, or a list of deltas; gates among them hold the stream there
    summary, opaque   a summary of the thoughts, and the thoughts as only the server can read them; over HTTP only in
                  Messages, where `opaque` is the signature of the thoughts
    calls         function calls, made by `call`; they follow the text
    usage         tokens, as (input, output) or in full; None if the server reports none
    finish        why the model stopped; by default `tool_calls` if there are calls, else `stop`
    logprobs      give each delta of the text a made-up log probability, if the request asks for them
    error         an error instead of an answer, or after some deltas; made by `fail`
    wait_for      a gate before the first byte
    delay, pace   seconds before the first delta, and between deltas
    burst         deltas that arrive together
    hang_after    say nothing more after so many deltas; 0 hangs before the first byte
    close_after   close the connection after so many deltas
    expect        what the request must be like, see `matching`; if it is not, the call fails and so does the script
    by            answer with this step the first request that fits, whatever its place in the order; for requests that
                  come at the same time
    dialect       over HTTP: `openai`, `vllm`, `ollama`, `llamacpp`, or a `Dialect`
    """
    calls = tuple(calls)
    if burst < 1:
        raise DefinitionError(f"burst must be at least 1, not {burst}")
    if isinstance(usage, tuple):
        usage = Usage(input_tokens=usage[0], output_tokens=usage[1], total_tokens=sum(usage))
    return Turn(
        text=_deltas(text),
        reasoning=_deltas(reasoning),
        summary=_deltas(summary),
        opaque=opaque,
        refusal=_deltas(refusal),
        calls=calls,
        usage=usage,
        finish=finish or ("tool_calls" if calls else "stop"),
        logprobs=logprobs,
        error=error,
        wait_for=wait_for,
        delay=delay,
        pace=pace,
        burst=burst,
        hang_after=hang_after,
        close_after=close_after,
        expect=expect,
        by=by,
        dialect=Dialect.like(dialect) if isinstance(dialect, str) else dialect,
    )


def raw(
    *chunks: bytes,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    expect: Matcher | None = None,
    by: Matcher | None = None,
) -> Turn:
    """Make a step that answers with these bytes, one write each, whatever was asked. Only `ScriptServer` plays it."""
    head = {"content-type": "text/event-stream", **(headers or {})}
    return Turn(raw=chunks, status=status, headers=head, expect=expect, by=by)


def _deltas(given: Deltas) -> tuple[str | Waitable, ...]:
    return (given,) if isinstance(given, str) and given else tuple(given)


class Script:
    """The steps, those that were played, and everything that went otherwise than written."""

    def __init__(self, steps: Iterable[Turn | str]) -> None:
        self.steps = tuple(turn(step) if isinstance(step, str) else step for step in steps)
        self.requests: list[ModelRequest] = []
        """Every request, in order of arrival, those that were refused too."""
        self.failures: list[str] = []
        self._left = dict(enumerate(self.steps, 1))

    def take(self, request: ModelRequest) -> tuple[int, Turn]:
        """Return the step that answers a request, with its number, or raise an error that is also remembered."""
        self.requests.append(request)
        number = self._choice(request)
        if number is None:
            raise self._failure(
                f"call {len(self.requests)} is unexpected: {self._why_none()}; it asked for {described(request)}"
            )
        step = self._left.pop(number)
        wrong = mismatches(step.expect, request) if step.expect is not None else []
        if wrong:
            raise self._failure(f"step {number} ({step}) expected another request: {'; '.join(wrong)}")
        return number, step

    def refuse(self, request: ModelRequest) -> None:
        """Take note of a request that no step is to answer, because it would not fit into the model's context."""
        self.requests.append(request)

    def _choice(self, request: ModelRequest) -> int | None:
        for number, step in self._left.items():
            if step.by is not None and not mismatches(step.by, request):
                return number
        return next((number for number, step in self._left.items() if step.by is None), None)

    def _why_none(self) -> str:
        if not self._left:
            return f"all {len(self.steps)} steps were played"
        return f"it fits none of the steps left, {', '.join(map(str, self._left))}"

    def _failure(self, message: str) -> InternalServerError:
        self.failures.append(message)
        return InternalServerError(f"Script: {message}", code="script_mismatch")

    @property
    def finished(self) -> bool:
        """Whether every step was taken."""
        return not self._left

    def problems(self) -> list[str]:
        """Return what went otherwise than written, and the steps that are left over."""
        return [*self.failures, *(f"step {number} ({step}) was not played" for number, step in self._left.items())]

    def assert_done(self) -> None:
        """Raise a ScriptError unless every step was played and nothing else happened."""
        problems = self.problems()
        if problems:
            raise ScriptError("the script was not played as written:\n" + "\n".join(f"- {line}" for line in problems))

    def close_block(self, error: BaseException | None) -> None:
        """End a `with` block: assert, or tell an error on its way what went wrong with the script too."""
        if error is None:
            self.assert_done()
        elif self.problems():
            error.add_note("The script: " + "; ".join(self.problems()))
