"""Events that a function sends of the item of its call, by `ctx.event`."""

import json
from pathlib import Path

from tests.http.sdk import served

from antwort.provider import Context, HostedTool, Provider, Settings, function
from antwort.testing import call, turn


class WeatherTool(HostedTool):
    types = ("weather",)
    item = "weather_call"


class Weather(Provider[Settings]):
    @function(hosted=WeatherTool())
    async def weather(self, ctx: Context) -> str:
        """Tell the weather."""
        for name in ("type", "sequence_number", "output_index", "item_id"):
            await ctx.event("odd", **{name: "response.completed"})
        for kind in ("a\n\ndata: {}\n\n", "\ud800", "", "x" * 1000):
            await ctx.event(kind)
        await ctx.event("fine", part="a\nb")
        await ctx.event("looking", city="Rome")
        return "sunny"


def test_a_function_changes_neither_the_stream_nor_what_the_server_says_of_an_event(tmp_path: Path) -> None:
    steps = [turn(calls=[call("weather")]), turn("Sunny.")]
    with served(tmp_path, steps, providers=[Weather()]) as stage:
        body = {"model": "scripted", "input": "?", "stream": True, "tools": [{"type": "weather"}]}
        text = stage.request("POST", "/responses", json=body).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    kinds = [event["type"] for event in events]
    own = [kind for kind in kinds if kind.startswith("response.weather_call")]
    assert own == ["response.weather_call.looking", "response.weather_call.completed"]
    assert kinds.count("response.completed") == 1
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"]["output"][0]["status"] == "completed"
