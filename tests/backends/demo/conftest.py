"""Tools to offer, items to send, and a sink that keeps what it is fed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from antwort.backends.base import ModelRequest, WholeTurn
from antwort.backends.demo import DEMO_MODEL, DemoBackend
from antwort.types import JSON
from antwort.wire.responses import Usage


def tool(name: str, description: str, /, *required: str, **properties: Any) -> JSON:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


def text(description: str = "", **more: Any) -> JSON:
    return {"type": "string", "description": description, **more}


NUMBER = {"type": "number"}
# Names on purpose unlike those of the functions that come with the server: the model knows none by name.
ABACUS = tool("abacus", "Works out sums.", "sum", sum=text("An arithmetic expression such as 2 + 2"))
CLOCK = tool("wall_clock", "Tells the time somewhere.", tz=text("An IANA time zone", default="UTC"))
WEB = tool("lookup", "Search the web.", "query", query=text("What to search for"))
FILES = tool("archive", "Search the user's own documents.", "queries", queries={"type": "array", "items": text()})
WEATHER = tool(
    "forecast",
    "Forecast the weather for a city.",
    "city",
    city=text(),
    days={"type": "integer", "minimum": 1, "maximum": 7},
    unit={"enum": ["celsius", "fahrenheit"]},
)
ADD = tool("add", "Add two numbers.", "a", "b", a=NUMBER, b=NUMBER)
MAIL = tool("send_mail", "Send a message.", "to", "body", to=text(format="email"), body=text())
SHOUT = tool("shout", "Say it loudly.", "words", words=text())
PING = tool("ping_server", "Check that the server is alive.")
EVERYTHING = [ABACUS, CLOCK, WEB, FILES, WEATHER, ADD, MAIL, SHOUT, PING]


def user(content: str | list[JSON]) -> JSON:
    return {"type": "message", "role": "user", "content": content}


def call(call_id: str, name: str, **arguments: Any) -> JSON:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}


def output(call_id: str, result: Any) -> JSON:
    return {"type": "function_call_output", "call_id": call_id, "output": result}


def request(*items: Any, tools: Sequence[JSON] = (), **options: Any) -> ModelRequest:
    wire = [user(item) if isinstance(item, str) else item for item in items]
    return ModelRequest(model=DEMO_MODEL, items=wire, tools=tools, **options)


@dataclass
class Recorder:
    """A sink that keeps everything, and what came between two flushes."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    logprobs: list[JSON] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    arguments: dict[int, str] = field(default_factory=dict)
    used: Usage | None = None
    reason: str | None = None
    flushes: list[int] = field(default_factory=list)
    """How many pieces each flush passed on."""
    pending: int = 0

    def whole_turn(self, turn: WholeTurn) -> None:
        turn.feed(self)

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        self._take(delta)
        self.texts.append(delta)
        self.logprobs += logprobs or []

    def text_burst(self, deltas: Sequence[str]) -> None:
        for delta in deltas:
            self.text(delta)

    def reasoning(self, delta: str) -> None:
        self._take(delta)
        self.thoughts.append(delta)

    def summary(self, delta: str) -> None:
        raise AssertionError("the demo model sums nothing up")

    def opaque(self, content: str) -> None:
        raise AssertionError("the demo model has nothing to hide")

    def refusal(self, delta: str) -> None:
        self._take(delta)
        self.refusals.append(delta)

    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        if name is not None:
            assert index not in self.names
            assert call_id
            self.names[index], self.ids[index], self.arguments[index] = name, call_id, ""
        self.arguments[index] += arguments
        self.pending += 1

    def usage(self, usage: Usage) -> None:
        assert self.used is None
        self.used = usage

    def finish(self, reason: str) -> None:
        assert self.reason is None
        self.reason = reason

    async def flush(self) -> None:
        self.flushes.append(self.pending)
        self.pending = 0

    def _take(self, delta: str) -> None:
        assert delta
        assert self.reason is None
        self.pending += 1

    @property
    def answer(self) -> str:
        return "".join(self.texts)

    @property
    def calls(self) -> list[tuple[str, Any]]:
        return [(name, json.loads(self.arguments[index])) for index, name in self.names.items()]


async def ask(*items: Any, tools: Sequence[JSON] = (), **options: Any) -> Recorder:
    """Have the demo model perform a turn."""
    recorder = Recorder()
    await DemoBackend().run(request(*items, tools=tools, **options), recorder)
    return recorder
