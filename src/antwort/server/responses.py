"""`/v1/responses`: creating, fetching, streaming again, cancelling, deleting."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from antwort.context import Context
from antwort.engine.engine import Engine, not_found
from antwort.engine.events import Events
from antwort.engine.plan import Plan
from antwort.engine.replay import replay_response
from antwort.errors import BadRequestError, UnsupportedMediaTypeError
from antwort.functions import Route
from antwort.functions.http import CONTEXT
from antwort.runs.local import LocalRuns
from antwort.server.raw import RawRoute
from antwort.server.sse import DONE, EventStream, Heartbeats, Tail, frame, while_connected
from antwort.wire.requests import CreateResponse, decode_create
from antwort.wire.responses import ResponseObject

__all__ = ["Responses"]

JSON = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_SHOW_CALLS = b"antwort-show-calls"


class Responses:
    """The endpoints of responses."""

    def __init__(self, engine: Engine, runs: LocalRuns) -> None:
        self._engine = engine
        self._runs = runs
        self._heartbeats = Heartbeats(engine.settings.heartbeat)

    def routes(self) -> list[Route | RawRoute]:
        """Return the routes."""
        return [
            RawRoute(
                "POST", "/v1/responses", self.create, "Create a response.", body=CreateResponse, returns=ResponseObject
            ),
            Route("GET", "/v1/responses", self.list),
            Route("GET", "/v1/responses/{response_id}", self.retrieve),
            Route("DELETE", "/v1/responses/{response_id}", self.delete),
            Route("POST", "/v1/responses/{response_id}/cancel", self.cancel),
            Route("GET", "/v1/responses/{response_id}/input_items", self.input_items),
        ]

    # --- creating: the hot path, in plain ASGI -----------------------------------------------------------------------

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Create a response: JSON, a stream, or a background run."""
        show_calls = _check_headers(scope)
        create = decode_create(await _read_body(receive))
        ctx: Context = scope[CONTEXT]
        plan = await self._engine.plan(create, ctx, show_calls=show_calls)
        if plan.response.background:
            accepted = await self._runs.accept(plan)
            if not create.stream:
                await _send_json(send, accepted)
                return
            await Tail(self._runs.events(ctx.tenant, plan.response.id), self._heartbeats)(scope, receive, send)
        elif create.stream:
            await self._stream(plan, receive, send)
        else:

            async def work() -> None:
                response = await self._engine.respond(plan)
                await _send_json(send, _encode(response))

            await while_connected(receive, work)

    async def _stream(self, plan: Plan, receive: Receive, send: Send) -> None:
        stream = EventStream(send)

        async def work() -> None:
            await self._engine.respond(plan, stream)
            await stream.end()

        with self._heartbeats.watching(stream):
            await while_connected(receive, work)

    # --- everything else ---------------------------------------------------------------------------------------------

    async def retrieve(self, ctx: Context, request: Request, response_id: str) -> Response:
        """Return a response; with `stream=true`, its events, those after `starting_after` only."""
        if not _flag(request, "stream"):
            return _json(await self._engine.retrieve(ctx.tenant, response_id))
        after = _number(request, "starting_after", -1, low=0)
        record = await self._engine.store.get(ctx.tenant, response_id)
        if record is None:
            raise not_found(response_id)
        if record.background:
            return Tail(self._runs.events(ctx.tenant, response_id, after=after), self._heartbeats)
        frames: list[bytes] = []
        events = Events(lambda kind, data: frames.append(frame(kind, data)))
        replay_response(await self._engine.retrieve(ctx.tenant, response_id), events)
        return Response(b"".join([*frames[after + 1 :], DONE]), media_type="text/event-stream")

    async def delete(self, ctx: Context, response_id: str) -> JSON:
        """Delete a response."""
        if not await self._engine.store.delete(ctx.tenant, response_id):
            raise not_found(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def cancel(self, ctx: Context, response_id: str) -> JSON:
        """Cancel a background response."""
        return await self._runs.cancel(ctx.tenant, response_id)

    async def list(self, ctx: Context, request: Request) -> JSON:
        """List responses, the newest first."""
        page = await self._engine.store.list_responses(
            ctx.tenant,
            limit=_number(request, "limit", 20, low=1, high=100),
            after=request.query_params.get("after"),
            before=request.query_params.get("before"),
            order=_order(request),
        )
        data = [await self._engine.retrieve(ctx.tenant, record.id) for record in page.data]
        return _listed(data, page.has_more)

    async def input_items(self, ctx: Context, request: Request, response_id: str) -> JSON:
        """List the input items of a response, the last first."""
        if await self._engine.store.get(ctx.tenant, response_id) is None:
            raise not_found(response_id)
        entries = await self._engine.store.journal(ctx.tenant, response_id)
        items = [entry.item for entry in entries if entry.direction == "input"]
        if _order(request) == "desc":
            items.reverse()
        limit = _number(request, "limit", 20, low=1, high=100)
        after = request.query_params.get("after")
        if after is not None:
            ids = [item["id"] for item in items]
            if after not in ids:
                raise BadRequestError(f"There is no item '{after}' in this list.", param="after")
            items = items[ids.index(after) + 1 :]
        return _listed(items[:limit], len(items) > limit)


def _listed(data: "list[JSON]", has_more: bool) -> JSON:
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def _check_headers(scope: Scope) -> bool:
    """Refuse a body that does not claim to be JSON; return whether the request wants to see all calls."""
    show_calls = False
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value.partition(b";")[0].strip().lower()
            if kind not in {b"application/json", b"text/json"} and not kind.endswith(b"+json"):
                shown = kind.decode("latin-1")
                raise UnsupportedMediaTypeError(f"Send JSON (content-type: application/json), not '{shown}'.")
        elif name == _SHOW_CALLS:
            show_calls = value.lower() not in {b"0", b"false", b""}
    return show_calls


async def _read_body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return body
    pieces = [body]
    while message.get("more_body", False):
        message = await receive()
        pieces.append(message.get("body", b""))
    return b"".join(pieces)


async def _send_json(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    start: Message = {"type": "http.response.start", "status": 200, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _json(value: JSON) -> Response:
    return Response(_encode(value), media_type="application/json")


def _flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "false").lower()
    if value not in {"true", "false", "1", "0"}:
        raise BadRequestError(f"Invalid value for '{name}': use true or false.", param=name, code="invalid_value")
    return value in {"true", "1"}


def _number(request: Request, name: str, default: int, *, low: int, high: int | None = None) -> int:
    raw = request.query_params.get(name)
    if raw is None:
        return default
    try:
        value = int(raw)
    except ValueError:
        raise BadRequestError(f"Invalid value for '{name}': '{raw}' is not a number.", param=name) from None
    if value < low or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"between {low} and {high}"
        raise BadRequestError(f"Invalid value for '{name}': it must be {limits}.", param=name, code="invalid_value")
    return value


def _order(request: Request) -> str:
    order = request.query_params.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise BadRequestError("Invalid value for 'order': use asc or desc.", param="order", code="invalid_value")
    return order
