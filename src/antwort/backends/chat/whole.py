"""Answers of Chat Completions that came as a whole. Most are plain, and read with few steps."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from antwort.backends.base import WholeCall, WholeTurn
from antwort.backends.chat.answer import UNREADABLE, settled_reason
from antwort.backends.chat.thoughts import may_be_tagged
from antwort.backends.http.limits import AnswerLimits
from antwort.backends.usage import ChatUsage, chat_usage


class _PlainFunction(Struct, gc=False):
    name: Annotated[str, Meta(min_length=1)]
    arguments: str


class _PlainCall(Struct, gc=False):
    function: _PlainFunction
    id: str | None = None


class _PlainMessage(Struct, gc=False):
    content: str | None = None
    tool_calls: list[_PlainCall] | None = None
    reasoning_content: None = None
    reasoning: None = None
    reasoning_details: None = None
    refusal: None = None
    function_call: None = None


class _PlainChoice(Struct, gc=False):
    message: _PlainMessage
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]
    delta: None = None
    logprobs: None = None


class _PlainAnswer(Struct, gc=False):
    """An answer that has a text, calls, the tokens used and nothing else, all as the API says."""

    choices: Annotated[list[_PlainChoice], Meta(min_length=1)]
    usage: ChatUsage | None = None
    error: None = None


_decode = msgspec.json.Decoder(_PlainAnswer).decode


def plain_turn(body: bytes, limits: AnswerLimits) -> WholeTurn | None:
    """Read a plain answer; None for any other, which has to be read with more care."""
    try:
        answer = _decode(body)
    except UNREADABLE:
        return None
    choice = answer.choices[0]
    message = choice.message
    text = message.content
    if text and may_be_tagged(text):
        return None
    calls: list[WholeCall] = []
    if said := message.tool_calls:
        if len(said) > limits.calls:
            return None
        calls = [WholeCall(call.id or None, call.function.name, call.function.arguments or "{}") for call in said]
    usage = None if answer.usage is None else chat_usage(answer.usage)
    return WholeTurn(text, calls, usage, settled_reason(choice.finish_reason, calls))
