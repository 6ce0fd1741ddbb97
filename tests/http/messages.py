"""Anthropic's SDK in front of a served app, and its types held strictly: nothing that they do not know is answered."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaRawMessageStreamEvent
from pydantic import BaseModel, TypeAdapter
from tests.http.sdk import Served

from antwort.types import JSON

__all__ = ["ASK", "TOOL", "ask", "ask_async", "check_order", "client", "events", "frames", "send", "strict"]

TOOL: Any = {
    "name": "get_weather",
    "description": "Tell the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
"""A tool of the client."""
ASK: Any = {"model": "scripted", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}]}
"""A plain request."""


def client(stage: Served, key: str = "none") -> anthropic.Anthropic:
    """Return an SDK client that tries nothing again."""
    found = anthropic.Anthropic(base_url=stage.server.url, api_key=key, max_retries=0, timeout=60)
    stage.closing.callback(found.close)
    return found


def ask(stage: Served, stream: bool, **body: Any) -> Message:
    """Ask for a message in either way, and hold it against the types."""
    message: Message
    if not stream:
        message = client(stage).messages.create(**{**ASK, **body})
    else:
        with client(stage).messages.stream(**{**ASK, **body}) as answer:
            message = answer.get_final_message()
    strict(Message, message.to_dict())
    return message


async def ask_async(stage: Served, stream: bool, **body: Any) -> Message:
    """Do the same with the asynchronous client."""
    async with anthropic.AsyncAnthropic(base_url=stage.server.url, api_key="none", max_retries=0) as sdk:
        if stream:
            async with sdk.messages.stream(**{**ASK, **body}) as answer:
                message: Message = await answer.get_final_message()
        else:
            message = await sdk.messages.create(**{**ASK, **body})
    strict(Message, message.to_dict())
    return message


def send(stage: Served, body: JSON, path: str = "", **headers: str) -> httpx.Response:
    """Send a request without the SDK."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{stage.server.url}/v1/messages{path}", json=body, headers=named, timeout=60)


def events(stage: Served, *, beta: bool = False, **body: Any) -> list[JSON]:
    """Return the events of a stream as they are on the wire, each held against the types, and their order."""
    found = send(stage, {**ASK, **body, "stream": True})
    assert found.status_code == 200, found.text
    assert found.headers["content-type"] == "text/event-stream; charset=utf-8"
    read = [*frames(found.text)]
    kind: Any = BetaRawMessageStreamEvent if beta else RawMessageStreamEvent
    for event in read:
        if event["type"] not in {"ping", "error"}:
            strict(kind, event)
    check_order([event for event in read if event["type"] != "ping"])
    return read


def frames(text: str) -> Iterator[JSON]:
    """Give the events of a stream."""
    for part in text.split("\n\n"):
        if not part:
            continue
        name, data = part.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        yield event


def check_order(read: list[JSON]) -> None:
    """Check that blocks come one after the other, between the begin and the end of the message."""
    assert read[0]["type"] == "message_start"
    index, is_open = -1, False
    for event in read[1:]:
        match event["type"]:
            case "content_block_start":
                index += 1
                assert not is_open
                assert event["index"] == index
                is_open = True
            case "content_block_delta" | "content_block_stop":
                assert is_open
                assert event["index"] == index
                is_open = event["type"] == "content_block_delta"
            case "message_delta" | "error":
                assert not is_open or event["type"] == "error"
    assert [event["type"] for event in read[-2:]] == ["message_delta", "message_stop"] or read[-1]["type"] == "error"


def strict(kind: Any, value: Any) -> None:
    """Hold a value against a type of the SDK; fields that it does not have are an error."""
    _refuse_extra(TypeAdapter(kind).validate_python(value))


def _refuse_extra(value: Any) -> None:
    if isinstance(value, BaseModel):
        assert not value.model_extra, f"{type(value).__name__} does not have {value.model_extra}"
        for name in type(value).model_fields:
            _refuse_extra(getattr(value, name))
    elif isinstance(value, list):
        for one in value:
            _refuse_extra(one)
