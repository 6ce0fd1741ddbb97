"""Model servers: how a turn is asked for, on which server, and what is done when it fails."""

from antwort.backends.base import ModelBackend, ModelInfo, ModelRequest, TurnSink
from antwort.backends.build import build_router, build_routes
from antwort.backends.http.transport import Reply, Timeouts, Transport
from antwort.backends.resilience import CircuitBreaker, Fallback, GuardedBackend, Retries
from antwort.backends.router import ModelRoute, ModelRouter, ModelTarget
from antwort.backends.tokens import estimate_tokens

__all__ = [
    "CircuitBreaker",
    "Fallback",
    "GuardedBackend",
    "ModelBackend",
    "ModelInfo",
    "ModelRequest",
    "ModelRoute",
    "ModelRouter",
    "ModelTarget",
    "Reply",
    "Retries",
    "Timeouts",
    "Transport",
    "TurnSink",
    "build_router",
    "build_routes",
    "estimate_tokens",
]
