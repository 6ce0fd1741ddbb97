"""What came before: stored entries and new input, put together into what the model reads."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from antwort.context import Context, Source, Sources
from antwort.context.context import CONVERSATIONS_READ, RESPONSES_READ
from antwort.engine.window import COMPACTION, Seals, pruned
from antwort.errors import BadRequestError, NotFoundError
from antwort.storage.base import JournalEntry
from antwort.storage.call_record import CallRecord
from antwort.storage.sql.responses import ResponseStore
from antwort.types import JSON
from antwort.wire.client_tools import CALLS, OUTPUTS
from antwort.wire.ids import new_id

APPROVAL_REQUEST, APPROVAL_RESPONSE = "mcp_approval_request", "mcp_approval_response"
"""The items by which a call is approved. They are for clients: models read the call and its output."""
LISTED = "mcp_list_tools"
_FOR_CLIENTS = frozenset({APPROVAL_REQUEST, APPROVAL_RESPONSE, LISTED})
"""Items that no model reads; what a server has, it is offered as functions."""
Recall = Mapping[str, Sequence[JournalEntry]]
"""Responses that can be continued although nobody stores them: all that was read and said, by response id."""
_TRIGGER = "compaction_trigger"
INTERRUPTED = "The call was interrupted and its result is not known. Check before you repeat it."


def restore_sources(entries: Iterable[JournalEntry], sources: Sources) -> None:
    """Put what calls have noted back under its numbers, which the model reads in their outputs.

    Answers that were made at the same time may have given one number to two sources: the later one counts. Calls that
    an input names come from anywhere: their sources take no number that means another one before them.
    """
    for entry in entries:
        if entry.noted is None:
            continue
        noted = msgspec.convert(entry.noted, dict[int, Source], str_keys=True)
        if entry.direction == "input":
            taken = sources.numbered()
            noted = {number: source for number, source in noted.items() if number not in taken}
        sources.restore(noted)


async def resolve_references(items: Iterable[JSON], store: ResponseStore, ctx: Context) -> list[JournalEntry]:
    """Return an input as entries, with what `item_reference` items name in their place."""
    entries: list[JournalEntry] = []
    for index, item in enumerate(items):
        if item["type"] != "item_reference":
            entries.append(JournalEntry("input", item))
            continue
        for scope in (RESPONSES_READ, CONVERSATIONS_READ):  # it may be an item of either
            ctx.require(scope, param=f"input[{index}]", purpose="to read the item that is referred to")
        found = await store.find_item(ctx.tenant, item["id"])
        if found is None:
            raise NotFoundError(f"Item with id '{item['id']}' not found.", param="input")
        entries += _named(found)
    return entries


def _named(found: JournalEntry) -> list[JournalEntry]:
    """Return an item as input: a call that the server executed becomes the call and its output with its sources."""
    if found.is_plain:
        return [JournalEntry("input", found.item)]
    entries = [JournalEntry("input", {"id": new_id("item"), **item}) for item in model_items([found])]
    if entries:
        entries[-1].sources = found.noted
    return entries


def without_trigger(entries: list[JournalEntry]) -> tuple[list[JournalEntry], bool]:
    """Return an input without the item that asks for its window to be compacted, and whether it had one."""
    if not any(entry.item["type"] == _TRIGGER for entry in entries):
        return entries, False
    if entries[-1].item["type"] != _TRIGGER:
        raise BadRequestError(f"An item of type '{_TRIGGER}' must be the last of the input.", param="input")
    return [entry for entry in entries if entry.item["type"] != _TRIGGER], True


def read_window(
    history: Iterable[JournalEntry],
    entries: Iterable[JournalEntry],
    seals: Seals,
    prune: bool,
    pending: Collection[str] = (),
) -> list[JSON]:
    """Put history and input together into what the model reads, and check that they fit.

    `prune` leaves out outputs whose call is gone: items of conversations can be deleted one by one. `pending` are the
    calls whose outputs come first in the response.
    """
    before = model_items(history)
    items = [*(pruned(before) if prune else before), *input_items(entries)]
    if len(items) > 1 or (items and items[0]["type"] != "message"):
        items = seals.opened(items)
        check_calls(items, pending)
    return items


def input_items(entries: Iterable[JournalEntry]) -> list[JSON]:
    """Return an input as the model reads it."""
    items: list[JSON] = []
    for entry in entries:
        if entry.call is not None:  # a call that the server has executed is sent back
            items += model_items([entry])
        elif entry.item["type"] not in _FOR_CLIENTS and entry.mark != "for_clients":
            items.append(entry.item)
    if not any(_was_cut_off(item) for item in items):
        return items
    answered = {item.get("call_id") for item in items if item["type"] in OUTPUTS}
    return [item for item in items if not _was_cut_off(item) or item.get("call_id") in answered]


def _was_cut_off(item: JSON) -> bool:
    """Tell whether an item is a call that nobody can answer, since it has not come to its end."""
    return item.get("status") == "incomplete" and item.get("type") in CALLS


def model_items(entries: Iterable[JournalEntry]) -> list[JSON]:
    """Return entries as the model reads them: a call the server executed becomes the call and its output."""
    items: list[JSON] = []
    outputs: list[JSON] = []
    late: set[str] = set()
    turn = None
    start, note = 0, ""
    for entry in entries:
        call = entry.call
        if entry.direction == "nested":
            continue
        if call is None:
            if _is_read(entry):
                # Outputs stand behind all calls of their turn: model servers want parallel calls in one message.
                items += outputs
                outputs = []
                items.append(entry.item)
                if entry.direction == "input" or entry.item.get("type") == COMPACTION:
                    start = len(items)
            continue
        if call.left is not None:
            items[start:] = [item for item in items[start:] if item.get("call_id") in late]
            note = call.left or note
            continue
        if call.turn != turn:
            turn = call.turn
            items += outputs
            outputs = []
        if note:
            items.append(_told(note))
            note = ""
        _add_call(call, items, outputs, late)
    items += outputs
    return settled(items) if late else items


def _is_read(entry: JournalEntry) -> bool:
    """Tell whether the model reads an item that is no call of ours."""
    if entry.mark is not None:
        return False  # it was cut off by a crash and begun again, or is not for the model
    return entry.item.get("type") not in _FOR_CLIENTS and not _was_cut_off(entry.item)


def _add_call(call: CallRecord, items: list[JSON], outputs: list[JSON], late: set[str]) -> None:
    """Add a call and its output; `late` are those that were made in an earlier response."""
    call_id, output, shown = call.call_id, call.output, call.shown
    if call.said_before:
        late.add(call_id)
    else:
        arguments = call.arguments if shown is None else _as_shown(shown, "arguments", call.arguments)
        items.append({"type": "function_call", "call_id": call_id, "name": call.name, "arguments": arguments})
    if output is None:
        if call.waiting is not None:
            return  # whoever continues it brings the answer
        output = INTERRUPTED
    content: str | list[JSON] = output if shown is None else _as_shown(shown, "output", output)
    if call.images is not None and (shown is None or "output" not in shown):
        content = [{"type": "input_text", "text": output}, *call.images]
    outputs.append({"type": "function_call_output", "call_id": call_id, "output": content})


def _as_shown(shown: JSON, name: str, text: str) -> str:
    """Return what the model reads of arguments or of an output."""
    return text if name not in shown else msgspec.json.encode(shown[name]).decode()


def _told(note: str) -> JSON:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": note}]}


def settled(items: Iterable[JSON]) -> list[JSON]:
    """Return items with each output right behind the calls of its turn: model servers want nothing between them."""
    ordered: list[JSON] = []
    for item in items:
        place = len(ordered)
        if item.get("type") in OUTPUTS:
            calls = [
                i for i, c in enumerate(ordered) if c.get("type") in CALLS and c.get("call_id") == item.get("call_id")
            ]
            place = calls[-1] + 1 if calls else place
            while place < len(ordered) and ordered[place].get("type") in CALLS | OUTPUTS:
                place += 1
        ordered.insert(place, item)
    return ordered


def waiting_calls(history: Sequence[JournalEntry]) -> dict[str, str]:
    """Return the calls that the last response of a history has left waiting: call ids by the ids of their questions."""
    waiting = {}
    for entry in reversed(history):
        if entry.direction != "output":
            break
        call = entry.call
        if call is not None and call.is_waiting and call.question is not None:
            waiting[call.question] = call.call_id
    return dict(reversed(waiting.items()))


def answered_calls(history: Sequence[JournalEntry]) -> dict[str, str]:
    """Return the calls of the last response of a history that have waited and are over: questions by their call ids."""
    answered: dict[str, str] = {}
    for entry in reversed(history):
        if entry.direction != "output":
            break
        call = entry.call
        if call is not None and call.is_over:
            answered |= {call_id: question for question, call_id in (call.asked or {}).items()}
            if call.question is not None:
                answered[call.call_id] = call.question
    return answered


def resumable_calls(history: Sequence[JournalEntry]) -> list[CallRecord]:
    """Return the calls that the last response of a history has left waiting for calls of their own."""
    found: list[CallRecord] = []
    for entry in reversed(history):
        if entry.direction != "output":
            break
        call = entry.call
        if call is not None and call.asked and not call.is_over:
            found.insert(0, call)
    return found


def check_calls(items: Sequence[JSON], pending: Collection[str] = ()) -> None:
    """Hold calls and outputs against each other: each output needs its call before it, each call its output.

    Only those of `pending` calls are still to come.
    """
    called: dict[str, JSON] = {}
    answered: set[str] = set()
    for item in items:
        kind, call_id = item.get("type"), item.get("call_id")
        if not isinstance(call_id, str):
            continue
        if kind in CALLS:
            called[call_id] = item
            answered.discard(call_id)  # some models count their calls from the beginning in each turn
        elif kind in OUTPUTS:
            if call_id not in called:
                raise BadRequestError(
                    f"No tool call found for function call output with call_id {call_id}.", param="input"
                )
            if call_id in answered:
                raise BadRequestError(
                    f"There is more than one output for the function call {call_id}; each call has one.",
                    param="input",
                    code="duplicate_tool_output",
                )
            answered.add(call_id)
    for call_id in called:
        if call_id not in answered and call_id not in pending:
            raise BadRequestError(f"No tool output found for function call {call_id}.", param="input")
