"""Sub-agents in the stream of the root agent, for readers who ask for them: each event names the agent that it is of.

What a sub-agent says becomes events of the root agent's response: they are numbered with the others, and its items are
counted with them, but are no part of the output. Responses of sub-agents themselves are not told of.
"""

from collections.abc import Coroutine
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from antwort.engine.output.emitter import Emitter
from antwort.engine.output.events import EventSink, OpenItems, encode
from antwort.engine.plan import Plan
from antwort.types import JSON

ROOT = "/root"
"""The name of the root agent; those of others begin with the name of the agent that has started them."""
_ADDED, _DONE = "response.output_item.added", "response.output_item.done"
_OF_ITEMS = frozenset({_ADDED, _DONE})
_OF_RESPONSES = frozenset(
    {
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
        "response.failed",
        "response.incomplete",
        "error",
    }
)
"""Events by which readers follow a response as a whole. They follow one, that of the root agent."""
_decode = msgspec.json.Decoder(JSON).decode


class MarkedStream:
    """A sink that notes in each event, and in the item that it brings, whose it is."""

    def __init__(self, sink: EventSink, response_id: str) -> None:
        self._sink = sink
        self.agent: JSON = {"agent_name": ROOT, "response_id": response_id}
        """Whose events are put now."""

    @property
    def started(self) -> bool:
        """Tell whether anything has been sent."""
        return self._sink.started

    def put(self, kind: str, *events: bytes) -> None:
        """Take events of one type."""
        if kind in _OF_ITEMS:
            events = tuple(_with_agent(data, self.agent) for data in events)
        tail = b',"agent":%s}' % encode(self.agent)
        self._sink.put(kind, *[data[:-1] + tail for data in events])

    def flush(self) -> Coroutine[Any, Any, None]:
        """Send what was taken."""
        return self._sink.flush()


def _with_agent(data: bytes, agent: JSON) -> bytes:
    event = _decode(data)
    event["item"]["agent"] = agent
    return encode(event)


def take_agent(event: JSON) -> JSON | None:
    """Take out of an event, and of its item, whose it is, and return that; None if it is the root agent's."""
    agent: JSON | None = event.pop("agent", None)
    if isinstance(event.get("item"), dict):
        event["item"].pop("agent", None)
    return None if agent is None or agent["agent_name"] == ROOT else agent


class RunEvents:
    """The stream of a run: it takes the events of all its agents. Whoever makes the root agent's response has it."""

    def __init__(self, emitter: Emitter, stream: MarkedStream) -> None:
        self._emitter = emitter
        self._stream = stream
        self._root: JSON = stream.agent
        self.response_id: str = stream.agent["response_id"]
        self._names = {self.response_id: ROOT}
        """The names of agents by their responses."""
        self._sinks: dict[str, AgentEvents] = {}
        """Those of responses that are being made, by their ids."""
        self._is_over = False

    def close(self) -> None:
        """End what all have begun, because the response of the root agent ends: nothing comes after its end."""
        for response_id in [*self._sinks]:
            self.settle(response_id)
        self._is_over = True

    def sink_for(self, plan: Plan) -> "AgentEvents":
        """Return what takes the events of a sub-agent's response."""
        response_id = plan.response.id
        above = ROOT if plan.parent is None else self._names.get(plan.parent.response_id, ROOT)
        name = f"{above}/{plan.ctx.agent.name}_{(plan.ctx.agent_id or response_id)[-8:]}"
        self._names[response_id] = name
        sink = self._sinks[response_id] = AgentEvents(self, {"agent_name": name, "response_id": response_id})
        return sink

    def settle(self, response_id: str) -> None:
        """End what a response of a sub-agent has begun that nobody works on any more, or not now."""
        sink = self._sinks.pop(response_id, None)
        if sink is not None:
            sink.close()

    def new_index(self) -> int:
        """Return the number of an item for readers, which is no part of the output."""
        return self._emitter.skip()

    def tell(self, agent: JSON, kind: str, fields: JSON) -> None:
        """Send an event of an agent."""
        if self._is_over:
            return
        self._stream.agent = agent
        try:
            self._emitter.events.emit(kind, **fields)
        finally:
            self._stream.agent = self._root

    def flush(self) -> Coroutine[Any, Any, None]:
        """Send what was taken of all agents."""
        return _nothing() if self._is_over else self._stream.flush()


class AgentEvents:
    """The sink of a sub-agent's response. Whatever happens to it is for its parent to read, not for the reader."""

    started = False

    def __init__(self, run: RunEvents, agent: JSON) -> None:
        self._run = run
        self._agent = agent
        self._indexes: dict[int, int] = {}
        """The numbers of its items in the run, by those in the response."""
        self._open = OpenItems()

    def put(self, kind: str, *events: bytes) -> None:
        """Take events of one type."""
        if kind in _OF_RESPONSES:
            return
        for data in events:
            event = _decode(data)
            del event["type"], event["sequence_number"]
            if "output_index" in event and not self._renumber(kind, event):
                continue
            self._open.take(kind, event)
            self._run.tell(self._agent, kind, event)

    def _renumber(self, kind: str, event: JSON) -> bool:
        """Give an event the number of its item in the run; False if readers of this stream do not know the item."""
        own = event["output_index"]
        if own not in self._indexes:
            if kind not in _OF_ITEMS:
                return False
            self._indexes[own] = self._run.new_index()
            if kind == _DONE:  # it was begun before the agent went on
                begun = {**event["item"], "status": "in_progress"}
                self._run.tell(self._agent, _ADDED, {"output_index": self._indexes[own], "item": begun})
        event["output_index"] = self._indexes[own]
        return True

    def close(self) -> None:
        """End what was begun, as it is."""
        while self._open:
            _, item = self._open.popitem()
            item.close(self, "incomplete")

    def emit(self, kind: str, **fields: Any) -> None:
        """Send an event of the run."""
        self._run.tell(self._agent, kind, fields)

    def flush(self) -> Coroutine[Any, Any, None]:
        """Send what was taken."""
        return self._run.flush()


class RunStreams:
    """The streams of the runs that are under way here and show their agents, as long as somebody makes them."""

    def __init__(self) -> None:
        self._runs: WeakValueDictionary[str, RunEvents] = WeakValueDictionary()

    def open(self, run: RunEvents) -> RunEvents:
        """Let sub-agents of a response be shown, as long as somebody keeps what is returned."""
        self._runs[run.response_id] = run
        return run

    def sink_for(self, plan: Plan) -> AgentEvents | None:
        """Return what takes the events of a sub-agent's response; None if nobody is shown them."""
        run = self._runs.get(plan.root_id)
        return None if run is None else run.sink_for(plan)

    def settle(self, plan: Plan) -> None:
        """Take note that nobody works on a sub-agent's response now."""
        run = self._runs.get(plan.root_id)
        if run is not None:
            run.settle(plan.response.id)


async def _nothing() -> None:
    """Send nothing: there is nobody any more."""
