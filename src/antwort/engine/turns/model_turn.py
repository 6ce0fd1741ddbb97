"""A model turn: what it asks, and keeping that within what the model can read."""

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from antwort.backends import estimate_tokens
from antwort.backends.base import ModelRequest, ToolDefinitions, TurnSink
from antwort.backends.passages import Window
from antwort.backends.tokens import estimate_items
from antwort.concurrency.large_work import is_large
from antwort.engine.calls.admission import Totals
from antwort.engine.calls.leaving import LeavingCalls, Size, WindowRoom, size_of
from antwort.engine.journal import Journal
from antwort.engine.output.emitter import Emitter
from antwort.engine.plan import Plan
from antwort.engine.tools.parameters import Choice
from antwort.engine.tools.tool_search import loaded_definitions
from antwort.engine.turns import telemetry
from antwort.engine.turns.parts import EngineParts
from antwort.engine.window import Seals, model_items, settled, shortened
from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.responses import Usage

TOO_LONG = "context_length_exceeded"
"""The code of an error that says that a window does not fit the model."""


_ATTEMPTS = 6
_SHARE = 0.6
"""What is kept of a window that was too long, when nobody knows how long it may be."""
_ANSWER = 4096
"""Tokens that are left for the answer, if the request does not say; at most half of the window."""
_UNKNOWN_WINDOW = 100_000
"""The window at which compaction begins, if neither the request nor the model server tells."""

_MUCH_SAID = 4000
"""Characters of calls and results from which on a window is looked at before it is sent."""
_CHARACTERS = 2.5
"""Characters of a token, about: of prose it has more, of numbers fewer."""
_RESULTS = 0.6
"""The share of the room in a window that the results of one turn may take."""
_LEAST_RESULT = 500
_FRAME = 60
"""Bytes that a definition has on the wire besides its own, and a message with instructions, about."""

_NOTHING: JSON = {}
_Run = Callable[[ModelRequest, TurnSink], Coroutine[Any, Any, None]]


def model_request(
    plan: Plan, items: Sequence[JSON], choice: Choice, totals: Totals, *, stream: bool = False
) -> ModelRequest:
    """Return what a turn asks of the model server."""
    create, response = plan.create, plan.response
    tools = _offered(plan, totals)
    request = ModelRequest(  # the first by position: Python is slow with more than fifteen names
        response.model,
        items,
        plan.instructions,
        tools,
        choice.upstream if tools else None,
        choice.among,
        create.parallel_tool_calls if tools else None,
        stream,
        temperature=create.temperature,
        top_p=create.top_p,
        presence_penalty=create.presence_penalty,
        frequency_penalty=create.frequency_penalty,
        max_output_tokens=_tokens_left(plan, totals),
        user=create.user or create.safety_identifier,
        service_tier=create.service_tier,
        prompt_cache_key=create.prompt_cache_key,
        tenant=plan.ctx.tenant,
        short=_is_short(plan, items),
        extra=create.extra_body or _NOTHING,
    )
    if create.temperature is None and response.temperature != 1.0:
        request.temperature = response.temperature  # the agent's own
    if create.top_logprobs or "message.output_text.logprobs" in plan.include:
        request.top_logprobs = create.top_logprobs or 0
    if create.reasoning is not None:
        request.effort, request.summary = create.reasoning.effort, create.reasoning.summary
    if create.text is not None:
        request.text_format, request.verbosity = create.text.format, create.text.verbosity
    return request


def next_request(
    before: ModelRequest, plan: Plan, items: Sequence[JSON], choice: Choice, totals: Totals
) -> ModelRequest:
    """Return what another turn of a response asks: what `model_request` would return, made of what one before asked."""
    tools = _offered(plan, totals)
    return replace(
        before,
        items=items,
        tools=tools,
        tool_choice=choice.upstream if tools else None,
        allowed=choice.among,
        parallel_tool_calls=plan.create.parallel_tool_calls if tools else None,
        max_output_tokens=_tokens_left(plan, totals),
        short=_is_short(plan, items),
        tried=[],
    )


def _offered(plan: Plan, totals: Totals) -> Sequence[JSON]:
    """Return the functions that a model is offered in a turn."""
    if totals.without_tools:
        return ()
    toolset, withheld = plan.toolset, totals.repetition.withheld
    definitions = loaded_definitions(toolset, totals.loaded) if totals.loaded else toolset.definitions
    return _without(definitions, withheld) if withheld else definitions


def _without(definitions: Sequence[JSON], withheld: Collection[str]) -> Sequence[JSON]:
    return ToolDefinitions(definition for definition in definitions if definition["name"] not in withheld)


def _tokens_left(plan: Plan, totals: Totals) -> int | None:
    """Return how many tokens a turn may write; None if nobody has limited them."""
    return None if plan.max_output_tokens is None else plan.max_output_tokens - totals.written


def _is_short(plan: Plan, items: Sequence[JSON]) -> bool:
    """Tell whether a window is known to be short: as it was planned, with what was said since."""
    return plan.short and (items is plan.window or not is_large(items[len(plan.window) :]))


class SaidWindow(msgspec.Struct, eq=False):
    """What the model reads in the next turn."""

    _plan: Plan
    _journal: Journal
    _seals: Seals
    compacted: bool = False
    """Whether a summary stands for some of it."""

    def items(self) -> list[JSON]:
        """Return what the model reads."""
        window, entries = self._plan.window, self._journal.said()
        if not entries:
            return window
        said = model_items(entries)
        if self._plan.is_pending():
            return self._seals.opened(settled([*window, *said]))
        if self.compacted:
            return self._seals.opened([*window, *said])
        said = self._seals.opened(said)  # what is in the window needs no opening
        return window.extended(said) if isinstance(window, Window) else [*window, *said]


class ModelTurns(msgspec.Struct, eq=False):
    """Performs the turns of one response.

    A window that is too long gets shorter: calls that the response has made itself leave it, and with
    `truncation: auto` the oldest items of what came before are dropped.
    """

    _plan: Plan
    _parts: EngineParts
    _emitter: Emitter
    _window: SaidWindow
    _leaving: LeavingCalls
    _looked: bool = False
    _room: int | None = None
    """Tokens that items may take, by our own estimate; None if that is not known."""
    _compacted: int = 0
    """Tokens in the window when it was compacted last."""

    def run(self, request: ModelRequest, sink: TurnSink) -> Coroutine[Any, Any, None]:
        """Perform a turn; what the sink takes comes to the emitter."""
        plan, parts = self._plan, self._parts
        fits = request.items is plan.window and plan.max_window is None and plan.response.truncation != "auto"
        run = parts.models.run if fits else self._run_fitted
        return self._run_traced(run, request, sink) if parts.tracer.enabled else run(request, sink)

    @property
    def _truncates(self) -> bool:
        return self._plan.response.truncation == "auto"

    async def _run_traced(self, run: _Run, request: ModelRequest, sink: TurnSink) -> None:
        with telemetry.open_turn_span(self._parts.tracer, self._plan) as span:
            request.headers = self._parts.tracer.headers()
            await run(request, sink)
            telemetry.record_answer(span, self._emitter)

    async def _run_fitted(self, request: ModelRequest, sink: TurnSink) -> None:
        shorter = request
        plan = self._plan
        is_watched = plan.max_window is not None or plan.response.truncation == "auto"
        if is_watched or self._looked or self._leaving.said > _MUCH_SAID:  # a short one is sent without a look
            shorter = await self._fitted(request)
        for attempt in range(_ATTEMPTS):
            try:
                await self._parts.models.run(shorter, sink)
            except BadRequestError as error:
                if error.code != TOO_LONG or attempt == _ATTEMPTS - 1:
                    raise
                tried = await self._estimate(shorter)
                self._looked, self._room = True, int(tried * _SHARE)
                self._parts.models.note_room(request.model, self._room)
                shorter = await self._fitted(request)
                if await self._estimate(shorter) >= tried:
                    raise  # there is nothing left to drop
            else:
                return

    # --- keeping within the window -----------------------------------------------------------------------------------

    async def room(self) -> int | None:
        """Return how many tokens a request may have, by our own estimate; None if nobody knows."""
        if not self._looked:
            self._looked = True
            self._room = await self._room_for(self._fixed())
        return self._room

    async def result_room(self, results: int) -> int | None:
        """Return how many characters each of some results may have; None if nobody knows."""
        limit = await self._limit()
        if not any(limit):
            return None
        fixed = await self._size(self._fixed(), limit)
        rooms = []
        if limit.tokens:
            rooms.append((limit.tokens - fixed.tokens) * _CHARACTERS)
        if limit.bytes:
            rooms.append(limit.bytes - fixed.bytes)
        return max(_LEAST_RESULT, int(min(rooms) * _RESULTS) // results)

    def _fixed(self) -> ModelRequest:
        """Return a request with what cannot leave the window."""
        return model_request(self._plan, self._plan.window, self._plan.choice, Totals())

    async def _limit(self) -> Size:
        return Size(await self.room() or 0, self._plan.max_window or 0)

    async def _fitted(self, request: ModelRequest) -> ModelRequest:
        """Return a request that is as long as it may be, as far as there is something to leave out."""
        limit = await self._limit()
        if not any(limit):
            return request
        taken = await self._size(request, limit)
        if WindowRoom(limit, taken, taken).fits:
            return request
        fixed = await self._size(replace(request, items=self._plan.window), limit)
        shorter = request
        for shorten in (self._leaving.leave, self._leaving.shorten_last):
            if await shorten(WindowRoom(limit, taken, fixed)):
                request = replace(request, items=self._window.items())
            shorter = await self._truncated(request) if self._truncates else request
            taken = await self._size(shorter, limit)
            if WindowRoom(limit, taken, fixed).fits:
                break
        return shorter

    async def _size(self, request: ModelRequest, limit: Size) -> Size:
        return await self._parts.large_work.run_if(is_large(request.items), request_size, request, limit)

    async def is_full(self, request: ModelRequest, used: int) -> bool:
        """Tell whether the window is to be compacted before this turn; `used` is what the last turn has counted.

        A window that is still near the threshold after it was compacted is left alone until it has grown.
        """
        limit = self._plan.compact_at
        if not limit:
            window = await self._parts.models.context_window(request.model)
            limit = _UNKNOWN_WINDOW if window is None else min(window * 3 // 4, window - _answer(request, window))
        size = max(used, await self._estimate(request))  # what functions have returned since then is not in `used`
        return size >= max(limit, self._compacted + max(limit, self._compacted) // 4)

    async def note_compacted(self, request: ModelRequest) -> None:
        """Take note of a window that was compacted, or could not be."""
        self._compacted = await self._estimate(request)

    async def estimated(self, request: ModelRequest, said: Sequence[object]) -> Usage:
        """Return about what a turn has used whose server does not tell."""
        items: list[JSON] = msgspec.to_builtins(said)
        read = await self._estimate(request)
        written = await self._parts.large_work.run_if(is_large(items), estimate_items, items)
        return Usage(input_tokens=read, output_tokens=written, total_tokens=read + written)

    async def _room_for(self, request: ModelRequest) -> int | None:
        """Return how many tokens of input fit, by our estimate, which is held against the server's own count."""
        window = await self._parts.models.context_window(request.model)
        measured = self._parts.models.room(request.model)
        if window is None:
            return measured
        room = window - _answer(request, window)
        estimate = await self._estimate(request)
        if estimate > room:
            counted = await self._parts.models.count_tokens(request)
            if counted:
                room = room * estimate // counted
        return room if measured is None else min(room, measured)

    async def _estimate(self, request: ModelRequest) -> int:
        return await self._parts.large_work.run_if(is_large(request.items), estimate_tokens, request)

    async def _truncated(self, request: ModelRequest) -> ModelRequest:
        return await self._parts.large_work.run_if(is_large(request.items), self._without_oldest, request)

    def _without_oldest(self, request: ModelRequest) -> ModelRequest:
        limit = Size(self._room or 0, self._plan.max_window or 0)

        def fits(items: Sequence[JSON]) -> bool:
            taken = request_size(replace(request, items=items), limit)
            return WindowRoom(limit, taken, taken).fits

        if fits(request.items):
            return request
        items = shortened(request.items, fits)
        return request if items is None else replace(request, items=items)


def request_size(request: ModelRequest, limit: Size) -> Size:
    """Return what a request takes, in the measures for which there is a limit."""
    taken = size_of(request.items, Size(0, limit.bytes))
    size = taken.bytes
    if limit.bytes:
        size += len(request.instructions or "") + sum(len(msgspec.json.encode(tool)) + _FRAME for tool in request.tools)
    return Size(estimate_tokens(request) if limit.tokens else 0, size)


def _answer(request: ModelRequest, window: int) -> int:
    """Return the tokens that are left for the answer."""
    return min(request.max_output_tokens or _ANSWER, window // 2)
