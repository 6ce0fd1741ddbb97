"""The loop: model turn, calls, model turn, until there is an answer or a limit is reached."""

import asyncio
import logging
import time
from typing import Any, Protocol

import msgspec

from antwort.backends.base import ModelRequest, TurnSink
from antwort.config import EngineConfig
from antwort.engine.coalescer import Coalescer
from antwort.engine.counts import Counts
from antwort.engine.dispatch import ServerCall, begin, end, grouped, interrupt, place_of, run_all
from antwort.engine.emitter import Emitter, ModelCall
from antwort.engine.events import EventSink
from antwort.engine.history import model_items
from antwort.engine.journal import Journal
from antwort.engine.metrics import TurnMetrics
from antwort.engine.plan import Plan
from antwort.errors import APIError, RateLimitError
from antwort.functions import ToolResult
from antwort.storage.base import FencedError, JournalEntry
from antwort.wire.items import Status
from antwort.wire.responses import IncompleteDetails, ResponseError, ResponseObject

__all__ = ["Loop", "Models"]

JSON = dict[str, Any]

logger = logging.getLogger(__name__)

_REPEATS = 3
"""How often the same call of an idempotent function is executed before the model is told to stop."""


class Models(Protocol):
    """Whoever performs model turns."""

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        """Perform one turn."""


class Loop:
    """Makes one response. Whatever happens, the response ends in a state that tells the truth, and is stored so."""

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        sink: EventSink | None,
        *,
        models: Models,
        settings: EngineConfig,
        metrics: TurnMetrics,
        sequence: int = 0,
        resumed: bool = False,
    ) -> None:
        self.plan = plan
        self.response: ResponseObject = plan.response
        self._models = models
        self._journal = journal
        self._settings = settings
        self._metrics = metrics
        self._resumed = resumed
        self._streaming = sink is not None
        self._sink = sink
        self._choice = plan.choice
        clients = {n for n, target in plan.toolset.targets.items() if target.is_client and plan.choice.permits(n)}
        self.emitter = Emitter(
            self.response,
            sink,
            sources=plan.ctx.sources,
            client_functions=clients,
            whole_calls=self.response.background,
            sequence=sequence,
        )
        self._coalescer = Coalescer(self.emitter) if self.response.background else None
        self._items = [*model_items(plan.history), *plan.input]
        self._noted = len(self.response.output)
        self._counts = Counts()
        if resumed:
            stored = journal.record.extra.get("counts", {})
            self._counts = Counts.restored(stored, journal.entries, plan.ctx.sources)
            self._choice = plan.choice.relaxed() if self._counts.turns else plan.choice

    async def run(self) -> ResponseObject:
        """Make the response. For a caller that does not stream, an error of the model server is raised as it is."""
        try:
            await self._run()
        except asyncio.CancelledError:
            await self._cancelled()
            raise
        except FencedError:
            logger.info("response %s was taken over by somebody else", self.response.id)
            raise
        except APIError as error:
            await self._failed(error)
        except Exception:
            logger.exception("response %s failed", self.response.id)
            await self._failed(APIError("The server had an error while making the response."))
        return self.response

    async def _run(self) -> None:
        self.response.status = "in_progress"
        if not self.response.background:
            self.emitter.announce("created")
        if not self._resumed:
            self.emitter.announce("in_progress")
        if self.response.background:
            self._journal.tell(self.response)
            await self._journal.save()
            await self.emitter.flush()
        clock = asyncio.timeout(self.plan.ctx.remaining())
        try:
            async with clock:
                reason = await (self._continue() if self._resumed else self._turns())
        except TimeoutError:
            if not clock.expired():
                raise
            self._close("incomplete")
            reason = "deadline"
        await self._end("completed" if reason is None else "incomplete", reason)

    async def _turns(self) -> str | None:
        """Perform turns until there is nothing left to do; return why it ended early, if it did."""
        while True:
            if self._counts.turns >= self.plan.max_turns:
                return "max_turns"
            self._counts.turns += 1
            emitter = self.emitter
            await self._model_turn()
            cut = emitter.finish_reason in {"length", "content_filter"}
            calls = emitter.end_turn(cut=cut)
            if emitter.turn_usage is not None:
                self._counts.usage.add(emitter.turn_usage)
            self._note_output()
            if not self.response.background:  # its items are stored before they are told, together with what follows
                await emitter.flush()
            if cut:
                return "max_output_tokens" if emitter.finish_reason == "length" else "content_filter"
            server = [call for call in calls if not call.is_client]
            if server:
                await self._execute(server)
            if len(server) < len(calls) or not calls:
                return None
            self._choice = self._choice.relaxed()

    async def _model_turn(self) -> None:
        emitter = self.emitter
        emitter.begin_turn()
        started = time.perf_counter()
        try:
            await self._models.run(self._request(), self._coalescer or emitter)
        except BaseException as error:
            self._metrics.failed_turn(time.perf_counter() - started, error)
            raise
        finally:
            if self._coalescer is not None:
                self._coalescer.stop()
        ended, first = time.perf_counter(), emitter.first_piece_at
        first_seconds = None if first is None or not self._streaming else first - started
        self._metrics.turn(self.response.model, ended - started, first_seconds, emitter.turn_usage)

    # --- the model's side --------------------------------------------------------------------------------------------

    def _request(self) -> ModelRequest:
        create, plan = self.plan.create, self.plan
        tools = () if self._counts.without_tools else plan.toolset.definitions()
        remaining = None
        if plan.max_output_tokens is not None:
            remaining = max(1, plan.max_output_tokens - self._counts.usage.output_tokens)
        logprobs = "message.output_text.logprobs" in plan.include or bool(create.top_logprobs)
        return ModelRequest(
            model=self.response.model,
            items=[*self._items, *self._generated()],
            instructions=plan.instructions,
            tools=tools,
            tool_choice=self._choice.upstream if tools else None,
            parallel_tool_calls=create.parallel_tool_calls if tools else None,
            stream=self._streaming,
            temperature=create.temperature if create.temperature is not None else self._profile_temperature(),
            top_p=create.top_p,
            presence_penalty=create.presence_penalty,
            frequency_penalty=create.frequency_penalty,
            max_output_tokens=remaining,
            top_logprobs=(create.top_logprobs or 0) if logprobs else None,
            effort=create.reasoning.effort if create.reasoning is not None else None,
            text_format=create.text.format if create.text is not None else None,
            verbosity=create.text.verbosity if create.text is not None else None,
            user=create.user or create.safety_identifier,
            service_tier=create.service_tier,
            prompt_cache_key=create.prompt_cache_key,
            tenant=plan.ctx.tenant,
        )

    def _profile_temperature(self) -> float | None:
        return self.response.temperature if self.response.temperature != 1.0 else None

    def _generated(self) -> list[JSON]:
        return model_items(entry for entry in self._journal.entries if entry.direction == "output")

    def _note_output(self) -> None:
        """Take the items the model has written since the last time into the journal."""
        for item in self.response.output[self._noted :]:
            if not isinstance(item, dict):
                self._journal.note(JournalEntry("output", msgspec.to_builtins(item)))
        self._noted = len(self.response.output)

    # --- the functions' side -----------------------------------------------------------------------------------------

    async def _execute(self, calls: list[ModelCall]) -> None:
        server = [self._server_call(call) for call in calls]
        for call in server:
            call.position = self._journal.note(begin(call, self.plan, self.emitter))
        self._noted = len(self.response.output)
        self._keep_counts()
        await self._journal.save()  # a call is known to have started before it starts
        await self.emitter.flush()
        groups = grouped(server)
        limit = 1 if self.plan.create.parallel_tool_calls is False else self._settings.parallel_calls

        async def finished(leader: ServerCall, result: ToolResult) -> None:
            for call in groups[leader.call_id]:
                end(call, result, self.plan, self.emitter)
                self._keep_counts()
                await self._journal.save_at(call.position)
            await self.emitter.flush()

        await run_all([group[0] for group in groups.values()], self._call, finished, limit=limit)

    async def _call(self, call: ServerCall) -> ToolResult:
        target = call.target
        if call.refusal is not None or target is None or target.executor is None or target.spec is None:
            return ToolResult.error(call.refusal or "There is no such function.", "denied")
        ctx = self.plan.ctx.with_(call_id=call.call_id, options=target.options)
        return await target.executor.execute(target.spec.name, call.arguments, ctx)

    def _server_call(self, call: ModelCall) -> ServerCall:
        target = self.plan.toolset.targets.get(call.name)
        server = ServerCall(call.call_id, call.name, call.arguments, target)
        if target is None or target.executor is None:
            names = ", ".join(name for name in self.plan.toolset.targets if self._choice.permits(name))
            server.refusal = f"There is no function '{call.name[:64]}' here. Available: {names or 'none'}."
        elif not self._choice.permits(call.name):
            server.refusal = f"{call.name} may not be called in this request."
        elif self.plan.max_tool_calls is not None and self._counts.tool_calls >= self.plan.max_tool_calls:
            server.refusal = "The limit of function calls for this response is reached. Answer with what you have."
            self._counts.without_tools = True
        elif target.spec is not None and target.spec.idempotent and self._counts.made.get(server.key, 0) >= _REPEATS:
            server.refusal = "You have made this very call before; its result does not change. Use it."
        else:
            self._counts.tool_calls += 1
            self._counts.made[server.key] = self._counts.made.get(server.key, 0) + 1
        return server

    # --- after a crash -----------------------------------------------------------------------------------------------

    async def _continue(self) -> str | None:
        """Finish what was started, then go on, unless the client is to answer first."""
        await self._finish_started_calls()
        entries = self._journal.entries
        if any(e.direction == "output" and e.call is None and e.item["type"] == "function_call" for e in entries):
            return None
        return await self._turns()

    async def _finish_started_calls(self) -> None:
        """Execute again the calls that can be repeated; the others are told to be interrupted."""
        for position, entry in enumerate(self._journal.entries):
            record = entry.call
            if record is None or "output" in record or "name" not in record:
                continue
            target = self.plan.toolset.targets.get(record["name"])
            if target is not None and target.spec is not None and target.spec.idempotent:
                call = ServerCall(record["call_id"], record["name"], record["arguments"], target, entry=entry)
                call.output_index = place_of(entry, self.emitter)
                end(call, await self._call(call), self.plan, self.emitter)
            else:
                interrupt(entry, self.emitter)
            self._keep_counts()
            await self._journal.save_at(position)
        await self.emitter.flush()

    def _keep_counts(self) -> None:
        """Store with the next write how far the response has come, if somebody might have to continue it."""
        if self.response.background:
            self._journal.tell(self.response, counts=self._counts.stored(self.plan.ctx.sources))

    # --- endings -----------------------------------------------------------------------------------------------------

    async def _end(self, status: str, reason: str | None = None) -> None:
        response = self.response
        response.status = "completed" if status == "completed" else "incomplete"
        response.usage = self._counts.usage
        if reason is None:
            response.completed_at = int(time.time())
        else:
            response.incomplete_details = IncompleteDetails(reason)
        await self._finish(response.status)

    @property
    def _told(self) -> bool:
        """Tell whether a reader has seen anything yet; until then an error can be an HTTP status."""
        return self._sink is not None and self._sink.started

    def _close(self, status: Status) -> None:
        """Close whatever is open: no item of a response that is over is in progress."""
        self.emitter.close_open(status)
        self._note_output()
        for position, entry in enumerate(self._journal.entries):
            if interrupt(entry, self.emitter):
                self._journal.change(position)

    async def _failed(self, error: APIError) -> None:
        self._close("completed")
        response = self.response
        response.status = "failed"
        response.usage = self._counts.usage if self._counts.usage.total_tokens else None
        code = "rate_limit_exceeded" if isinstance(error, RateLimitError) else "server_error"
        response.error = ResponseError(code, error.message)
        if self._journal.begun or self._told:
            self.emitter.error(code, error.message)
            await self._finish("failed")
        if not self._told:
            raise error

    async def _cancelled(self) -> None:
        """Keep what there is of a response that nobody waits for any more."""
        if self.response.background:
            return  # its run goes on elsewhere, or was cancelled in the store
        self._close("completed")
        self.response.status = "cancelled"
        self._metrics.response("cancelled")
        self.response.usage = self._counts.usage
        saving = asyncio.ensure_future(self._journal.finish(self.response))
        await asyncio.shield(saving)

    async def _finish(self, kind: str) -> None:
        """Store the end, then tell it: whoever hears of it can fetch it."""
        self._metrics.response(kind)
        if self._journal.store is not None:
            self._note_output()
        self.emitter.announce(kind)
        await self._journal.finish(self.response)
        await self.emitter.flush()
