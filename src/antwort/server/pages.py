"""Web pages of other sites that may call the server: what browsers want to be told about them, as CORS has it."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from antwort.lazy_imports import imported_on_use

if TYPE_CHECKING:
    from starlette.middleware import cors
else:  # for servers that web pages may call
    cors = imported_on_use("starlette.middleware.cors")

EXPOSED_HEADERS = (
    "x-request-id",
    "retry-after",
    "x-should-retry",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
)


class AllowedPages:
    """Answers the questions that browsers ask before a page may call, and lets pages read the answers of the server."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._cors = cors.CORSMiddleware(
            _nothing,
            allow_origins=origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )

    @classmethod
    def of(cls, origins: Sequence[str]) -> "AllowedPages | None":
        """Return the pages of some origins; None if there are none."""
        return cls(origins) if origins else None

    def preflight(self, scope: Scope) -> Response | None:
        """Return the answer to a browser that asks whether a page may call; None if a request is another one."""
        headers = Headers(raw=scope["headers"])
        asks = scope["method"] == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers
        return self._cors.preflight_response(headers) if asks else None

    def telling(self, scope: Scope, send: Send) -> Send:
        """Return what sends an answer, with headers that say which pages may read it."""
        headers = Headers(raw=scope["headers"])
        if "origin" not in headers:  # which older releases of Starlette ask for
            return partial(_send_to_program, send)
        return partial(self._cors.send, send=send, request_headers=headers)


async def _send_to_program(send: Send, message: Message) -> None:
    """Send what no page has asked for: one that asks for the same gets other headers, which caches are to know."""
    if message["type"] == "http.response.start":
        message.setdefault("headers", [])
        MutableHeaders(scope=message).add_vary_header("Origin")
    await send(message)


async def _nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Stand where CORS wants an app: the gate calls its own."""
