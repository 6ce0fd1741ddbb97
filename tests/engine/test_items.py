"""What a tool says of the items of its call is looked at before it is sent."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import served
from typing_extensions import override

from antwort.provider import Context, HostedCall, HostedTool, ItemEnd, ToolResult, function
from antwort.testing import call, turn

STEPS = [turn(calls=[call("weather")]), turn("Sunny.")]


class Weather(HostedTool):
    types = ("weather",)
    item = "weather_call"
    output_items = ("weather_call_output",)

    def __init__(self, end: Any) -> None:
        self._end = end

    @override
    def end(self, call: HostedCall, result: ToolResult) -> ItemEnd:
        end: ItemEnd = self._end
        return end


def asked(folder: Path, end: Any) -> tuple[list[Any], list[str]]:
    """Return the items before the answer, and the types of the events that the function sends."""

    @function(hosted=Weather(end))
    async def weather(ctx: Context) -> str:
        """Tell the weather."""
        await ctx.event("moved", type="response.other", output_index=7)
        await ctx.event("measured", station=7)
        return "sunny"

    with served(folder, STEPS, functions=[weather]) as stage:
        body = {"input": "Rome?", "tools": [{"type": "weather"}], "stream": True}
        lines = stage.request("POST", "/responses", json=body).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    named = [event["type"] for event in events if "weather" in event["type"] or "other" in event["type"]]
    return events[-1]["response"]["output"][:-1], named


def test_an_item_of_a_type_that_the_tool_does_not_name_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    own = {"type": "weather_call_output", "sky": "blue"}
    items, _ = asked(tmp_path, ItemEnd({"place": "Rome"}, items=[{"type": "another_output"}, own]))
    assert [item["type"] for item in items] == ["weather_call", "weather_call_output"]
    assert (items[0]["place"], items[1]["sky"]) == ("Rome", "blue")
    assert "function weather: 'another_output' is none of the `output_items` of its tool" in caplog.text


def test_what_is_no_end_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    items, _ = asked(tmp_path, {"place": "Rome"})
    assert [item["status"] for item in items] == ["completed", "completed"]
    assert "`end` returns an ItemEnd, not dict" in caplog.text


def test_an_event_does_not_say_what_the_server_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    _, events = asked(tmp_path, ItemEnd())
    assert events == ["response.weather_call.measured", "response.weather_call.completed"]
    assert "its event 'moved' is not sent: the server sets output_index, type" in caplog.text
