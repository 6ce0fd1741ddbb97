"""Which tracer an app has. OpenTelemetry is imported only where it is wanted: it is not always installed."""

import importlib
from typing import cast

from antwort.errors import ConfigError
from antwort.observability.redaction import Redactor
from antwort.observability.spans import NoTracer, Tracer


def tracer(enabled: bool, redactor: Redactor | None = None) -> Tracer:
    """Return a tracer that reports to OpenTelemetry, or one that does nothing."""
    if not enabled:
        return NoTracer()
    try:
        otel = importlib.import_module("antwort.observability.otel")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(
            "it needs OpenTelemetry, which is not installed: pip install 'antwort[otel]'", where="observability.tracing"
        ) from error
    return cast("Tracer", otel.OtelTracer(redactor=redactor))
