"""What every request passes through, one class for one thing, each a plain ASGI app around another."""

from antwort.server.middleware.auth import AuthMiddleware
from antwort.server.middleware.body_limit import BodyBudget, BodyLimitMiddleware
from antwort.server.middleware.errors import ErrorMiddleware
from antwort.server.middleware.hosts import HostMiddleware
from antwort.server.middleware.observation import ObservationMiddleware, RequestIdMiddleware, TraceMiddleware

__all__ = [
    "AuthMiddleware",
    "BodyBudget",
    "BodyLimitMiddleware",
    "ErrorMiddleware",
    "HostMiddleware",
    "ObservationMiddleware",
    "RequestIdMiddleware",
    "TraceMiddleware",
]
