"""Bodies have a largest size, each of them and all together, and a largest number of values."""

from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antwort.errors import PayloadTooLargeError, ServiceUnavailableError
from antwort.web.bodies import ValueCount

SMALL = 64 * 1024
"""Bytes of a body that do not count: as many as a connection may have in its buffers anyway."""


class BodyBudget:
    """The bytes of the large bodies of all requests under way: what was read of them, not what was announced.

    They count until the request is over, as what was made of them is as large and stays as long.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def take(self, size: int) -> None:
        """Count some bytes; ServiceUnavailableError if there are too many."""
        if self.held + size > self._limit:
            raise ServiceUnavailableError(
                "The requests under way have as many bytes as the server takes (server.max_bodies_bytes). Try again.",
                code="server_overloaded",
                headers={"retry-after": "1"},
            )
        self.held += size

    def give_back(self, size: int) -> None:
        """Forget some bytes that were counted."""
        self.held -= size


class BodyLimitMiddleware:
    """Refuse a body that is too large, by its announced length or, without one, while it is being read.

    One of JSON that holds too many values is refused while it is being read, whichever route reads it. Those to the
    paths of `uncounted` may hold any number, such as the tokens of texts to embed, and are looked at by their routes.
    """

    def __init__(
        self, app: ASGIApp, limit: int, bodies: BodyBudget, *, max_values: int, uncounted: Collection[str] = ()
    ) -> None:
        self.app = app
        self._limit = limit
        self._bodies = bodies
        self._max_values = max_values
        self._uncounted = uncounted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced, kind = b"", b"json"
        for name, value in scope["headers"]:
            if name == b"content-length":
                announced = value
            elif name == b"content-type":
                kind = value
        size = int(announced) if announced.isdigit() else self._limit
        if size > self._limit:
            raise self._too_large()
        # In a body with fewer bytes there cannot be too many; one that claims to be something else is not read as JSON.
        counts = size > self._max_values and b"json" in kind.lower() and scope["path"] not in self._uncounted
        values = ValueCount(self._max_values) if counts else None
        read = counted = 0

        async def limited() -> Message:
            nonlocal read, counted
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._limit:
                raise self._too_large()
            if read > SMALL:
                self._bodies.take(read - counted)
                counted = read
            if values is not None:
                values.take(message.get("body", b""))
            return message

        try:
            await self.app(scope, limited, send)
        finally:
            self._bodies.give_back(counted)

    def _too_large(self) -> PayloadTooLargeError:
        return PayloadTooLargeError(f"The body is larger than {self._limit:,} bytes (server.max_body_bytes).")
