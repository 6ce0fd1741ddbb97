"""The linter: whether a response, streamed or not, keeps every rule of the protocol."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from antwort.testing.linting.contracts import Contracts
from antwort.testing.linting.items import Items, check_response, check_stable
from antwort.testing.linting.report import LintReport
from antwort.testing.linting.stream import (
    SNAPSHOTS,
    check_numbers,
    check_order,
    check_snapshot_status,
    position,
    read_frames,
    terminal_of,
)
from antwort.types import JSON


@dataclass(frozen=True, slots=True)
class LintedStream:
    """A stream that keeps the rules."""

    events: list[JSON]
    """The events of this stream, in order."""
    response: JSON
    """The response of the terminal event; of the last snapshot if the response was cancelled."""
    text: str
    """The text of the answer: all output texts, joined."""
    frames: int
    """How many frames there were, `[DONE]` included."""
    comments: int = 0
    """How many heartbeats came between them."""

    @property
    def types(self) -> list[str]:
        """The types of the events."""
        return [event["type"] for event in self.events]


def lint_stream(
    raw: bytes | Iterable[bytes],
    *,
    starting_after: int | None = None,
    earlier: Sequence[JSON] = (),
    whole_writes: bool = False,
    cancelled: bool = False,
) -> LintedStream:
    """Check the body of a streamed response; raise a LintError that lists every violation.

    A stream resumed with `starting_after` begins in the middle. With `earlier`, the events the client had seen before,
    everything is checked as one stream; without them only what can be known: framing, numbers, types, responses, the
    end. With `whole_writes` each element of `raw` is one write of the server, and no frame may be split over two. With
    `cancelled` the stream may end without a terminal event, as the protocol has none for a response that is cancelled.

    The rules are those of Open Responses 2026-04-24 and of the OpenAI SDKs: framing; event = type; numbers without a
    gap; the beginning and the one end; items that are added empty, filled and done; parts that bracket their deltas;
    deltas that amount to what is done; the final output equal to the items; all keys in every snapshot; and every event
    and response valid under the types of the packages `openresponses-types` and `openai`, which must be installed.
    """
    report = LintReport()
    frames = read_frames(raw, report, whole_writes=whole_writes)
    seen = [event for event in earlier if starting_after is None or event["sequence_number"] <= starting_after]
    if starting_after is None and seen:
        starting_after = seen[-1]["sequence_number"]
    check_numbers(frames.events, 0 if starting_after is None else starting_after + 1, report)
    events = [*seen, *frames.events]
    whole = starting_after is None or bool(seen)
    if whole:
        check_order(events, report)
    terminal = terminal_of(events, report, cancelled=cancelled)
    contracts = Contracts(report)
    items = Items(report, contracts.known)
    snapshots: list[JSON] = []
    for event in events:
        report.where = position(event)
        contracts.check_event(event)
        if event.get("type") in SNAPSHOTS:
            snapshots += _snapshot(event, report)
        elif whole:
            items.take(event)
    report.where = "end of the stream"
    check_stable(snapshots, report)
    report.check("snapshot", snapshots, "no event carries the response")
    if whole and terminal is not None and snapshots:
        expected = items.finish(snapshots[-1])
        report.equal("final-output", "output", snapshots[-1].get("output"), expected)
    report.raise_if_broken()
    return LintedStream(frames.events, snapshots[-1], _text(snapshots[-1]), frames.frames, frames.comments)


def lint_response(body: JSON) -> JSON:
    """Check a response that is not streamed; raise a LintError that lists every violation, else return it."""
    report = LintReport()
    report.where = "response"
    check_response(body, report)
    Contracts(report).check_response(body)
    report.raise_if_broken()
    return body


def _snapshot(event: JSON, report: LintReport) -> list[JSON]:
    response = event.get("response")
    if not isinstance(response, dict):
        report.broken("snapshot", "the event has no response")
        return []
    check_snapshot_status(event, report)
    check_response(response, report)
    return [response]


def _text(response: JSON) -> str:
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts if part["type"] == "output_text")
