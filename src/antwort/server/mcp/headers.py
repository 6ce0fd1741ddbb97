"""What the headers of a request over HTTP say of its message, which has to be what the message says."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping

from antwort.server.mcp.messages import (
    GREETED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    META,
    STATELESS,
    UNNAMED,
    RpcError,
    RpcMessage,
    unsupported,
)

VERSION, METHOD, NAME, SESSION = b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id"
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that the header of names repeats, by method."""
_ENCODED = re.compile(r"=\?base64\?(.*)\?=")
_LONGEST_SESSION = 100


def version_of(message: RpcMessage, headers: Mapping[bytes, bytes], raw: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the version that a request is of; RpcError if it is none that is spoken here, or said in two ways."""
    named = headers.get(VERSION, b"").decode("latin-1")
    said = message.meta.get(f"{META}protocolVersion")
    if named != STATELESS and said is None:
        if named and named not in GREETED:
            raise unsupported(named)
        return named or UNNAMED
    if message.number is None:
        if named != STATELESS:
            raise unsupported(named)
        return STATELESS
    _check_once(raw)
    check_envelope(message)
    if named != said:
        raise _mismatch(VERSION, f"'{META}protocolVersion'")
    if headers.get(METHOD, b"").decode("latin-1") != message.method:
        raise _mismatch(METHOD, "'method'")
    field = _NAMED_BY.get(message.method)
    if field is not None and (value := message.params.get(field)) is not None and _name(headers) != value:
        raise _mismatch(NAME, f"'{field}'")
    if said != STATELESS:
        raise unsupported(said)
    return STATELESS


def check_envelope(message: RpcMessage) -> None:
    """Raise RpcError unless a request of the stateless era says what it has to of whoever sends it."""
    for name, kind in (("protocolVersion", str), ("clientCapabilities", dict)):
        if not isinstance(message.meta.get(f"{META}{name}"), kind):
            raise RpcError(INVALID_PARAMS, f"'_meta' of 'params' has no '{META}{name}'.")


def session_of(headers: Mapping[bytes, bytes]) -> str | None:
    """Return what a client says its session is; it means nothing but to that client."""
    session = headers.get(SESSION, b"").decode("latin-1")[:_LONGEST_SESSION]
    return session or None


def _check_once(raw: Iterable[tuple[bytes, bytes]]) -> None:
    names = [name for name, _ in raw if name in {VERSION, METHOD, NAME}]
    for name in names:
        if names.count(name) > 1:
            raise RpcError(HEADER_MISMATCH, f"The header {name.decode()} is there more than once.")


def _name(headers: Mapping[bytes, bytes]) -> str | None:
    text = headers.get(NAME, b"").decode("latin-1")
    encoded = _ENCODED.fullmatch(text)
    if encoded is None:
        return text
    try:
        data = base64.b64decode(encoded[1], validate=True)
        return data.decode() if base64.b64encode(data).decode() == encoded[1] else None
    except (binascii.Error, UnicodeError):
        return None


def _mismatch(header: bytes, field: str) -> RpcError:
    return RpcError(HEADER_MISMATCH, f"The header {header.decode()} is not what {field} of the message says.")
