"""A call that no model has made: of a client that names a function itself, with the rights and limits of a response."""

import logging
import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from antwort.context import Progress
from antwort.engine.budget import Budget
from antwort.engine.calls.checked_calls import call_of, check_call, check_result
from antwort.engine.plan import Plan
from antwort.engine.tools.targets import Target, needs_approval
from antwort.functions import FunctionSpec, Scope, ToolResult
from antwort.functions.checking import NO_CHECKS, CheckSet
from antwort.types import JSON
from antwort.wire.ids import new_id

logger = logging.getLogger(__name__)

_TOO_LATE = 0.05
"""Seconds before the deadline from which on nothing is begun."""


def is_for_clients(spec: FunctionSpec) -> bool:
    """Tell whether a function can be called by a client itself: it needs no agent that goes on after it.

    Functions of agents that start others belong to a run, those that end an agent have none to end, and what a tool of
    a request stands for is known to that request alone.
    """
    return not (spec.scope is Scope.AGENT or spec.ends_agent or (spec.hosted is not None and spec.hosted.opens))


class DirectCall(msgspec.Struct, frozen=True, eq=False):
    """A call of the only function that the request of a plan names; nothing of it is kept when it is over."""

    plan: Plan
    target: Target
    emit: Callable[[Progress], None]
    """Where its progress goes."""
    checks: CheckSet = NO_CHECKS

    @property
    def needs_approval(self) -> bool:
        """Tell whether somebody has to say yes before it is made."""
        return self.target.spec is not None and needs_approval(self.target.spec, self.plan.approval)

    async def run(self, arguments: JSON, *, can_wait: bool = False) -> ToolResult:
        """Execute it. Whatever comes of it is a result; only the caller's own cancellation is raised.

        What somebody is asked is one, too, if the caller can wait for the answer, which is the call's result then.
        """
        if (hindrance := self._hindrance(can_wait=can_wait)) is not None:
            return hindrance
        target, text = self.target, msgspec.json.encode(arguments).decode()
        spec = target.spec
        if self.checks.call:
            checked = await check_call(self.checks.call, spec.name if spec else "", text, target, self.plan)
            if (reason := checked.refusal or checked.asks) is not None:
                return ToolResult.error(reason, "denied")
            text, arguments = checked.arguments, msgspec.json.decode(checked.arguments)
        result = await self._result(arguments)
        if spec is not None and result.suspension is not None:
            return result if can_wait and result.suspension.kind == "question" else _no_wait(spec)
        if self.checks.result and spec is not None:
            return await check_result(self.checks.result, result, call_of(spec.name, text, target), self.plan)
        return result

    def _hindrance(self, *, can_wait: bool) -> ToolResult | None:
        """Return why it cannot be made, if that is so."""
        spec, deadline = self.target.spec, self.plan.ctx.deadline
        if spec is None or self.target.executor is None:
            return ToolResult.error("There is no such function.", "unknown")
        if spec.calls_functions or (spec.suspends and not can_wait):
            return _no_wait(spec)
        if deadline is not None and deadline - time.monotonic() < _TOO_LATE:
            return ToolResult.error(f"{spec.name} has no time left.", "timeout")
        return None

    async def _result(self, arguments: JSON) -> ToolResult:
        plan, target = self.plan, self.target
        spec, executor = target.spec, target.executor
        if spec is None or executor is None:
            return ToolResult.error("There is no such function.", "unknown")
        ctx = replace(
            plan.ctx,
            call_id=new_id("call"),
            options=plan.options_of(target),
            origin=plan,
            emit=self.emit,
        )
        try:
            return ToolResult.of(await executor.execute(spec.name, arguments, ctx))
        except Exception:  # an executor may be anybody's
            logger.exception("the executor of function %s has failed", spec.name)
            return ToolResult.error(f"{spec.name} failed.")
        finally:
            budget = plan.ctx.budget
            if isinstance(budget, Budget) and budget.closing:
                await budget.close("over")


def _no_wait(spec: FunctionSpec) -> ToolResult:
    return ToolResult.error(f"{spec.name} waits for somebody, and a call like this cannot.", "denied")
