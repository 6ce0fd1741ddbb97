"""Functions that give the model a picture: how each kind of model server gets it, and what becomes of it later."""

import asyncio
import base64
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import Served, create, served
from tests.support.postgres import on_one_store
from typing_extensions import override

from antwort.provider import Context, HostedCall, HostedTool, Image, ItemEnd, ItemEvent, Provider, ToolResult, function
from antwort.testing import call, turn
from antwort.testing.script_server import point
from antwort.types import JSON

pytestmark = on_one_store()

PIXEL = point("red")
URL = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
UNSEEN = "[An image, which this model cannot see.]"


async def look() -> Image:
    """Look."""
    return Image.of(PIXEL)


async def glance(at: str) -> list[str | Image]:
    """Glance at something."""
    return [at, Image.of(PIXEL)]


def compare() -> list[str | Image]:
    """Compare."""
    return ["before", Image.of(PIXEL), "after", Image.of(PIXEL, "low")]


async def too_much() -> ToolResult:
    """Show too much."""
    return ToolResult("Much.", images=[Image(bytes(16 * 1024**2))])


async def nothing() -> Image:
    """Show no picture."""
    return Image.of(b"GIF is what this is not")


def asked(stage: Served, name: str, number: int = 1) -> list[Any]:
    """Let the model call a function, and return the messages that it read then."""
    create(stage, False, input="Look.")
    messages: list[Any] = stage.bodies[number]["messages"]
    return messages


def script(name: str) -> list[Any]:
    return [turn(calls=[call(name, call_id="c1")]), turn("I see.")]


def test_a_picture_follows_the_outputs_in_a_message_of_the_user(tmp_path: Path) -> None:
    with served(tmp_path, [*script("look"), "Still."], over_http=True, functions=[look]) as stage:
        first = create(stage, False, input="Look.")
        create(stage, False, input="And now?", previous_response_id=first.id)
        *_, tool, shown = stage.bodies[1]["messages"]
        later = stage.bodies[2]["messages"]
    assert tool["content"].startswith(f"[image/png, {len(PIXEL)} bytes]\n(attached")
    assert shown["role"] == "user"
    assert shown["content"][1] == {"type": "image_url", "image_url": {"url": URL, "detail": "auto"}}
    assert later[2:4] == [tool, shown]


def test_texts_and_pictures_of_a_list_are_read_in_order(tmp_path: Path) -> None:
    with served(tmp_path, script("compare"), over_http=True, functions=[compare]) as stage:
        *_, tool, shown = asked(stage, "compare")
    line = f"[image/png, {len(PIXEL)} bytes]"
    assert tool["content"].startswith(f"before\n{line}\nafter\n{line}\n")
    assert [part.get("image_url", {}).get("detail") for part in shown["content"]] == [None, "auto", "low"]


def test_models_that_see_nothing_read_a_line_instead(tmp_path: Path) -> None:
    with served(tmp_path, script("look"), over_http=True, functions=[look], backend={"images": False}) as stage:
        *_, tool = asked(stage, "look")
    assert tool["content"] == f"[image/png, {len(PIXEL)} bytes]\n{UNSEEN}"


def test_too_large_pictures_are_left_out(tmp_path: Path) -> None:
    with served(tmp_path, script("too_much"), over_http=True, functions=[too_much]) as stage:
        *_, tool = asked(stage, "too_much")
    assert tool["content"] == "Much.\n[Its images are left out: they have more than 15,728,640 bytes.]"


def test_what_is_no_picture_is_an_error(tmp_path: Path) -> None:
    with served(tmp_path, script("nothing"), over_http=True, functions=[nothing]) as stage:
        *_, tool = asked(stage, "nothing")
    assert tool["content"] == "It is no image that can be shown: PNG, JPEG, GIF and WebP are."


def test_pictures_leave_a_window_that_gets_too_long(tmp_path: Path) -> None:
    turns = [turn(calls=[call("glance", at=str(number))]) for number in range(8)]
    agents = {"eye": {"max_window": 4000, "max_turns": 20}}
    with served(tmp_path, [*turns, "Done."], functions=[glance], agents=agents) as stage:
        body = {"input": "Look.", "agent": "eye"}
        answer = stage.request("POST", "/responses", json=body).json()
        last = stage.requests[-1].items
    assert answer["status"] == "completed"
    outputs = [item["output"] for item in last if item["type"] == "function_call_output"]
    kept = [output for output in outputs if isinstance(output, list)]
    assert 0 < len(kept) < len(turns)
    assert isinstance(outputs[-1], list)


def test_a_response_that_is_not_stored_remembers_pictures_on_a_socket_and_in_conversations(tmp_path: Path) -> None:
    with served(tmp_path, [*script("look"), "Still."], functions=[look]) as stage:
        client = stage.client()
        conversation = client.conversations.create()
        client.responses.create(model="scripted", input="Look.", conversation=conversation.id)
        client.responses.create(model="scripted", input="And now?", conversation=conversation.id)
        outputs = [i["output"] for i in stage.requests[-1].items if i["type"] == "function_call_output"]
    assert outputs == [
        [
            {"type": "input_text", "text": f"[image/png, {len(PIXEL)} bytes]"},
            {"type": "input_image", "image_url": URL, "detail": "auto"},
        ]
    ]


# --- events of hosted tools ------------------------------------------------------------------------------------------


class DrawTool(HostedTool):
    """A tool with all there is."""

    types = ("draw",)
    item = "draw_call"
    output_items = ("draw_output",)
    phases = ("in_progress", "drawing")

    @override
    def begin(self, call: HostedCall) -> JSON:
        return {"what": call.text("what")}

    @override
    def end(self, call: HostedCall, result: ToolResult) -> ItemEnd:
        if call.text("what") == "trouble":
            raise RuntimeError("no")
        output = {"type": "draw_output", "lines": 3, "status": "incomplete" if result.is_error else "completed"}
        return ItemEnd({"seen": True}, events=[ItemEvent("drawn", {"lines": 3})], items=[output])

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> JSON:
        return {"what": item["what"]}

    @override
    def read_output(self, item: Mapping[str, Any]) -> str:
        return f"{item['lines']} lines"


class Drawing(Provider):
    """Draws."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Context] = []

    @function(hosted=DrawTool())
    async def draw(self, ctx: Context, what: str) -> str:
        """Draw."""
        await ctx.event("line", number=1)
        await ctx.event("delta", part="ink", delta="~")
        await ctx.event("broken", value=object())
        self.kept.append(ctx)
        if what == "nothing":
            raise ValueError("nothing to draw")
        return "drawn"


def drawing(what: str) -> list[Any]:
    return [turn(calls=[call("draw", what=what)]), turn("Done.")]


def test_a_tool_has_events_of_its_own_and_a_second_item(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    provider = Drawing()
    with served(tmp_path, drawing("a cat"), providers=[provider]) as stage:
        body = {"input": "Draw.", "tools": [{"type": "draw"}], "stream": True}
        lines = stage.request("POST", "/responses", json=body).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    kinds = [event["type"].removeprefix("response.") for event in events]
    begin = kinds.index("output_item.added")
    assert kinds[begin : begin + 9] == [
        "output_item.added",
        "draw_call.in_progress",
        "draw_call.drawing",
        "draw_call.line",
        "draw_call_ink.delta",
        "draw_call.drawn",
        "output_item.done",
        "output_item.added",
        "output_item.done",
    ]
    line = events[begin + 3]
    assert {key: line[key] for key in ("number", "output_index")} == {"number": 1, "output_index": 0}
    item, output, _ = events[-1]["response"]["output"]
    assert (item["what"], item["seen"], item["status"]) == ("a cat", True, "completed")
    assert (output["type"], output["call_id"], output["lines"]) == ("draw_output", item["call_id"], 3)
    assert "function draw: its event 'broken' is no JSON" in caplog.text
    asyncio.run(provider.kept[0].event("late"))  # the call is over: nobody is told


@pytest.mark.parametrize(("what", "status"), [("nothing", "failed"), ("trouble", "completed")])
def test_failures_of_a_function_and_of_its_tool_end_both_items(
    tmp_path: Path, what: str, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    with served(tmp_path, drawing(what), providers=[Drawing()]) as stage:
        answer = stage.request("POST", "/responses", json={"input": "Draw.", "tools": [{"type": "draw"}]})
    item, output, message = answer.json()["output"]
    assert item["status"] == status
    assert output["type"] == "draw_output"
    assert message["type"] == "message"
    assert ("the items of its result cannot be made" in caplog.text) is (what == "trouble")


def test_what_a_tool_shows_is_read_again(tmp_path: Path) -> None:
    with served(tmp_path, [*drawing("a cat"), "Yes."], providers=[Drawing()]) as stage:
        first = stage.request("POST", "/responses", json={"input": "Draw.", "tools": [{"type": "draw"}]}).json()
        user = {"role": "user", "content": "Again?"}
        body = {"input": [user, *first["output"], user], "tools": [{"type": "draw"}]}
        assert stage.request("POST", "/responses", json=body).status_code == 200
        items = stage.requests[-1].items
    arguments, output = (item for item in items if item["type"] != "message")
    assert json.loads(arguments["arguments"]) == {"what": "a cat"}
    assert output["output"] == "3 lines"
