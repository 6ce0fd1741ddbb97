"""The tool `respond`: a whole response of the server, by an agent of the configuration or without one."""

from collections.abc import Collection
from typing import Any

import msgspec
from pydantic_core import to_jsonable_python

from antwort.context import Context
from antwort.context.context import RESPONSES_WRITE
from antwort.engine.engine import Engine
from antwort.errors import APIError
from antwort.runs.limits import TenantLimits
from antwort.types import JSON
from antwort.wire.requests import CreateResponse

RESPOND = "respond"
_TAKEN = ("input", "agent", "model", "previous_response_id")
_DESCRIPTION = (
    "Let an agent of this server work on something, with its own model and functions, and return what it says. It can "
    "be continued by its id."
)
_RETURNS: JSON = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "status": {"type": "string"}, "output_text": {"type": "string"}},
    "required": ["id", "status", "output_text"],
}


class RespondTool:
    """Makes responses for clients that may make them by the API."""

    def __init__(self, engine: Engine, limits: TenantLimits) -> None:
        self._engine = engine
        self._limits = limits

    def described(self, ctx: Context, functions: Collection[str]) -> JSON | None:
        """Return it as a client is told of it; None if it may not use it, or a function has the name."""
        if RESPOND in functions or not ctx.grants(RESPONSES_WRITE):
            return None
        agent: JSON = {"type": "string", "description": "Which agent; without it, the model answers as it is."}
        if agents := self._engine.planner.agents:
            agent["enum"] = agents
        properties: JSON = {
            "input": {"type": "string", "description": "What it is to do, or the question, with all it has to know."},
            "agent": agent,
            "model": {"type": "string", "description": "Which model, if not the usual one."},
            "previous_response_id": {"type": "string", "description": "The response to go on from."},
        }
        schema = {"type": "object", "properties": properties, "required": ["input"], "additionalProperties": False}
        return {"name": RESPOND, "description": _DESCRIPTION, "inputSchema": schema, "outputSchema": _RETURNS}

    async def run(self, arguments: JSON, ctx: Context) -> JSON:
        """Make a response; what goes wrong is a result, too."""
        wrong = [name for name in arguments if name not in _TAKEN or not isinstance(arguments[name], str)]
        if wrong or "input" not in arguments:
            return _failed(f"It takes the texts {', '.join(_TAKEN)}, and needs 'input'.")
        try:
            plan = await self._engine.plan(CreateResponse(**arguments), ctx)
            if self._limits.counts_bytes:
                await self._limits.check_room(ctx.tenant)
            with self._limits.making(ctx.tenant):
                response = await self._engine.respond(plan)
        except APIError as error:
            return _failed(error.message)
        text = _said(msgspec.to_builtins(response.output, enc_hook=to_jsonable_python))
        made = {"id": response.id, "status": response.status, "output_text": text}
        if response.error is not None:
            return _failed(str(response.error))
        return {"content": [{"type": "text", "text": text or f"[{response.status}, without a word]"}]} | {
            "structuredContent": made
        }


def _said(items: Any) -> str:
    """Return the text of what was said last."""
    messages = [item for item in items if item.get("type") == "message"]
    parts = messages[-1].get("content", ()) if messages else ()
    return "".join(str(part.get("text", part.get("refusal", ""))) for part in parts)


def _failed(text: str) -> JSON:
    return {"content": [{"type": "text", "text": text}], "isError": True}
