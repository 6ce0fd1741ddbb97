"""A function as the registry holds it: what it takes to execute its calls."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import asdict

from antwort.concurrency.contained_tasks import TimeLimit
from antwort.concurrency.slots import Slots
from antwort.concurrency.threads import WorkerThreads
from antwort.context import Agent, Context
from antwort.functions.hanging import HangingCalls
from antwort.functions.metrics import Recorder
from antwort.functions.provider import FunctionProvider
from antwort.functions.spec import FunctionSpec, Scope
from antwort.observability import AuditLog
from antwort.observability.spans import Attribute


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
        return self.enabled and self.provider_enabled


def permits(spec: FunctionSpec, agent: Agent) -> bool:
    """Tell whether a function's scope admits an agent."""
    if spec.scope is _USER and not agent.is_root:
        return False
    if spec.scope is _AGENT and not agent.can_spawn:
        return False
    return spec.agents is None or agent.name in spec.agents
