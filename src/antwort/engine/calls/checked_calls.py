"""Calls and their results, as the checks of providers let them through."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from antwort.backends.dialects import Pieces
from antwort.engine.output.emitter import CUT_SHORT, Emitter, ModelCall
from antwort.engine.plan import Plan
from antwort.engine.tools.targets import Target, provider_of
from antwort.functions import CheckedCall, Refuse, ToolResult
from antwort.functions.checking import (
    CheckedArguments,
    RegisteredCheck,
    checked_arguments,
    checked_text,
    shown_arguments,
)
from antwort.wire.item_shapes import BETWEEN, texts_in

_NOT_ASKED = "Somebody would have to approve it ({}), and calls that the client executes cannot be asked about."


async def check_calls(checks: Sequence[RegisteredCheck], emitter: Emitter, plan: Plan) -> None:
    """Look at the calls of a turn before anybody is told of them; what becomes of each is noted with it.

    One of the client's that is refused is answered by the server, so that the model reads why.
    """
    if emitter.finish_reason not in CUT_SHORT:  # else none of them is made
        await asyncio.gather(*(_check(checks, call, plan) for call in emitter.calls))


async def _check(checks: Sequence[RegisteredCheck], call: ModelCall, plan: Plan) -> None:
    given = call.arguments
    found = await check_call(checks, call.name, given, plan.toolset.targets.get(call.name), plan)
    call.refusal, call.asks = found.refusal, found.asks
    if call.is_client and call.asks is not None:
        call.refusal = call.refusal or _NOT_ASKED.format(call.asks)
    if call.refusal is not None:
        call.is_client = False
    elif found.arguments != given:
        call.pieces = Pieces()
        call.pieces.add(found.arguments)


async def check_call(
    checks: Sequence[RegisteredCheck], name: str, arguments: str, target: Target | None, plan: Plan
) -> CheckedArguments:
    """Return what becomes of a call, whoever makes it."""
    return await checked_arguments(checks, call_of(name, arguments, target), arguments, plan.for_checks())


def call_of(name: str, arguments: str, target: Target | None) -> CheckedCall:
    """Return a call as checks see it."""
    provider = "" if target is None or target.executor is None else provider_of(target)
    return CheckedCall(name, shown_arguments(arguments), provider)


async def check_result(
    checks: Sequence[RegisteredCheck], result: ToolResult, call: CheckedCall, plan: Plan
) -> ToolResult:
    """Return what is let through of a result; one of which something was masked has nothing but its text."""
    if result.suspension is not None or not (result.output or result.item):
        return result
    text = result.output and await checked_text(checks, result.output, plan.for_checks(), call)
    if isinstance(text, Refuse):
        return ToolResult.error(f"The result of {call.name} is withheld: {text.reason}", "denied")
    if text != result.output:
        return replace(result, output=text, value=None, item={})
    # Clients are shown more of a hosted tool than the model has room for.
    beside = BETWEEN.join(one for one in texts_in(result.item) if one not in text)
    if beside and await checked_text(checks, beside, plan.for_checks(), call) != beside:
        return replace(result, item={})
    return result
