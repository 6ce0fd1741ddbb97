"""Writers: each writes one item that arrives in pieces, with its parts and deltas.

Pieces are joined at the end, so that cost stays linear.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from typing_extensions import override

from antwort.backends.dialects import Pieces
from antwort.context import Source
from antwort.engine.output.events import Events
from antwort.types import JSON
from antwort.wire.ids import new_id
from antwort.wire.items import Item, ItemStatus, Message, OutputText, Reasoning, ReasoningText, Refusal, SummaryText


class Output(Protocol):
    """The output of a response, as far as writers need it."""

    events: Events

    @property
    def seal(self) -> Callable[[str], str] | None:
        """How to encrypt thoughts for the client to carry; None if it does not want them."""

    def add(self, item: Item) -> int:
        """Begin an item: give it the next index and tell so."""

    def done(self, index: int) -> None:
        """End an item."""

    def cite(self, text: str) -> list[JSON]:
        """Return the annotations of a text."""


class Writer:
    """Writes one item with one part."""

    kind: str
    at: JSON
    """Where the part is, as events tell it."""
    middle: bytes
    tail: bytes

    def __init__(self, output: Output) -> None:
        self.output = output
        self.pieces = Pieces()

    def close(self, status: ItemStatus) -> None:
        """End the item with what has arrived."""
        raise NotImplementedError

    def begin(self, item: Item, item_id: str, part: Any, kind: str, tail: bytes) -> None:
        """Add the item and its part."""
        self.item_id = item_id
        self.index = self.output.add(item)
        self.begin_part(part, kind, tail)

    def begin_part(self, part: Any, kind: str, tail: bytes) -> None:
        """Add the part that the pieces belong to."""
        if not self.output.events.enabled:
            return
        self.kind = kind
        self.at = {"item_id": self.item_id, "output_index": self.index, "content_index": 0}
        self.output.events.emit("response.content_part.added", **self.at, part=part)
        self.middle = b',"item_id":"%s","output_index":%d,"content_index":0,"delta":' % (
            self.item_id.encode(),
            self.index,
        )
        self.tail = tail

    def add(self, delta: str) -> None:
        """Take a piece."""
        self.pieces.add(delta)
        if self.output.events.enabled:
            self.output.events.delta(self.kind, self.middle, delta, self.tail)

    def end(self, part: Any) -> None:
        """End the part and the item."""
        if self.output.events.enabled:
            self.output.events.emit("response.content_part.done", **self.at, part=part)
        self.output.done(self.index)


class TextWriter(Writer):
    """Writes a message."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        part = self.part = OutputText()
        message = self.message = Message(new_id("msg"))
        self.begin(message, message.id, part, "response.output_text.delta", b',"logprobs":[]}')
        message.content.append(part)

    @override
    def add(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        self.pieces.add(delta)
        events = self.output.events
        if logprobs:
            self.part.logprobs += logprobs
        if not events.enabled:
            return
        if logprobs:
            events.emit("response.output_text.delta", **self.at, delta=delta, logprobs=logprobs)
        else:
            events.delta("response.output_text.delta", self.middle, delta, self.tail)

    def add_all(self, deltas: Sequence[str], text: str) -> None:
        """Take pieces that came together, and the text that they make."""
        self.pieces.add(text)
        events = self.output.events
        if events.enabled:
            events.deltas("response.output_text.delta", self.middle, deltas, self.tail)

    @override
    def close(self, status: ItemStatus) -> None:
        events, part = self.output.events, self.part
        part.text = self.pieces.text()
        part.annotations = self.output.cite(part.text)
        self.message.status = status
        if events.enabled:
            for number, annotation in enumerate(part.annotations):
                at = {**self.at, "annotation_index": number}
                events.emit("response.output_text.annotation.added", **at, annotation=annotation)
            events.emit("response.output_text.done", **self.at, text=part.text, logprobs=part.logprobs)
        self.end(part)


class RefusalWriter(Writer):
    """Writes a message in which the model declines."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self.part = Refusal()
        self.message = Message(id=new_id("msg"))
        self.begin(self.message, self.message.id, self.part, "response.refusal.delta", b"}")
        self.message.content.append(self.part)

    @override
    def close(self, status: ItemStatus) -> None:
        self.part.refusal = self.pieces.text()
        if self.output.events.enabled:
            self.output.events.emit("response.refusal.done", **self.at, refusal=self.part.refusal)
        self.message.status = status
        self.end(self.part)


class ReasoningWriter(Writer):
    """Writes the model's thoughts: as they are, as a summary, or sealed; whatever of it the model server gives."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self.part: ReasoningText | None = None
        self.opaque: str | None = None
        self._summary = Pieces()
        self._summarising = False
        self.reasoning = Reasoning(id=new_id("rs"), content=[])
        self.item_id = self.reasoning.id
        self.index = output.add(self.reasoning)

    @override
    def add(self, delta: str) -> None:
        if self.part is None:
            self._end_summary()
            self.part = ReasoningText()
            self.begin_part(self.part, f"{self.output.events.thoughts}.delta", b"}")
            self.reasoning.content = [self.part]
        super().add(delta)

    def add_summary(self, delta: str) -> None:
        """Take a piece of a summary."""
        if not self._summarising:
            self._summarising = True
            self._tell_summary("part.added", part=SummaryText())
        self._summary.add(delta)
        self._tell_summary("text.delta", delta=delta)

    def add_as_summary(self, delta: str) -> None:
        """Take a piece of the thoughts that clients read as a summary."""
        self.pieces.add(delta)
        self.add_summary(delta)

    @override
    def close(self, status: ItemStatus) -> None:
        self._end_summary()
        text = self.pieces.text()
        if self.part is not None:
            self.part.text = text
            if self.output.events.enabled:
                self.output.events.emit(f"{self.output.events.thoughts}.done", **self.at, text=text)
                self.output.events.emit("response.content_part.done", **self.at, part=self.part)
        if self.opaque is not None:
            self.reasoning.encrypted_content = self.opaque
        elif self.output.seal is not None and text:
            self.reasoning.encrypted_content = self.output.seal(text)
        self.reasoning.status = status
        self.output.done(self.index)

    def _end_summary(self) -> None:
        if not self._summarising:
            return
        self._summarising = False
        part = SummaryText(self._summary.text())
        self._tell_summary("text.done", text=part.text)
        self._tell_summary("part.done", part=part)
        self.reasoning.summary = [*self.reasoning.summary, part]
        self._summary = Pieces()

    def _tell_summary(self, step: str, **fields: Any) -> None:
        if not self.output.events.enabled:
            return
        at = {"item_id": self.item_id, "output_index": self.index, "summary_index": len(self.reasoning.summary)}
        self.output.events.emit(f"response.reasoning_summary_{step}", **at, **fields)


_MARKER = re.compile(r"\[(\d{1,4}(?:, ?\d{1,4})*)\]|【(\d{1,4})[^】]*】")
_URL = re.compile(r"(?:https?://|sandbox:/)[^\s<>\"'\])}]+")


def annotations(text: str, sources: Mapping[int, Source]) -> list[JSON]:
    """Return an annotation for each `[n]`, or number of `[n, m]`, and URL that stands for a source, in order."""
    if not sources or ("[" not in text and "【" not in text and ":/" not in text):
        return []
    found: list[tuple[int, int, Source]] = []
    for match in _MARKER.finditer(text):
        for number in (match[1] or match[2]).split(","):
            source = sources.get(int(number))
            if source is not None:
                found.append((match.start(), match.end(), source))
    by_url = {url.rstrip("/"): one for one in sources.values() for url in (one.url, *one.other_urls) if url}
    for match in _URL.finditer(text):
        url = match[0].rstrip(".,;:!?")
        source = by_url.get(url.rstrip("/"))
        if source is not None:
            found.append((match.start(), match.start() + len(url), source))
    return [_annotation(start, end, source) for start, end, source in sorted(found, key=lambda span: span[:2])]


def _annotation(start: int, end: int, source: Source) -> JSON:
    if source.file_id is not None and source.container_id is not None:
        return {
            "type": "container_file_citation",
            "container_id": source.container_id,
            "file_id": source.file_id,
            "filename": source.title,
            "start_index": start,
            "end_index": end,
        }
    if source.file_id is not None:
        return {"type": "file_citation", "file_id": source.file_id, "filename": source.title, "index": start}
    return {
        "type": "url_citation",
        "url": source.url or "",
        "title": source.title,
        "start_index": start,
        "end_index": end,
    }
