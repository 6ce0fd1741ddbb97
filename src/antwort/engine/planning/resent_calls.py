"""Calls of the server that clients send back as items: the model reads them again as calls with their results.

A client that keeps the history itself sends every item that it was given. What a call looked like to the model is known
to the function only, so its `HostedTool` reads the item. Calls that calls have made themselves were never the model's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from antwort.engine.calls.items import OWN, read_arguments, read_output
from antwort.engine.window import APPROVAL_REQUEST, INTERRUPTED
from antwort.errors import BadRequestError
from antwort.functions import FunctionSpec, HostedTool
from antwort.functions.output import NOTHING, capped, encodable
from antwort.storage.base import JournalEntry
from antwort.storage.call_record import CallRecord
from antwort.types import JSON
from antwort.wire.client_tools import CALLS, OUTPUTS, qualified_name

Showing = Callable[[str], Sequence[tuple[str, FunctionSpec]]]
"""Gives the functions whose calls are items of a type, with the model's names of them."""
_LONGEST = 100_000
"""Characters of an output that the model reads, unless its function says otherwise; as when it was new."""
_NOT_SENT = "(The output of this call was not sent along.)"
_FAILED = "The call has failed."
_SAID = frozenset({"message", "reasoning", "function_call", "function_call_output"})
"""Items that are no calls of ours; nearly all are among them."""


class _Resent(Struct):
    """A call that was sent back."""

    item: JSON
    call_id: str
    name: str
    arguments: str
    tool: HostedTool | None = None
    result: JSON | None = None
    """The item that shows what came of it."""
    longest: int = _LONGEST

    def record(self, turn: int) -> CallRecord:
        """Return what the journal has of a call that the server has executed."""
        output = encodable(capped(self._output(), self.longest))
        return CallRecord(self.call_id, self.name, self.arguments, turn, output=output)

    def _output(self) -> str:
        status = self.item.get("status")
        if self.tool is None:
            output = self.item.get("output")
        else:
            output = None if self.result is None else read_output(self.name, self.tool, self.result)
        if isinstance(output, str) and (output or status == "completed" or self.tool is not None):
            return output or NOTHING
        if status in {"in_progress", "incomplete"}:
            return INTERRUPTED
        return _FAILED if status == "failed" else _NOT_SENT


def with_resent_calls(entries: list[JournalEntry], showing: Showing) -> list[JournalEntry]:
    """Return entries with those that are items of calls of ours as calls, as the server's own journals have them.

    BadRequestError if one waits for calls of its own that the entries answer: items alone cannot go on with it.
    """
    if not any(map(is_resent, entries)):
        return entries
    reading = _Reading(entries, cache(showing))
    reading.read_nested()
    return [reading.read(position, entry) for position, entry in enumerate(entries)]


def is_resent(entry: JournalEntry) -> bool:
    """Tell whether an entry may be an item of a call of ours."""
    return entry.is_plain and entry.item["type"] not in _SAID


class _Reading:
    """What is known of the items of an input while they are read."""

    def __init__(self, entries: Sequence[JournalEntry], showing: Showing) -> None:
        self._items = {position: entry.item for position, entry in enumerate(entries) if entry.is_plain}
        self._showing = showing
        self._calls: dict[int, _Resent] = {}
        self._hidden: set[int] = set()
        """Positions of items that say what the model reads elsewhere."""
        open_calls: dict[tuple[str, Any], _Resent] = {}
        for position, item in self._items.items():
            key = item["type"], item.get("call_id")
            if key in open_calls:
                open_calls.pop(key).result = item
                self._hidden.add(position)
            elif (call := self._call(item)) is not None:
                self._calls[position] = call
                if call.tool is not None:
                    open_calls |= dict.fromkeys(((kind, call.call_id) for kind in call.tool.output_items), call)

    def read(self, position: int, entry: JournalEntry) -> JournalEntry:
        """Return an entry as a call, if it is one; else as it is, unless it is not for the model."""
        if position in self._hidden:
            return JournalEntry(entry.direction, entry.item, entry.visible, mark="for_clients")
        call = self._calls.get(position)
        if call is None:
            return entry
        # Which calls were parallel is not known any more: each has a turn of its own, which no new one has.
        return JournalEntry(entry.direction, entry.item, entry.visible, call.record(-1 - position))

    def read_nested(self) -> None:
        """Keep calls from the model that other calls have made; whoever has made them has read the outputs."""
        callers = {call.call_id: call for call in self._calls.values()}
        nested: dict[str | None, _Resent] = {}
        for position, item in self._items.items():
            call_id = item.get("call_id")
            caller = callers.get(_caller_id(item)) or nested.get(call_id)
            if caller is None or call_id is None:
                continue
            nested[call_id] = caller
            if caller.result is not None:
                self._hidden.add(position)
            elif item["type"] in OUTPUTS and position not in self._hidden:
                raise BadRequestError(
                    f"The call {item['call_id']} was made by the call {caller.call_id}, which waits for its output. "
                    "Only the response that has asked for it can be continued with it: send the output alone, with "
                    "that response as `previous_response_id`, or in its conversation.",
                    param="input",
                    code="previous_response_needed",
                )

    def _call(self, item: JSON) -> _Resent | None:
        """Return the call that an item is, if it is one of ours."""
        call_id = item.get("call_id") or item["id"]
        if item["type"] == OWN:
            return _own_call(item, call_id)
        for name, spec in self._showing(item["type"]):
            tool = spec.hosted
            arguments = None if tool is None else read_arguments(name, tool, item)
            if tool is not None and arguments is not None:
                result = None if tool.output_items else item
                longest = spec.limits.max_output or _LONGEST
                return _Resent(item, call_id, name, arguments, tool, result, longest)
        return _other_call(item, call_id) if _is_other(item) else None


def _is_other(item: JSON) -> bool:
    """Tell whether an item is a call of a tool of another server."""
    return isinstance(item.get("server_label"), str) and "arguments" in item and item["type"] != APPROVAL_REQUEST


def _other_call(item: JSON, call_id: str) -> _Resent:
    """Return the call of another server's function that an item is, whoever has made it."""
    error = item.get("error")
    if error is not None and not isinstance(error, str):
        error = msgspec.json.encode(error).decode()
    name = qualified_name(item["server_label"], item["name"])
    said = item if error is None else {**item, "output": f"{item.get('output') or ''}{_FAILED} {error}"}
    return _Resent(said, call_id, name, item["arguments"])


def _own_call(item: JSON, call_id: str) -> _Resent | None:
    """Return the call that an item of our own type is, unless another call has made it."""
    name, arguments = item.get("name"), item.get("arguments")
    if not name or not isinstance(arguments, str) or item.get("caller") is not None:
        return None
    return _Resent(item, call_id, name, arguments)


def _caller_id(item: JSON) -> str:
    caller = item.get("caller")
    return str(caller.get("caller_id")) if isinstance(caller, Mapping) and caller.get("type") == "program" else ""


# --- what an input says that was said before -------------------------------------------------------------------------


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
