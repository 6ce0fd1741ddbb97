"""What the audit log learns of functions."""

from msgspec import Struct
from msgspec.structs import asdict

from antwort.context import Context
from antwort.observability import AuditLog


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
        provider, function, agent = self._provider, self._function, ctx.agent.name
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
