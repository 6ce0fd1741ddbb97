"""What the audit log learns of functions."""

from antwort.context import Context
from antwort.observability import AuditLog
from antwort.observability.logs import log_context
from antwort.types import JSONValue


class FunctionAudit:
    """Records the executions of one function. Its names are looked at for secrets at registration, and not again."""

    __slots__ = ("_audit", "_clean", "_function", "_provider")

    def __init__(self, audit: AuditLog, provider: str, function: str) -> None:
        self._audit = audit
        self._clean = clean = audit.redactor.value
        self._provider, self._function = clean(provider), clean(function)

    def record(self, ctx: Context, status: str, seconds: float) -> None:
        """Record one execution, as `AuditLog.record` would."""
        if not self._audit.enabled:
            return
        clean, call_id = self._clean, ctx.call_id
        tenant = ctx.tenant or log_context().get("tenant")
        request_id = ctx.request_id or log_context().get("request_id")
        fields: dict[str, JSONValue] = {
            "tenant": clean(tenant),
            "subject": clean(ctx.subject),
            "request_id": clean(request_id),
            "provider": self._provider,
            "function": self._function,
            "agent": clean(ctx.agent.name),
            "call_id": clean(call_id),
            "status": clean(status),
            "seconds": round(seconds * 1e6) / 1e6,  # in half the time of six places
        }
        if tenant is None or request_id is None or call_id is None:  # outside of a request
            fields = {name: value for name, value in fields.items() if value is not None}
        self._audit.write("function.executed", fields)
