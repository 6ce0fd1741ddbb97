"""From the pieces of a model turn to items and events: life cycles, indexes, sequence numbers."""

import time
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from typing_extensions import override

from antwort.context import Sources
from antwort.engine.citations import annotations
from antwort.engine.events import Events, EventSink
from antwort.wire.ids import new_id
from antwort.wire.items import FunctionCall, Item, Message, OutputText, Reasoning, ReasoningText, Refusal, Status
from antwort.wire.responses import ResponseObject
from antwort.wire.usage import Usage

__all__ = ["Emitter", "ModelCall"]

JSON = dict[str, Any]
W = TypeVar("W", bound="_Writer")


class ModelCall:
    """A function call of the model, as far as it has arrived."""

    __slots__ = ("call_id", "is_client", "item", "middle", "name", "output_index", "pieces")

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.is_client = False
        self.item: FunctionCall | None = None
        self.output_index = -1
        self.middle = b""

    @property
    def arguments(self) -> str:
        """The arguments as JSON text."""
        return "".join(self.pieces)


class Emitter:
    """Writes one response: takes the pieces of its turns (it is their `TurnSink`) and tells a sink about every step.

    Without a sink only the items are kept. `client_functions` are the names whose calls are the client's to see.
    `whole_calls` holds such a call back until it is complete, for runs that may have to start a turn again.
    """

    def __init__(
        self,
        response: ResponseObject,
        sink: EventSink | None,
        *,
        sources: Sources,
        client_functions: Collection[str],
        whole_calls: bool = False,
        sequence: int = 0,
    ) -> None:
        self.response = response
        self.events = Events(None if sink is None else sink.put, sequence)
        self._flush = None if sink is None else sink.flush
        self._sources = sources
        self._client_functions = client_functions
        self._whole_calls = whole_calls
        self._open: _Writer | None = None
        self._calls: dict[int, ModelCall] = {}
        self.turn_usage: Usage | None = None
        self.finish_reason: str | None = None
        self.first_piece_at: float | None = None
        """When the turn gave its first piece, on the clock of `time.perf_counter()`."""

    # --- the response ------------------------------------------------------------------------------------------------

    def announce(self, kind: str) -> None:
        """Send `response.<kind>` with the response as it is now."""
        self.events.emit(f"response.{kind}", response=self.response)

    def error(self, code: str, message: str) -> None:
        """Send an `error` event; `response.failed` follows."""
        error = {"type": "server_error", "code": code, "message": message, "param": None}
        self.events.emit("error", code=code, message=message, param=None, error=error)

    # --- the pieces of a turn ----------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Forget the turn before."""
        self._calls = {}
        self.turn_usage = None
        self.finish_reason = None
        self.first_piece_at = None

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        """Take a piece of the answer."""
        writer = self._open
        if type(writer) is not _TextWriter:
            if not delta:
                return
            writer = self._switch(_TextWriter)
        writer.add(delta, logprobs)

    def reasoning(self, delta: str) -> None:
        """Take a piece of the model's thoughts."""
        writer = self._open
        if type(writer) is not _ReasoningWriter:
            if not delta:
                return
            writer = self._switch(_ReasoningWriter)
        writer.add(delta)

    def refusal(self, delta: str) -> None:
        """Take a piece of a refusal."""
        writer = self._open
        if type(writer) is not _RefusalWriter:
            if not delta:
                return
            writer = self._switch(_RefusalWriter)
        writer.add(delta)

    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        """Take a piece of a function call."""
        call = self._calls.get(index)
        if call is None:
            call = self._calls[index] = ModelCall()
            self._note_first_piece()
        if call_id and not call.call_id:
            call.call_id = call_id
        if name and not call.name:
            call.name = name
            call.is_client = name in self._client_functions
            if call.is_client and not self._whole_calls:
                self._open_call(call)
        if arguments:
            call.pieces.append(arguments)
            if call.item is not None:
                self.events.delta("response.function_call_arguments.delta", call.middle, arguments, b"}")

    def usage(self, usage: Usage) -> None:
        """Take the tokens used."""
        self.turn_usage = usage

    def finish(self, reason: str) -> None:
        """Take why the model stopped."""
        self.finish_reason = reason

    async def flush(self) -> None:
        """Send what has come together."""
        if self._flush is not None:
            await self._flush()

    def end_turn(self, *, cut: bool = False) -> list[ModelCall]:
        """Close what is open and return the calls in order. `cut`: the model was stopped in the middle of it."""
        self.close_open("incomplete" if cut else "completed")
        calls = [self._calls[index] for index in sorted(self._calls)]
        for call in calls:
            call.call_id = call.call_id or new_id("call")
            if call.item is not None and cut:
                # Only the last item of a response may be incomplete.
                is_last = call.output_index == len(self.response.output) - 1
                self._close_call(call, "incomplete" if is_last else "completed")
            elif call.is_client and not cut:
                if call.item is None:
                    self._open_call(call)
                    if call.pieces:
                        self.events.delta("response.function_call_arguments.delta", call.middle, call.arguments, b"}")
                self._close_call(call)
        return calls

    def close_open(self, status: Status) -> None:
        """Close the item that is being written, if there is one."""
        if self._open is not None:
            self._open.close(status)
            self._open = None

    # --- items -------------------------------------------------------------------------------------------------------

    def add(self, item: Item) -> int:
        """Begin an item: give it the next index and tell so."""
        index = len(self.response.output)
        self.response.output.append(item)
        self.events.emit("response.output_item.added", output_index=index, item=item)
        return index

    def done(self, index: int) -> None:
        """End an item."""
        self.events.emit("response.output_item.done", output_index=index, item=self.response.output[index])

    def phase(self, index: int, item_type: str, phase: str) -> None:
        """Tell that a hosted call has reached a phase."""
        item = self.response.output[index]
        if isinstance(item, dict):
            self.events.emit(f"response.{item_type}.{phase}", output_index=index, item_id=item["id"])

    def _switch(self, kind: "Callable[[Emitter], W]") -> "W":
        self._note_first_piece()
        self.close_open("completed")
        writer = kind(self)
        self._open = writer
        return writer

    def _note_first_piece(self) -> None:
        if self.first_piece_at is None:
            self.first_piece_at = time.perf_counter()

    def _open_call(self, call: ModelCall) -> None:
        self.close_open("completed")
        call.call_id = call.call_id or new_id("call")
        call.item = FunctionCall(id=new_id("fc"), call_id=call.call_id, name=call.name)
        call.output_index = self.add(call.item)
        call.middle = b',"item_id":"%s","output_index":%d,"delta":' % (call.item.id.encode(), call.output_index)

    def _close_call(self, call: ModelCall, status: Status = "completed") -> None:
        item = call.item
        if item is None:
            return
        item.arguments = call.arguments
        item.status = status
        self.events.emit(
            "response.function_call_arguments.done",
            item_id=item.id,
            output_index=call.output_index,
            name=item.name,
            arguments=item.arguments,
        )
        self.done(call.output_index)

    def cite(self, text: str) -> list[JSON]:
        """Return the annotations of a text."""
        return annotations(text, self._sources.numbered())


class _Writer:
    """Writes one item with one part; the pieces are joined only at the end, so that cost stays linear."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.pieces: list[str] = []

    def close(self, status: Status) -> None:
        raise NotImplementedError

    def begin(self, item: Item, item_id: str, part: Any, kind: str, tail: bytes) -> None:
        """Add the item and its part."""
        self.item_id = item_id
        self.index = self.emitter.add(item)
        self.kind = kind
        self.place = {"item_id": item_id, "output_index": self.index, "content_index": 0}
        self.emitter.events.emit("response.content_part.added", **self.place, part=part)
        self.middle = b',"item_id":"%s","output_index":%d,"content_index":0,"delta":' % (item_id.encode(), self.index)
        self.tail = tail

    def add(self, delta: str) -> None:
        """Take a piece."""
        self.pieces.append(delta)
        self.emitter.events.delta(self.kind, self.middle, delta, self.tail)

    def end(self, part: Any) -> None:
        """End the part and the item."""
        self.emitter.events.emit("response.content_part.done", **self.place, part=part)
        self.emitter.done(self.index)


class _TextWriter(_Writer):
    def __init__(self, emitter: Emitter) -> None:
        super().__init__(emitter)
        self.part = OutputText()
        self.message = Message(id=new_id("msg"))
        self.begin(self.message, self.message.id, self.part, "response.output_text.delta", b',"logprobs":[]}')
        self.message.content.append(self.part)

    @override
    def add(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        self.pieces.append(delta)
        events = self.emitter.events
        if logprobs:
            self.part.logprobs += logprobs
            events.emit("response.output_text.delta", **self.place, delta=delta, logprobs=logprobs)
        else:
            events.delta("response.output_text.delta", self.middle, delta, self.tail)

    @override
    def close(self, status: Status) -> None:
        events, part = self.emitter.events, self.part
        part.text = "".join(self.pieces)
        part.annotations = self.emitter.cite(part.text)
        for number, annotation in enumerate(part.annotations):
            events.emit(
                "response.output_text.annotation.added", **self.place, annotation_index=number, annotation=annotation
            )
        events.emit("response.output_text.done", **self.place, text=part.text, logprobs=part.logprobs)
        self.message.status = status
        self.end(part)


class _RefusalWriter(_Writer):
    def __init__(self, emitter: Emitter) -> None:
        super().__init__(emitter)
        self.part = Refusal()
        self.message = Message(id=new_id("msg"))
        self.begin(self.message, self.message.id, self.part, "response.refusal.delta", b"}")
        self.message.content.append(self.part)

    @override
    def close(self, status: Status) -> None:
        self.part.refusal = "".join(self.pieces)
        self.emitter.events.emit("response.refusal.done", **self.place, refusal=self.part.refusal)
        self.message.status = status
        self.end(self.part)


class _ReasoningWriter(_Writer):
    def __init__(self, emitter: Emitter) -> None:
        super().__init__(emitter)
        self.part = ReasoningText()
        self.reasoning = Reasoning(id=new_id("rs"), content=[])
        self.begin(self.reasoning, self.reasoning.id, self.part, "response.reasoning_text.delta", b"}")
        self.reasoning.content = [self.part]

    @override
    def close(self, status: Status) -> None:
        self.part.text = "".join(self.pieces)
        self.emitter.events.emit("response.reasoning_text.done", **self.place, text=self.part.text)
        self.reasoning.status = status
        self.end(self.part)
