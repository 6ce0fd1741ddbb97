"""Calls that leave the window of the response that makes them: what they carry and what came of them, then themselves.

The journal keeps all of it, and clients see no difference: only what the model reads gets shorter. Where the model has
a function that follows references, what leaves is kept as variables of the agent, so that it can be read on.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from antwort.backends.tokens import IMAGE, estimate_items
from antwort.context.values import Values
from antwort.context.variables import VariableView
from antwort.engine.journal import Journal
from antwort.engine.plan import Plan
from antwort.engine.window import LEFT_OUT, model_items
from antwort.errors import FunctionError
from antwort.storage.base import JournalEntry
from antwort.storage.call_record import CallRecord
from antwort.types import JSON

_FIELDS = ("arguments", "output")
_KEPT = ("$ref", "left_out")
_SHORT = 300
"""Characters of arguments, or of an output, that stay as they are."""
_HEAD = 60
"""Characters that the model reads of what has left."""
_LAST_HEADS = (1500, 500, 100)
"""The same of what it has not read yet: as much as there is room for."""
_FRAME = 60
"""Bytes that a message, a call or an output has on the wire besides its own, about."""
_UNKNOWN = "var_" + "0" * 48
"""A reference that is not made yet, for measuring."""
_PIECE = 2**16
_IMAGE = 4 * IMAGE
"""Characters of text that an image takes the room of, about."""


class Size(NamedTuple):
    """How much a model reads: in tokens, by an estimate, and in bytes."""

    tokens: int
    bytes: int


_NOTHING = Size(0, 0)


class WindowRoom:
    """How much of a window is taken, and by how much it is to be shorter."""

    def __init__(self, limit: Size, taken: Size, fixed: Size) -> None:
        """Take a limit, what is taken now, and how much of that cannot leave; a limit of 0 is none."""
        self._limit = limit
        self._taken = taken
        self._fixed = fixed

    @property
    def fits(self) -> bool:
        """Tell whether the window is within its limit."""
        return all(taken <= limit for limit, taken in zip(self._limit, self._taken, strict=True) if limit)

    @property
    def is_ample(self) -> bool:
        """Tell whether there is room for more turns: of a window that changes each time no server keeps anything."""
        sizes = zip(self._limit, self._taken, self._fixed, strict=True)
        return all(taken <= fixed + (limit - fixed) // 2 for limit, taken, fixed in sizes if limit)

    def measured(self, items: Iterable[JSON]) -> Size:
        """Return what items take."""
        return size_of(items, self._limit)

    def free(self, before: Size, after: Size = _NOTHING) -> None:
        """Take note that something is shorter."""
        tokens, size = self._taken
        self._taken = Size(tokens - before.tokens + after.tokens, size - before.bytes + after.bytes)


def size_of(items: Iterable[JSON], limit: Size) -> Size:
    """Return what items take, in the measures for which there is a limit."""
    items = [*items]
    tokens = estimate_items(items) if limit.tokens else 0
    return Size(tokens, sum(len(msgspec.json.encode(item)) + _FRAME for item in items) if limit.bytes else 0)


class LeavingCalls(msgspec.Struct, eq=False):
    """The calls of one response, as far as they can leave its window."""

    _plan: Plan
    _journal: Journal
    _values: Values | None

    said: int = 0
    """Characters that calls of the response have brought into the window, about: with those that have left since."""

    def note_over(self, call: CallRecord) -> None:
        """Take note of a call of the model that is over."""
        self.said += len(call.arguments) + len(call.output or "")
        if call.images:
            self.said += _IMAGE * len(call.images)

    def restore(self) -> None:
        """Take note of the calls that are over already."""
        for one in self._calls():
            self.note_over(one.call)

    async def leave(self, room: WindowRoom) -> bool:
        """Let calls of earlier turns leave, the oldest first, until there is room; return whether any has."""
        calls = self._calls()
        last = max((one.call.turn for one in calls), default=0)
        old = [one for one in calls if one.call.turn < last]
        shorter = self._shortened(old, room, _HEAD)
        left = [] if room.fits else self._left_out(old, shorter, room)
        await self._keep(shorter)
        if left:
            await self._note_left(left)
        return bool(shorter or left)

    async def shorten_last(self, room: WindowRoom) -> bool:
        """Let the model read only the head of what came last, if that alone is too much; return whether it does."""
        calls = self._calls()
        last = max((one.call.turn for one in calls), default=0)
        shorter: dict[int, JSON] = {}
        for head in _LAST_HEADS:
            newest = [one for one in calls if one.call.turn == last]
            shorter |= self._shortened(newest, room, head, shorter, to_fit=True)
            if room.fits:
                break
        await self._keep(shorter)
        return bool(shorter)

    async def keep_arguments(self, position: int, most: int | None) -> None:
        """Let long arguments of a call that is over leave, if the model can read them on."""
        call = self._journal.entries[position].call
        arguments = "" if call is None else call.arguments
        if most is not None and len(arguments) > most and self._variables is not None:
            await self._keep({position: {"arguments": _told(arguments, _HEAD) or {}}})

    # --- what can leave ----------------------------------------------------------------------------------------------

    def _calls(self) -> list["_Over"]:
        """Return the calls that are over and in the window."""
        entries = self._journal.entries
        return [
            _Over(position, entry, call)
            for position in range(self._journal.given, len(entries))
            if (call := (entry := entries[position]).call) is not None and _is_in_window(entry, call)
        ]

    def _shortened(
        self,
        calls: Sequence["_Over"],
        room: WindowRoom,
        head: int,
        before: dict[int, JSON] | None = None,
        *,
        to_fit: bool = False,
    ) -> dict[int, JSON]:
        """Return what the model is to read of calls, by position: of as many as must be shorter."""
        shorter: dict[int, JSON] = {}
        for position, entry, call in calls:
            if room.fits if to_fit else room.is_ample:
                break
            shown = (before or {}).get(position) or call.shown or {}
            short = {name: _told(_said(call, name), head, shown.get(name)) for name in _FIELDS}
            if call.images and "output" not in shown and short["output"] is None:
                short["output"] = _without_images(call)
            short = {name: told for name, told in short.items() if told is not None}
            if not short:
                continue
            was = room.measured(model_items([_with(entry, shown)]))
            now = room.measured(model_items([_with(entry, {**shown, **short})]))
            if now < was:
                room.free(was, now)
                shorter[position] = {**shown, **short}
        return shorter

    def _left_out(self, old: Sequence["_Over"], shorter: dict[int, JSON], room: WindowRoom) -> list["_Over"]:
        """Return the calls of the oldest turns, as many as must leave altogether."""
        left: list[_Over] = []
        position = self._journal.given
        for turn in dict.fromkeys(one.call.turn for one in old):
            if room.is_ample:
                break
            calls = [one for one in old if one.call.turn == turn]
            if any(one.call.said_before for one in calls):
                continue
            end = calls[-1].position + 1
            gone = self._journal.entries[position:end]
            room.free(room.measured(model_items(_with(e, shorter.get(n)) for n, e in enumerate(gone, position))))
            left += calls
            position = end
        return left

    # --- what is kept ------------------------------------------------------------------------------------------------

    @property
    def _variables(self) -> VariableView | None:
        """Where what leaves is kept: nowhere if the model could not read it on."""
        if self._values is None or not self._plan.toolset.follows_references:
            return None
        return self._values.of(replace(self._plan.ctx, fence=self._journal.fence))

    async def _keep(self, shorter: dict[int, JSON]) -> None:
        for position, shown in shorter.items():
            call = self._journal.entries[position].call
            if call is None:
                continue
            for name, told in shown.items():
                if told.get("$ref") == _UNKNOWN:
                    kept = await self._kept(f"{name}_{call.call_id}", _said(call, name))
                    shown[name] = {**kept, "size": told["size"], "head": told["head"]}
            call.shown = shown
            self._journal.change(position)

    async def _kept(self, key: str, text: str) -> JSON:
        """Keep a text; return what stands for it."""
        if self._variables is not None:
            try:
                return {"$ref": (await self._variables.write(key[:200], _encoded(text), kind="text")).id}
            except FunctionError:  # there is no room for it
                pass
        return {"left_out": "Call again if you need it."}

    async def _note_left(self, left: Sequence["_Over"]) -> None:
        """Take note of the calls that have left, and keep what they were, with those that had left before."""
        for one in left:
            one.call.left = ""
        calls = [entry.call for entry in self._journal.said() if entry.call is not None]
        gone = [call for call in calls if call.left is not None]
        lines = "\n".join(map(_line, gone))
        kept = await self._kept(f"calls_{self._plan.response.id}", lines)
        where = "Make again those that you need."
        if "$ref" in kept:
            where = f"They are kept, one in a line, with what came of them: {msgspec.json.encode(kept).decode()}"
        left[-1].call.left = f"{LEFT_OUT} There were {len(gone)}. {where}]"
        for one in left:
            self._journal.change(one.position)


class _Over(NamedTuple):
    """A call that is over, with its place in the journal."""

    position: int
    entry: JournalEntry
    call: CallRecord


def _is_in_window(entry: JournalEntry, call: CallRecord) -> bool:
    """Tell whether a call is over, and read by the model itself."""
    return call.output is not None and call.left is None and entry.direction == "output"


def _said(call: CallRecord, name: str) -> str:
    """Return its arguments or its output."""
    return call.arguments if name == "arguments" else call.output or ""


def _with(entry: JournalEntry, shown: JSON | None) -> JournalEntry:
    return entry if not shown or entry.call is None else replace(entry, call=replace(entry.call, shown=shown))


def _told(text: str, head: int, before: JSON | None = None) -> JSON | None:
    """Return what the model is to read in the place of a text; None if what it reads of it now is short enough."""
    if len(text) <= _SHORT + head or (before is not None and len(before["head"]) <= head):
        return None
    kept = {"$ref": _UNKNOWN} if before is None else {name: before[name] for name in _KEPT if name in before}
    return {**kept, "size": len(text.encode(errors="replace")), "head": text[:head]}


def _without_images(call: CallRecord) -> JSON:
    """Return what the model is to read in the place of an output that is long only by its images."""
    text = call.output or ""
    return {
        "left_out": "Its images; call again if you need them.",
        "size": len(text.encode(errors="replace")),
        "head": text,
    }


def _line(call: CallRecord) -> str:
    """Return a call that has left in one line."""
    shown = call.shown or {}
    told = {"call": call.name, **{name: shown.get(name, _said(call, name)) for name in _FIELDS}}
    return msgspec.json.encode(told).decode()


async def _encoded(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE].encode(errors="replace")
