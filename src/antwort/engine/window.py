"""The window: what the model reads of a conversation.

Stored entries and new input are put together, sealed items are opened, and what they replace is left out. Of a window
that is too long the oldest part is dropped, so that what remains still makes sense.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from antwort.context import Context, Source, Sources
from antwort.context.context import CONVERSATIONS_READ, RESPONSES_READ
from antwort.engine.sealing import Sealer, SealError
from antwort.errors import BadRequestError, NotFoundError
from antwort.storage.base import JournalEntry
from antwort.storage.call_record import CallRecord
from antwort.storage.sql.responses import ResponseStore
from antwort.types import JSON
from antwort.wire.client_tools import CALLS, OUTPUTS
from antwort.wire.ids import new_id

# --- sealed items -----------------------------------------------------------------------------------------------------


COMPACTION = "compaction"
INSTRUCTING = frozenset({"system", "developer"})
SUMMARY = "[The earlier part of this conversation was compacted. This is all that is known of it.]"
"""How the message begins that stands for what was compacted."""
LEFT_OUT = "[Earlier calls have left the window."
"""How the message begins that stands for calls that were left out."""
_REASONING = "reasoning"
_SEALED = frozenset({COMPACTION, _REASONING})
"""The items that may have to be opened before the model reads them."""


class Seals(msgspec.Struct, frozen=True, eq=False):
    """Opens and makes the sealed items of one tenant. Thoughts that only a model server reads are for its model."""

    _sealer: Sealer
    _tenant: str
    _model: str
    _opened: dict[str, list[JSON]] = {}

    def sign_approval(self, data: bytes) -> bytes:
        """Return data with a signature in front."""
        return self._sealer.sign("approval", self._tenant, data)

    def seal_items(self, items: Sequence[JSON]) -> str:
        """Seal the items that stand for a compacted window."""
        return self._sealer.seal(COMPACTION, self._tenant, msgspec.json.encode(list(items)).decode())

    def seal_thoughts(self, text: str) -> str:
        """Seal what a model thought."""
        return self._seal_reasoning({"text": text})

    def seal_opaque(self, content: str) -> str:
        """Seal what only the model server can read, so that it is given back to the same model and tenant only."""
        return self._seal_reasoning({"opaque": content, "model": self._model})

    def _seal_reasoning(self, content: JSON) -> str:
        return self._sealer.seal(_REASONING, self._tenant, msgspec.json.encode(content).decode())

    def opened(self, items: list[JSON]) -> list[JSON]:
        """Return items as the model reads them: the list itself, if none of them is sealed.

        The last compaction stands for all before it, but for instructions. Thoughts that were sealed here are readable
        again. A seal that cannot be opened is a BadRequestError.
        """
        for item in items:
            if item.get("type") in _SEALED:
                return self._all_opened(items)
        return items

    def _all_opened(self, items: list[JSON]) -> list[JSON]:
        start = 0
        window: list[JSON] = []
        for index in range(len(items) - 1, -1, -1):
            if items[index].get("type") == COMPACTION:
                sealed = self._items(items[index])
                known = [(item.get("role"), item.get("content")) for item in sealed]
                before = [item for item in items[:index] if item.get("role") in INSTRUCTING]
                window = [item for item in before if (item.get("role"), item.get("content")) not in known]
                window += sealed
                start = index + 1
                break
        for item in items[start:]:
            window.append(self._readable(item) if item.get("type") == _REASONING else item)
        return window

    def _items(self, item: JSON) -> list[JSON]:
        sealed = str(item.get("encrypted_content"))
        if sealed not in self._opened:
            self._opened[sealed] = msgspec.json.decode(self._unsealed(COMPACTION, sealed), type=list[JSON])
        return self._opened[sealed]

    def _readable(self, item: JSON) -> JSON:
        sealed = item.get("encrypted_content")
        if not isinstance(sealed, str) or not self._sealer.knows(sealed):
            return item  # readable as it is, or another server's own
        opened = {name: value for name, value in item.items() if name != "encrypted_content"}
        content = msgspec.json.decode(self._unsealed(_REASONING, sealed), type=dict[str, str])
        if "opaque" in content:
            # To another model they mean nothing, and its server might refuse them.
            return {**opened, "encrypted_content": content["opaque"]} if content["model"] == self._model else opened
        return opened if item.get("content") else {**opened, "content": [_thought(content["text"])]}

    def _unsealed(self, purpose: str, sealed: str) -> str:
        try:
            return self._sealer.unseal(purpose, self._tenant, sealed)
        except SealError as error:
            raise BadRequestError(
                f"The 'encrypted_content' of a {purpose} item cannot be read: {error}. "
                "Send such items back unchanged, to the server that made them.",
                param="input",
                code="invalid_encrypted_content",
            ) from None


def _thought(text: str) -> JSON:
    return {"type": "reasoning_text", "text": text}


def compaction_item(encrypted_content: str = "") -> JSON:
    """Return the item that stands for a window."""
    return {
        "id": new_id("cmp"),
        "type": COMPACTION,
        "status": "completed",
        "encrypted_content": encrypted_content,
    }


def is_sealed(item: JSON) -> bool:
    """Tell whether an item may have to be opened before the model reads it."""
    kind = item.get("type")
    return kind == COMPACTION or (kind == _REASONING and isinstance(item.get("encrypted_content"), str))


# --- what came before, and the input ----------------------------------------------------------------------------------


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


# --- what is left of a window that is too long ------------------------------------------------------------------------


def is_summary(item: JSON) -> bool:
    """Tell whether an item is a message that stands for what was compacted, or left out."""
    content = item.get("content")
    first = content[0] if isinstance(content, list) and content else None
    return isinstance(first, dict) and str(first.get("text")).startswith((SUMMARY, LEFT_OUT))


def pruned(items: Sequence[JSON]) -> list[JSON]:
    """Leave out outputs whose call is not there: items of conversations can be deleted one by one."""
    called = {item.get("call_id") for item in items if item.get("type") in CALLS}
    return [item for item in items if item.get("type") not in OUTPUTS or item.get("call_id") in called]


def shortened(items: Sequence[JSON], fits: Callable[[Sequence[JSON]], bool]) -> list[JSON] | None:
    """Drop as few of the oldest items as are needed; None if nothing is left to drop.

    Instructions (messages of the system and the developer) and summaries stay, and so do the user's last message and
    what the model has read last. A call is dropped with its output, never alone.
    """
    units = _units(items)
    droppable = [number for number, unit in enumerate(units) if unit.droppable]
    if not droppable:
        return None

    def without(count: int) -> list[JSON]:
        dropped = set(droppable[:count])
        kept = sorted(index for number, unit in enumerate(units) if number not in dropped for index in unit.indexes)
        return [items[index] for index in kept]

    low, high = 1, len(droppable)
    while low < high:  # by bisection: to measure a window costs as much as the window is long
        middle = (low + high) // 2
        if fits(without(middle)):
            high = middle
        else:
            low = middle + 1
    return without(low)


class _WindowUnit:
    """Items that stay or go together."""

    __slots__ = ("droppable", "indexes")

    def __init__(self, index: int, *, droppable: bool = True) -> None:
        self.indexes = [index]
        self.droppable = droppable


def _units(items: Sequence[JSON]) -> list[_WindowUnit]:
    """Put calls together with their outputs, and thoughts with what they led to."""
    units: list[_WindowUnit] = []
    by_call: dict[Any, _WindowUnit] = {}
    thoughts: list[int] = []
    calls: _WindowUnit | None = None
    for index, item in enumerate(items):
        kind = item.get("type") or "message"
        if kind == "reasoning":
            thoughts.append(index)
            continue
        if kind in OUTPUTS and item.get("call_id") in by_call:
            by_call[item["call_id"]].indexes.append(index)
            calls = None  # calls behind an output are those of another turn
            continue
        if kind in CALLS and calls is not None:
            calls.indexes.append(index)  # parallel calls
        else:
            units.append(_WindowUnit(index, droppable=item.get("role") not in INSTRUCTING and not is_summary(item)))
        unit = units[-1]
        calls = unit if kind in CALLS else None
        if kind in CALLS:
            by_call[item.get("call_id")] = unit
        unit.indexes += thoughts
        thoughts = []
    if thoughts:
        units.append(_WindowUnit(thoughts[0]))
        units[-1].indexes = thoughts
    _hold(units, items)
    return units


def _hold(units: list[_WindowUnit], items: Sequence[JSON]) -> None:
    """Mark the user's last message, and the last unit, as not to be dropped."""
    if units:
        units[-1].droppable = False
    for unit in reversed(units):
        if any(items[index].get("role") == "user" and not is_summary(items[index]) for index in unit.indexes):
            unit.droppable = False
            break
