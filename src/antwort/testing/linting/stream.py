"""The stream: bytes into events, one frame each, and their order: numbers, the beginning, the one end."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from antwort.testing.linting.report import LintReport, shown
from antwort.types import JSON

_END = b"\n\n"
_DONE = "[DONE]"
TERMINAL = ("response.completed", "response.failed", "response.incomplete")
SNAPSHOTS = ("response.created", "response.queued", "response.in_progress", *TERMINAL)
_STATUSES = {
    "response.created": {"queued", "in_progress"},
    "response.queued": {"queued"},
    "response.in_progress": {"in_progress"},
    "response.completed": {"completed"},
    # The protocol has no event for a response that was cancelled: it ends with one of these.
    "response.failed": {"failed", "cancelled"},
    "response.incomplete": {"incomplete", "cancelled"},
}


@dataclass(slots=True)
class Frames:
    """What a stream consists of."""

    events: list[JSON] = field(default_factory=list)
    frames: int = 0
    comments: int = 0
    done: bool = False


def read_frames(raw: bytes | Iterable[bytes], report: LintReport, *, whole_writes: bool) -> Frames:
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


def _text(block: bytes, report: LintReport) -> str | None:
    report.check("line-end", b"\r" not in block, "a line ends with a carriage return")
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        report.broken("encoding", f"not UTF-8: {error}")
        return None


def _read(text: str, found: Frames, report: LintReport) -> None:
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


def _well_formed(lines: list[str], report: LintReport) -> bool:
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


def _event(name: str, data: str, found: Frames, report: LintReport) -> None:
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


def check_numbers(events: Sequence[JSON], first: int, report: LintReport) -> None:
    """Check that sequence numbers start where they should and rise by one."""
    expected = first
    for event in events:
        number = event.get("sequence_number")
        report.where = position(event)
        report.equal("sequence", "sequence_number", number, expected)
        expected = number + 1 if isinstance(number, int) else expected + 1


def check_order(events: Sequence[JSON], report: LintReport) -> None:
    """Check the beginning: `response.created`, perhaps `response.queued`, then `response.in_progress`."""
    types = [event.get("type") for event in events]
    report.where = "stream"
    report.check("first-event", types[:1] == ["response.created"], f"the first event is {shown(types[:1])}")
    for kind in SNAPSHOTS[:3]:
        report.check("repeated-event", types.count(kind) <= 1, f"{kind} comes {types.count(kind)} times")
    if "response.in_progress" in types:
        before = types[: types.index("response.in_progress")]
        wanted = (["response.created"], ["response.created", "response.queued"])
        report.check("in-progress-first", before in wanted, f"before response.in_progress come {shown(before)}")
    else:
        only = set(types) <= {"response.created", "response.queued", "error", "response.failed"}
        report.check("in-progress-first", only, "response.in_progress is missing")
    if "response.queued" in types:
        report.check("queued-second", types.index("response.queued") == 1, "response.queued is not the second event")


def terminal_of(events: Sequence[JSON], report: LintReport, *, cancelled: bool) -> JSON | None:
    """Return the terminal event; check that there is one, as the last, and that it is a failure after an `error`."""
    ends = [index for index, event in enumerate(events) if event.get("type") in TERMINAL]
    report.where = "end of the stream"
    wanted = len(ends) == 1 or (cancelled and not ends)
    report.check("one-terminal", wanted, f"{len(ends)} terminal events, expected 1")
    for index, event in enumerate(events):
        if event.get("type") == "error":
            report.where = position(event)
            after = events[index + 1].get("type") if index + 1 < len(events) else None
            report.equal("error-then-failed", "the event after an error", after, "response.failed")
    if not ends:
        return None
    for event in events[ends[0] + 1 :]:
        report.where = position(event)
        report.broken("after-terminal", f"an event after {events[ends[0]]['type']}")
    return events[ends[-1]]


def check_snapshot_status(event: JSON, report: LintReport) -> None:
    """Check that the status of a response fits the event that carries it, and that output comes only at the end."""
    kind, response = str(event.get("type")), event.get("response")
    if not isinstance(response, dict):
        return
    status = response.get("status")
    report.check("snapshot-status", status in _STATUSES[kind], f"{kind} has a response with status {shown(status)}")
    if kind not in TERMINAL:
        report.equal("snapshot-output", f"output in {kind}", response.get("output"), [])


def position(event: JSON) -> str:
    """Return where an event is, for people."""
    return f"event {event.get('sequence_number')} ({event.get('type')})"
