"""What a server wants to know of the user while it works on a call: asked as questions of the run.

They are asked by `ask_user`, so whoever answers that answers them: on a response that can wait, with the provider
`user`. Without it, the server is told that the user declines.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from antwort.provider import JSON, CallResult, Context, SuspendedError, one_line, printable
from antwort.providers.mcp.errors import McpProtocolError

METHOD = "elicitation/create"
DECLINED: JSON = {"action": "decline"}
CANCELLED: JSON = {"action": "cancel"}
_ASK = "ask_user"
_DECLINE, _SKIP = "decline", "skip"
_MOST_REQUESTS = 10
_MOST_FIELDS = 20
_MOST_CHOICES = 90
_LONGEST_TEXT = 2_000
"""Characters of a server's words in a question."""
_LONGEST_CHOICE = 200


class _Field(Struct, frozen=True):
    """One thing that a server wants to know."""

    name: str
    asked: str
    """How it is called."""
    kind: str
    choices: Mapping[str, Any]
    """What may be answered, and what that means; empty for any text."""
    is_required: bool
    default: Any = None
    """What the server takes for its own answer if the user says nothing; None if it has none."""

    @classmethod
    def of(cls, name: str, schema: Any, *, required: bool) -> "_Field":
        schema = schema if isinstance(schema, Mapping) else {}
        kind = str(schema.get("type"))
        choices: dict[str, Any] = {"yes": True, "no": False} if kind == "boolean" else _choices(schema)
        named = [_words(schema.get(key)) for key in ("title", "description")]
        asked = ": ".join(filter(None, named)) or one_line(name)[:100]
        return cls(name, asked, kind, choices, required, _default(schema, kind, choices))

    @property
    def usual(self) -> str:
        """The default as the user reads it."""
        for choice, value in self.choices.items():
            if value == self.default:
                return repr(choice)
        return repr(self.default)

    def read(self, text: str) -> Any:
        """Return an answer as its type has it; a ValueError if it cannot be one."""
        if self.choices:
            return self.choices[text]
        if self.kind == "integer":
            return int(text)
        return float(text) if self.kind == "number" else text


def _default(schema: Mapping[str, Any], kind: str, choices: Mapping[str, Any]) -> Any:
    """Return what is answered if the user says nothing, if it is an answer that he could have given."""
    value = schema.get("default")
    if choices:
        return value if any(type(one) is type(value) and one == value for one in choices.values()) else None
    if kind == "string" and isinstance(value, str):
        return value if value == _words(value)[:_LONGEST_CHOICE] else None  # as the user reads it
    kinds = {"integer": (int,), "number": (int, float)}
    is_number = isinstance(value, kinds.get(kind, ())) and not isinstance(value, bool)
    return value if is_number and len(str(value)) <= _LONGEST_CHOICE else None


def _choices(schema: Mapping[str, Any]) -> dict[str, Any]:
    values = schema.get("enum")
    if isinstance(values, list):
        titles = schema.get("enumNames")
        names = titles if isinstance(titles, list) and len(titles) == len(values) else values
        found = {_words(str(name))[:_LONGEST_CHOICE]: value for name, value in zip(names, values, strict=True)}
    else:
        among = schema.get("oneOf")
        named = [one for one in among if isinstance(one, Mapping)] if isinstance(among, list) else []
        found = {_words(str(one.get("title") or one.get("const")))[:_LONGEST_CHOICE]: one.get("const") for one in named}
    return found if 0 < len(found) <= _MOST_CHOICES else {}


def checked_requests(requests: Any) -> Mapping[str, JSON]:
    """Return what a server wants to know, by its own names; McpProtocolError if nobody here can answer that."""
    found = requests or {}
    if not isinstance(found, dict) or len(found) > _MOST_REQUESTS:
        raise McpProtocolError("The server asks for something that is not known here.")
    for one in found.values():
        if not isinstance(one, dict) or one.get("method") != METHOD or not isinstance(one.get("params", {}), dict):
            raise McpProtocolError("The server asks for something that is not known here.")
    return found


def can_ask(ctx: Context) -> bool:
    """Tell whether there is anybody who can be asked."""
    return ctx.function_calls is not None and _ASK in ctx.function_calls.functions


async def asked_user(ctx: Context, label: str, requests: Mapping[str, JSON], key: str) -> dict[str, JSON]:
    """Ask the user all that a server wants to know; SuspendedError as long as there is no answer."""
    if not can_ask(ctx):
        return dict.fromkeys(requests, DECLINED)
    answers = await _in_parallel(
        [
            _answered(ctx, label, request.get("params") or {}, f"{key}-{number}")
            for number, request in enumerate(requests.values())
        ]
    )
    return dict(zip(requests, answers, strict=True))


async def _answered(ctx: Context, label: str, params: JSON, key: str) -> JSON:
    said = f"The MCP server '{label}' asks: {_words(params.get('message')) or 'May it go on?'}"
    if params.get("mode") == "url":
        where = _words(params.get("url"))
        question = f"{said}\nIt wants you to open this address yourself, which is not done here: {where}"
        answer = await _ask(ctx, question, ["done", _DECLINE], key)
        return _refusal(answer) or {"action": "accept"}
    schema = params.get("requestedSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not properties:
        answer = await _ask(ctx, said, ["yes", _DECLINE], key)
        return _refusal(answer) or {"action": "accept", "content": {}}
    if len(properties) > _MOST_FIELDS:
        return DECLINED
    wanted = schema.get("required") if isinstance(schema, dict) else None
    required = wanted if isinstance(wanted, list) else []
    fields = [_Field.of(name, one, required=name in required) for name, one in properties.items()]
    answers = await _in_parallel(
        [_ask_field(ctx, f"{said}\n{field.asked}", field, f"{key}-{n}") for n, field in enumerate(fields)]
    )
    return _content(fields, answers)


async def _ask_field(ctx: Context, question: str, field: _Field, key: str) -> CallResult:
    may_skip = not field.is_required or field.default is not None
    others = [_SKIP, _DECLINE] if may_skip else [_DECLINE]
    if field.choices:
        hint = "" if field.default is None else f"\n({_SKIP!r} says {field.usual}.)"
        return await _ask(ctx, f"{question}{hint}", [*field.choices, *others], key)
    if field.default is None:
        hint = f"Answer {' or '.join(map(repr, others))} to say nothing."
    else:
        hint = f"Answer {_SKIP!r} to say {field.usual}, or {_DECLINE!r} to say nothing."
    return await _ask(ctx, f"{question}\n({hint})", None, key)


def _content(fields: Sequence[_Field], answers: Sequence[CallResult]) -> JSON:
    content: JSON = {}
    for field, answer in zip(fields, answers, strict=True):
        if (refusal := _refusal(answer)) is not None:
            return refusal
        if answer.output == _SKIP and _SKIP not in field.choices:
            if field.default is not None:
                content[field.name] = field.default
                continue
            if not field.is_required:
                continue
        try:
            content[field.name] = field.read(answer.output)
        except (ValueError, KeyError):
            return CANCELLED
    return {"action": "accept", "content": content}


def _refusal(answer: CallResult) -> JSON | None:
    """Return what a server is told of an answer that is none; None if it is one."""
    if answer.is_error:
        return CANCELLED if answer.status in {"cancelled", "timeout"} else DECLINED
    return DECLINED if answer.output == _DECLINE else None


async def _ask(ctx: Context, question: str, choices: Sequence[str] | None, key: str) -> CallResult:
    arguments: JSON = {"question": question}
    return await ctx.call_function(_ASK, {**arguments, "choices": choices} if choices else arguments, key=key)


async def _in_parallel(questions: Sequence[Any]) -> list[Any]:
    """Ask all at once: the user has them in front of him together."""
    answers = await asyncio.gather(*questions, return_exceptions=True)
    failures = [answer for answer in answers if isinstance(answer, BaseException)]
    for failure in sorted(failures, key=lambda one: isinstance(one, SuspendedError)):
        raise failure
    return list(answers)


def _words(text: Any) -> str:
    """Return what a server says as it may be shown to a user."""
    return one_line(printable(text))[:_LONGEST_TEXT] if isinstance(text, str) else ""
