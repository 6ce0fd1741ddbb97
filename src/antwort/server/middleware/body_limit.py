"""Bodies have a largest size, each of them and all together."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antwort.errors import PayloadTooLargeError, ServiceUnavailableError

__all__ = ["Bodies", "BodyLimitMiddleware"]

SMALL = 64 * 1024
"""Bytes of a body that do not count: as many as a connection may have in its buffers anyway."""


class Bodies:
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
    """Refuse a body that is too large, by its announced length or, without one, while it is being read."""

    def __init__(self, app: ASGIApp, limit: int, bodies: Bodies) -> None:
        self.app = app
        self._limit = limit
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if announced.isdigit() and int(announced) > self._limit:
            raise self._too_large()
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
            return message

        try:
            await self.app(scope, limited, send)
        finally:
            self._bodies.give_back(counted)

    def _too_large(self) -> PayloadTooLargeError:
        return PayloadTooLargeError(f"The body is larger than {self._limit:,} bytes (server.max_body_bytes).")
