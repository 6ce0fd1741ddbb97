"""What an input says that was said before: refused where OpenAI refuses it, left out where nothing is lost by it."""

from collections.abc import Iterable, Sequence

from antwort.errors import BadRequestError
from antwort.storage.base import JournalEntry
from antwort.types import JSON
from antwort.wire.client_tools import CALLS, OUTPUTS


def check_repeated_ids(
    sent: str | Sequence[JSON] | None, history: Iterable[JournalEntry], entries: Sequence[JournalEntry]
) -> None:
    """Refuse an input with an item that it has twice, or that is in the history it continues, by its id.

    `sent` is the input as the client sent it: ids that the server has given since then are new.
    """
    if isinstance(sent, str) or not any(item.get("id") for item in sent or ()):
        return
    seen = {entry.item.get("id") for entry in history}
    for entry in entries:
        item_id = entry.item.get("id")
        if item_id == entry.item.get("call_id"):
            continue  # outputs of local shells have the id of their call
        if item_id in seen:
            raise BadRequestError(
                f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again.",
                param="input",
            )
        seen.add(item_id)


def without_repeated_calls(history: Iterable[JournalEntry], entries: Sequence[JournalEntry]) -> list[JournalEntry]:
    """Return an input without calls and outputs that the history it continues ends with, or has.

    Some clients send all calls of a run, or all outputs, with each request of it, and the id of the response before as
    well. An output that is not the one that a call has been given stays, and so does a call that was answered.
    """
    if not any(entry.item["type"] in CALLS or entry.item["type"] in OUTPUTS for entry in entries):
        return [*entries]
    known = {}
    for entry in history:
        if entry.is_plain and (entry.item["type"] in CALLS or entry.item["type"] in OUTPUTS):
            known[entry.item.get("call_id")] = _said(entry.item)  # the call, until its output comes
    left = []
    for entry in entries:
        call_id = entry.item.get("call_id")
        if call_id in known:
            if known[call_id] == _said(entry.item):
                continue
            del known[call_id]  # what follows belongs to this one
        left.append(entry)
    return left


def _said(item: JSON) -> JSON:
    """Return what an item says, without what the server or the client may have added to it."""
    return {key: value for key, value in item.items() if value is not None and key not in {"id", "status"}}
