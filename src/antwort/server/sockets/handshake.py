"""Before a WebSocket is open: where it comes from, whose it is, and how it is refused."""

from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope, Send

from antwort.errors import APIError, PermissionDeniedError
from antwort.functions.http import error_response

__all__ = ["check_origin", "chosen_subprotocol", "credentials", "deny"]

_KEY = "openai-insecure-api-key."
"""How browsers, which cannot set headers, send an API key: as the name of a subprotocol."""
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def check_origin(headers: Headers, allowed: list[str]) -> None:
    """Refuse a page of another site, which a browser would let connect with whatever the machine can reach.

    Programs send no origin. A page of the server's own host may always connect, others if they are allowed.
    """
    origin = headers.get("origin")
    if origin is None or "*" in allowed or origin in allowed:
        return
    if not _same_host(origin, headers.get("host", "")):
        raise PermissionDeniedError(
            f"Pages of {origin[:200]} may not connect to this server. Its operator can allow them in"
            " server.cors_origins.",
            code="origin_not_allowed",
        )


def _same_host(origin: str, host: str) -> bool:
    try:
        page = urlsplit(origin)
        server = urlsplit(f"{page.scheme}://{host}")
        return page.scheme in _PORTS and bool(page.hostname) and _place(page) == _place(server)
    except ValueError:  # not an address
        return False


def _place(url: SplitResult) -> tuple[str | None, int | None]:
    return url.hostname, url.port or _PORTS.get(url.scheme)


def credentials(scope: Scope) -> Headers:
    """Return the headers of a handshake, with the key that stands among its subprotocols, if there is no other."""
    headers = Headers(scope=scope)
    keys = [name.removeprefix(_KEY) for name in scope.get("subprotocols", ()) if name.startswith(_KEY)]
    if not keys or "authorization" in headers:
        return headers
    return Headers(raw=[*scope["headers"], (b"authorization", b"Bearer " + keys[0].encode("latin-1", "replace"))])


def chosen_subprotocol(scope: Scope) -> str | None:
    """Return the subprotocol to agree on: browsers want one of those they offered, rather not the one with the key."""
    offered: list[str] = scope.get("subprotocols", [])
    return next((name for name in offered if not name.startswith(_KEY)), offered[0] if offered else None)


async def deny(scope: Scope, send: Send, error: APIError, headers: list[tuple[bytes, bytes]]) -> None:
    """Refuse a handshake with an HTTP answer in the OpenAI envelope, where the server can send one."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.code or error.type})
        return
    response = error_response(error)
    await send(
        {
            "type": "websocket.http.response.start",
            "status": error.status,
            "headers": [*response.raw_headers, *headers],
        }
    )
    await send({"type": "websocket.http.response.body", "body": bytes(response.body)})
