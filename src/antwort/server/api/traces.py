"""`/v1/responses/{id}/trace`: the story of a run: its agents, what models were asked and said, and each call."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec.structs import replace
from pydantic import Field
from starlette.responses import Response

from antwort.context import Context
from antwort.context.context import TRACES_READ
from antwort.engine.engine import Engine
from antwort.errors import NotFoundError, ServiceUnavailableError
from antwort.runs.local import LocalRuns
from antwort.server.api.description import examples
from antwort.server.api.run_stories import (
    KnownJournals,
    RunReader,
    Trace,
    TracedCall,
    TracedResponse,
    TracedTurn,
)
from antwort.server.api.shown_texts import LONGEST, Texts
from antwort.server.http.sse import Heartbeats, Tail
from antwort.storage.base import ACTIVE, StoredEvent
from antwort.types import JSON
from antwort.web.routes import Route

MaxLength = Annotated[
    int, Field(ge=0, le=1_000_000, description="Characters of each text; the rest of a longer one is left out.")
]
Follow = Annotated[bool, Field(description="Whether to follow the run: its story, then changes, until it is over.")]
_LOOK = 0.25
"""Seconds between two looks at a run that somebody follows."""
_PATIENCE = 10
"""How many times as long as a look takes the next one waits at least: large runs must not keep the server busy."""

_Key: TypeAlias = tuple[str, ...]
_Parts: TypeAlias = dict[_Key, bytes]
"""What there is to tell of a run, by what it is: fields of an event, as JSON without braces."""


class TraceEndpoints:
    """The endpoint of traces."""

    def __init__(self, engine: Engine, reader: RunReader, runs: LocalRuns) -> None:
        self._engine = engine
        self._reader = reader
        self._runs = runs
        self._heartbeats = Heartbeats(engine.settings.heartbeat)

    def routes(self) -> list[Route]:
        """Return the routes."""
        path = "/v1/responses/{response_id}/trace"
        return [Route("GET", path, self.trace, scope=TRACES_READ, streams=True, examples=examples.TRACE)]

    async def trace(
        self, ctx: Context, response_id: str, *, max_length: MaxLength = LONGEST, stream: Follow = False
    ) -> Trace | Response:
        """Return the story of the run that a response belongs to: agents, turns of models, calls, questions.

        The response may be any of the run's: one that brought an answer, or that of a sub-agent. What looks like a
        secret is masked as it is in the logs.
        """
        known = KnownJournals()
        trace = await self._told(ctx.tenant, response_id, max_length, known)
        if not stream:
            return trace
        events = self._follow(ctx.tenant, response_id, max_length, known, trace)
        return Tail(events, self._heartbeats, self._engine.stragglers)

    async def _told(self, tenant: str, response_id: str, max_length: int, known: KnownJournals) -> Trace:
        texts = Texts(self._reader.redactor, max_length, known.left)
        return await self._reader.trace(tenant, response_id, texts, known)

    async def _follow(
        self, tenant: str, response_id: str, max_length: int, known: KnownJournals, trace: Trace
    ) -> AsyncGenerator[StoredEvent, None]:
        """Yield the story of a run, what changes of it, and its end. Who comes again is told the whole of it again.

        All is read from the store, so that it does not matter who works on the run. When the server stops before the
        end a ServiceUnavailableError is raised: the reader is to come back.
        """
        large_work, number = self._engine.large_work, 0
        told = await large_work.run(_parts, trace)
        yield _event(number, ("trace.whole",), _fields(trace=trace))
        while trace.status in ACTIVE:
            if self._runs.stopping:
                raise ServiceUnavailableError("The server is stopping. The run goes on at its next start.")
            began = time.monotonic()
            try:
                trace = await self._told(tenant, response_id, max_length, known)
            except NotFoundError:
                trace = replace(trace, status="deleted", failures=())
                break
            now = await large_work.run(_parts, trace)
            if told.keys() - now.keys():  # a turn has begun once more, after a crash
                changed: Iterable[tuple[_Key, bytes]] = [(("trace.whole",), _fields(trace=trace))]
            else:
                changed = [(key, fields) for key, fields in now.items() if told.get(key) != fields]
            told = now
            for key, fields in changed:
                number += 1
                yield _event(number, key, fields)
            await asyncio.sleep(max(_LOOK, _PATIENCE * (time.monotonic() - began)))
        yield _event(number + 1, ("trace.done",), _fields(status=trace.status, failures=trace.failures))


def _event(number: int, key: _Key, fields: bytes) -> StoredEvent:
    head = msgspec.json.encode({"type": key[0], "sequence_number": number})
    return StoredEvent(number, key[0], head[:-1] + b"," + fields + b"}")


def _fields(**fields: Any) -> bytes:
    return msgspec.json.encode(fields)[1:-1]


# --- the parts of a story: each is told again when it has changed -----------------------------------------------------


def _parts(trace: Trace) -> _Parts:
    """Return all that there is to tell of a run, whatever holds something before what it holds."""
    return {key: fields for response in trace.responses for key, fields in _of_response(response, None, None)}


def _of_response(response: TracedResponse, parent_id: str | None, call_id: str | None) -> Iterator[tuple[_Key, bytes]]:
    alone = _without(replace(response, turns=None, agents=()), "turns", "agents")
    yield ("trace.response", response.id), _fields(parent_id=parent_id, call_id=call_id, response=alone)
    for turn in response.turns or ():
        yield from _of_turn(response.id, turn)
    for agent in response.agents:
        yield from _of_response(agent, response.id, None)


def _of_turn(response_id: str, turn: TracedTurn) -> Iterator[tuple[_Key, bytes]]:
    alone = _without(replace(turn, calls=()), "calls")
    yield ("trace.turn", response_id, str(turn.number)), _fields(response_id=response_id, turn=alone)
    for call in turn.calls:
        yield from _of_call(response_id, turn.number, call, None)


def _of_call(response_id: str, turn: int, call: TracedCall, parent: str | None) -> Iterator[tuple[_Key, bytes]]:
    alone = _without(replace(call, calls=(), agents=()), "calls", "agents")
    fields = _fields(response_id=response_id, turn=turn, parent_call_id=parent, call=alone)
    yield ("trace.call", response_id, call.call_id), fields
    for made in call.calls:
        yield from _of_call(response_id, turn, made, call.call_id)
    for agent in call.agents:
        yield from _of_response(agent, response_id, call.call_id)


def _without(part: msgspec.Struct, *names: str) -> JSON:
    """Return what there is to tell of something but for what it holds, which is told by itself."""
    fields: JSON = msgspec.to_builtins(part)
    for name in names:
        del fields[name]
    return fields
