"""The output of one answer: what of each item was fed to the sink already, so that nothing is fed twice."""

from collections.abc import Sequence
from typing import Any

from antwort.backends.base import TurnSink
from antwort.backends.errors import BROKEN
from antwort.backends.http.limits import AnswerLimits
from antwort.backends.usage import logprobs_of
from antwort.errors import BadGatewayError
from antwort.types import JSON

Key = tuple[str, int, int]
"""What kind of text, of which item, which part of it."""

BREAK = "\n\n"
"""Between two texts of which the server made two items or parts, and a turn has one."""


class _FedCall:
    """A function call as far as it was fed."""

    __slots__ = ("call_id", "fed", "index", "is_whole", "size")

    def __init__(self, index: int, call_id: str | None) -> None:
        self.index = index
        self.call_id = call_id
        self.fed: list[str] = []
        self.size = 0
        self.is_whole = False


class ResponsesOutput:
    """Feeds pieces of items, known by their index in the output. A whole gives what its pieces left out.

    Servers that tell no indexes have one call after the other: a piece is of the last one, a whole of the one with its
    id.
    """

    __slots__ = (
        "_all",
        "_alternatives",
        "_by_id",
        "_calls",
        "_fed",
        "_feed",
        "_items",
        "_last",
        "_limits",
        "_sink",
        "_streamed",
        "_text",
        "begun",
    )

    def __init__(self, limits: AnswerLimits, sink: TurnSink, alternatives: int | None = None) -> None:
        self.begun = False
        """Whether anything was fed."""
        self._limits = limits
        self._alternatives = alternatives
        """How many were asked for with each log probability; None if these were not asked for."""
        self._items = 0
        self._sink = sink
        self._text = sink.text
        self._calls: dict[int, _FedCall] = {}
        """The last call at each index."""
        self._all: list[_FedCall] = []
        self._by_id: dict[str, _FedCall] = {}
        self._feed = {"refusal": sink.refusal, "reasoning": sink.reasoning, "summary": sink.summary}
        self._streamed: set[tuple[str, int]] = set()
        self._fed: set[Key] = set()
        self._last: Key | None = None

    @property
    def has_calls(self) -> bool:
        """Whether there was a function call."""
        return bool(self._calls)

    # --- pieces ------------------------------------------------------------------------------------------------------

    def text(self, index: int, part: int, delta: Any, logprobs: Any = None) -> None:
        """Take a piece of the answer."""
        if isinstance(delta, str) and delta:
            shaped = logprobs_of({"content": logprobs}, self._alternatives) if logprobs else None
            self._text(self._piece(("text", index, part), delta), shaped)

    def piece(self, kind: str, index: int, part: int, delta: Any) -> None:
        """Take a piece of something else: `refusal`, `reasoning`, `summary`."""
        if isinstance(delta, str) and delta:
            self._feed[kind](self._piece((kind, index, part), delta))

    def arguments(self, index: int, delta: Any) -> None:
        """Take a piece of a call's arguments. What comes before the call's name comes again with the whole."""
        call = self._calls.get(index)
        if call is not None and isinstance(delta, str) and delta:
            self._extend(call, delta)

    # --- wholes ------------------------------------------------------------------------------------------------------

    def whole_part(self, kind: str, index: int, part: int, text: Any, logprobs: Any = None) -> None:
        """Take a whole text, or something else, unless its item came in pieces or this part of it is known."""
        key = (kind, index, part)
        if (kind, index) in self._streamed or key in self._fed or not isinstance(text, str) or not text:
            return
        self._fed.add(key)
        text = self._parted(key, text)
        if kind == "text":
            self._text(text, logprobs_of({"content": logprobs}, self._alternatives))
        else:
            self._feed[kind](text)

    def all_arguments(self, index: int, arguments: Any) -> None:
        """Take all arguments of a call, of which a part may be known."""
        call = self._calls.get(index)
        if call is not None:
            self._complete(call, arguments)

    # --- items -------------------------------------------------------------------------------------------------------

    def begin(self, index: int | None, item: Any) -> None:
        """Take the beginning of an item: a call's name is known by then.

        One that begins where another has ended is another call: not every server counts its indexes.
        """
        if isinstance(item, dict) and item.get("type") == "function_call":
            call = self._known(index, item)
            if call is None or call.is_whole:
                self._begin(index, item)

    def whole(self, index: int | None, item: Any) -> None:
        """Take a whole item. Those of other types are the server's own business."""
        if not isinstance(item, dict):
            return
        match item.get("type"):
            case "message":
                self._whole_message(index or 0, item)
            case "reasoning":
                self._whole_reasoning(index or 0, item)
            case "function_call":
                self._whole_call(index, item)

    def rest(self, items: Sequence[Any]) -> None:
        """Take of a whole answer what nothing came of before: its messages, its calls.

        Indexes in a stream are not always those of the response at its end, so single items are not compared.
        """
        fed = {kind for kind, _ in self._streamed} | {kind for kind, _, _ in self._fed}
        missing = {"message"} if not fed & {"text", "refusal"} else set()
        missing |= {"function_call"} if not self._calls else set()
        missing |= set() if self.begun else {"reasoning"}
        for index, item in enumerate(items):
            if isinstance(item, dict) and item.get("type") in missing:
                self.whole(index, item)

    def end(self) -> None:
        """Give calls without arguments empty ones."""
        for call in self._all:
            if not call.fed:
                self._sink.tool_call(call.index, arguments="{}")

    def _extend(self, call: _FedCall, delta: str) -> None:
        call.fed.append(delta)
        call.size += len(delta)
        self._sink.tool_call(call.index, arguments=delta)

    def _complete(self, call: _FedCall, arguments: Any) -> None:
        # Only what is longer is looked at, so that wholes that come again and again cost no more than they are long.
        if isinstance(arguments, str) and len(arguments) > call.size and arguments.startswith("".join(call.fed)):
            self._extend(call, arguments[call.size :])

    def _known(self, index: int | None, item: JSON) -> _FedCall | None:
        call_id = item.get("call_id")
        if index is None and isinstance(call_id, str):
            return self._by_id.get(call_id)
        return self._calls.get(index or 0)

    def _begin(self, index: int | None, item: JSON) -> _FedCall | None:
        name, call_id = item.get("name"), item.get("call_id")
        if not isinstance(name, str) or not name:
            return None
        if len(self._all) >= self._limits.calls:
            raise self._limits.excess(f"more than {self._limits.calls:,} calls in one turn", "max_calls")
        self.begun = True
        self._last = None
        call = self._calls[index or 0] = _FedCall(len(self._all), call_id if isinstance(call_id, str) else None)
        self._all.append(call)
        if call.call_id is not None:
            self._by_id[call.call_id] = call
        self._sink.tool_call(call.index, call_id=call.call_id, name=name)
        self._complete(call, item.get("arguments"))
        return call

    def _whole_call(self, index: int | None, item: JSON) -> None:
        call = self._known(index, item) or self._begin(index, item)
        if call is None:
            raise BadGatewayError(
                f"The backend '{self._limits.backend}' sent a function call without a name.", code=BROKEN
            )
        self._complete(call, item.get("arguments"))
        call.is_whole = True

    def _whole_message(self, index: int, item: JSON) -> None:
        for number, part in _parts(item.get("content")):
            if part.get("type") == "refusal":
                self.whole_part("refusal", index, number, part.get("refusal"))
            else:
                self.whole_part("text", index, number, part.get("text"), part.get("logprobs"))

    def _whole_reasoning(self, index: int, item: JSON) -> None:
        for number, part in _parts(item.get("content")):
            self.whole_part("reasoning", index, number, part.get("text"))
        for number, part in _parts(item.get("summary")):
            self.whole_part("summary", index, number, part.get("text"))
        sealed, key = item.get("encrypted_content"), ("sealed", index, 0)
        if isinstance(sealed, str) and sealed and key not in self._fed:
            self._fed.add(key)
            self._last = None
            self.begun = True
            self._note_item()
            self._sink.opaque(sealed)

    def _piece(self, key: Key, delta: str) -> str:
        """Note where a piece belongs, and part it from another text right before it."""
        if key == self._last:
            return delta
        self._streamed.add(key[:2])
        return self._parted(key, delta)

    def _parted(self, key: Key, text: str) -> str:
        last, self._last = self._last, key
        self.begun = True
        if last is not None and last[0] == key[0]:
            return BREAK + text
        self._note_item()
        return text

    def _note_item(self) -> None:
        self._items += 1
        if self._items > self._limits.items:
            raise self._limits.too_many_items()


def _parts(value: Any) -> list[tuple[int, JSON]]:
    parts = value if isinstance(value, list) else []
    return [(number, part) for number, part in enumerate(parts) if isinstance(part, dict)]
