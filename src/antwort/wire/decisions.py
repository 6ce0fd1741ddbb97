"""Decisions: questions about an input, and their answers."""

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.field_errors import check_shape, missing_parameter, unsupported_value, wrong_type
from antwort.wire.part_shapes import CacheBreakpoint, OutputTextPart, RefusalPart, Shape, TextPart
from antwort.wire.requests import IGNORED, Options, decode_body
from antwort.wire.responses import Usage

_MOST_BYTES = 256 * 1024
_MOST_VALUES = 10_000
_MOST_LEVELS = 32
_KINDS: Mapping[str, str] = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}
"""What each output is of."""

# --- the input -------------------------------------------------------------------------------------------------------


class JudgedImage(Shape, tag="input_image", tag_field="type"):
    """An image, by its URL or as one that has the data."""

    image_url: Annotated[str, Meta(max_length=20_971_520)]
    detail: Literal["low", "high", "auto", "original"] | None = None
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class JudgedJson(Shape, tag="input_json", tag_field="type"):
    """An object, or a list of objects, that the model reads as text."""

    data: JSON | list[JSON]


JudgedPart = TextPart | JudgedImage | JudgedJson


class _SaidShape(Shape, kw_only=True):
    type: Literal["message"] | None = None


class _UserSaid(_SaidShape, kw_only=True):
    role: Literal["user"]
    content: str | list[JudgedPart]


class _OperatorSaid(_SaidShape, kw_only=True):
    role: Literal["developer", "system"]
    content: str | list[TextPart]


class _AssistantSaid(_SaidShape, kw_only=True):
    role: Literal["assistant"]
    content: str | list[OutputTextPart | RefusalPart]
    phase: Literal["commentary", "final_answer"] | None = None


class _Call(Shape, kw_only=True):
    type: str
    call_id: str
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class _FunctionCall(_Call, kw_only=True):
    name: str
    arguments: str
    namespace: str | None = None


class _CustomCall(_Call, kw_only=True):
    name: str
    input: str
    namespace: str | None = None


class _CallOutput(_Call, kw_only=True):
    output: str | list[TextPart | JudgedImage]


_SAID: Mapping[str, type[Shape]] = {
    "user": _UserSaid,
    "developer": _OperatorSaid,
    "system": _OperatorSaid,
    "assistant": _AssistantSaid,
}
_CALLED: Mapping[str, type[Shape]] = {
    "function_call": _FunctionCall,
    "function_call_output": _CallOutput,
    "custom_tool_call": _CustomCall,
    "custom_tool_call_output": _CallOutput,
}

# --- questions -------------------------------------------------------------------------------------------------------


class _Question(Shape, kw_only=True):
    instructions: Annotated[
        Annotated[str, Meta(min_length=1)] | Annotated[list[JudgedPart], Meta(min_length=1)],
        Meta(description="What is asked: a text, or texts, images and JSON."),
    ]
    name: Annotated[str | None, Meta(description="What its answer is called.")] = None


class PredicateQuestion(_Question, kw_only=True, tag="predicate", tag_field="type"):
    """How likely a statement about the input is true."""


class ChoiceOption(Shape):
    """One of those that can be chosen."""

    value: Annotated[str | bool, Meta(description="What is answered; a text and a boolean are never the same.")]
    description: Annotated[str | None, Meta(description="When it applies.")] = None


class ChoiceQuestion(_Question, kw_only=True, tag="choice", tag_field="type"):
    """Which of several options applies to the input."""

    choices: Annotated[list[ChoiceOption], Meta(min_length=2, max_length=255, description="No two with one value.")]


class Level(Shape):
    """A level of a scale."""

    label: str
    description: Annotated[str | None, Meta(description="When it applies.")] = None


class ScoreQuestion(_Question, kw_only=True, tag="score", tag_field="type"):
    """Where the input stands on a scale."""

    levels: Annotated[list[Level], Meta(min_length=2, max_length=10, description="From the lowest, 0, to the highest.")]


Question = PredicateQuestion | ChoiceQuestion | ScoreQuestion


class DecisionCache(Options):
    """How prompts are cached; the model server does as it does."""

    mode: Annotated[Literal["implicit", "explicit"] | None, IGNORED] = None
    ttl: Annotated[Literal["30m"] | None, IGNORED] = None


class CreateDecision(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request for decisions."""

    model: Annotated[str | None, Meta(description="The model to ask; the default model if it is left out.")] = None
    input: Annotated[
        str | list[JSON],
        Meta(
            description="What the questions are about: a text, or a list of messages, function calls and their outputs,"
            " calls of custom tools and theirs. An output names a call before it."
        ),
    ]
    questions: Annotated[
        list[Question], Meta(min_length=1, max_length=400, description="What is asked; answers have the same order.")
    ]
    prompt_cache_key: Annotated[
        Annotated[str, Meta(max_length=128)] | None, Meta(description="A name for requests that begin alike.")
    ] = None
    prompt_cache_options: Annotated[DecisionCache | None, IGNORED] = None
    safety_identifier: Annotated[
        Annotated[str, Meta(max_length=128)] | None, Meta(description="A stable name for your end user.")
    ] = None


# --- answers ---------------------------------------------------------------------------------------------------------

_Probability = Annotated[float, Meta(ge=0, le=1)]


class PredicateAnswer(Struct, tag="predicate", tag_field="type", kw_only=True):
    """How likely the statement is true."""

    name: str | None
    probability: _Probability


class OptionProbability(Struct):
    """How likely an option is the right one."""

    value: str | bool
    probability: _Probability


class ChoiceAnswer(Struct, tag="choice", tag_field="type", kw_only=True):
    """The likeliest of the options."""

    name: str | None
    choice: str | bool
    confidence: Annotated[float, Meta(ge=0, le=1, description="The probability of what was chosen.")]
    probabilities: list[OptionProbability]


class LevelProbability(Struct):
    """How likely a level is the right one."""

    value: int
    label: str
    probability: _Probability


class ScoreAnswer(Struct, tag="score", tag_field="type", kw_only=True):
    """The mean of the levels, by their probabilities."""

    name: str | None
    score: float
    confidence: Annotated[float, Meta(ge=0, le=1, description="The probability of the likeliest level.")]
    probabilities: list[LevelProbability]


class RefusedAnswer(Struct, tag="refusal", tag_field="type", kw_only=True):
    """That the model has declined to answer a question."""

    name: str | None


Answer = PredicateAnswer | ChoiceAnswer | ScoreAnswer | RefusedAnswer


class Decision(Struct, kw_only=True):
    """The answers to all questions of a request."""

    model: str
    answers: Annotated[list[Answer], Meta(description="In the order of the questions.")] = field(default_factory=list)
    usage: Usage


# --- reading ---------------------------------------------------------------------------------------------------------

# Made with the first request: that takes as long as importing a module.
_decoder = functools.cache(lambda: msgspec.json.Decoder(CreateDecision))
_part_decoder = msgspec.json.Decoder(JSON)


def decode_decision(body: bytes | bytearray) -> CreateDecision:
    """Read a request; what does not fit is a BadRequestError that names the field.

    JSON in its input is text then, as the model reads it.
    """
    request = decode_body(_decoder(), body, "input", _part_decoder)
    for index, question in enumerate(request.questions):
        where = f"questions[{index}]"
        if isinstance(question.instructions, list):
            for number, part in enumerate(question.instructions):
                if isinstance(part, JudgedJson):
                    json_text(part.data, f"{where}.instructions[{number}].data")
        if isinstance(question, ChoiceQuestion):
            _check_choices(question.choices, where)
    if isinstance(request.input, list):
        request.input = _read_items(request.input)
    return request


def _check_choices(choices: Sequence[ChoiceOption], where: str) -> None:
    seen: set[str | bool] = set()
    for index, choice in enumerate(choices):
        if choice.value in seen:
            param = f"{where}.choices[{index}].value"
            message = f"Invalid value for '{param}': another choice has it, too; each must be unique."
            raise BadRequestError(message, param=param, code="invalid_value")
        seen.add(choice.value)


def _read_items(items: Sequence[JSON]) -> list[JSON]:
    called: dict[str, str] = {}
    read = []
    for index, item in enumerate(items):
        where = f"input[{index}]"
        check_shape(item, _shape_of(item, where), where)
        kind = item.get("type") or "message"
        if kind == "message":
            content = _read_content(item["content"], f"{where}.content")
            read.append({**item, "type": kind, "content": content})
            continue
        if kind not in _KINDS:
            called[item["call_id"]] = kind
        elif called.get(item["call_id"]) != _KINDS[kind]:
            raise BadRequestError(
                f"No tool call found for {kind.replace('_', ' ')} with call_id {item['call_id']}.",
                param=f"{where}.call_id",
            )
        read.append(item)
    return read


def _shape_of(item: JSON, where: str) -> type[Shape]:
    """Return what an item has to look like, by its type and its role."""
    for name in ("type", "role"):
        if not isinstance(item.get(name), str | None):
            raise wrong_type(f"{where}.{name}", "a string", item[name])
    kind = item.get("type") or "message"
    if kind != "message":
        if kind not in _CALLED:
            raise unsupported_value(f"{where}.type", kind, ("message", *_CALLED))
        return _CALLED[kind]
    if item.get("role") is None:
        raise missing_parameter(f"{where}.role")
    if item["role"] not in _SAID:
        raise unsupported_value(f"{where}.role", item["role"], _SAID)
    return _SAID[item["role"]]


def _read_content(content: str | list[JSON], where: str) -> str | list[JSON]:
    if isinstance(content, str):
        return content
    return [
        {"type": "input_text", "text": json_text(part["data"], f"{where}[{index}].data")}
        if part["type"] == "input_json"
        else part
        for index, part in enumerate(content)
    ]


def json_text(data: Any, where: str) -> str:
    """Return JSON as a model reads it; a BadRequestError if there is too much of it."""
    encoded = msgspec.json.encode(data)
    if len(encoded) > _MOST_BYTES:
        raise _too_much(where, f"{_MOST_BYTES // 1024} KiB")
    values, level, depth = 0, [data], 0
    while level:
        inner = [one for one in level if isinstance(one, dict | list)]
        values += len(level)
        depth += bool(inner)
        if values > _MOST_VALUES:
            raise _too_much(where, f"{_MOST_VALUES:,} values")
        if depth > _MOST_LEVELS:
            raise _too_much(where, f"{_MOST_LEVELS} levels")
        level = [value for one in inner for value in (one.values() if isinstance(one, dict) else one)]
    return encoded.decode()


def _too_much(where: str, bound: str) -> BadRequestError:
    return BadRequestError(f"Invalid value for '{where}': it has more than {bound}.", param=where, code="invalid_value")
