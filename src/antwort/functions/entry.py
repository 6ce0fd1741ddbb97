"""A function as the registry holds it: what it takes to execute its calls."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import asdict
from prometheus_client import Gauge

from antwort.concurrency.contained_tasks import TimeLimit
from antwort.concurrency.slots import Slots
from antwort.concurrency.threads import WorkerThreads
from antwort.context import Agent, Context
from antwort.functions.provider import FunctionProvider
from antwort.functions.spec import FunctionSpec, Scope
from antwort.functions.switches import SwitchedOff
from antwort.observability import AuditLog
from antwort.observability.quick_metrics import CounterSeries, QuickCounter, QuickHistogram
from antwort.observability.spans import Attribute

# --- calls that go on although nobody waits for them any more --------------------------------------------------------


logger = logging.getLogger(__name__)


class HangingCalls:
    """The calls of one function that are still running although their time is over."""

    __slots__ = ("_function", "_gauge", "_provider", "count")

    def __init__(self, function: str, provider: str, gauge: Gauge) -> None:
        self._function = function
        self._provider = provider
        self._gauge = gauge.labels(provider, function)
        self.count = 0

    def leave(self, seconds: float | None, hangs: Callable[[], None] | None = None) -> Callable[[], None]:
        """Take note of a call that nobody waits for any more, and return what is to be called when it ends.

        It hangs, and `hangs` is called, if it has not ended when the rest of its time has passed: `seconds`, or None
        if it may take for ever. A caller who leaves early is no reason to think ill of it.
        """
        call = _Left(self, hangs)
        if seconds is not None and seconds <= 0:
            call.hang()
        elif seconds is not None:
            call.timer = asyncio.get_running_loop().call_later(seconds, call.hang)
        return call.end

    def begin(self) -> None:
        """Count one more."""
        self.count += 1
        self._gauge.inc()
        logger.warning(
            "function %s of provider %s hangs: its time is over and it does not end; %d of its calls hang",
            self._function,
            self._provider,
            self.count,
        )

    def end(self, seconds: float) -> None:
        """Count one less."""
        self.count -= 1
        self._gauge.dec()
        logger.info(
            "a call of function %s of provider %s has ended, %.1f seconds after its time; %d still hang",
            self._function,
            self._provider,
            seconds,
            self.count,
        )


class _Left:
    """One call that nobody waits for."""

    __slots__ = ("_calls", "_hangs", "_since", "timer")

    def __init__(self, calls: HangingCalls, hangs: Callable[[], None] | None) -> None:
        self._calls = calls
        self._hangs = hangs
        self._since: float | None = None
        self.timer: asyncio.TimerHandle | None = None

    def hang(self) -> None:
        self._since = time.monotonic()
        self._calls.begin()
        if self._hangs is not None:
            self._hangs()

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self._since is not None:
            self._calls.end(time.monotonic() - self._since)
            self._since = None


# --- functions -------------------------------------------------------------------------------------------------------


class Recorder:
    """Counts the executions of one function. Made at registration, so that labels are registered names only."""

    __slots__ = ("_counts", "_executions", "_labels", "_seconds")

    def __init__(
        self,
        executions: QuickCounter,
        durations: QuickHistogram,
        provider: str,
        function: str,
    ) -> None:
        self._executions = executions
        self._labels = (provider, function)
        self._seconds = durations.labels(provider, function)
        self._counts: dict[str, CounterSeries] = {}

    def record(self, status: str, seconds: float) -> None:
        """Count one execution."""
        count = self._counts.get(status)
        if count is None:
            count = self._counts[status] = self._executions.labels(*self._labels, status)
        count.inc()
        self._seconds.observe(seconds)


class _Executed(Struct):
    """The fields of the event."""

    tenant: str
    subject: str
    request_id: str | None
    provider: str
    function: str
    agent: str
    call_id: str | None
    status: str
    seconds: float


class FunctionAudit:
    """Records the executions of one function."""

    __slots__ = ("_audit", "_function", "_provider")

    def __init__(self, audit: AuditLog, provider: str, function: str) -> None:
        self._audit = audit
        self._provider, self._function = provider, function

    def record(self, ctx: Context, status: str, seconds: float) -> None:
        """Record one execution; nearly always all is known of it and nothing secret, as one look at it tells."""
        audit = self._audit
        if not audit.enabled:
            return
        tenant, subject, request_id, call_id = ctx.tenant, ctx.subject, ctx.request_id, ctx.call_id
        provider, function, agent = self._provider, ctx.opened_name or self._function, ctx.agent.name
        seconds = round(seconds * 1e6) / 1e6  # in half the time of six places
        executed = _Executed(tenant, subject, request_id, provider, function, agent, call_id, status, seconds)
        if (
            tenant
            and request_id
            and call_id  # it is part of a request
            and audit.redactor.is_clean((tenant, subject, request_id, provider, function, agent, call_id))
        ):
            audit.write("function.executed", executed)
        else:
            audit.record("function.executed", **asdict(executed))


# To look up a member of an enum takes some hundred nanoseconds in Python 3.11.
_USER, _AGENT = Scope.USER, Scope.AGENT


@dataclass(slots=True, eq=False)
class RegisteredFunction:
    """One function of the registry, with its provider and its state."""

    spec: FunctionSpec
    provider: FunctionProvider
    slots: Slots | None
    threads: WorkerThreads
    hanging: HangingCalls
    recorder: Recorder
    audit: FunctionAudit | None
    time_limit: TimeLimit | None
    """How long a call may take."""
    max_output: int
    """Characters of a result that reach the model."""
    short_output: int
    """Characters of a result that is neither cut nor kept."""
    task_name: str
    """What its tasks are called, for whoever looks for a culprit."""
    span: tuple[str, Mapping[str, Attribute]]
    """The name and the attributes of a call's span."""
    enabled: bool = True
    """False while the function was taken out of service by itself."""
    provider_enabled: bool = True
    off: SwitchedOff | None = None
    """That an operator has taken it out of service, or its provider."""
    ready: bool = True
    """False while the provider has a lifespan that was not entered yet."""
    shadowed_by: str | None = None
    """The provider whose function of the same name was registered first; a shadowed function is never offered."""

    @property
    def offered(self) -> bool:
        """Tell whether models may see and call it."""
        return self.in_service and self.shadowed_by is None

    @property
    def in_service(self) -> bool:
        """Tell whether neither the function nor its provider is disabled."""
        return self.enabled and self.provider_enabled and self.off is None


def permits(spec: FunctionSpec, agent: Agent) -> bool:
    """Tell whether a function's scope admits an agent."""
    if spec.scope is _USER and not agent.is_root:
        return False
    if spec.scope is _AGENT and not agent.can_spawn:
        return False
    return spec.agents is None or agent.name in spec.agents
