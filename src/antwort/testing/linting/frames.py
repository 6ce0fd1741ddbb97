"""Framing: bytes into events, one frame each."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from antwort.testing.linting.report import Report, shown
from antwort.types import JSON

__all__ = ["Frames", "read_frames"]

_END = b"\n\n"
_DONE = "[DONE]"


@dataclass(slots=True)
class Frames:
    """What a stream consists of."""

    events: list[JSON] = field(default_factory=list)
    frames: int = 0
    comments: int = 0
    done: bool = False


def read_frames(raw: bytes | Iterable[bytes], report: Report, *, whole_writes: bool) -> Frames:
    """Cut a stream into frames and read their events; what cannot be read is noted and left out."""
    writes = [raw] if isinstance(raw, bytes) else list(raw)
    if whole_writes:
        for number, write in enumerate(writes, 1):
            report.where = f"write {number}"
            report.check("whole-frames", write.endswith(_END), f"a frame is split over writes: …{shown(write[-40:])}")
    *blocks, rest = b"".join(writes).split(_END)
    found = Frames()
    for block in blocks:
        report.where = f"frame {found.frames + 1}"
        text = _text(block, report)
        if text is not None:
            _read(text, found, report)
    report.where = "end of the stream"
    report.check("frame-end", not rest, f"a frame does not end with an empty line: {shown(rest)}")
    report.check("done-marker", found.done, "the stream does not end with 'data: [DONE]'")
    return found


def _text(block: bytes, report: Report) -> str | None:
    report.check("line-end", b"\r" not in block, "a line ends with a carriage return")
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        report.broken("encoding", f"not UTF-8: {error}")
        return None


def _read(text: str, found: Frames, report: Report) -> None:
    lines = text.split("\n")
    if all(line.startswith(":") for line in lines):
        found.comments += 1
        report.check("after-done", not found.done, "a comment after [DONE]")
        return
    found.frames += 1
    report.check("after-done", not found.done, f"a frame after [DONE]: {shown(text)}")
    if lines == [f"data: {_DONE}"]:
        found.done = True
        return
    if _well_formed(lines, report):
        _event(lines[0].removeprefix("event: "), lines[1].removeprefix("data: "), found, report)


def _well_formed(lines: list[str], report: Report) -> bool:
    for line in lines:
        name = line.partition(":")[0]
        if not name:
            report.broken("comment-in-frame", f"a comment inside a frame: {shown(line)}")
        elif name == "id":
            report.broken("no-id", "a frame has an 'id:' line")
        elif name not in {"event", "data"}:
            report.broken("frame-lines", f"unknown line {shown(line)}")
    data = [line for line in lines if line.startswith("data:")]
    report.check("one-data-line", len(data) == 1, f"a frame has {len(data)} data lines")
    shape = len(lines) == 2 and lines[0].startswith("event: ") and lines[1].startswith("data: ")
    return report.check("frame-lines", shape, f"a frame is 'event: …' and 'data: …', not {shown(lines)}")


def _event(name: str, data: str, found: Frames, report: Report) -> None:
    if data == _DONE:
        found.done = True
        report.broken("done-marker", "[DONE] has no 'event:' line")
        return
    try:
        event = json.loads(data, parse_constant=_refuse)
    except ValueError as error:
        report.broken("data-json", f"data is not JSON: {error}: {shown(data)}")
        return
    if report.check("data-json", isinstance(event, dict), f"data is not a JSON object: {shown(data)}"):
        report.equal("event-type", "event", name, event.get("type"))
        found.events.append(event)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
