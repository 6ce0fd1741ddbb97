"""Refused requests, in the audit log: some of each address one by one, floods of them as a number."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

from msgspec import Struct, field
from starlette.types import Scope

from antwort.errors import APIError
from antwort.observability import AuditLog

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
        self._audit = audit
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
        self._audit.record(
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
            self._audit.record(
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
