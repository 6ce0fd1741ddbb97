"""The items of calls that the server executes: as they begin, and what they say of the result."""

import functools
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from antwort.engine.output.emitter import Emitter
from antwort.functions import HostedCall, HostedTool, ItemEnd, ItemEvent, ToolResult
from antwort.functions.hosted_tool import SET_BY_SERVER
from antwort.storage.base import JournalEntry
from antwort.storage.call_record import CallRecord
from antwort.types import JSON
from antwort.wire.client_tools import ITEM_PREFIXES
from antwort.wire.ids import new_id
from antwort.wire.items import failed_status

logger = logging.getLogger(__name__)

OWN = "antwort:function_call"
"""The item of a call that has none of its own."""
_OURS = frozenset({"id", "type", "status"})
"""The fields of an item that no function sets."""
_KIND = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")


def call_item(call: CallRecord, tool: HostedTool | None, approval: str | None = None) -> JSON:
    """Return the item of a call that begins, after an approval if it needed one."""
    if tool is None or tool.item is None:
        return {
            "id": new_id("afc"),
            "type": OWN,
            "status": "in_progress",
            "name": call.name,
            "arguments": call.arguments,
            "output": "",
            "content": [],
        }
    item: JSON = {"id": new_id(tool.id_prefix or _prefix(tool.item)), "type": tool.item, "status": "in_progress"}
    if tool.output_items:
        item["call_id"] = call.call_id
    try:
        item.update(_fields(call.name, tool.begin(_made(call, approval))))
    except BaseException:  # a provider's own code, and no reason for a response to fail
        logger.exception("function %s: `begin` has failed; the item has no fields of its own", call.name)
    return item


def _made(call: CallRecord, approval: str | None = None) -> HostedCall:
    """Return a call as its tool gets it."""
    return HostedCall(call.call_id, call.name, call.arguments, approval)


@functools.cache
def _prefix(item_type: str) -> str:
    """Return what ids of items of a type begin with."""
    return "".join(word[:1] for word in item_type.split("_") if word != "call")


def begin_events(function: str, tool: HostedTool, item: JSON) -> list[ItemEvent]:
    """Return the events that follow when the item of a call was added."""
    try:
        return [event for event in tool.events(item) if is_sendable(function, event)]
    except BaseException:
        logger.exception("function %s: `events` has failed; the item has none", function)
        return []


def is_sendable(function: str, event: ItemEvent) -> bool:
    """Tell whether an event of a function can be sent; if not, that is logged."""
    try:
        if not _KIND.fullmatch(event.kind) or not (event.part is None or _KIND.fullmatch(event.part)):
            logger.error("function %s: %.80r, %.80r is no kind of an event", function, event.kind, event.part)
            return False
        if event.data:
            msgspec.json.encode(event.data)
            if not SET_BY_SERVER.isdisjoint(event.data):
                names = ", ".join(sorted(SET_BY_SERVER & event.data.keys()))
                logger.error("function %s: its event '%s' is not sent: the server sets %s", function, event.kind, names)
                return False
    except Exception as error:  # noqa: BLE001 - a value may be anything, and raise anything
        kind = type(error).__name__
        logger.error("function %s: its event '%s' is no JSON: %s", function, event.kind, kind)  # noqa: TRY400
        return False
    return True


class ItemEvents:
    """Sends the events that a function has for the item of its call, until the call is over."""

    def __init__(self, emitter: Emitter, item: JSON, index: int, function: str) -> None:
        self._emitter = emitter
        self._item = item
        self._index = index
        self._function = function
        self._over = False

    async def send(self, kind: str, data: Mapping[str, Any], part: str | None) -> None:
        """Send an event."""
        event = ItemEvent(kind, data, part)
        if not self._over and is_sendable(self._function, event):
            self._emitter.item_event(self._index, self._item, event)
            await self._emitter.flush()

    def close(self) -> None:
        """Send nothing more: the call is over."""
        self._over = True


class EndedItem(msgspec.Struct, frozen=True):
    """What the items of a call say when it has ended."""

    fields: JSON
    unasked: JSON
    """Fields that only those see who ask for them, by the value of `include` that shows them."""
    status: str
    events: Sequence[ItemEvent] = ()
    further: Sequence[JSON] = ()
    """Further items, as a whole."""


def ended_item(
    call: CallRecord, tool: HostedTool, result: ToolResult, asked: frozenset[str], *, with_events: bool
) -> EndedItem:
    """Return what the items of a hosted call say of its result; `asked` is what the request wants included."""
    name, failed = call.name, result.is_error
    status = failed_status(str(tool.item)) if failed else "completed"
    try:
        end: object = tool.end(_made(call), result)
        if not isinstance(end, ItemEnd):
            raise TypeError(f"`end` returns an ItemEnd, not {type(end).__name__}")  # noqa: TRY301 - logged like any other
        fields, unasked = _gated(_fields(name, end.fields), tool.includes, asked)
        events: Sequence[ItemEvent] = ()
        if with_events:
            events = [event for event in end.events_after(failed=failed) if is_sendable(name, event)]
        further = _further_items(call, tool, end) if end.items else ()
        return EndedItem(fields, unasked, end.status or status, events, further)
    except BaseException:  # a provider's own code, and no reason for a response to fail
        logger.exception("function %s: the items of its result cannot be made", name)
        return EndedItem({}, {}, status, (), [_further_item(call, {"type": kind}) for kind in tool.output_items])


def _further_items(call: CallRecord, tool: HostedTool, end: ItemEnd) -> list[JSON]:
    """Return the further items; one whose type the tool does not name could not be read again, and is left out."""
    further = []
    for item in end.items:
        if item["type"] in tool.output_items:
            further.append(_further_item(call, item))
        else:
            logger.error("function %s: %.80r is none of the `output_items` of its tool", call.name, item["type"])
    return further


def _further_item(call: CallRecord, given: Mapping[str, Any]) -> JSON:
    kind, status = str(given["type"]), str(given.get("status") or "completed")
    item: JSON = {
        "id": new_id(ITEM_PREFIXES.get(kind, "item")),
        "type": kind,
        "status": status,
        "call_id": call.call_id,
    }
    item.update(_fields(call.name, {name: given[name] for name in given if name not in item}))
    return item


def is_own_call(entry: JournalEntry) -> bool:
    """Tell whether an entry is a call that has ended, of a function that has no item of its own."""
    return entry.item.get("type") == OWN and entry.call is not None and entry.call.is_over


def shown_item(entry: JournalEntry, include: Iterable[str] | None) -> JSON:
    """Return an item with what a reader asks for, though the request that made it may not have."""
    item, call = entry.item, entry.call
    if call is None:
        return item
    if not entry.visible and is_own_call(entry):
        status = item["status"] if item["status"] != "in_progress" else "completed"
        item = {**item, "status": status, "output": call.output}
    for value in include or ():
        for name, field in (call.unasked or {}).get(value, {}).items():
            inner = item.get(name)
            item = {**item, name: {**inner, **field} if isinstance(inner, dict) else field}
    return item


def _fields(function: str, given: Any) -> JSON:
    """Return the fields of an item as plain JSON, without those that cannot be written, or are not the function's."""
    if not isinstance(given, Mapping):
        logger.error("function %s: the fields of its item are a mapping, not %s", function, type(given).__name__)
        return {}
    fields: JSON = {}
    for name, value in given.items():
        if not isinstance(name, str) or name in _OURS:
            logger.error("function %s: %.40r is no field of an item that it can set", function, name)
            continue
        try:
            msgspec.json.encode(name)
            fields[name] = msgspec.json.decode(msgspec.json.encode(value))
        except Exception as error:  # noqa: BLE001 - a value may be anything, and raise anything
            logger.error(  # noqa: TRY400 - what is wrong is the value, not where it is written
                "function %s: the field %s of its item is no JSON: %s", function, ascii(name), type(error).__name__
            )
    return fields


def read_arguments(function: str, tool: HostedTool, item: JSON) -> str | None:
    """Return the arguments of a call that a client sends back as its item; None if the item is not the function's."""
    try:
        given = tool.read_arguments(item)
        return given if given is None or isinstance(given, str) else msgspec.json.encode(dict(given)).decode()
    except BaseException:  # a provider's own code, and no reason for a response to fail
        logger.exception("function %s: `read_arguments` has failed; the model does not read the call again", function)
        return None


def read_output(function: str, tool: HostedTool, item: JSON) -> str | None:
    """Return what the model reads of the result that an item shows; None if it shows none."""
    try:
        text: object = tool.read_output(item)
    except BaseException:  # a provider's own code, and no reason for a response to fail
        logger.exception("function %s: `read_output` has failed; the model does not read the result again", function)
        return None
    return text if isinstance(text, str) else None


def _gated(fields: JSON, includes: Mapping[str, str], asked: frozenset[str]) -> tuple[JSON, JSON]:
    """Return an item's fields without what only a request sees that asks for it, and that by what one has to ask."""
    shown, unasked = dict(fields), {}
    for value, path in includes.items():
        if value in asked:
            continue
        *parents, last = path.split(".")
        if not parents:
            if last in shown:  # an item that always shows the field has it since the call began
                unasked[value] = {last: shown.pop(last)}
        elif len(parents) == 1 and isinstance(outer := shown.get(parents[0]), dict) and last in outer:
            shown[parents[0]] = {name: field for name, field in outer.items() if name != last}
            unasked[value] = {parents[0]: {last: outer[last]}}
    return shown, unasked
