"""Endpoints of model servers that count tokens: asked with little patience, and left alone where there are none."""

import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from antwort.backends.remote import encode_body
from antwort.backends.transport import Timeouts, Transport
from antwort.errors import APIError
from antwort.types import JSON

__all__ = ["TokenEndpoint"]

logger = logging.getLogger(__name__)


PATIENCE = 5.0
"""Seconds to wait for a count; an estimate has to do if it takes longer."""
MISSING_REST = 600.0
"""Seconds after which a server that does not count is asked again: it may be another by then."""
FAILED_REST = 30.0
"""Seconds after which a server that could not be asked is asked again."""

_MISSING = frozenset({401, 403, 404, 405, 415, 422, 501})
"""Statuses that say that there is no such endpoint, or not for us, or not in this shape."""


class TokenEndpoint:
    """Asks a server to count. Every failure is logged and gives None: a count is never worth an error."""

    def __init__(self, name: str, transport: Transport, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._transport = transport
        self._clock = clock
        self._rests_until = float("-inf")

    async def ask(self, path: str, body: JSON) -> JSON | None:
        """Return the JSON object a server answers with; None if it gives none."""
        if self._clock() < self._rests_until:
            return None
        connect = min(PATIENCE, self._transport.timeouts.connect)
        try:
            reply = await self._transport.post(path, encode_body(body), timeouts=Timeouts(connect, PATIENCE, PATIENCE))
            try:
                content = await reply.read(self._transport.limits.event_bytes)
                self._transport.limits.check_values(content)
            finally:
                reply.abort()
        except APIError as error:
            logger.warning("The backend '%s' could not count tokens: %s", self._name, error.message)
            self._rests_until = self._clock() + FAILED_REST
            return None
        if reply.status == 200:
            return self._object(content)
        if reply.status in _MISSING:
            self.is_missing()
        logger.debug("The backend '%s' does not count tokens: %s answered %d.", self._name, path, reply.status)
        return None

    def is_missing(self) -> None:
        """Take note that the server does not count, and leave it alone for a while."""
        self._rests_until = self._clock() + MISSING_REST

    def _object(self, content: bytes) -> JSON | None:
        try:
            return msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            logger.debug("The backend '%s' does not count tokens: its answer is no JSON object.", self._name)
            self.is_missing()
            return None
