"""From a URL that somebody names to the host and port behind it."""

import re
from collections.abc import Collection

from yarl import URL

from antwort.http_client import BlockedError
from antwort.outbound.addresses import Allowed

__all__ = ["check_port", "read_url", "shown"]

_LONGEST = 4096
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")
"""What no URL has, and what parsers disagree about."""


def read_url(text: str) -> URL:
    """Return a URL that may be asked for as far as its text tells, or raise BlockedError."""
    if len(text) > _LONGEST or _FORBIDDEN.search(text):
        raise BlockedError(f"'{shown(text)}' is not a URL.")
    try:
        url = URL(text)
        host, port = url.raw_host, url.port
    except ValueError:
        raise BlockedError(f"'{shown(text)}' is not a URL.") from None
    if url.scheme not in {"http", "https"}:
        raise BlockedError(f"'{shown(text)}' may not be opened: only http and https URLs may.")
    if not host or not host.strip(".") or "%" in host or not port:
        raise BlockedError(f"'{shown(text)}' names no host.")
    if url.raw_user is not None or url.raw_password is not None:
        raise BlockedError("A URL with a user name or password in it may not be opened.")
    return url.with_fragment(None)


def check_port(host: str, port: int, allowed: Allowed, low_ports: Collection[int]) -> None:
    """Raise BlockedError for a port of some other protocol."""
    if port < 1024 and port not in low_ports and not allowed.port(host, port):
        raise BlockedError(f"Port {port} of '{shown(host)}' may not be reached.")


def shown(text: str) -> str:
    """Return a URL or host as a message may show it."""
    plain = _FORBIDDEN.sub("?", text)
    return plain if len(plain) <= 200 else f"{plain[:200]}…"
