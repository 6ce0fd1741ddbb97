"""Function calls, put together from the pieces of every dialect."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from antwort.backends.base import TurnSink
from antwort.backends.chat.chunk import CallDelta, FunctionDelta
from antwort.backends.errors import BROKEN
from antwort.backends.http.limits import AnswerLimits
from antwort.backends.items import check_object
from antwort.backends.pieces import Pieces
from antwort.errors import BadGatewayError

MAX_LOOKS = 32
"""How often a call is looked at whether it is whole: each time costs as much as its arguments are long."""


class _PiecedCall(Struct, eq=False):
    """One call as far as it is known."""

    index: int
    id: str | None
    name: str | None = None
    arguments: Pieces = msgspec.field(default_factory=Pieces)
    looks: int = MAX_LOOKS

    def is_whole(self) -> bool:
        """Tell whether the arguments are a JSON object already."""
        self.looks -= 1
        return self.looks >= 0 and bool(self.arguments) and self.is_complete()

    def is_complete(self) -> bool:
        """Tell the same at the end, however often it was looked at before; no arguments are complete, too."""
        try:
            check_object(self.arguments.text() or "{}")
        except (msgspec.MsgspecError, UnicodeError):
            return False
        return True


class ChatCalls:
    """The calls of one turn, fed to the sink under indexes of our own, from 0 on.

    Servers tell calls apart by `index`, by `id` or only by their order, and some give every call the index 0 or the
    same id. So a piece belongs to the call with its index or id, else to the last one; but a name that comes with a new
    id, another name, the same name with whole arguments after whole arguments, or a second name in one list begins a
    call of its own.
    """

    __slots__ = ("_known", "_limits", "_sink", "begun")

    def __init__(self, limits: AnswerLimits, sink: TurnSink) -> None:
        self._limits = limits
        self._sink = sink
        self.begun: list[_PiecedCall] = []
        """Those that have begun, in this order."""
        self._known: dict[int | str, _PiecedCall] = {}
        """The calls by the indexes and the ids that the server gives them."""

    def take(self, deltas: Sequence[CallDelta]) -> None:
        """Take pieces of calls that came together."""
        named: set[int] = set()
        for delta in deltas:
            function = delta.function or FunctionDelta()
            call_id = None if delta.id is None or delta.id == "" else str(delta.id)
            self._feed(delta.index, call_id, function.name or None, _as_json(function.arguments), named)

    def take_legacy(self, function: FunctionDelta) -> None:
        """Take a piece of the one call of the dialect before `tool_calls`."""
        self._feed(0, None, function.name or None, _as_json(function.arguments), set())

    def end(self) -> None:
        """Give calls without arguments empty ones; a call that never got a name is a BadGatewayError."""
        for call in self.begun:
            if call.name is None:
                raise BadGatewayError(
                    f"The backend '{self._limits.backend}' sent a function call without a name.", code=BROKEN
                )
            if not call.arguments:
                self._sink.tool_call(call.index, arguments="{}")

    def _feed(self, index: int | None, call_id: str | None, name: str | None, arguments: str, named: set[int]) -> None:
        """Feed a piece. `named` are the calls that a piece of the same list has named."""
        call = self._find(index, call_id) if self.begun else None
        if call is None or (
            name is not None
            and call.name is not None
            and (call.index in named or _begins(call, call_id, name, arguments))
        ):
            call = self._begin(index, call_id)
        if name is not None:
            named.add(call.index)
        if arguments:
            call.arguments.add(arguments)
        if call.name is not None:
            if arguments:
                self._sink.tool_call(call.index, arguments=arguments)
        elif name is not None:
            call.name = name
            # What came before the name was held back.
            self._sink.tool_call(call.index, call_id=call.id or call_id, name=name, arguments=call.arguments.text())

    def _find(self, index: int | None, call_id: str | None) -> _PiecedCall | None:
        key = call_id if index is None else index
        return self.begun[-1] if key is None else self._known.get(key)

    def _begin(self, index: int | None, call_id: str | None) -> _PiecedCall:
        if len(self.begun) >= self._limits.calls:
            raise self._limits.excess(f"more than {self._limits.calls:,} calls in one turn", "max_calls")
        call = _PiecedCall(len(self.begun), call_id)
        self.begun.append(call)
        if index is not None:
            self._known[index] = call
        if call_id is not None:
            self._known[call_id] = call
        return call


def _begins(call: _PiecedCall, call_id: str | None, name: str, arguments: str) -> bool:
    """Tell whether a piece that has a name is the beginning of another call."""
    if call_id is not None and call.id is not None and call_id != call.id:
        return True
    if name != call.name:
        return True
    return arguments.lstrip().startswith("{") and call.is_whole()


def _as_json(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()
