"""What the pipeline leaves in the ASGI scope of a request, and what is read from there."""

from collections.abc import Mapping

from starlette.types import Scope

from antwort.context import Context
from antwort.context.scopes import EVERYTHING
from antwort.errors import AuthenticationError, PermissionDeniedError

CONTEXT = "antwort.context"
"""The key of the ASGI scope under which authentication leaves the context."""
DENIED = "antwort.denied"
"""The key of the ASGI scope for the error with which a caller is refused, until the audit log has it."""
REQUEST_ID = "antwort.request_id"
"""The key of the ASGI scope that holds the request id."""
ROUTE = "antwort.route"
"""The key of the ASGI scope under which routing leaves the pattern it matched, for metrics."""
HEADERS = "antwort.headers"
"""The key of the ASGI scope that holds the headers by name, once somebody has asked for them."""
EXCHANGE = "antwort.exchange"
"""The key of the ASGI scope for the exchange, for who wants to be told when the client leaves; only our server has one.

It also says that the server takes an answer as one message.
"""
WHOLE_BODY = "antwort.whole_body"
"""A key of `http.response.start`: the whole body, so that no other message follows; only for our own server.

It adds the Content-Length itself.
"""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def named_headers(scope: Scope) -> Mapping[bytes, bytes]:
    """Return the headers of a request by name, the last of several; made once, as one after the other asks for them."""
    named: Mapping[bytes, bytes] | None = scope.get(HEADERS)
    if named is None:
        named = scope[HEADERS] = dict(scope["headers"])
    return named


def authenticated(scope: Scope) -> Context:
    """Return the context of a request; AuthenticationError if it has none."""
    context = scope.get(CONTEXT)
    if not isinstance(context, Context):
        raise AuthenticationError("Missing credentials. Send 'Authorization: Bearer <API key>'.")
    return context


def method_label(method: str) -> str:
    """Return a method as a label of metrics: what clients invent must not become a time series."""
    return method if method in _METHODS else "OTHER"


def authorize(context: Context | None, scopes: str | None) -> None:
    """Raise PermissionDeniedError unless the caller's credentials carry every scope a route needs, parted by blanks."""
    if scopes is None or (context is not None and EVERYTHING in context.scopes):
        return
    for scope in scopes.split():
        if context is None:
            raise PermissionDeniedError(f"The credentials lack the scope '{scope}'.")
        context.require(scope)
