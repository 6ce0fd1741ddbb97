"""Calls that are made only after somebody has said yes."""

import hmac
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from antwort.config import ApprovalPolicy
from antwort.engine.history import APPROVAL_REQUEST
from antwort.engine.tools.targets import Target, Toolset
from antwort.functions import Effect, FunctionSpec
from antwort.storage.base import JournalEntry, Question
from antwort.storage.call_record import CallRecord
from antwort.types import JSON
from antwort.wire.ids import made_at, new_id

Sign = Callable[[bytes], bytes]
"""Returns data with a signature in front."""
_BEGIN, _SIGNED = len("mcpr_") + 14, 34
"""Characters of an id that say what it is and when it was made, and those that follow."""
_CARRIED_FOR = 30 * 86_400
"""Seconds for which a request can be answered that is stored nowhere."""
_NONE = Effect.NONE  # to look it up each time takes some hundred nanoseconds in Python 3.11


class ApprovedCall(Struct, frozen=True):
    """A call of the response before that was waiting for a yes or no, and has it now."""

    question: Question
    target: Target | None
    """Who executes it; None if nobody has the function any more."""
    carried: bool = False
    """Whether the client has sent back the request, too: it is stored nowhere."""
    confirmed: bool = True
    """Whether this response is the one that brings the answer: two may have been sent at the same time."""


class ResumedCall(Struct, frozen=True):
    """A call of the response before that was waiting for calls of its own, which have their answers now."""

    record: CallRecord
    """The call, as its entry has it."""
    target: Target | None
    """Who executes it; None if nobody has the function any more."""
    nested: Sequence[JournalEntry]
    """The calls that it has made itself, with the answers."""


def approved_calls(
    questions: Iterable[Question], toolset: Toolset, find: Callable[[str], Target | None], *, carried: bool = False
) -> list[ApprovedCall]:
    """Return calls that have their answer, with who executes them, whether the request offers them again or not."""
    return [ApprovedCall(question, _approved_target(question, toolset, find), carried) for question in questions]


def _approved_target(question: Question, toolset: Toolset, find: Callable[[str], Target | None]) -> Target | None:
    """Return who executes a call; of functions that a tool stands for, only those of the tool with the same label."""
    name, label = str(question.body["name"]), question.body.get("server_label")
    opened = toolset.opened_as({"server_label": label, "name": name})
    if opened:
        return toolset.targets[next(iter(opened))]
    target = toolset.targets.get(name) or find(name)
    return None if target is not None and provider_of(target) != label else target


def needs_approval(spec: FunctionSpec, policy: ApprovalPolicy | None) -> bool:
    """Tell whether a call is made only after a yes: by the agent's policy if it says so, else by the function's own.

    What is said for all functions of an agent leaves out those that talk to the user: they do nothing else.
    """
    if policy is not None and isinstance(policy, Mapping):
        policy = policy.get(spec.name)
    elif spec.effect is not _NONE:
        policy = None
    return (policy or spec.approval) == "always"


def approval_request(name: str, arguments: str, provider: str, sign: Sign | None = None) -> JSON:
    """Return the item that asks for a yes; its id is that of the question.

    With `sign` it is not stored: the id tells then that the item is ours, when a client sends it back.
    """
    item: JSON = {"id": new_id("mcpr"), "type": APPROVAL_REQUEST, "status": "completed", "name": name}
    item |= {"arguments": arguments, "server_label": provider}
    return item if sign is None else {**item, "id": _signed_id(item, item["id"], sign)}


def is_ours(request: JSON, sign: Sign) -> bool:
    """Tell whether a request that a client sends back is one that was made here, and stored nowhere."""
    given = request.get("id")
    return isinstance(given, str) and hmac.compare_digest(_signed_id(request, given, sign).encode(), given.encode())


def is_too_old(request_id: str) -> bool:
    """Tell whether one of these was made so long ago that nobody waits for an answer any more; its id says when."""
    return made_at(request_id) + _CARRIED_FOR < time.time()


def _signed_id(request: JSON, given: str, sign: Sign) -> str:
    """Return an id with the time of the given one; what is chance elsewhere is a signature of the request."""
    begin = given[:_BEGIN]
    said = msgspec.json.encode([begin, *(str(request.get(name)) for name in ("name", "arguments", "server_label"))])
    return f"{begin}{sign(said)[: _SIGNED // 2].hex()}"


def approval_body(request: JSON) -> JSON:
    """Return what whoever answers is shown of a request."""
    return {name: request[name] for name in ("name", "arguments", "server_label")}


def provider_of(target: Target) -> str:
    """Return the provider of a function, as far as its executor knows one, or the label of the tool that it is of."""
    if target.opened is not None:
        return target.opened.label
    ask = getattr(target.executor, "provider_of", None)
    return str(ask(target.spec.name)) if ask is not None and target.spec is not None else "functions"
