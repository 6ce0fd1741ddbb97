"""From the pieces of a model turn to items and events: life cycles, indexes, sequence numbers."""

import sys
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from antwort.backends.base import UNFINISHED, WholeCall, WholeTurn, quick_flush
from antwort.backends.dialects import Pieces, logprobs_size
from antwort.context import Sources
from antwort.engine.output.events import REASONING_TEXT, SILENT, Events, EventSink, deltas_of, replay_item
from antwort.engine.output.writers import ReasoningWriter, RefusalWriter, TextWriter, Writer, annotations
from antwort.engine.window import compaction_item, model_items
from antwort.functions import ItemEvent, OpenedItem
from antwort.storage.base import JournalEntry
from antwort.types import JSON
from antwort.wire.client_tools import ClientTool
from antwort.wire.ids import new_id
from antwort.wire.items import FunctionCall, Item, ItemStatus, Message, OutputText
from antwort.wire.responses import ResponseObject, Usage


class LoopOutcome(Enum):
    """How a response goes on after a turn: there is another one, it waits, or it ends, and why then."""

    ONWARD = "onward"
    ANSWERED = "answered"
    """It is complete, or the client is to make a call."""
    PARKED = "parked"
    """It waits for somebody, and is not over."""
    BUDGET = "budget"
    CANCELLED = "cancelled"
    CONTENT_FILTER = "content_filter"
    DEADLINE = "deadline"
    MAX_OUTPUT_TOKENS = "max_output_tokens"
    MAX_TOOL_CALLS = "max_tool_calls"
    MAX_TURNS = "max_turns"
    REPEATED_CALLS = "repeated_calls"
    UNFINISHED = "unfinished"


CUT_SHORT: Mapping[str | None, LoopOutcome] = {
    "length": LoopOutcome.MAX_OUTPUT_TOKENS,
    "content_filter": LoopOutcome.CONTENT_FILTER,
    UNFINISHED: LoopOutcome.UNFINISHED,
}
"""Why a response ends whose model was stopped, by what its server says."""
_PLAIN: Mapping[str, ClientTool] = MappingProxyType({})


class CallIds(msgspec.Struct, eq=False):
    """Makes the ids of a response's calls unique among themselves and what the model has read before.

    Model servers give the same id to parallel calls, or number those of each turn anew. What came before is a window,
    and what `said` gives of the response itself; it is asked with the first call.
    """

    _window: Sequence[JSON] = ()
    _said: Callable[[], Sequence[JournalEntry]] = list
    _taken: set[Any] | None = None

    def unique(self, call_id: str | None) -> str:
        """Return the id if there is one and no other call has it, else a new one."""
        taken = self._taken
        if taken is None:
            taken = self._taken = {item.get("call_id") for item in self._window}
            if said := self._said():
                taken.update(item.get("call_id") for item in model_items(said))
        if not call_id or call_id in taken:
            return self.new()
        taken.add(call_id)
        return call_id

    def new(self) -> str:
        """Return an id for a call that came without one."""
        return new_id("call")


class AnswerTooLongError(Exception):
    """A turn has said more than it may; what it has said until then is there."""


W = TypeVar("W", bound=Writer)


class ModelCall(msgspec.Struct, eq=False):
    """A function call of the model, as far as it has arrived."""

    call_id: str = ""
    name: str = ""
    pieces: Pieces = msgspec.field(default_factory=Pieces)
    """The arguments."""
    is_client: bool = False
    tool: ClientTool | None = None
    refusal: str | None = None
    """Why a check does not let it be made."""
    asks: str | None = None
    """Why a check wants it to be approved first."""
    item: FunctionCall | None = None
    output_index: int = -1
    middle: bytes = b""

    @property
    def arguments(self) -> str:
        """The arguments as JSON text."""
        return self.pieces.text()


class EmitterOptions(msgspec.Struct, frozen=True, eq=False):
    """How a response is written."""

    sources: Sources = msgspec.field(default_factory=Sources)
    """What its texts may cite."""
    client_tools: Mapping[str, ClientTool] = _PLAIN
    """Tools of the client whose calls are not plain ones, by name."""
    call_ids: CallIds = msgspec.field(default_factory=CallIds)
    """Makes the ids of calls unique: an output belongs to one call."""
    seal: Callable[[str], str] | None = None
    """Encrypts the model's thoughts for the client to carry, if it wants them."""
    seal_opaque: Callable[[str], str] | None = None
    """Encrypts those that only the model server reads."""
    whole_calls: bool = False
    """Calls of the client are held back until they are complete, for runs that may have to start a turn again."""
    as_summary: bool = False
    """Thoughts are given as their own summary."""
    thoughts: str = REASONING_TEXT
    """What the events of thoughts are called."""
    longest_answer: int = sys.maxsize
    """Characters that one turn may say."""


class Emitter:
    """Writes one response: takes the pieces of its turns (it is their `TurnSink`) and tells a sink about every step.

    Without a sink only the items are kept. `client_functions`, which may change, are the names whose calls are the
    client's to see. Readers may have been told of the response before: of `sequence` events, and of items that stand in
    the output as `positions` tells, -1 if they are no part of it; readers count all of them.
    """

    turn_usage: Usage | None = None
    finish_reason: str | None = None
    first_piece_at: float | None = None
    """When the turn gave its first piece, on the clock of `time.perf_counter()`; None if nobody listens."""
    _flush_sink: Callable[[], bool] | None = None
    _before = 0
    """How many items there were when the turn began."""

    def __init__(
        self,
        response: ResponseObject,
        sink: EventSink | None,
        options: EmitterOptions,
        sequence: int = 0,
        positions: Sequence[int] = (),
    ) -> None:
        self.response = response
        self.events = SILENT if sink is None else Events(sink.put, sequence, options.thoughts, deltas_of(sink))
        self._flush = _nothing if sink is None else sink.flush
        self._sink = sink
        self._options = options
        self.client_functions: Collection[str] = ()
        self._positions = list(positions)
        self._open: Writer | None = None
        self._calls: dict[int, ModelCall] = {}
        self._room = options.longest_answer
        """Characters that the turn may still say; below 0 it is too long."""

    # --- the response ------------------------------------------------------------------------------------------------

    @property
    def seal(self) -> Callable[[str], str] | None:
        """How to encrypt thoughts for the client to carry; None if it does not want them."""
        return self._options.seal

    def announce(self, kind: str) -> None:
        """Send `response.<kind>` with the response as it is now."""
        if self.events.enabled:
            self.events.emit(f"response.{kind}", response=self.response)

    def error(self, code: str, message: str) -> None:
        """Send an `error` event; `response.failed` follows."""
        error = {"type": "server_error", "code": code, "message": message, "param": None}
        self.events.emit("error", code=code, message=message, param=None, error=error)

    # --- the pieces of a turn ----------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Forget the turn before."""
        self._calls = {}
        self._room = self._options.longest_answer
        self._before = len(self.response.output)
        self.turn_usage = None
        self.finish_reason = None
        self.first_piece_at = None

    def whole_turn(self, turn: WholeTurn) -> None:
        """Take a turn that came as a whole: if nobody is told of its pieces, it is not taken apart."""
        text, calls = turn.text or "", turn.calls
        size = len(text)
        for call in calls:
            size += len(call.arguments)
        # How an item was cut off is known when the turn ends.
        if self.events.enabled or turn.reason in CUT_SHORT or size > self._room:
            turn.feed(self)
            return
        if text:
            part = OutputText(text, self.cite(text))
            self.add(Message(new_id("msg"), "completed", content=[part]))
        if calls:
            self._take_calls(calls)
        self.turn_usage, self.finish_reason = turn.usage, turn.reason

    def _take_calls(self, calls: Sequence[WholeCall]) -> None:
        for index, call in enumerate(calls):
            if call.name in self.client_functions:
                self.tool_call(index, call_id=call.id, name=call.name, arguments=call.arguments)
            else:
                made = self._calls[index] = ModelCall(self._options.call_ids.unique(call.id), call.name)
                made.pieces.add(call.arguments)

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        """Take a piece of the answer."""
        self._room -= len(delta)
        if self._room < 0:
            delta, logprobs = self._fitting(delta), None
            if not delta:
                return
        elif logprobs:
            self._room -= logprobs_size(logprobs)
            if self._room < 0:
                logprobs = None
        writer = self._open
        if type(writer) is not TextWriter:
            if not delta:
                return
            writer = self._switch(TextWriter)
        writer.add(delta, logprobs)

    def text_burst(self, deltas: Sequence[str]) -> None:
        """Take pieces of the answer that came together: the hot path of a stream."""
        text = "".join(deltas)
        room = self._room = self._room - len(text)
        if room < 0:
            text = self._fitting(text)
            if not text:
                return
            deltas = [text]
        writer = self._open
        if type(writer) is not TextWriter:
            writer = self._switch(TextWriter)
        writer.add_all(deltas, text)

    def reasoning(self, delta: str) -> None:
        """Take a piece of the model's thoughts."""
        self._room -= len(delta)
        if self._room < 0 and not (delta := self._fitting(delta)):
            return
        writer = self._open
        if type(writer) is not ReasoningWriter or writer.opaque is not None:
            if not delta:
                return
            writer = self._switch(ReasoningWriter)
        if self._options.as_summary:
            writer.add_as_summary(delta)
        else:
            writer.add(delta)

    def summary(self, delta: str) -> None:
        """Take a piece of a summary of the model's thoughts."""
        self._room -= len(delta)
        if self._room < 0:
            delta = self._fitting(delta)
        if delta:
            self._reasoning().add_summary(delta)

    def opaque(self, content: str) -> None:
        """Take the thoughts as only the model server reads them; they end the item they belong to."""
        seal = self._options.seal_opaque
        self._reasoning().opaque = content if seal is None else seal(content)
        if not self._options.whole_calls:  # a turn that may be cut off has an open item as long as it is under way
            self.close_open("completed")

    def refusal(self, delta: str) -> None:
        """Take a piece of a refusal."""
        self._room -= len(delta)
        if self._room < 0 and not (delta := self._fitting(delta)):
            return
        writer = self._open
        if type(writer) is not RefusalWriter:
            if not delta:
                return
            writer = self._switch(RefusalWriter)
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
            call.call_id = self._options.call_ids.unique(call_id)
        if name and not call.name:
            call.name = name
            call.is_client = name in self.client_functions
            if call.is_client:
                tool = call.tool = self._options.client_tools.get(name)
                if (tool is None or tool.is_function) and not self._options.whole_calls:
                    self._open_call(call)
        self._room -= len(arguments)
        if self._room < 0:
            arguments = self._fitting(arguments)
        if arguments:
            call.pieces.add(arguments)
            if call.item is not None:
                self.events.delta("response.function_call_arguments.delta", call.middle, arguments, b"}")

    def usage(self, usage: Usage) -> None:
        """Take the tokens used."""
        self.turn_usage = usage

    def finish(self, reason: str) -> None:
        """Take why the model stopped; if what it has said was too long, that is why."""
        self.finish_reason = "length" if self._room < 0 else reason

    def flush(self) -> Coroutine[Any, Any, None]:
        """Send what has come together; raise an AnswerTooLongError if the turn has said more than it may."""
        if self._room < 0:
            raise AnswerTooLongError
        return self._flush()

    @property
    def flush_now(self) -> Callable[[], bool] | None:
        """What does the same if nothing has to be waited for; None if the sink has no such thing."""
        self._flush_sink = quick_flush(self._sink)
        return None if self._flush_sink is None else self._flush_now

    def _flush_now(self) -> bool:
        if self._room < 0:
            raise AnswerTooLongError
        return self._flush_sink is not None and self._flush_sink()

    @property
    def calls(self) -> list[ModelCall]:
        """The calls of the turn, as they have come."""
        return [*self._calls.values()]

    def refuse(self, reason: str) -> None:
        """End the turn with a refusal in the place of what it has not told yet; its calls are not made."""
        self._calls = {}
        self.close_open("completed")
        writer = self._switch(RefusalWriter)
        writer.add(reason)
        self.close_open("completed")
        self.finish_reason = "stop"

    def end_turn(self, *, cut: bool = False) -> list[ModelCall]:
        """Close what is open and return the calls in order. `cut`: it was cut off, whatever the model server says."""
        cut = cut or self.finish_reason in CUT_SHORT
        self._room = self._options.longest_answer
        if self._open is not None:
            self.close_open("incomplete" if cut else "completed")
        if not self._calls:
            return []
        calls = [*self._calls.values()]
        if len(calls) > 1:
            calls = list(map(self._calls.__getitem__, sorted(self._calls)))
        for call in calls:
            if not call.call_id:
                call.call_id = self._options.call_ids.new()
            if not call.is_client:
                continue
            if cut:
                self._cut_call(call)
            else:
                self._end_call(call)
        return calls

    def close_open(self, status: ItemStatus) -> None:
        """Close the item that is being written, if there is one."""
        if self._open is not None:
            self._open.close(status)
            self._open = None

    @property
    def has_spoken(self) -> bool:
        """Whether the turn has said anything."""
        return bool(self._calls) or len(self.response.output) > self._before

    # --- items -------------------------------------------------------------------------------------------------------

    def add(self, item: Item) -> int:
        """Begin an item: give it the next index and tell so."""
        index, output = len(self._positions), self.response.output
        self._positions.append(len(output))
        output.append(item)
        if self.events.enabled:
            self.events.emit("response.output_item.added", output_index=index, item=item)
        return index

    def skip(self) -> int:
        """Return the next index, for an item that readers are told of and that is no part of the output."""
        self._positions.append(-1)
        return len(self._positions) - 1

    def done(self, index: int) -> None:
        """End an item."""
        if self.events.enabled:
            item = self.response.output[self._positions[index]]
            self.events.emit("response.output_item.done", output_index=index, item=item)

    def whole(self, item: JSON) -> None:
        """Begin and end an item that is there as a whole."""
        index = self.add({**item, "status": "in_progress"})
        self.response.output[self._positions[index]] = item
        self.done(index)

    def replace(self, item: JSON) -> int:
        """Put an item in the place of the one with its id, and return its index; -1 if the output does not have it."""
        output = self.response.output
        for index, position in enumerate(self._positions):
            old = output[position] if position >= 0 else None
            if isinstance(old, dict) and old.get("id") == item["id"]:
                output[position] = item
                return index
        return -1

    def hosted_call(self, item: JSON, arriving: Mapping[str, Any], events: Iterable[ItemEvent]) -> int:
        """Begin the item of a call that the server executes, and send the events that say how fields of it arrive."""
        if not self.events.enabled:
            return self.add(item)
        arrived = {name: item[name] for name in arriving if name in item}
        if not arrived:
            index = self.add(item)
        else:
            item.update((name, arriving[name]) for name in arrived)
            index = self.add(item)
            item.update(arrived)
        for event in events:
            self.item_event(index, item, event)
        return index

    def opened(self, opened: OpenedItem) -> JSON:
        """Write an item of a tool that was opened, as a whole, and return it."""
        item: JSON = {"id": new_id(opened.id_prefix), "status": "completed", **opened.fields}
        self.done(self.hosted_call(item, {**opened.arriving, "status": "in_progress"}, opened.events))
        return item

    def item_event(self, index: int, item: JSON, event: ItemEvent) -> None:
        """Send an event of an item."""
        kind = event.type_of(item["type"])
        if event.names_item:
            self.events.emit(kind, **{"item_id": item["id"], "output_index": index, **event.data})
        else:
            self.events.emit(kind, **{"output_index": index, **event.data})

    def client_call(self, call_id: str, name: str, arguments: str, caller: JSON | None = None) -> JSON:
        """Write a call that the client can answer, as a whole, and return its item; `caller` is who has made it."""
        item: JSON = {"type": "function_call", "id": new_id("fc"), "call_id": call_id, "name": name}
        if caller is not None:
            item["caller"] = caller
        item.update(arguments=arguments, status="completed")
        self._whole_call(item)
        return item

    def commentary(self, text: str) -> JSON:
        """Write a message that a function says to the user, as a whole, and return its item.

        It ends with an empty line: clients put the texts of all messages together, and the answer follows.
        """
        self.close_open("completed")
        text = text.rstrip("\n") + "\n\n"
        item: JSON = {"type": "message", "id": new_id("msg"), "status": "in_progress", "role": "assistant"}
        item["phase"] = "commentary"
        index = self.add({**item, "content": []})
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        self.events.emit("response.content_part.added", **at, part={**part, "text": ""})
        self.events.emit("response.output_text.delta", **at, delta=text, logprobs=[])
        self.events.emit("response.output_text.done", **at, text=text, logprobs=[])
        self.events.emit("response.content_part.done", **at, part=part)
        item.update(status="completed", content=[part])
        self.response.output[self._positions[index]] = item
        self.done(index)
        return item

    def compaction(self, encrypted_content: str) -> JSON:
        """Write the item that stands for a window, and return it."""
        item = compaction_item()
        index = self.add({**item, "status": "in_progress"})
        self.phase(index, item["type"], "compacting")
        item["encrypted_content"] = encrypted_content
        self.response.output[self._positions[index]] = item
        self.done(index)
        return item

    def phase(self, index: int, item_type: str, phase: str) -> None:
        """Tell that a hosted call has reached a phase."""
        item = self.response.output[self._positions[index]]
        if isinstance(item, dict):
            self.events.emit(f"response.{item_type}.{phase}", output_index=index, item_id=item["id"])

    def _fitting(self, said: str) -> str:
        """Return as much of what was said, and counted, as there was room for."""
        return said[: max(0, len(said) + self._room)]

    def _reasoning(self) -> ReasoningWriter:
        writer = self._open
        if type(writer) is ReasoningWriter and writer.opaque is None:
            return writer
        return self._switch(ReasoningWriter)

    def _switch(self, kind: "Callable[[Emitter], W]") -> "W":
        self._note_first_piece()
        self.close_open("completed")
        writer = kind(self)
        self._open = writer
        return writer

    def _note_first_piece(self) -> None:
        if self.events.enabled and self.first_piece_at is None:
            self.first_piece_at = time.perf_counter()

    def _open_call(self, call: ModelCall) -> None:
        self.close_open("completed")
        call.call_id = call.call_id or self._options.call_ids.new()
        item = call.item = FunctionCall(id=new_id("fc"), call_id=call.call_id, name=call.name)
        if call.tool is not None:
            item.name, item.namespace = call.tool.name, call.tool.namespace or UNSET
        call.output_index = self.add(item)
        call.middle = b',"item_id":"%s","output_index":%d,"delta":' % (item.id.encode(), call.output_index)

    def _cut_call(self, call: ModelCall) -> None:
        """End a call of the client, as far as it was told, in the middle of it."""
        if call.item is None or call.item.status != "in_progress":  # the turn has ended before
            return
        # Only the last item of a response may be incomplete.
        is_last = self._positions[call.output_index] == len(self.response.output) - 1
        self._close_call(call, "incomplete" if is_last else "completed")

    def _end_call(self, call: ModelCall) -> None:
        """End a call of the client, and tell what was not told of it yet."""
        if call.tool is not None and not call.tool.is_function:
            self._write_call(call, call.tool)
            return
        if call.item is None:
            self._open_call(call)
            if call.pieces:
                self.events.delta("response.function_call_arguments.delta", call.middle, call.arguments, b"}")
        self._close_call(call)

    def _close_call(self, call: ModelCall, status: ItemStatus = "completed") -> None:
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

    def _write_call(self, call: ModelCall, tool: ClientTool) -> None:
        """Write a call that is no plain one. What it says is inside of JSON, so it is told when it is whole."""
        self._whole_call(tool.item(new_id(tool.item_prefix), call.call_id, call.arguments))

    def _whole_call(self, item: Item) -> None:
        self.close_open("completed")
        index = len(self._positions)
        self._positions.append(len(self.response.output))
        self.response.output.append(item)
        if self.events.enabled:
            replay_item(msgspec.to_builtins(item), index, self.events)

    def cite(self, text: str) -> list[JSON]:
        """Return the annotations of a text."""
        sources = self._options.sources
        return annotations(text, sources.numbered()) if sources else []


async def _nothing() -> None:
    """Send nothing: nobody listens."""
