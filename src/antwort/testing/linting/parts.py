"""The life of a content part: added empty, filled by deltas, closed with what the deltas amount to."""

from dataclasses import dataclass, field
from typing import Any

from antwort.testing.linting.report import Report, shown
from antwort.types import JSON

__all__ = ["TEXTS", "Part", "Parts"]

TEXTS = {
    "output_text": ("content_index", "output_text", "text"),
    "refusal": ("content_index", "refusal", "refusal"),
    "reasoning_text": ("content_index", "reasoning_text", "text"),
    "reasoning_summary_text": ("summary_index", "summary_text", "text"),
}
"""By the name in the event: the key of the index, the type of the part, and the field of the text."""

_EMPTY: dict[object, JSON] = {
    "output_text": {"text": "", "annotations": [], "logprobs": []},
    "refusal": {"refusal": ""},
    "reasoning_text": {"text": ""},
    "summary_text": {"text": ""},
}


@dataclass(slots=True)
class Part:
    """What is known of a part so far."""

    type: object
    deltas: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    annotations: list[Any] = field(default_factory=list)
    text: str | None = None
    """The text of the `…done` event."""
    closed: JSON | None = None
    """The part of the `…part.done` event."""


class Parts:
    """The parts of one item, under one index: `content_index` or `summary_index`."""

    def __init__(self, index: str, report: Report) -> None:
        self._index = index
        self._report = report
        self._parts: list[Part] = []

    def add(self, event: JSON) -> None:
        """Take `content_part.added` or `reasoning_summary_part.added`."""
        self._report.equal("part-index", self._index, event.get(self._index), len(self._parts))
        part = event.get("part")
        given = part if isinstance(part, dict) else {}
        empty = _EMPTY.get(given.get("type"), {})
        if {"text", "refusal"} & set(given):
            zero = all(given.get(key) == value for key, value in empty.items())
            self._report.check("part-zero", zero, f"a part is added empty, not as {shown(given)}")
        self._parts.append(Part(given.get("type")))

    def delta(self, event: JSON, kind: str) -> None:
        """Take a piece of text."""
        part = self._open(event, kind)
        if part is not None:
            self._report.check("delta-after-done", part.text is None, "a delta after the text was done")
            part.deltas.append(str(event.get("delta")))
            part.logprobs += event.get("logprobs") or []

    def text_done(self, event: JSON, kind: str, key: str) -> None:
        """Take the whole text."""
        part = self._open(event, kind)
        if part is not None:
            self._report.check("text-done-once", part.text is None, "the text is done twice")
            part.text = str(event.get(key))
            self._report.equal("deltas-text", "the text", part.text, "".join(part.deltas))
            if "logprobs" in event:
                self._report.equal("logprobs", "logprobs", event["logprobs"], part.logprobs)

    def annotate(self, event: JSON) -> None:
        """Take `output_text.annotation.added`."""
        part = self._open(event, "output_text")
        if part is not None:
            index = event.get("annotation_index")
            self._report.equal("annotation-index", "annotation_index", index, len(part.annotations))
            part.annotations.append(event.get("annotation"))

    def close(self, event: JSON) -> None:
        """Take `content_part.done` or `reasoning_summary_part.done`."""
        given = event.get("part")
        closed: JSON = given if isinstance(given, dict) else {}
        part = self._open(event, closed.get("type"))
        if part is None:
            return
        part.closed = closed
        key = "refusal" if part.type == "refusal" else "text"
        text = "".join(part.deltas) if part.text is None else part.text
        self._report.equal("part-text", f"{key} of the part", closed.get(key), text)
        if part.type == "output_text":
            self._report.equal("annotations", "annotations of the part", closed.get("annotations"), part.annotations)
            self._report.equal("logprobs", "logprobs of the part", closed.get("logprobs"), part.logprobs)

    def check_texts(self) -> None:
        """Check that the text of each part was done before the part."""
        for part in self._parts:
            ended = part.text is not None or part.type not in _EMPTY
            self._report.check("text-done", ended, "the part ends without the event of its text")

    def final(self) -> list[JSON]:
        """Return the parts as the finished item must have them."""
        for number, part in enumerate(self._parts):
            self._report.check("part-done", part.closed is not None, f"part {number} of the item was never done")
        return [part.closed for part in self._parts if part.closed is not None]

    def _open(self, event: JSON, kind: object) -> Part | None:
        index = event.get(self._index)
        known = isinstance(index, int) and 0 <= index < len(self._parts)
        if not self._report.check("part-open", known, f"no part with {self._index} {shown(index)} was added"):
            return None
        part = self._parts[int(str(index))]
        if not self._report.check("part-open", part.closed is None, f"the part with {self._index} {index} is done"):
            return None
        fits = part.type == kind
        return (
            part if self._report.check("part-type", fits, f"the part is {part.type}, the event is for {kind}") else None
        )
