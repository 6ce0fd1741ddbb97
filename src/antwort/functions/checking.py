"""The one path every check takes: in time, contained, counted; whatever fails lets nothing through that it guards."""

import asyncio
import json as stdlib_json
import logging
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import override

from antwort.concurrency.contained_tasks import ContainedTask
from antwort.concurrency.threads import WorkerThreads
from antwort.context import Context
from antwort.errors import DefinitionError, FunctionError, InvalidArgumentsError
from antwort.functions.arguments import parse_object
from antwort.functions.checks import (
    ALLOWED,
    STAGES,
    Allow,
    Ask,
    CheckedCall,
    CheckSpec,
    CheckStage,
    Mask,
    Refuse,
    Verdict,
    masked,
)
from antwort.functions.entry import HangingCalls
from antwort.functions.execution import Execution
from antwort.functions.metrics import FunctionMetrics
from antwort.functions.output import encodable
from antwort.observability import AuditLog, NoTracer, Tracer
from antwort.types import JSON

logger = logging.getLogger(__name__)

_LONGEST_REASON = 1000
_OUTCOMES: Mapping[type[Any], str] = {Allow: "allow", Refuse: "refuse", Ask: "ask", Mask: "mask"}
_KNOWN = tuple(_OUTCOMES)


class CheckSet(Struct, frozen=True):
    """The checks of all providers that are enabled, by stage, in the order in which they are made."""

    input: "tuple[RegisteredCheck, ...]" = ()
    output: "tuple[RegisteredCheck, ...]" = ()
    call: "tuple[RegisteredCheck, ...]" = ()
    result: "tuple[RegisteredCheck, ...]" = ()
    holds_calls: bool = False
    """Whether nothing of a call can be told before the turn is over: it may be changed, or not be made."""


NO_CHECKS = CheckSet()


class CheckBook:
    """Knows which checks there are; a response keeps to those that there were when it began."""

    def __init__(self) -> None:
        self.current = NO_CHECKS

    def hold(self, checks: Iterable["RegisteredCheck"]) -> None:
        """Take these, in the place of all before."""
        by_stage: dict[CheckStage, list[RegisteredCheck]] = {stage: [] for stage in STAGES}
        for check in checks:
            by_stage[check.spec.stage].append(check)
        self.current = CheckSet(
            tuple(by_stage["input"]),
            tuple(by_stage["output"]),
            tuple(by_stage["call"]),
            tuple(by_stage["result"]),
            holds_calls=bool(by_stage["call"] or by_stage["output"]),
        )


class CheckMaker:
    """Makes the checks of one registry, with what they all need."""

    def __init__(
        self,
        execution: Execution,
        metrics: FunctionMetrics,
        audit: AuditLog | None,
        tracer: Tracer | None,
        *,
        grace: float,
        max_hanging: int,
    ) -> None:
        self.execution = execution
        self.metrics = metrics
        self.audit = audit
        self.tracer = tracer or NoTracer()
        self.grace = grace
        self.max_hanging = max_hanging

    def checks(self, specs: Sequence[CheckSpec], provider: str) -> "tuple[RegisteredCheck, ...]":
        """Return checks of a provider as they are made; DefinitionError if two have one name."""
        known = [(spec.name, spec.stage) for spec in specs]
        for one in known:
            if known.count(one) > 1:
                raise DefinitionError(f"provider '{provider}' has two checks called {one[0]} at the stage '{one[1]}'")
        threads = self.execution.threads(provider)
        return tuple(RegisteredCheck(self, spec, provider, threads) for spec in specs)


class RegisteredCheck:
    """One check of a provider."""

    def __init__(self, maker: CheckMaker, spec: CheckSpec, provider: str, threads: WorkerThreads) -> None:
        self.spec = spec
        self.provider = provider
        self._maker = maker
        self._threads = threads
        self._task_name = f"check {spec.name} ({provider})"
        self.hanging = HangingCalls(self._task_name, provider, maker.metrics.hanging)

    @override
    def __str__(self) -> str:
        return f"{self.spec.stage}: {self.spec.name}"

    async def resolved(self, call: CheckedCall, arguments: str, ctx: Context) -> CheckedCall:
        """Return a call with what its references stand for, as the function gets it if it is one of this server."""
        values = await self._maker.execution.resolved(arguments, ctx) if call.provider else None
        return call if values is None else replace(call, arguments=values)

    async def verdict(self, subject: str | CheckedCall, ctx: Context, call: CheckedCall | None = None) -> Verdict:
        """Look at a text or a call; `call` is what a result is of. Only the caller's own cancellation is raised."""
        spec, started = self.spec, time.perf_counter()
        attributes = {"antwort.check.provider": self.provider, "antwort.check.stage": spec.stage}
        with self._maker.tracer.span(f"check {spec.name}", attributes) as span:
            try:
                verdict = _fitting(await self._given(subject, ctx, call), subject)
                outcome = _OUTCOMES[type(verdict)]
            except asyncio.CancelledError:
                self._maker.metrics.check(self.provider, spec.name, spec.stage, "cancelled", started)
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it is, it must not pass for a yes
                verdict, outcome = self._failed(error), "error"
                span.fail(outcome)
            span.set("antwort.check.outcome", outcome)
        self._maker.metrics.check(self.provider, spec.name, spec.stage, outcome, started)
        if outcome != "allow" and self._maker.audit is not None:
            self._note(outcome, ctx)
        return verdict

    def _note(self, outcome: str, ctx: Context) -> None:
        """Tell the audit log what a check has changed or held up; never what it has read."""
        audit, spec = self._maker.audit, self.spec
        if audit is not None and audit.enabled:
            audit.record(
                f"check.{outcome}",
                tenant=ctx.tenant,
                subject=ctx.subject,
                request_id=ctx.request_id,
                provider=self.provider,
                check=spec.name,
                stage=spec.stage,
                agent=ctx.agent.name,
                response_id=ctx.response_id,
            )

    async def _given(self, subject: str | CheckedCall, ctx: Context, call: CheckedCall | None) -> Any:
        """Return what the check says, in a task of its own and in time."""
        maker, seconds = self._maker, self.spec.timeout
        if self.hanging.count >= maker.max_hanging:
            raise CheckFailedError("too many of it hang")
        left = ctx.remaining()
        if left is not None:
            seconds = left if seconds is None else min(seconds, left)
        ctx = maker.execution.reaching(ctx)
        if seconds is not None:
            ctx = replace(ctx, deadline=time.monotonic() + seconds)
        made = ContainedTask(self._made, self._task_name, subject, ctx, call)
        try:
            in_time = await made.wait(seconds)
            if not in_time:
                await made.stop(maker.grace)
        except asyncio.CancelledError:
            await made.stop(maker.grace)
            raise
        finally:
            if not made.done:
                maker.execution.leave(self, made.task, None)
        if not in_time:
            raise CheckFailedError(f"it took longer than {seconds:.3g} s")
        if made.error is not None:
            raise CheckFailedError(_kind_of(made.error)) from None
        return made.value

    async def _made(self, subject: str | CheckedCall, ctx: Context, call: CheckedCall | None) -> Any:
        if self.spec.is_async:
            return await self.spec.call(subject, call, ctx)
        job = await self._threads.submit(lambda: self.spec.call(subject, call, ctx), ctx.tenant)
        try:
            value, error = await job.result
        finally:
            if not job.done:  # a thread cannot be stopped: whoever waits for it leaves
                job.on_end = self.hanging.leave(0.0, partial(self._threads.give_up, job))
        if error is not None:
            raise error
        return value

    def _failed(self, error: BaseException) -> Verdict:
        """Return what becomes of something that could not be looked at. What that was may stand in the error."""
        spec = self.spec
        cause = str(error) if isinstance(error, CheckFailedError) else _kind_of(error)
        logger.error("check %s of provider %s failed: %s", spec.name, self.provider, cause)
        if spec.on_error == "allow":
            return ALLOWED
        return Refuse(f"It could not be checked ({spec.name}), so it is not let through.")


class CheckFailedError(FunctionError):
    """A check has said nothing that could be used."""


def _kind_of(error: BaseException) -> str:
    """Name an error and where it was raised, and not what it says: that may be the very text that is guarded."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{where}"


def _fitting(given: object, subject: str | CheckedCall) -> Verdict:
    """Return a verdict that fits what was looked at; CheckFailedError if it is none."""
    if not isinstance(given, _KNOWN):
        raise CheckFailedError(f"it returned {type(given).__name__}, which is no verdict")
    if isinstance(given, Refuse | Ask):
        if isinstance(given, Ask) and isinstance(subject, str):
            raise CheckFailedError("it asks for an approval, and only calls can be approved")
        said: object = given.reason
        reason = encodable(said)[:_LONGEST_REASON] if isinstance(said, str) else ""
        return replace(given, reason=reason or "It is not allowed here.")
    if isinstance(given, Mask):
        return _fitting_mask(given, subject)
    return ALLOWED


def _fitting_mask(given: Mask, subject: str | CheckedCall) -> Mask:
    if not isinstance(subject, str):
        if not isinstance(given.arguments, Mapping):
            raise CheckFailedError("it masks a call and gives no arguments")
        return Mask(arguments=msgspec.json.decode(msgspec.json.encode(given.arguments)))
    if given.text is not None:
        text: object = given.text
        if not isinstance(text, str):
            raise CheckFailedError("the text of its mask is no text")
        return Mask(encodable(text))
    spans, end = sorted(given.spans, key=lambda span: span.start), 0
    for span in spans:
        if not end <= span.start <= span.end <= len(subject):
            raise CheckFailedError("its spans lie upon each other, or outside of the text")
        end = span.end
    return Mask(spans=[replace(span, text=encodable(span.text)) for span in spans]) if spans else Mask(subject)


# --- several checks, one after the other -----------------------------------------------------------------------------


async def checked_text(
    checks: Iterable[RegisteredCheck], text: str, ctx: Context, call: CheckedCall | None = None
) -> str | Refuse:
    """Return what is let through of a text, each check after the other; or why nothing is."""
    for check in checks:
        verdict = await check.verdict(text, ctx, call)
        if isinstance(verdict, Refuse):
            return verdict
        if isinstance(verdict, Mask):
            text = masked(text, verdict.spans) if verdict.text is None else verdict.text
    return text


class CheckedArguments(Struct, frozen=True):
    """What becomes of a call."""

    arguments: str
    """As JSON, which may be other than the model has given."""
    refusal: str | None = None
    """Why it is not made."""
    asks: str | None = None
    """Why somebody has to approve it first."""


_RAW = "arguments"


async def checked_arguments(
    checks: Sequence[RegisteredCheck], call: CheckedCall, arguments: str, ctx: Context
) -> CheckedArguments:
    """Return what becomes of a call with these arguments, each check after the other; a refusal is the last word."""
    arguments = unambiguous(arguments)
    if checks:
        call = await checks[0].resolved(call, arguments, ctx)
    changed, asks = call, None
    for check in checks:
        verdict = await check.verdict(changed, ctx)
        if isinstance(verdict, Refuse):
            return CheckedArguments(arguments, verdict.reason)
        if isinstance(verdict, Ask):
            asks = asks or verdict.reason
        elif isinstance(verdict, Mask):
            changed = replace(call, arguments=verdict.arguments or {})
    if changed is not call:
        is_raw = _decoded(arguments) is None
        text = str(changed.arguments.get(_RAW, "")) if is_raw else msgspec.json.encode(changed.arguments).decode()
        return CheckedArguments(text, asks=asks)
    return CheckedArguments(arguments, asks=asks)


def unambiguous(arguments: str) -> str:
    """Return arguments without what is named twice: checks see the last value, and others may read the first."""
    try:
        stdlib_json.loads(arguments, object_pairs_hook=_once, parse_int=len, parse_float=len, strict=False)
    except (ValueError, RecursionError):
        found = _decoded(arguments) if arguments.strip() else None
        return arguments if found is None else msgspec.json.encode(found).decode()
    return arguments


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("An object has two values of one name.")


def shown_arguments(arguments: str) -> JSON:
    """Return the arguments of a call as checks see them: what is no JSON object is one of a text."""
    found = _decoded(arguments)
    return {_RAW: arguments} if found is None else found


def _decoded(arguments: str) -> JSON | None:
    """Return arguments that are a JSON object, read as functions read them: else they would get what no check saw."""
    try:
        return parse_object(arguments)
    except InvalidArgumentsError:
        return None
