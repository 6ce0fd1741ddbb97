"""A name for each request, the trace it belongs to, and what is counted and logged of it."""

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping

from msgspec import Struct, field
from starlette.types import ASGIApp, Receive, Scope, Send

from antwort.errors import APIError
from antwort.observability import AuditLog, Metrics, Tracer
from antwort.observability.logs import READABLE, log_context
from antwort.observability.quick_metrics import CounterSeries, HistogramSeries
from antwort.web.requests import CONTEXT, ROUTE, method_label
from antwort.wire.ids import random_digits

HEADER = b"x-request-id"
_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the id that the client gives to a request, or a new one."""
    given = headers.get(HEADER)
    return given.decode() if given is not None and _ACCEPTABLE.fullmatch(given) else "req_" + random_digits()[:32]


class TraceMiddleware:
    """Take up the trace that a request names in `traceparent`; what a background run does later belongs to it too."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self.app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        with self._tracer.joining(scope["headers"]):
            await self.app(scope, receive, send)


logger = logging.getLogger("antwort.access")
ERROR = "antwort.error"
"""The key of the ASGI scope under which the reason stands why a request was refused, or has failed."""
_REFUSED, _LEFT = 400, 499
"""The first status of a request that was refused, and that of a client that left, as proxies call it."""
UNMATCHED = "unmatched"
"""The path label of requests that no route answers: what clients invent must not become a time series."""


class Observation:
    """Records `antwort_http_requests_total` and `antwort_http_request_duration_seconds`; path is the route pattern."""

    def __init__(self, metrics: Metrics, *, access_log: bool) -> None:
        self._access_log = access_log
        # Looking a label up costs more than counting; there are as many as routes, methods and statuses.
        self._series: dict[tuple[str, str, int], tuple[CounterSeries, HistogramSeries]] = {}
        self._requests = metrics.quick_counter(
            "antwort_http_requests_total", "HTTP requests.", ["method", "path", "status"]
        )
        self._durations = metrics.quick_histogram(
            "antwort_http_request_duration_seconds",
            "Duration of HTTP requests, streaming included.",
            ["method", "path"],
        )

    def record(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request that is over. A status of 0 means that the client left before there was an answer."""
        status = status or _LEFT
        method, path = scope["method"], scope.get(ROUTE, UNMATCHED)
        series = self._series.get((method, path, status)) or self._labelled(method_label(method), path, status)
        series[0].inc()
        series[1].observe(seconds)
        if self._access_log or (status >= _REFUSED and status != _LEFT):
            self._log(scope, status, seconds)

    def _labelled(self, method: str, path: str, status: int) -> tuple[CounterSeries, HistogramSeries]:
        found = self._series.get((method, path, status))
        if found is None:
            found = self._requests.labels(method, path, str(status)), self._durations.labels(method, path)
            self._series[method, path, status] = found
        return found

    def _log(self, scope: Scope, status: int, elapsed: float) -> None:
        context = scope.get(CONTEXT)
        tenant = {} if context is None else {"tenant": context.tenant}
        cause = scope.get(ERROR)
        told = {} if cause is None else {"error": cause}
        fields = {"ms": round(elapsed * 1000, 1), READABLE: _readable(status, elapsed, cause), **tenant, **told}
        logger.info("%s %s %d", scope["method"], scope["path"], status, extra=fields)


def _readable(status: int, elapsed: float, cause: str | None) -> str:
    """Return what people want to know of a request, and of one that failed the name under which the log has more."""
    took = f"{elapsed:.1f} s" if elapsed >= 1 else f"{elapsed * 1000:.0f} ms"
    name = log_context().get("request_id") if status >= _REFUSED else None
    return "  ".join(part for part in (took, name, cause) if part)


# --- refused requests, in the audit log: some of each address one by one, floods of them as a number -----------------


WINDOW = 60.0
"""Seconds for which refusals are counted together."""
MAX_ADDRESSES = 1000
"""Addresses that are counted one by one; all others are counted as one."""


class _Tally(Struct):
    since: float
    written: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """By status."""


class Refusals:
    """Writes the first refusals of an address in a minute to the audit log, and for the others one line at its end."""

    def __init__(self, audit: AuditLog, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.audit = audit
        self._most = most
        self._clock = clock
        self._windows: dict[str | None, _Tally] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of addresses that are remembered."""
        return len(self._windows)

    def record(self, scope: Scope, error: APIError, request_id: str | None, *, subject: str | None = None) -> None:
        """Take note that a request, or a WebSocket's handshake, was refused, and whose it was, if that is known."""
        client = scope.get("client")
        address = client[0] if client else None
        window = self._window(address)
        if window.written >= self._most:
            window.left_out[str(error.status)] += 1
            return
        window.written += 1
        self.audit.record(
            "request.refused",
            subject=subject,
            request_id=request_id,
            method=scope.get("method", "WEBSOCKET"),
            path=scope["path"],
            client=address,
            status=error.status,
            code=error.code,
        )

    def _window(self, address: str | None) -> _Tally:
        key = address if address in self._windows or len(self._windows) < MAX_ADDRESSES else None
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Tally(self._clock())
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(WINDOW, self._sum_up)
        return window

    def _sum_up(self) -> None:
        """Close the windows that are over; the first ones are the oldest. Come again for the next."""
        self._timer = None
        now = self._clock()
        for address, window in list(self._windows.items()):
            if (left := window.since + WINDOW - now) > 0:
                self._timer = asyncio.get_running_loop().call_later(left, self._sum_up)
                break
            self._close(address, window)

    def _close(self, address: str | None, window: _Tally) -> None:
        del self._windows[address]
        if window.left_out:
            self.audit.record(
                "requests.refused",
                client=address,
                count=window.left_out.total(),
                statuses=dict(window.left_out),
                seconds=round(self._clock() - window.since),
            )

    def close(self) -> None:
        """Write what was counted, while the audit log is open."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for address, window in list(self._windows.items()):
            self._close(address, window)
