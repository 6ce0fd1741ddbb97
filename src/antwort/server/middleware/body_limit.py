"""Bodies have a largest size."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antwort.errors import PayloadTooLargeError


class BodyLimitMiddleware:
    """Refuse a body that is too large, by its announced length or, without one, while it is being read."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if announced.isdigit() and int(announced) > self._limit:
            raise self._too_large()
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._limit:
                raise self._too_large()
            return message

        await self.app(scope, counted, send)

    def _too_large(self) -> PayloadTooLargeError:
        return PayloadTooLargeError(f"The body is larger than {self._limit:,} bytes (server.max_body_bytes).")
