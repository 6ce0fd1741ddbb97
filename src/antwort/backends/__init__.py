"""Model servers: how a turn is asked for, on which server, and what is done when it fails."""

from antwort.backends.base import ModelBackend, ModelInfo, ModelRequest, TurnSink
from antwort.backends.breaker import CircuitBreaker
from antwort.backends.build import build_router, build_routes
from antwort.backends.chat import ChatCompletions
from antwort.backends.estimate import estimate_tokens
from antwort.backends.resilience import Fallback, Guarded, Retrying
from antwort.backends.responses import Responses
from antwort.backends.router import ModelRouter, Route, Target
from antwort.backends.transport import Reply, Timeouts, Transport
from antwort.backends.watch import Observed, Observer, WatchedSink, watched

__all__ = [
    "ChatCompletions",
    "CircuitBreaker",
    "Fallback",
    "Guarded",
    "ModelBackend",
    "ModelInfo",
    "ModelRequest",
    "ModelRouter",
    "Observed",
    "Observer",
    "Reply",
    "Responses",
    "Retrying",
    "Route",
    "Target",
    "Timeouts",
    "Transport",
    "TurnSink",
    "WatchedSink",
    "build_router",
    "build_routes",
    "estimate_tokens",
    "watched",
]
