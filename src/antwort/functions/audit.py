"""What the audit log learns of functions."""

from typing import Any

from antwort.context import Context
from antwort.observability import AuditLog


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
        tenant, subject, request_id = ctx.tenant, ctx.subject, ctx.request_id
        provider, function, agent, call_id = self._provider, self._function, ctx.agent.name, ctx.call_id
        fields: dict[str, Any] = {
            "tenant": tenant,
            "subject": subject,
            "request_id": request_id,
            "provider": provider,
            "function": function,
            "agent": agent,
            "call_id": call_id,
            "status": status,
            "seconds": round(seconds * 1e6) / 1e6,  # in half the time of six places
        }
        if not (tenant and request_id and call_id):  # outside of a request
            audit.record("function.executed", **fields)
        elif audit.redactor.is_clean((tenant, subject, request_id, provider, function, agent, call_id)):
            audit.write("function.executed", fields)
        else:
            audit.record("function.executed", **fields)
