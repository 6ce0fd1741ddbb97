"""How far the calls of a journal have come: under way, waiting, interrupted."""

import time
from collections.abc import Iterable

from msgspec.structs import replace

from antwort.engine.calls.items import OWN
from antwort.engine.history import INTERRUPTED
from antwort.engine.journal import Journal
from antwort.engine.output.emitter import Emitter
from antwort.engine.plan import Plan
from antwort.storage.base import JournalEntry, Question
from antwort.wire.items import failed_status

FOR_OTHERS = ("agents", "calls")
"""What a call waits for that nobody is asked about: agents, or calls of its own, that wait themselves."""


def is_under_way(entry: JournalEntry) -> bool:
    """Tell whether an entry is a call that the server has begun and not ended."""
    return entry.call is not None and not entry.call.is_over


def is_waiting(entry: JournalEntry) -> bool:
    """Tell whether an entry is a call that waits for somebody."""
    return entry.call is not None and entry.call.is_waiting


def questions_of(entries: Iterable[JournalEntry], plan: Plan) -> list[Question]:
    """Return what calls wait for that somebody has to say."""
    questions = []
    for entry in entries:
        call = entry.call
        if call is None or (wait := call.waiting) is None or call.question is None:
            continue
        if wait.kind == "question" or wait.kind == "approval":  # noqa: PLR1714 - so it is known to be one
            questions.append(
                Question(
                    id=call.question,
                    tenant=plan.ctx.tenant,
                    response_id=plan.response.id,
                    call_id=call.call_id,
                    root_id=plan.root_id,
                    kind=wait.kind,
                    body=wait.body,
                    created_at=call.waiting_since or int(time.time()),
                    expires_at=call.expires_at,
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
    item, call = entry.item, entry.call
    if call is not None:
        entry.call = replace(call, waiting=None, output=INTERRUPTED, status="error", interrupted=True)
    if item["type"] == OWN:
        item["status"], item["output"] = "completed", INTERRUPTED
    else:
        item["status"] = failed_status(str(item["type"]))
    index = emitter.replace(item)
    if index >= 0:
        emitter.done(index)
