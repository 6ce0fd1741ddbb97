"""Bodies of requests and answers, for the endpoints that are plain ASGI."""

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from antwort.functions.inputs import check_claim

__all__ = ["read_body", "require_json", "send_json"]


def require_json(scope: Scope) -> None:
    """Refuse a request whose body does not claim to be JSON; one that claims nothing is taken from programs only."""
    check_claim(scope["headers"])


async def read_body(receive: Receive) -> bytes | bytearray:
    """Read a whole body; ClientDisconnect if the client leaves before its end.

    One that comes in pieces is put together as they come: to keep them until the end would take twice the memory.
    """
    message = await receive()
    first: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False):
        return first
    body = bytearray(first)
    while message["type"] == "http.request" and message.get("more_body", False):
        message = await receive()
        body += message.get("body", b"")
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return body


async def send_json(send: Send, body: bytes) -> None:
    """Answer with JSON that is written already."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    start: Message = {"type": "http.response.start", "status": 200, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
