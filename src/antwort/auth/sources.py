"""Where the public keys of a token issuer are loaded from: a file, a URL, or what OpenID Connect discovery finds."""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit

from typing_extensions import override

__all__ = ["KeysUnavailableError", "Source", "from_file", "from_issuer", "from_url", "may_follow"]

MAX_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16

Source = Callable[[], Mapping[str, Any]]
"""Loads a JSON Web Key Set, blocking."""


class KeysUnavailableError(Exception):
    """The keys cannot be loaded. A client may read the problem; where it lies is for the operator only."""

    def __init__(self, problem: str, where: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.problem = problem


def from_file(path: Path) -> Source:
    """Load the key set from a file."""

    def load() -> Mapping[str, Any]:
        try:
            content = path.read_bytes()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise KeysUnavailableError(f"the file cannot be read ({reason})", str(path)) from error
        return _parse(content, str(path))

    return load


def from_url(url: str, *, timeout: float) -> Source:
    """Load the key set from a URL."""

    def load() -> Mapping[str, Any]:
        return _fetch(url, timeout)

    return load


def from_issuer(issuer: str, *, timeout: float) -> Source:
    """Load the key set that an OpenID Connect issuer names in its discovery document."""
    discovery = f"{issuer.rstrip('/')}/.well-known/openid-configuration"

    def load() -> Mapping[str, Any]:
        found = _fetch(discovery, timeout)
        if found.get("issuer") != issuer:
            raise KeysUnavailableError("the discovery document is of another issuer", _public(discovery))
        url = found.get("jwks_uri")
        if not isinstance(url, str) or not may_follow(issuer, url):
            raise KeysUnavailableError("the discovery document has no usable 'jwks_uri'", _public(discovery))
        return _fetch(url, timeout)

    return load


def may_follow(origin: str, url: str) -> bool:
    """Tell whether one URL may lead to another: only over the web, and whoever starts encrypted stays encrypted."""
    return urlsplit(url).scheme in ({"https"} if urlsplit(origin).scheme == "https" else {"http", "https"})


class _Redirects(urllib.request.HTTPRedirectHandler):
    @override
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not may_follow(req.full_url, newurl):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch(url: str, timeout: float) -> Mapping[str, Any]:
    if not may_follow("", url):
        raise KeysUnavailableError("neither an http nor an https URL", _public(url))
    opener = urllib.request.build_opener(_Redirects)
    request = urllib.request.Request(url, headers={"accept": "application/json"})  # noqa: S310 - checked above
    try:
        with opener.open(request, timeout=timeout) as response:
            content = _read(response, timeout)
    except urllib.error.HTTPError as error:
        error.close()
        raise KeysUnavailableError(f"the issuer answered {error.code}", _public(url)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        timed_out = isinstance(getattr(error, "reason", error), TimeoutError)
        problem = "the issuer did not answer in time" if timed_out else "the issuer cannot be reached"
        raise KeysUnavailableError(problem, _public(url)) from error
    if len(content) > MAX_BYTES:
        raise KeysUnavailableError(f"the answer is larger than {MAX_BYTES} bytes", _public(url))
    return _parse(content, _public(url))


def _read(response: http.client.HTTPResponse, timeout: float) -> bytes:
    """Read a body, up to one byte too many. The socket's own timeout is per packet: a trickle would never end."""
    deadline = time.monotonic() + timeout
    content = b""
    while len(content) <= MAX_BYTES and (chunk := response.read1(CHUNK_BYTES)):
        content += chunk
        if time.monotonic() > deadline:
            raise TimeoutError
    return content


def _parse(content: bytes, where: str) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise KeysUnavailableError("not JSON", where) from None
    if not isinstance(document, dict):
        raise KeysUnavailableError("not a JSON object", where)
    return document


def _public(url: str) -> str:
    """Return a URL without user, password and query, which may be secrets."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
