"""Calls that wait for somebody whom only their client can ask. What there is of them is sealed, and the client has it.

So nothing is kept here, whoever waits however long, and any process can go on with the call.
"""

import hashlib
import time
from typing import Any, Literal

import msgspec

from antwort.context import Context
from antwort.context.calls import Suspension
from antwort.engine.calls.answers import QuestionAnswer, checked_answer
from antwort.engine.sealing import Sealer, SealError
from antwort.errors import BadRequestError
from antwort.functions import ToolResult
from antwort.server.mcp.messages import INVALID_PARAMS, META, RpcError, RpcMessage
from antwort.storage.base import Question
from antwort.types import JSON

_PURPOSE = "call of a client"
_ASKED = "answer"
"""What the one request for input is called."""
_SHOWN = 2000
"""Characters of arguments that whoever approves a call is shown."""


class WaitingCall(msgspec.Struct, frozen=True):
    """A call that waits, as it is sealed."""

    subject: str
    call: bytes
    """The digest of its name and arguments, which the client sends again."""
    kind: Literal["question", "approval"]
    body: JSON
    until: int | None

    @classmethod
    def of(cls, message: RpcMessage, ctx: Context, suspension: Suspension) -> "WaitingCall":
        """Return a call as it waits for an answer, or for a yes."""
        kind: Literal["question", "approval"] = "approval" if suspension.kind == "approval" else "question"
        until = None if suspension.expires_in is None else int(time.time() + suspension.expires_in)
        return cls(ctx.subject, _digest(message), kind, suspension.body, until)

    @classmethod
    def unsealed(cls, message: RpcMessage, ctx: Context, sealer: Sealer) -> "WaitingCall | None":
        """Return the call that a request goes on with; None if it begins one. RpcError if it is none of the caller."""
        state = message.params.get("requestState")
        if state is None:
            return None
        try:
            waiting = msgspec.json.decode(sealer.unseal(_PURPOSE, ctx.tenant, state), type=cls)
        except (SealError, msgspec.MsgspecError, TypeError, AttributeError, ValueError):
            waiting = None
        if waiting is None or waiting.subject != ctx.subject or waiting.call != _digest(message):
            raise RpcError(INVALID_PARAMS, "The 'requestState' belongs to no call like this one.")
        return waiting

    def request(self, ctx: Context, sealer: Sealer) -> JSON:
        """Return what is answered as long as it waits: what the client is to ask."""
        if self.kind == "approval":
            message = f"May {self.body['name']} be called? {self.body['arguments']}"
            wanted: JSON = {"approve": {"type": "boolean", "description": "Whether the call may be made."}}
        else:
            message, choices = str(self.body.get("question", "")), self.body.get("choices")
            wanted = {"answer": {"type": "string", **({"enum": choices} if choices else {})}}
        schema: JSON = {"type": "object", "properties": wanted, "required": [*wanted]}
        asked = {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": message, "requestedSchema": schema},
        }
        state = sealer.seal(_PURPOSE, ctx.tenant, msgspec.json.encode(self).decode())
        return {"resultType": "input_required", "inputRequests": {_ASKED: asked}, "requestState": state}

    def answered(self, message: RpcMessage, ctx: Context) -> QuestionAnswer | None:
        """Return what was said; None if nothing was that can be taken for an answer."""
        question = Question(
            id="",
            tenant=ctx.tenant,
            response_id="",
            call_id="",
            root_id="",
            kind=self.kind,
            body=self.body,
            created_at=0,
        )
        if self.until is not None and time.time() >= self.until:
            return QuestionAnswer(msgspec.structs.replace(question, status="expired"))
        given = message.params.get("inputResponses")
        said = given.get(_ASKED) if isinstance(given, dict) else None
        if not isinstance(said, dict):
            return None
        if said.get("action") in ("decline", "cancel"):  # of any type: not all have a hash
            refused: JSON = {"status": "answered", "answer": {"approve": False}}
            return QuestionAnswer(
                msgspec.structs.replace(question, **(refused if self.kind == "approval" else {"status": "cancelled"}))
            )
        content = said.get("content")
        content = content if isinstance(content, dict) else {}
        try:
            answer = checked_answer(question, {"text": content.get("answer"), "approve": content.get("approve")})
        except BadRequestError:
            return None
        return QuestionAnswer(msgspec.structs.replace(question, status="answered", answer=answer))


def approval_of(name: str, arguments: JSON) -> ToolResult:
    """Return what a call comes to that needs a yes: it waits for it."""
    shown = msgspec.json.encode(arguments).decode()[:_SHOWN]
    return ToolResult("", status="suspended", suspension=Suspension("approval", {"name": name, "arguments": shown}))


def can_ask(message: RpcMessage) -> bool:
    """Tell whether the client that sends a request can ask its user something."""
    capabilities: Any = message.meta.get(f"{META}clientCapabilities")
    asks = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(asks, dict) and (not asks or "form" in asks)


def _digest(message: RpcMessage) -> bytes:
    """Return what tells a call from others."""
    said = [message.params.get("name"), message.params.get("arguments") or {}]
    return hashlib.blake2b(msgspec.json.encode(said, order="deterministic"), digest_size=32).digest()
