"""Refused requests, in the audit log."""

from starlette.types import Scope

from antwort.errors import APIError
from antwort.observability import AuditLog

__all__ = ["record_refusal"]


def record_refusal(audit: AuditLog, scope: Scope, error: APIError, request_id: str | None) -> None:
    """Write down that a request, or a WebSocket's handshake, was refused."""
    client = scope.get("client")
    audit.record(
        "request.refused",
        request_id=request_id,
        method=scope.get("method", "WEBSOCKET"),
        path=scope["path"],
        client=client[0] if client else None,
        status=error.status,
        code=error.code,
    )
