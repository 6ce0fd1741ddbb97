"""A model turn: what it asks, and keeping that within what the model can read."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from antwort.backends import estimate_tokens
from antwort.backends.base import ModelRequest, ToolDefinitions, TurnSink
from antwort.concurrency.large_work import is_large
from antwort.engine import telemetry
from antwort.engine.emitter import Emitter
from antwort.engine.parts import EngineParts
from antwort.engine.plan import Plan
from antwort.engine.tool_choice import Choice
from antwort.engine.totals import Totals
from antwort.engine.window import shortened
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
_BYTES = 4
"""Bytes of a token, about."""
_UNKNOWN_WINDOW = 100_000
"""The window at which compaction begins, if neither the request nor the model server tells."""

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
    )


def _offered(plan: Plan, totals: Totals) -> Sequence[JSON]:
    """Return the functions that a model is offered in a turn."""
    if totals.without_tools:
        return ()
    definitions, withheld = plan.toolset.definitions, totals.repetition.withheld
    if not withheld:
        return definitions
    return ToolDefinitions(definition for definition in definitions if definition["name"] not in withheld)


def _tokens_left(plan: Plan, totals: Totals) -> int | None:
    """Return how many tokens a turn may write; None if nobody has limited them."""
    return None if plan.max_output_tokens is None else plan.max_output_tokens - totals.written


def _is_short(plan: Plan, items: Sequence[JSON]) -> bool:
    """Tell whether a window is known to be short: as it was planned, with what was said since."""
    return plan.short and (items is plan.window or not is_large(items[len(plan.window) :]))


class ModelTurns(msgspec.Struct, eq=False):
    """Performs the turns of one response. With `truncation: auto` the oldest items are dropped when they must be."""

    _plan: Plan
    _parts: EngineParts
    _emitter: Emitter
    _looked: bool = False
    _room: int | None = None
    """Tokens that items may take, by our own estimate; None if that is not known."""
    _compacted: int = 0
    """Tokens in the window when it was compacted last."""

    def run(self, request: ModelRequest, sink: TurnSink) -> Coroutine[Any, Any, None]:
        """Perform a turn; what the sink takes comes to the emitter."""
        run = self._run_shortened if self._plan.response.truncation == "auto" else self._parts.models.run
        return self._run_traced(run, request, sink) if self._parts.tracer.enabled else run(request, sink)

    async def _run_traced(self, run: _Run, request: ModelRequest, sink: TurnSink) -> None:
        with telemetry.open_turn_span(self._parts.tracer, self._plan) as span:
            request.headers = self._parts.tracer.headers()
            await run(request, sink)
            telemetry.record_answer(span, self._emitter)

    async def _run_shortened(self, request: ModelRequest, sink: TurnSink) -> None:
        if not self._looked:
            self._looked = True
            self._room = await self._room_for(request)
        for attempt in range(_ATTEMPTS):
            shorter = await self._fit(request)
            try:
                await self._parts.models.run(shorter, sink)
            except BadRequestError as error:
                if error.code != TOO_LONG or attempt == _ATTEMPTS - 1:
                    raise
                tried = await self._estimate(shorter)
                self._room = int(tried * _SHARE)
                if await self._estimate(await self._fit(shorter)) >= tried:
                    raise  # there is nothing left to drop
            else:
                return

    async def is_full(self, request: ModelRequest, used: int) -> bool:
        """Tell whether the window is to be compacted before this turn; `used` is what the last turn has counted.

        A window that is still near the threshold after it was compacted is left alone until it has grown.
        """
        limit = self._plan.compact_at
        if not limit:
            window = await self._parts.models.context_window(request.model)
            limit = _UNKNOWN_WINDOW if window is None else window * 3 // 4
        size = max(used, await self._estimate(request))  # what functions have returned since then is not in `used`
        return size >= max(limit, self._compacted + max(limit, self._compacted) // 4)

    async def note_compacted(self, request: ModelRequest) -> None:
        """Take note of a window that was compacted, or could not be."""
        self._compacted = await self._estimate(request)

    async def estimated(self, request: ModelRequest, said: Sequence[object]) -> Usage:
        """Return about what a turn has used whose server does not tell."""
        read, written = await self._estimate(request), len(msgspec.json.encode(said)) // _BYTES
        return Usage(input_tokens=read, output_tokens=written, total_tokens=read + written)

    async def _room_for(self, request: ModelRequest) -> int | None:
        """Return how many tokens of input fit, by our estimate, which is held against the server's own count."""
        window = await self._parts.models.context_window(request.model)
        if window is None:
            return None
        room = window - min(request.max_output_tokens or _ANSWER, window // 2)
        estimate = await self._estimate(request)
        if estimate > room:
            counted = await self._parts.models.count_tokens(request)
            if counted:
                return room * estimate // counted
        return room

    async def _estimate(self, request: ModelRequest) -> int:
        return await self._parts.large_work.run_if(is_large(request.items), estimate_tokens, request)

    async def _fit(self, request: ModelRequest) -> ModelRequest:
        large = self._room is not None and is_large(request.items)
        return await self._parts.large_work.run_if(large, self._fitting, request)

    def _fitting(self, request: ModelRequest) -> ModelRequest:
        room = self._room
        if room is None or estimate_tokens(request) <= room:
            return request
        limit = room

        def fits(items: Sequence[JSON]) -> bool:
            return estimate_tokens(replace(request, items=items)) <= limit

        items = shortened(request.items, fits)
        return request if items is None else replace(request, items=items)
