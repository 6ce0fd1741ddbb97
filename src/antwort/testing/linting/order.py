"""The order of the events of a response: numbers, the beginning, the one end."""

from collections.abc import Sequence

from antwort.testing.linting.report import Report, shown
from antwort.types import JSON

__all__ = ["SNAPSHOTS", "TERMINAL", "check_numbers", "check_order", "check_snapshot_status", "place", "terminal_of"]

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


def check_numbers(events: Sequence[JSON], first: int, report: Report) -> None:
    """Check that sequence numbers start where they should and rise by one."""
    expected = first
    for event in events:
        number = event.get("sequence_number")
        report.where = place(event)
        report.equal("sequence", "sequence_number", number, expected)
        expected = number + 1 if isinstance(number, int) else expected + 1


def check_order(events: Sequence[JSON], report: Report) -> None:
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


def terminal_of(events: Sequence[JSON], report: Report, *, cancelled: bool) -> JSON | None:
    """Return the terminal event; check that there is one, as the last, and that it is a failure after an `error`."""
    ends = [index for index, event in enumerate(events) if event.get("type") in TERMINAL]
    report.where = "end of the stream"
    wanted = len(ends) == 1 or (cancelled and not ends)
    report.check("one-terminal", wanted, f"{len(ends)} terminal events, expected 1")
    for index, event in enumerate(events):
        if event.get("type") == "error":
            report.where = place(event)
            after = events[index + 1].get("type") if index + 1 < len(events) else None
            report.equal("error-then-failed", "the event after an error", after, "response.failed")
    if not ends:
        return None
    for event in events[ends[0] + 1 :]:
        report.where = place(event)
        report.broken("after-terminal", f"an event after {events[ends[0]]['type']}")
    return events[ends[-1]]


def check_snapshot_status(event: JSON, report: Report) -> None:
    """Check that the status of a response fits the event that carries it, and that output comes only at the end."""
    kind, response = str(event.get("type")), event.get("response")
    if not isinstance(response, dict):
        return
    status = response.get("status")
    report.check("snapshot-status", status in _STATUSES[kind], f"{kind} has a response with status {shown(status)}")
    if kind not in TERMINAL:
        report.equal("snapshot-output", f"output in {kind}", response.get("output"), [])


def place(event: JSON) -> str:
    """Return where an event is, for people."""
    return f"event {event.get('sequence_number')} ({event.get('type')})"
