"""Metrics, logs, the audit log and traces of one app, all without secrets."""

from antwort.observability.logs import (
    AuditLog,
    bind_log_context,
    bind_tenant,
    configure_logging,
    log_context,
    reset_logging,
)
from antwort.observability.metrics import DURATION_BUCKETS, Metrics, MetricsPage
from antwort.observability.redaction import MASK, Redactor, is_secret_key, redact, text_of
from antwort.observability.spans import NoTracer, Span, Tracer, tracer
from antwort.observability.watchdog import LoopWatchdog

__all__ = [
    "DURATION_BUCKETS",
    "MASK",
    "AuditLog",
    "LoopWatchdog",
    "Metrics",
    "MetricsPage",
    "NoTracer",
    "Redactor",
    "Span",
    "Tracer",
    "bind_log_context",
    "bind_tenant",
    "configure_logging",
    "is_secret_key",
    "log_context",
    "redact",
    "reset_logging",
    "text_of",
    "tracer",
]
