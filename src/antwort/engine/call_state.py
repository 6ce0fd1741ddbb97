"""How far the calls of a journal have come: under way, waiting, interrupted."""

import time
from collections.abc import Iterable

import msgspec

from antwort.engine.call_items import OWN
from antwort.engine.emitter import Emitter
from antwort.engine.history import INTERRUPTED, QUESTION_ID, WAITING
from antwort.engine.journal import Journal
from antwort.engine.plan import Plan
from antwort.storage.base import JournalEntry, Question
from antwort.suspension import Suspension
from antwort.types import JSON
from antwort.wire.items import failed_status

FOR_OTHERS = ("agents", "calls")
"""What a call waits for that nobody is asked about: agents, or calls of its own, that wait themselves."""

_FOR_EVER = 100 * 365.25 * 86_400
"""Seconds. What waits longer has no end that anybody has to store."""


def note_wait(call: JSON, suspension: Suspension) -> None:
    """Note in the record of a call what it waits for, since when, and until when if not for ever."""
    now, seconds = time.time(), suspension.expires_in
    call[WAITING] = msgspec.to_builtins(suspension)
    call["waiting_since"] = int(now)
    call.pop("expires_at", None)
    if seconds is not None and seconds < _FOR_EVER:
        call["expires_at"] = int(now + seconds)


def is_under_way(entry: JournalEntry) -> bool:
    """Tell whether an entry is a call that the server has begun and not ended."""
    return entry.call is not None and "name" in entry.call and "output" not in entry.call


def is_waiting(entry: JournalEntry) -> bool:
    """Tell whether an entry is a call that waits for somebody."""
    return entry.call is not None and WAITING in entry.call and is_under_way(entry)


def waited_for(entry: JournalEntry) -> Suspension | None:
    """Return what a call waits for, if it does."""
    waiting = (entry.call or {}).get(WAITING)
    return None if waiting is None else msgspec.convert(waiting, Suspension)


def questions_of(entries: Iterable[JournalEntry], plan: Plan) -> list[Question]:
    """Return what calls wait for that somebody has to say."""
    questions = []
    for entry in entries:
        call, wait = entry.call or {}, waited_for(entry)
        if wait is not None and (wait.kind == "question" or wait.kind == "approval"):  # noqa: PLR1714 - so it is known to be one
            questions.append(
                Question(
                    id=call[QUESTION_ID],
                    tenant=plan.ctx.tenant,
                    response_id=plan.response.id,
                    call_id=call["call_id"],
                    root_id=plan.root_id,
                    kind=wait.kind,
                    body=wait.body,
                    created_at=call.get("waiting_since") or int(time.time()),
                    expires_at=call.get("expires_at"),
                )
            )
    return questions


def interrupt_calls(journal: Journal, emitter: Emitter) -> None:
    """End the calls that have started and whose results nobody will know, because the response ends."""
    for position, entry in enumerate(journal.entries):
        if is_under_way(entry):
            interrupt(entry, emitter)
            journal.change(position)


def interrupt(entry: JournalEntry, emitter: Emitter) -> None:
    """End a call that has started and whose result nobody will know."""
    item = entry.item
    entry.call = {**(entry.call or {}), "output": INTERRUPTED, "status": "error"}
    if item["type"] == OWN:
        item["status"], item["output"] = "completed", INTERRUPTED
    else:
        item["status"] = failed_status(str(item["type"]))
    index = emitter.replace(item)
    if index >= 0:
        emitter.done(index)
