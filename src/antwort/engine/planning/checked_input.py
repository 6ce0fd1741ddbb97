"""What a request brings is checked before anything else is made of it: nothing keeps what a check has masked."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from antwort.context import Context
from antwort.engine.budget import Budget
from antwort.engine.plan import ChildWork, Plan
from antwort.engine.planning.planner import Planner
from antwort.errors import BadRequestError
from antwort.functions import Refuse
from antwort.functions.checking import RegisteredCheck, checked_text, unambiguous
from antwort.types import JSON
from antwort.wire.client_tools import OUTPUTS
from antwort.wire.item_shapes import BETWEEN, CALL_TEXTS, NAMES, texts_in
from antwort.wire.requests import CreateResponse

REFUSED = "[This text was refused: {}]"
"""What is kept, and read by the model in later turns, in the place of a text that a check refuses."""
_AT_ONCE = 8
"""Texts of one request that are looked at at the same time."""
_TRUSTED = ("system", "developer")
"""Roles whose messages are instructions: of the operator, or of whoever has written the client."""
_SAID: Mapping[str, Sequence[str]] = MappingProxyType(
    {"mcp_approval_response": ("reason",), "reasoning": ("content", "summary"), "program_output": ("result",)}
)
"""What parts of content are in, by the types of items."""

_Look = Callable[[str], Awaitable[str]]


class InputChecks(msgspec.Struct, frozen=True, eq=False):
    """Has the checks of providers look at all texts that requests bring.

    These are the texts of messages, thoughts and calls, those of assistants included, since a client can claim them,
    the outputs of tools that clients execute, and variables of prompts. Instructions, and what system and developer
    messages say, are the operator's or those of whoever has written the client. Images and files are none of it.
    """

    _planner: Planner
    _checks: Sequence[RegisteredCheck]

    async def request(self, create: CreateResponse, ctx: Context) -> "CheckedRequest":
        """Return a request whose texts were looked at, with the context of its plan, which counts what that costs."""
        plan = self._planner.bare_plan(create, ctx)
        look = _Looks(self._checks, _before(plan))
        given, prompt, budget = create.input, create.prompt, plan.ctx.budget
        try:
            if given:
                create = replace(create, input=await look(given) if isinstance(given, str) else await look.items(given))
            if prompt is not None and prompt.variables:
                variables = {name: await _value(value, look) for name, value in prompt.variables.items()}
                create = replace(create, prompt=replace(prompt, variables=variables))
        finally:
            if isinstance(budget, Budget):
                await budget.close("over")  # what checks have begun ends with them
        return CheckedRequest(create, ctx.with_(budget=budget), look.refused)

    async def items(self, items: Sequence[JSON], ctx: Context) -> list[JSON]:
        """Return items that are no request; BadRequestError if one is refused."""
        plan = self._planner.bare_plan(CreateResponse(input=""), ctx)
        look = _Looks(self._checks, _before(plan))
        checked = await look.items(items)
        if look.refused is not None:
            raise refused_input(look.refused)
        return checked

    async def work(self, work: ChildWork) -> tuple[ChildWork, str | None]:
        """Return what a sub-agent is to do as it is let through, and why it is not done, if that is so."""
        look = _Looks(self._checks, work.parent.for_checks())
        prompt = await look(work.task.prompt)
        return replace(work, task=replace(work.task, prompt=prompt)), look.refused


def _before(plan: Plan) -> Context:
    """Return what checks get of a request that is not planned yet: nobody knows which response it will be."""
    return plan.for_checks().with_(response_id=None)


class CheckedRequest(msgspec.Struct, frozen=True):
    """What the checks have made of a request."""

    create: CreateResponse
    ctx: Context
    refused: str | None


def refused_input(reason: str) -> BadRequestError:
    """Return the error for an input that is refused where nobody could be told so in an answer."""
    return BadRequestError(reason, param="input", code="content_refused")


class _Looks:
    """Looks at texts, a few at a time, and knows why one was refused."""

    def __init__(self, checks: Sequence[RegisteredCheck], ctx: Context) -> None:
        self._checks = checks
        self._ctx = ctx
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self.refused: str | None = None

    async def __call__(self, text: str) -> str:
        """Return what is let through of a text, or what is kept in its place."""
        async with self._slots:
            found = await checked_text(self._checks, text, self._ctx)
        if not isinstance(found, Refuse):
            return found
        self.refused = self.refused or found.reason
        return REFUSED.format(found.reason)

    async def items(self, items: Sequence[JSON]) -> list[JSON]:
        """Return items with their texts as they were let through."""
        tasks = [asyncio.ensure_future(_item(item, self)) for item in items]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            raise


async def _item(item: JSON, look: _Look) -> JSON:
    kind = item.get("type") or "message"
    if kind == "message":
        return item if item.get("role") in _TRUSTED else await _with(item, ("content",), look)
    if not isinstance(kind, str):
        return item
    if kind in _SAID:
        return await _with(item, _SAID[kind], look)
    if kind in OUTPUTS:
        return await _with(item, ("output",), look)
    return await _call(item, CALL_TEXTS.get(kind, ()), look)


async def _with(item: JSON, names: Sequence[str], look: _Look) -> JSON:
    """Return an item with the texts in some of its fields, which are texts or parts that have some."""
    changed: JSON = {}
    for name in names:
        before = item.get(name)
        after = await _texts(before, look)
        if after is not before:
            changed[name] = after
    return {**item, **changed} if changed else item


async def _texts(value: Any, look: _Look) -> Any:
    if isinstance(value, str):
        found = await look(value) if value else value
        return value if found == value else found
    if isinstance(value, list):
        parts = [await _part(part, look) for part in value]
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else parts
    return value


async def _value(value: str | JSON, look: _Look) -> str | JSON:
    """Return the value of a variable of a prompt."""
    return await look(value) if isinstance(value, str) else dict(await _part(value, look))


async def _part(part: Any, look: _Look) -> Any:
    """Return a part of content; of outputs of shells, those that have been written by programs."""
    if not isinstance(part, Mapping):
        return part
    changed: JSON = {}
    for name in ("text", "refusal", "stdout", "stderr"):
        text = part.get(name)
        if isinstance(text, str) and text and (found := await look(text)) != text:
            changed[name] = found
    return {**part, **changed} if changed else part


# --- calls that a client says were made -------------------------------------------------------------------------------


async def _call(item: JSON, names: Sequence[str], look: _Look) -> JSON:
    """Return a call with what it was made with, and what has come of it: JSON is looked at by the texts in it.

    They are looked at together, and one by one only if something was found, since each look may ask a model.
    """
    item = {**item, **{name: unambiguous(item[name]) for name in names if isinstance(item.get(name), str)}}
    values = {name: _read(item[name]) for name in names if item.get(name)}
    texts = [text for value in values.values() for text in texts_in(value)]
    if not texts:
        return item
    together = BETWEEN.join(texts)
    found = await look(together)
    if found == together:
        return item
    known = {text: await look(text) for text in dict.fromkeys(texts)}
    if all(new == old for old, new in known.items()):  # it is there only if they are taken together
        known = dict.fromkeys(texts, found)
    changed: JSON = {}
    for name, value in values.items():
        after = _replaced(value, known)
        changed[name] = after if value is item[name] else msgspec.json.encode(after).decode()
    return {**item, **changed}


def _read(value: Any) -> Any:
    """Return what a field has in it, if that is JSON."""
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            return msgspec.json.decode(value)
    return value


def _replaced(value: Any, known: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return known.get(value, value)
    if isinstance(value, Mapping):
        return {name: inner if name in NAMES else _replaced(inner, known) for name, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, known) for inner in value]
    return value
