"""Events as bytes. Whoever sends them decides how they are framed."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from antwort.types import JSON
from antwort.wire.client_tools import CALLS_OF_THEIR_OWN
from antwort.wire.items import ItemStatus

encode = msgspec.json.Encoder().encode


class Put(Protocol):
    """What takes events."""

    def __call__(self, kind: str, *events: bytes) -> None:
        """Take events that come together: their type and the JSON of each."""


PutDeltas = Callable[[str, bytes, Sequence[str]], None]
"""Takes deltas that come together: the type of their events, what else these have, as JSON, and the texts."""


def deltas_of(sink: object) -> PutDeltas | None:
    """Return what takes deltas in the place of their events: the `put_deltas` of those sinks that have one."""
    found: PutDeltas | None = getattr(sink, "put_deltas", None)
    return found


class EventSink(Protocol):
    """Takes the events of one response, in order."""

    @property
    def started(self) -> bool:
        """Tell whether anything has been sent."""

    def put(self, kind: str, *events: bytes) -> None:
        """Take events that come together, as `Put` does."""

    async def flush(self) -> None:
        """Send what was taken; wait while the reader is slow."""


REASONING_TEXT = "response.reasoning_text"
"""What the events of thoughts are called by OpenAI and its clients."""
REASONING_NAMES = {"openai": REASONING_TEXT, "open_responses": "response.reasoning"}
"""The same by whoever names them so (`engine.reasoning_events`)."""


class Events:
    """Numbers events and writes them as JSON; without a sink it does nothing. `thoughts` is what theirs are called."""

    __slots__ = ("_put", "_put_deltas", "enabled", "sequence", "thoughts")

    def __init__(
        self,
        put: Put | None,
        sequence: int = 0,
        thoughts: str = REASONING_TEXT,
        put_deltas: PutDeltas | None = None,
    ) -> None:
        """Take what takes events, and what takes deltas in their place, if their JSON is another one."""
        self._put = put
        self._put_deltas = put_deltas
        self.thoughts = thoughts
        self.enabled = put is not None
        """Whether anybody listens. If not, whoever has much to say need not put it together."""
        self.sequence = sequence

    def emit(self, kind: str, **fields: Any) -> None:
        """Send an event."""
        if self._put is not None:
            self._put(kind, encode({"type": kind, "sequence_number": self.sequence, **fields}))
            self.sequence += 1

    def delta(self, kind: str, middle: bytes, delta: str, end: bytes) -> None:
        """Send a delta whose other fields are written already."""
        self.deltas(kind, middle, (delta,), end)

    def deltas(self, kind: str, middle: bytes, deltas: Sequence[str], end: bytes) -> None:
        """Send deltas that came together, an event for each: the hot path."""
        put = self._put
        if put is None:
            return
        if self._put_deltas is not None:
            self._put_deltas(kind, middle, deltas)
            return
        head, number = _HEADS[kind], self.sequence
        self.sequence = number + len(deltas)
        if len(deltas) == 1:  # as most, and it is a third of the work
            put(kind, b"".join((head, b"%d" % number, middle, encode(deltas[0]), end)))
        else:
            put(kind, *_numbered(head, number, middle, deltas, end))


def _numbered(head: bytes, number: int, middle: bytes, deltas: Sequence[str], end: bytes) -> list[bytes]:
    # Not where it is used: what a comprehension sees costs the function around it something each time.
    return [
        b"".join((head, b"%d" % sequence, middle, encode(delta), end)) for sequence, delta in enumerate(deltas, number)
    ]


SILENT = Events(None)
"""For whoever has nobody to tell. It holds no state, so that one serves all."""

_HEADS = {
    kind: b'{"type":"%s","sequence_number":' % kind.encode()
    for kind in (
        "response.output_text.delta",
        *(f"{name}.delta" for name in REASONING_NAMES.values()),
        "response.refusal.delta",
        "response.function_call_arguments.delta",
    )
}


def replay_response(response: JSON, events: Events) -> None:
    """Send the events a response might have had: whole deltas, each item from beginning to end."""
    running = {**response, "status": "in_progress", "output": [], "completed_at": None, "usage": None}
    running |= {"error": None, "incomplete_details": None}
    events.emit("response.created", response=running)
    events.emit("response.in_progress", response=running)
    for index, item in enumerate(response["output"]):
        replay_item(item, index, events)
    status = response["status"]
    if status in {"completed", "failed", "incomplete"}:
        events.emit(f"response.{status}", response=response)


def replay_item(item: JSON, index: int, events: Events) -> None:
    """Send the events of an item from beginning to end."""
    kind = item["type"]
    begun = {**item, "status": "in_progress", **_EMPTY.get(kind, {})}
    events.emit("response.output_item.added", output_index=index, item=begun)
    at = {"item_id": item["id"], "output_index": index}
    if kind == "function_call":
        if item["arguments"]:
            events.emit("response.function_call_arguments.delta", **at, delta=item["arguments"])
        events.emit("response.function_call_arguments.done", **at, name=item["name"], arguments=item["arguments"])
    elif kind == "custom_tool_call":
        if item["input"]:
            events.emit("response.custom_tool_call_input.delta", **at, delta=item["input"])
        events.emit("response.custom_tool_call_input.done", **at, input=item["input"])
    elif kind == _SHELL:
        _replay_commands(item, index, events)
    elif kind in {"message", "reasoning"}:
        for number, part in enumerate(item.get("summary") or ()):
            _replay_summary(part, {**at, "summary_index": number}, events)
        for number, part in enumerate(item.get("content") or ()):
            _replay_part(part, {**at, "content_index": number}, events)
    elif kind.endswith("_call") and kind not in CALLS_OF_THEIR_OWN:
        for phase in ("in_progress", "completed") if item.get("status") == "completed" else ("in_progress",):
            events.emit(f"response.{kind}.{phase}", **at)
    events.emit("response.output_item.done", output_index=index, item=item)


def _replay_commands(item: JSON, index: int, events: Events) -> None:
    for number, command in enumerate((item.get("action") or {}).get("commands") or ()):
        at = {"output_index": index, "command_index": number}
        events.emit("response.shell_call_command.added", **at, command="")
        events.emit("response.shell_call_command.delta", **at, delta=command)
        events.emit("response.shell_call_command.done", **at, command=command)


_SHELL = "shell_call"
_EMPTY: dict[str, JSON] = {
    "message": {"content": []},
    "reasoning": {"content": [], "summary": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
    "compaction": {"encrypted_content": ""},
}
"""What items have not yet when they begin."""


def _replay_summary(part: JSON, at: JSON, events: Events) -> None:
    events.emit("response.reasoning_summary_part.added", **at, part={**part, "text": ""})
    events.emit("response.reasoning_summary_text.delta", **at, delta=part["text"])
    events.emit("response.reasoning_summary_text.done", **at, text=part["text"])
    events.emit("response.reasoning_summary_part.done", **at, part=part)


def _replay_part(part: JSON, at: JSON, events: Events) -> None:
    kind = part["type"]
    if kind == "output_text":
        events.emit("response.content_part.added", **at, part={**part, "text": "", "annotations": [], "logprobs": []})
        logprobs = part.get("logprobs") or []
        if part["text"]:
            events.emit("response.output_text.delta", **at, delta=part["text"], logprobs=logprobs)
        for number, annotation in enumerate(part["annotations"]):
            events.emit("response.output_text.annotation.added", **at, annotation_index=number, annotation=annotation)
        events.emit("response.output_text.done", **at, text=part["text"], logprobs=logprobs)
    else:
        name, field = ("response.refusal", "refusal") if kind == "refusal" else (events.thoughts, "text")
        events.emit("response.content_part.added", **at, part={**part, field: ""})
        if part[field]:
            events.emit(f"{name}.delta", **at, delta=part[field])
        events.emit(f"{name}.done", **at, **{field: part[field]})
    events.emit("response.content_part.done", **at, part=part)


# --- items that readers of a stream were told of, and not that they have ended ---------------------------------------


class Emits(Protocol):
    """What sends events."""

    def emit(self, kind: str, **fields: Any) -> None:
        """Send an event."""


class OpenItem:
    """An item that was begun and not ended; `agent` is who writes it, if that is a sub-agent."""

    def __init__(self, item: JSON, index: int, agent: JSON | None = None) -> None:
        self.item = item
        self.index = index
        self._mark: JSON = {} if agent is None else {"agent": agent}
        self.part: JSON | None = None
        self.pieces: list[str] = []
        self.logprobs: list[JSON] = []
        self.summary: list[str] | None = None
        """The pieces of a summary that was begun and not ended."""

    def take(self, delta: JSON) -> None:
        """Take a delta."""
        self.pieces.append(delta["delta"])
        self.logprobs += delta.get("logprobs") or ()

    def close(self, events: Emits, status: ItemStatus) -> JSON:
        """End it with what had arrived.

        The text of one that is incomplete is not told to be done: clients parse it then, and half of a JSON is none.
        """
        self._close_summary(events)
        text = "".join(self.pieces)
        part = self.part
        if part is not None:
            at = {"item_id": self.item["id"], "output_index": self.index, "content_index": 0, **self._mark}
            kind = part["type"]
            fields: JSON = {"refusal": text} if kind == "refusal" else {"text": text}
            if kind == "output_text":
                fields["logprobs"] = self.logprobs
            part = {**part, **fields}
            if status != "incomplete":
                events.emit(f"response.{kind}.done", **at, **fields)
            events.emit("response.content_part.done", **at, part=part)
            self.item["content"] = [part]
        self.item["status"] = status
        events.emit("response.output_item.done", output_index=self.index, item=self.item | self._mark, **self._mark)
        return self.item

    def _close_summary(self, events: Emits) -> None:
        if self.summary is None:
            return
        done = self.item.setdefault("summary", [])
        at = {"item_id": self.item["id"], "output_index": self.index, "summary_index": len(done), **self._mark}
        part = {"type": "summary_text", "text": "".join(self.summary)}
        events.emit("response.reasoning_summary_text.done", **at, text=part["text"])
        events.emit("response.reasoning_summary_part.done", **at, part=part)
        done.append(part)


class OpenItems(dict[str, OpenItem]):
    """The open items of a stream, by their ids."""

    def take(self, kind: str, event: JSON, agent: JSON | None = None) -> None:
        """Take an event; `agent` is as in `OpenItem`."""
        if kind == "response.output_item.added":
            self[event["item"]["id"]] = OpenItem(event["item"], event["output_index"], agent)
        elif kind == "response.output_item.done":
            self.pop(event["item"]["id"], None)
        elif kind == "response.content_part.added":
            self[event["item_id"]].part = event["part"]
        elif kind.startswith("response.reasoning_summary_"):
            _take_summary(self[event["item_id"]], kind, event)
        elif kind.endswith(".delta") and "content_index" in event:
            # Those of arguments, code and commands count for nothing: the journal has the calls as a whole.
            self[event["item_id"]].take(event)


def _take_summary(item: OpenItem, kind: str, data: JSON) -> None:
    if kind.endswith("_part.added"):
        item.summary = []
    elif kind.endswith("_part.done"):
        item.summary = None
        item.item.setdefault("summary", []).append(data["part"])
    elif kind.endswith(".delta") and item.summary is not None:
        item.summary.append(data["delta"])
