"""A name for each request, in the logs and in the answer."""

import os
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antwort.functions.http import REQUEST_ID
from antwort.observability import bind_log_context

__all__ = ["HEADER", "RequestIdMiddleware", "request_id_of"]

HEADER = b"x-request-id"
_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class RequestIdMiddleware:
    """Take the client's `x-request-id` if it is a decent one, else make one; log with it and send it back."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        raw = request_id_of(scope)
        request_id = scope[REQUEST_ID] = raw.decode()

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (HEADER, raw)]
            await send(message)

        with bind_log_context(request_id=request_id):
            await self.app(scope, receive, named)


def request_id_of(scope: Scope) -> bytes:
    """Return the id that the client gives to a request, or a new one."""
    given = next((value for name, value in scope["headers"] if name == HEADER), b"")
    return given if _ACCEPTABLE.fullmatch(given) else b"req_" + os.urandom(16).hex().encode()
