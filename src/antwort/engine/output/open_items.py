"""Items that readers of a stream were told of, and not that they have ended: read off the events, to end them."""

from typing import Any, Protocol

from antwort.types import JSON
from antwort.wire.items import ItemStatus


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
