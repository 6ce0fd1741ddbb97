"""A conversation says the same through either face: the model server is asked the same, and the same is stored."""

import itertools
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.http.messages import TOOL, send
from tests.http.sdk import Served, served
from tests.support.postgres import on_one_store

from antwort.types import JSON

pytestmark = on_one_store()
PNG = "iVBORw0KGgo="
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@st.composite
def turns(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Make what is said in a conversation that ends with the user, as neither face says it."""
    said: list[tuple[str, Any]] = [("user", draw(st.lists(TEXTS, min_size=1, max_size=3)))]
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            calls = draw(st.lists(st.dictionaries(TEXTS, TEXTS, max_size=2), min_size=1, max_size=3))
            results = draw(st.lists(TEXTS, min_size=len(calls), max_size=len(calls)))
            said += [("calls", (draw(st.none() | TEXTS), calls)), ("results", results)]
        else:
            said.append(("assistant", draw(TEXTS)))
        said.append(("image" if draw(st.booleans()) else "user", draw(st.lists(TEXTS, min_size=1, max_size=2))))
    return said


def as_messages(said: list[tuple[str, Any]]) -> list[JSON]:
    """Say it in Anthropic's words."""
    numbers = itertools.count()
    asked: list[str] = []
    messages: list[JSON] = []
    for kind, what in said:
        if kind == "calls":
            text, calls = what
            asked = [f"call_{next(numbers)}" for _ in calls]
            blocks: list[JSON] = [{"type": "text", "text": text}] if text else []
            blocks += [
                {"type": "tool_use", "id": call_id, "name": "get_weather", "input": arguments}
                for call_id, arguments in zip(asked, calls, strict=True)
            ]
            messages.append({"role": "assistant", "content": blocks})
        elif kind == "results":
            results = [
                {"type": "tool_result", "tool_use_id": call_id, "content": result}
                for call_id, result in zip(asked, what, strict=True)
            ]
            messages.append({"role": "user", "content": results})
        elif kind == "assistant":
            messages.append({"role": "assistant", "content": what})
        else:
            content: list[JSON] = [{"type": "text", "text": text} for text in what]
            if kind == "image":
                source = {"type": "base64", "media_type": "image/png", "data": PNG}
                content.append({"type": "image", "source": source})
            messages.append({"role": "user", "content": content})
    return messages


def as_items(said: list[tuple[str, Any]]) -> list[JSON]:
    """Say it in OpenAI's words."""
    numbers = itertools.count()
    asked: list[str] = []
    items: list[JSON] = []
    for kind, what in said:
        if kind == "calls":
            text, calls = what
            asked = [f"call_{next(numbers)}" for _ in calls]
            if text:
                items.append({"role": "assistant", "content": [{"type": "output_text", "text": text}]})
            items += [
                {"type": "function_call", "call_id": call_id, "name": "get_weather", "arguments": compact(arguments)}
                for call_id, arguments in zip(asked, calls, strict=True)
            ]
        elif kind == "results":
            items += [
                {"type": "function_call_output", "call_id": call_id, "output": result}
                for call_id, result in zip(asked, what, strict=True)
            ]
        elif kind == "assistant":
            items.append({"role": "assistant", "content": what})
        else:
            content: list[JSON] = [{"type": "input_text", "text": text} for text in what]
            if kind == "image":
                content.append({"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"})
            items.append({"role": "user", "content": content})
    return items


def compact(arguments: JSON) -> str:
    return msgspec.json.encode(arguments).decode()


def stored(stage: Served, response_id: str) -> list[JSON]:
    """Return what is stored of a response, without what is never the same."""
    entries = stage.request("GET", f"/responses/{response_id}/input_items", params={"order": "asc", "limit": 100})
    output = stage.request("GET", f"/responses/{response_id}").json()["output"]
    return [{key: value for key, value in item.items() if key != "id"} for item in [*entries.json()["data"], *output]]


def test_a_conversation_is_the_same_through_either_face(tmp_path: Path) -> None:
    examples = 60

    with served(tmp_path, ["Tea."] * (2 * examples + 40), over_http=True, backend={"pdf": True}) as stage:

        @settings(
            max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=[*HealthCheck]
        )
        @given(said=turns(), system=st.none() | TEXTS, limit=st.integers(16, 100))
        def check(said: list[tuple[str, Any]], system: str | None, limit: int) -> None:
            message = send(
                stage,
                {
                    "model": "scripted",
                    "max_tokens": limit,
                    "messages": as_messages(said),
                    "tools": [TOOL],
                    **({} if system is None else {"system": system}),
                },
            )
            assert message.status_code == 200, message.text
            function = {"type": "function", "name": TOOL["name"], "description": TOOL["description"]}
            response = stage.request(
                "POST",
                "/responses",
                json={
                    "model": "scripted",
                    "max_output_tokens": limit,
                    "input": as_items(said),
                    "tools": [{**function, "parameters": TOOL["input_schema"]}],
                    **({} if system is None else {"instructions": system}),
                },
            )
            assert response.status_code == 200, response.text
            assert stage.bodies[-2] == stage.bodies[-1]
            response_id = message.json()["id"].replace("msg_", "resp_")
            assert stored(stage, response_id) == stored(stage, response.json()["id"])

        check()
        while stage.model.script.finished is False:
            send(stage, {"model": "scripted", "max_tokens": 100, "messages": as_messages([("user", ["Hi"])])})
