"""The metrics every function and every provider route gets without asking."""

from prometheus_client import Counter, Gauge, Histogram

from antwort.observability import Metrics

__all__ = ["FunctionMetrics", "Recorder"]


class Recorder:
    """Counts the executions of one function. Made at registration, so that labels are registered names only."""

    __slots__ = ("_counts", "_executions", "_labels", "_seconds")

    def __init__(self, executions: Counter, durations: Histogram, provider: str, function: str) -> None:
        self._executions = executions
        self._labels = (provider, function)
        self._seconds = durations.labels(provider, function)
        self._counts: dict[str, Counter] = {}

    def record(self, status: str, seconds: float) -> None:
        """Count one execution."""
        count = self._counts.get(status)
        if count is None:
            count = self._counts[status] = self._executions.labels(*self._labels, status)
        count.inc()
        self._seconds.observe(seconds)


class FunctionMetrics:
    """Executions of functions and calls of management routes, by provider."""

    def __init__(self, metrics: Metrics) -> None:
        self._executions = metrics.counter(
            "antwort_builtin_tool_executions_total",
            "Function executions by outcome.",
            ["provider", "tool_name", "status"],
        )
        self._durations = metrics.histogram(
            "antwort_builtin_tool_duration_seconds",
            "Duration of function executions, waiting included.",
            ["provider", "tool_name"],
        )
        self.hanging: Gauge = metrics.gauge(
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

    def recorder(self, provider: str, function: str) -> Recorder:
        """Return what counts the executions of one function."""
        return Recorder(self._executions, self._durations, provider, function)

    def refused(self, provider: str, method: str, path: str, status: int) -> None:
        """Count a request to a provider route that was refused before it got there."""
        self._requests.labels(provider, method, path, str(status)).inc()

    def request(self, provider: str, method: str, path: str, status: int, seconds: float) -> None:
        """Count one request to a provider route."""
        self._requests.labels(provider, method, path, str(status)).inc()
        self._request_durations.labels(provider, method, path).observe(seconds)
