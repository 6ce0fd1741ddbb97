"""Events out of what is stored: a stream for a response that kept none, and the state of a run from those it kept."""

from collections.abc import Iterable

import msgspec

from antwort.engine.events import Events
from antwort.storage.base import StoredEvent
from antwort.types import JSON
from antwort.wire.items import ItemStatus


def replay_response(response: JSON, events: Events) -> None:
    """Send the events a response might have had: whole deltas, each item from beginning to end."""
    running = {**response, "status": "in_progress", "output": [], "completed_at": None, "usage": None}
    running |= {"error": None, "incomplete_details": None}
    events.emit("response.created", response=running)
    events.emit("response.in_progress", response=running)
    for index, item in enumerate(response["output"]):
        _replay_item(item, index, events)
    status = response["status"]
    if status in {"completed", "failed", "incomplete"}:
        events.emit(f"response.{status}", response=response)


def _replay_item(item: JSON, index: int, events: Events) -> None:
    kind = item["type"]
    begun = {**item, "status": "in_progress", **_EMPTY.get(kind, {})}
    events.emit("response.output_item.added", output_index=index, item=begun)
    place = {"item_id": item["id"], "output_index": index}
    if kind == "function_call":
        if item["arguments"]:
            events.emit("response.function_call_arguments.delta", **place, delta=item["arguments"])
        events.emit("response.function_call_arguments.done", **place, name=item["name"], arguments=item["arguments"])
    elif kind == "custom_tool_call":
        if item["input"]:
            events.emit("response.custom_tool_call_input.delta", **place, delta=item["input"])
        events.emit("response.custom_tool_call_input.done", **place, input=item["input"])
    elif kind in {"message", "reasoning"}:
        for number, part in enumerate(item.get("summary") or ()):
            _replay_summary(part, {**place, "summary_index": number}, events)
        for number, part in enumerate(item.get("content") or ()):
            _replay_part(part, {**place, "content_index": number}, events)
    elif kind.endswith("_call"):
        for phase in ("in_progress", "completed") if item.get("status") == "completed" else ("in_progress",):
            events.emit(f"response.{kind}.{phase}", **place)
    events.emit("response.output_item.done", output_index=index, item=item)


_EMPTY: dict[str, JSON] = {
    "message": {"content": []},
    "reasoning": {"content": [], "summary": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
    "compaction": {"encrypted_content": ""},
}
"""What items have not yet when they begin."""


def _replay_summary(part: JSON, place: JSON, events: Events) -> None:
    events.emit("response.reasoning_summary_part.added", **place, part={**part, "text": ""})
    events.emit("response.reasoning_summary_text.delta", **place, delta=part["text"])
    events.emit("response.reasoning_summary_text.done", **place, text=part["text"])
    events.emit("response.reasoning_summary_part.done", **place, part=part)


def _replay_part(part: JSON, place: JSON, events: Events) -> None:
    kind = part["type"]
    if kind == "output_text":
        events.emit(
            "response.content_part.added", **place, part={**part, "text": "", "annotations": [], "logprobs": []}
        )
        logprobs = part.get("logprobs") or []
        if part["text"]:
            events.emit("response.output_text.delta", **place, delta=part["text"], logprobs=logprobs)
        for number, annotation in enumerate(part["annotations"]):
            events.emit(
                "response.output_text.annotation.added", **place, annotation_index=number, annotation=annotation
            )
        events.emit("response.output_text.done", **place, text=part["text"], logprobs=logprobs)
    else:
        name, field = ("refusal", "refusal") if kind == "refusal" else ("reasoning_text", "text")
        events.emit("response.content_part.added", **place, part={**part, field: ""})
        if part[field]:
            events.emit(f"response.{name}.delta", **place, delta=part[field])
        events.emit(f"response.{name}.done", **place, **{field: part[field]})
    events.emit("response.content_part.done", **place, part=part)


class OpenItem:
    """An item that was begun and not ended."""

    def __init__(self, item: JSON, index: int) -> None:
        self.item = item
        self.index = index
        self.part: JSON | None = None
        self.pieces: list[str] = []
        self.logprobs: list[JSON] = []
        self.summary: list[str] | None = None
        """The pieces of a summary that was begun and not ended."""

    def take(self, delta: JSON) -> None:
        """Take a delta."""
        self.pieces.append(delta["delta"])
        self.logprobs += delta.get("logprobs") or ()

    def close(self, events: Events, status: ItemStatus) -> JSON:
        """End it with what had arrived.

        The text of one that is incomplete is not told to be done: clients parse it then, and half of a JSON is none.
        """
        self._close_summary(events)
        text = "".join(self.pieces)
        part = self.part
        if part is not None:
            place = {"item_id": self.item["id"], "output_index": self.index, "content_index": 0}
            kind = part["type"]
            fields: JSON = {"refusal": text} if kind == "refusal" else {"text": text}
            if kind == "output_text":
                fields["logprobs"] = self.logprobs
            part = {**part, **fields}
            if status != "incomplete":
                events.emit(f"response.{kind}.done", **place, **fields)
            events.emit("response.content_part.done", **place, part=part)
            self.item["content"] = [part]
        self.item["status"] = status
        events.emit("response.output_item.done", output_index=self.index, item=self.item)
        return self.item

    def _close_summary(self, events: Events) -> None:
        if self.summary is None:
            return
        done = self.item.setdefault("summary", [])
        place = {"item_id": self.item["id"], "output_index": self.index, "summary_index": len(done)}
        part = {"type": "summary_text", "text": "".join(self.summary)}
        events.emit("response.reasoning_summary_text.done", **place, text=part["text"])
        events.emit("response.reasoning_summary_part.done", **place, part=part)
        done.append(part)


class RunState:
    """What readers of a run have been told so far."""

    def __init__(self) -> None:
        self.output: list[JSON] = []
        """All items they were told of, by `output_index`."""
        self.open: dict[str, OpenItem] = {}
        self.sequence = 0
        self.in_progress = False


def state_of(events: Iterable[StoredEvent]) -> RunState:
    """Read a run's state off its events."""
    state = RunState()
    for event in events:
        state.sequence = event.sequence + 1
        data: JSON = msgspec.json.decode(event.data)
        kind = event.type
        if kind == "response.in_progress":
            state.in_progress = True
        elif kind == "response.output_item.added":
            state.output.append(data["item"])
            state.open[data["item"]["id"]] = OpenItem(data["item"], data["output_index"])
        elif kind == "response.output_item.done":
            state.output[data["output_index"]] = data["item"]
            state.open.pop(data["item"]["id"], None)
        elif kind == "response.content_part.added":
            state.open[data["item_id"]].part = data["part"]
        elif kind.startswith("response.reasoning_summary_"):
            _take_summary(state.open[data["item_id"]], kind, data)
        elif kind.endswith(".delta"):
            state.open[data["item_id"]].take(data)
    return state


def _take_summary(item: OpenItem, kind: str, data: JSON) -> None:
    if kind.endswith("_part.added"):
        item.summary = []
    elif kind.endswith("_part.done"):
        item.summary = None
        item.item.setdefault("summary", []).append(data["part"])
    elif kind.endswith(".delta") and item.summary is not None:
        item.summary.append(data["delta"])
