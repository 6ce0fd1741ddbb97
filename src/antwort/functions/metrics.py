"""Metrics: those that all functions and all routes of providers get, and those that providers declare."""

import time
from collections.abc import Sequence
from typing import Any, Generic, Protocol, Self, TypeVar, overload

import prometheus_client
from prometheus_client.metrics import MetricWrapperBase
from typing_extensions import override

from antwort.errors import DefinitionError
from antwort.observability import DURATION_BUCKETS, Metrics


class FunctionMetrics:
    """Executions of functions and calls of management routes, by provider."""

    def __init__(self, metrics: Metrics) -> None:
        self.executions = metrics.quick_counter(
            "antwort_builtin_tool_executions_total",
            "Function executions by outcome.",
            ["provider", "tool_name", "status"],
        )
        self.durations = metrics.quick_histogram(
            "antwort_builtin_tool_duration_seconds",
            "Duration of function executions, waiting included.",
            ["provider", "tool_name"],
        )
        self.hanging: prometheus_client.Gauge = metrics.gauge(
            "antwort_builtin_tool_hanging_calls",
            "Calls of functions that are still running although their time is over.",
            ["provider", "tool_name"],
        )
        self._requests = metrics.counter(
            "antwort_builtin_api_requests_total",
            "Requests to provider routes; path is the route pattern.",
            ["provider", "method", "path", "status"],
        )
        self._request_durations = metrics.histogram(
            "antwort_builtin_api_duration_seconds",
            "Duration of requests to provider routes.",
            ["provider", "method", "path"],
        )

        self._checks = metrics.quick_counter(
            "antwort_checks_total",
            "Checks of inputs, outputs, calls and results by outcome.",
            ["provider", "check", "stage", "outcome"],
        )
        self._check_durations = metrics.quick_histogram(
            "antwort_check_duration_seconds",
            "Duration of checks.",
            ["provider", "check", "stage"],
        )

    def check(self, provider: str, check: str, stage: str, outcome: str, started: float) -> None:
        """Count one check that began at a time of `time.perf_counter()`."""
        self._checks.labels(provider, check, stage, outcome).inc()
        self._check_durations.labels(provider, check, stage).observe(time.perf_counter() - started)

    def request(self, provider: str, method: str, path: str, status: int, seconds: float) -> None:
        """Count one request to a provider route, also if it was refused before it got there."""
        self._requests.labels(provider, method, path, str(status)).inc()
        self._request_durations.labels(provider, method, path).observe(seconds)


M = TypeVar("M", bound=MetricWrapperBase)


class Named(Protocol):
    """A provider, as far as its metrics care."""

    @property
    def name(self) -> str:
        """The provider's name, the prefix of its metrics."""


class MetricDescriptor(Generic[M]):
    """A metric as a class attribute; on an object it is a Prometheus metric of its own.

    The name becomes `antwort_<provider>_<name>`; `full_name` is taken as it is.
    """

    def __init__(
        self,
        name: str | None = None,
        documentation: str = "",
        labelnames: Sequence[str] = (),
        *,
        full_name: str | None = None,
    ) -> None:
        if (name is None) == (full_name is None):
            raise DefinitionError("a metric needs a name, or a full_name, and not both")
        if not documentation:
            raise DefinitionError(f"metric '{name or full_name}' has no documentation; one sentence is enough")
        self._name = name
        self._full_name = full_name
        self._documentation = documentation
        self._labelnames = tuple(labelnames)
        self._attribute = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Named, owner: type) -> M: ...
    def __get__(self, instance: Named | None, owner: type) -> M | Self:
        if instance is None:
            return self
        # Stored under the attribute's own name, the metric hides this descriptor from the next look-up on.
        metric = self._create(self._full_name or f"antwort_{instance.name}_{self._name}")
        instance.__dict__[self._attribute] = metric
        return metric

    def _create(self, name: str) -> M:
        raise NotImplementedError


class Counter(MetricDescriptor[prometheus_client.Counter]):
    """Declare a counter."""

    @override
    def _create(self, name: str) -> prometheus_client.Counter:
        return prometheus_client.Counter(name, self._documentation, self._labelnames, registry=None)


class Gauge(MetricDescriptor[prometheus_client.Gauge]):
    """Declare a gauge."""

    @override
    def _create(self, name: str) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(name, self._documentation, self._labelnames, registry=None)


class Histogram(MetricDescriptor[prometheus_client.Histogram]):
    """Declare a histogram; the default buckets fit durations in seconds."""

    def __init__(self, *args: Any, buckets: Sequence[float] = DURATION_BUCKETS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._buckets = tuple(buckets)

    @override
    def _create(self, name: str) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(
            name, self._documentation, self._labelnames, buckets=self._buckets, registry=None
        )
