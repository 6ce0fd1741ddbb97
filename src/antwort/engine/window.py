"""The window: what the model reads of a conversation.

Sealed items are opened, and what they replace is left out. Of a window that is too long the oldest part is dropped, so
that what remains still makes sense.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from antwort.engine.sealing import Sealer, SealError
from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.client_tools import CALLS, OUTPUTS
from antwort.wire.ids import new_id

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
