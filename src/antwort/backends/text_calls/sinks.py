"""Sinks that read the text of a turn before it is passed on."""

import re
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct, field
from typing_extensions import override

from antwort.backends.base import UNFINISHED, ModelRequest, TurnSink, WholeTurn
from antwort.backends.dialects import MOST_WAITING
from antwort.backends.http.transport import AnswerLimits
from antwort.backends.text_calls.formats import BEGINNINGS, Offered, TextCall, read_block
from antwort.lazy_imports import compiled_on_use
from antwort.types import JSON
from antwort.wire.responses import Usage

Piece = str | TextCall

RESPONSE = "<tool_response"
"""What results begin with; a model that writes it itself makes results up."""

_MARKS = (RESPONSE, "</tool_response")
"""Marks of the format that models write where they mean nothing."""

_EAGER = 2048
"""Characters held back up to which each new piece is looked at at once."""

_mark = compiled_on_use(r"</?tool_response[^<>]{0,80}>")
_begun_mark = compiled_on_use(r"</?tool_response[^<>]{0,80}")
_blank = compiled_on_use(r"\s*")
_between = compiled_on_use(r"[\s,;]*")
_boundary = compiled_on_use(rf"[\s{re.escape(BEGINNINGS)}]")


class CallReader:
    """Parts the calls of some functions in a text from the text around them, however it was split.

    Blanks around calls belong to nobody. What follows a call and pretends to be its result is left out, and so is
    whatever follows the first call if there may not be `several`. Of a result without a call the marks are left out.
    """

    _offered: Offered | None = None
    """The tools by name; made when it is needed, as most texts have no calls and requests may have many tools."""
    _held = ""
    _size = 0
    _fresh = True
    """Nothing was said on this line yet."""
    _after_call = False
    _called = False
    _stopped = False
    has_dropped = False
    """Whether marks were left out that are neither calls nor text."""

    def __init__(self, tools: Sequence[JSON], *, several: bool = True) -> None:
        self._tools = tools
        self._several = several
        self._late: list[str] = []
        """Pieces behind what is held back, not looked at yet."""

    def take(self, text: str) -> list[Piece]:
        """Take a piece, and return what is decided by it, in order."""
        self._late.append(text)
        self._size += len(text)
        # To look at all that is held with each new piece would take time by the square of its length.
        if len(self._held) > _EAGER and self._size < len(self._held) // 8:
            return []
        return self._read(ended=False)

    def end(self) -> list[Piece]:
        """Return what was held back: nothing follows."""
        return self._read(ended=True)

    def _read(self, *, ended: bool) -> list[Piece]:
        text = self._held + "".join(self._late)
        self._late, self._size, self._held = [], 0, ""
        pieces: list[Piece] = []
        place = 0
        while place < len(text) and not self._stopped:
            end = self._step(text, place, pieces, ended=ended)
            if end is None:
                self._held = text[place:]
                break
            place = end
        return _joined(pieces)

    def _step(self, text: str, place: int, pieces: list[Piece], *, ended: bool) -> int | None:
        """Read on from a place; return how far, None if it is not clear yet."""
        found = (_between if self._after_call else _blank).match(text, place)
        begin = place if found is None else found.end()
        if begin == len(text):
            return self._end_blank(text, place, pieces) if ended else None
        fresh = self._fresh or "\n" in text[place:begin]
        end = begin + 1
        if text[begin] in BEGINNINGS:
            if self._called and _may_be_response(text, begin, ended=ended):
                self._stopped = text.startswith(RESPONSE, begin)
                return len(text) if self._stopped else None
            if text[begin] == "<" and (mark := self._mark(text, begin, ended=ended)) != begin:
                return mark
            block = read_block(text, begin, self._parameters(), fresh=fresh, ended=ended)
            if block is None:
                return None
            end = block.end
            if block.calls:
                self._note_calls(block.calls, pieces)
                return end
        return self._take_text(text, place, begin, end, pieces)

    def _take_text(self, text: str, place: int, begin: int, end: int, pieces: list[Piece]) -> int:
        """Take what is no call, up to where one may begin; a blank between a call and it is left out."""
        boundary = _boundary.search(text, end)
        end = len(text) if boundary is None else boundary.start()
        blank_before = self._after_call and not text[place:begin].strip()
        pieces.append(text[begin if blank_before else place : end])
        self._fresh = self._after_call = False
        return end

    def _mark(self, text: str, begin: int, *, ended: bool) -> int | None:
        """Return the end of a mark that is left out, the beginning if there is none, None if that is not clear yet."""
        found = _mark.match(text, begin)
        if found is not None:
            self.has_dropped = self._fresh = True
            return found.end()
        rest = text[begin:]
        begun = any(mark.startswith(rest) for mark in _MARKS) or _begun_mark.fullmatch(rest) is not None
        return None if begun and not ended else begin

    def _parameters(self) -> Offered:
        """Return the parameters of what is offered, by name."""
        if self._offered is None:
            self._offered = {str(tool["name"]): tool.get("parameters") or {} for tool in self._tools}
        return self._offered

    def _end_blank(self, text: str, place: int, pieces: list[Piece]) -> int:
        if not self._after_call:
            pieces.append(text[place:])
        return len(text)

    def _note_calls(self, calls: tuple[TextCall, ...], pieces: list[Piece]) -> None:
        self._called = self._after_call = self._fresh = True
        self._stopped = not self._several
        pieces += calls if self._several else calls[:1]


def _may_be_response(text: str, begin: int, *, ended: bool) -> bool:
    """Tell whether the mark of a call's result stands here, or may still come."""
    return text.startswith(RESPONSE, begin) or (not ended and RESPONSE.startswith(text[begin:]))


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Put texts together that follow each other."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and isinstance(piece, str) and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


_ENDED = frozenset({"stop", "length", "tool_calls", UNFINISHED})
_LONGEST_PREFACE = 500
"""Characters that a model may say before a call that it must make."""
_JSON_FORMATS = frozenset({"json_object", "json_schema"})


class _ReadingSink(Struct, eq=False, dict=True, weakref=True):
    """Passes a turn on, with calls of the model in their place; how its text is read is a subclass's business."""

    _sink: TurnSink
    _request: ModelRequest
    _limits: AnswerLimits
    begun: bool = False
    """Whether the server has said anything."""
    _plain: bool = False
    """Whether nothing is read any more, and nothing is held back."""
    _calls: dict[object, int] = field(default_factory=dict)
    """The indexes under which calls are passed on, by those of the server; our own have none there."""

    @cached_property
    def _reader(self) -> CallReader:  # made when it is needed: most turns have no text that could be a call
        return CallReader(self._request.tools, several=self._request.parallel_tool_calls is not False)

    def reasoning(self, delta: str) -> None:
        """Pass it on."""
        if not self._plain:
            self._settle()
        self._sink.reasoning(delta)

    def summary(self, delta: str) -> None:
        """Pass it on."""
        if not self._plain:
            self._settle()
        self._sink.summary(delta)

    def opaque(self, content: str) -> None:
        """Pass it on."""
        if not self._plain:
            self._settle()
        self._sink.opaque(content)

    def refusal(self, delta: str) -> None:
        """Pass it on."""
        if not self._plain:
            self._settle()
        self._sink.refusal(delta)

    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        """Pass a call on that the server has read itself."""
        if not self._plain:
            self._settle()
        index = self._calls.setdefault(index, len(self._calls))
        self._sink.tool_call(index, call_id=call_id, name=name, arguments=arguments)

    def usage(self, usage: Usage) -> None:
        """Pass it on."""
        if not self._plain:
            self._settle()
        self._sink.usage(usage)

    def finish(self, reason: str) -> None:
        """Pass it on; a turn with calls has stopped for them."""
        if not self._plain:
            self._settle()
        self._sink.finish("tool_calls" if self._calls and reason in {"stop", UNFINISHED} else reason)

    async def flush(self) -> None:
        """Pass on what was taken."""
        await self._sink.flush()

    def _settle(self) -> None:
        """Pass on what was held back: something else follows, or nothing."""
        self.begun = True

    def _pass_call(self, call: TextCall) -> None:
        if len(self._calls) >= self._limits.calls:
            raise self._limits.excess(f"more than {self._limits.calls:,} calls in one turn", "max_calls")
        index = self._calls.setdefault(object(), len(self._calls))
        self._sink.tool_call(index, name=call.name, arguments=call.arguments)


class PromptedSink(_ReadingSink, eq=False):
    """For turns of models that were told to write calls as text: calls are read wherever they stand."""

    _logprobs: list[JSON] = field(default_factory=list)

    def whole_turn(self, turn: WholeTurn) -> None:
        """Read a turn that came as a whole."""
        turn.feed(self)

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        """Take a piece of text; log probabilities go with the text that is passed on next."""
        self.begun = True
        if logprobs and len(self._logprobs) < MOST_WAITING:
            self._logprobs += logprobs
        self._pass_on(self._reader.take(delta))

    def text_burst(self, deltas: Sequence[str]) -> None:
        """Take pieces of text that came together."""
        self.begun = True
        pieces = [piece for delta in deltas for piece in self._reader.take(delta)]
        if all(isinstance(piece, str) for piece in pieces):
            if pieces:
                self._sink.text_burst([piece for piece in pieces if isinstance(piece, str)])
        else:
            self._pass_on(pieces)

    @override
    def _settle(self) -> None:
        super()._settle()
        self._pass_on(self._reader.end())

    def _pass_on(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, TextCall):
                self._pass_call(piece)
                self._logprobs = []
            else:
                logprobs, self._logprobs = self._logprobs, []
                self._sink.text(piece, logprobs or None)


class NoCallError(Exception):
    """A model has not called although it must: its server lets it talk."""


class ForcedSink(PromptedSink, eq=False):
    """For turns that must call, on servers that should see to it: a turn that does not is a NoCallError.

    Calls are read wherever they stand; text is held back until there is one.
    """

    _waiting: list[tuple[str, list[JSON] | None]] = field(default_factory=list)
    _length: int = 0

    @override
    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        self._settle()
        self._pass_waiting()
        super().tool_call(index, call_id=call_id, name=name, arguments=arguments)

    @override
    def text_burst(self, deltas: Sequence[str]) -> None:
        for delta in deltas:
            self.text(delta)

    @override
    def refusal(self, delta: str) -> None:
        self._pass_waiting()
        super().refusal(delta)

    @override
    def finish(self, reason: str) -> None:
        self._settle()
        if not self._calls and reason in _ENDED and (self._waiting or not self._plain):
            raise NoCallError
        self._pass_waiting()
        super().finish(reason)

    @override
    def _pass_on(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, TextCall):
                self._pass_waiting()
                self._pass_call(piece)
                self._logprobs = []
                continue
            logprobs, self._logprobs = self._logprobs or None, []
            if self._plain:
                self._sink.text(piece, logprobs)
                continue
            self._waiting.append((piece, logprobs))
            self._length += len(piece)
            if self._length > _LONGEST_PREFACE:
                raise NoCallError

    def _pass_waiting(self) -> None:
        """Pass on what was held back: nothing is any more."""
        self._plain = True
        waiting, self._waiting = self._waiting, []
        for piece, logprobs in waiting:
            self._sink.text(piece, logprobs)


class NativeSink(_ReadingSink, eq=False):
    """For turns of models whose calls their server should read: a text is read as calls if it is nothing else.

    As soon as it is clear that it is more, the rest is passed on without a look, unless it began with the marks of a
    result: then they are left out, wherever they stand. JSON that was asked for is no call.
    """

    _said: list[str] = field(default_factory=list)
    """The text so far, while it may be calls and nothing else."""
    _read: list[TextCall] = field(default_factory=list)
    _is_marked: bool = False

    def whole_turn(self, turn: WholeTurn) -> None:
        """Pass a turn on that came as a whole, unless its text may be calls and nothing else."""
        if turn.calls or not turn.text or _begins_text(turn.text):
            self.begun = True
            self._sink.whole_turn(turn)
        else:
            turn.feed(self)

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        """Take a piece of text; one with log probabilities is text."""
        if logprobs is not None:
            self._pass_text()
        if self._plain or (delta and self._is_text(delta)):
            self._sink.text(delta, logprobs)
        else:
            self._take(delta)

    @override
    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        if self._is_marked:
            self._settle()
        if not self._plain:
            self._pass_text()  # the server reads calls, so this was none
        index = self._calls.setdefault(index, len(self._calls))
        self._sink.tool_call(index, call_id=call_id, name=name, arguments=arguments)

    def text_burst(self, deltas: Sequence[str]) -> None:
        """Take pieces of text that came together."""
        for place, delta in enumerate(deltas):
            if self._is_text(delta):
                self._sink.text_burst(deltas[place:] if place else deltas)
                return
            self._take(delta)

    def _is_text(self, delta: str) -> bool:
        """Tell whether a piece is text, as nearly always: after one that no call begins with all is."""
        if not (self._plain or self._is_marked) and ((not self._said and _begins_text(delta)) or self._wants_json()):
            self._pass_text()
        return self._plain

    def _wants_json(self) -> bool:
        wanted = self._request.text_format
        return wanted is not None and wanted.get("type") in _JSON_FORMATS

    def _take(self, delta: str) -> None:
        self.begun = True
        if not self._is_marked:
            self._said.append(delta)
        self._judge(self._reader.take(delta))

    def _judge(self, pieces: Sequence[Piece]) -> None:
        if self._reader.has_dropped:
            read, self._is_marked, self._said, self._read = self._read, True, [], []
            for piece in (*read, *pieces):
                self._pass_piece(piece)
            return
        for piece in pieces:
            if isinstance(piece, TextCall):
                self._read.append(piece)
            elif piece.strip():
                self._pass_text()
                return

    def _pass_piece(self, piece: Piece) -> None:
        if isinstance(piece, TextCall):
            self._pass_call(piece)
        elif piece:
            self._sink.text(piece, None)

    @override
    def _settle(self) -> None:
        self.begun = True
        if not self._said and not self._is_marked:
            return
        self._judge(self._reader.end())
        calls, self._read = self._read, []
        if calls:
            self._said = []
        self._pass_text()
        for call in calls:
            self._pass_call(call)

    def _pass_text(self) -> None:
        """Take all the text for text, what is to come included."""
        self.begun = self._plain = True
        self.text_burst = self._sink.text_burst  # type: ignore[method-assign] # nothing is to be done here any more
        if self._said:
            said, self._said, self._read = self._said, [], []
            self._sink.text_burst(said)


def _begins_text(delta: str) -> bool:
    """Tell whether a text begins like no call."""
    first = delta[0]
    return first not in BEGINNINGS and not first.isspace()
