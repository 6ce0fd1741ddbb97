"""The client for the world outside, as functions and routes get it: `ctx.http`."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from typing_extensions import override

from antwort.errors import FunctionError

__all__ = [
    "BlockedError",
    "HttpAnswer",
    "HttpClient",
    "NoHttpClient",
    "OutboundError",
    "OutboundTimeoutError",
    "TooLargeError",
    "UnreachableError",
]

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)


class OutboundError(FunctionError):
    """A request to the world outside failed.

    The text is fit for a model: of a URL that a stranger named it tells the host, of one that the operator configured
    nothing.
    """


class BlockedError(OutboundError):
    """The request was not sent: the URL, or the address behind it, is none that may be reached."""

    status = "denied"


class UnreachableError(OutboundError):
    """No usable answer came."""


class OutboundTimeoutError(OutboundError):
    """The answer was not there in time."""

    status = "timeout"


class TooLargeError(OutboundError):
    """The answer is larger than it may be."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """An answer, whatever its status."""

    url: str
    """Where it came from, after redirects."""
    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters; empty if there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str | None:
        """The encoding that the answer names."""
        found = _CHARSET.search(self.headers.get("content-type", ""))
        return found[1] if found else None

    def text(self, charset: str | None = None) -> str:
        """Return the body as text; what cannot be decoded is replaced."""
        try:
            return self.body.decode(charset or self.charset or "utf-8", errors="replace")
        except (LookupError, UnicodeError):  # an encoding nobody knows, or one that is none of text
            return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Return the body as JSON; raise ValueError if it is none."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from error


class HttpClient(Protocol):
    """Sends requests. Whatever goes wrong before there is a whole answer is an OutboundError."""

    async def fetch(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        time_limit: float | None = None,
        max_bytes: int | None = None,
        admit: Callable[[str], bool] | None = None,
    ) -> HttpAnswer:
        """Get a URL that comes from a model, a client or a page: only public addresses, also after redirects.

        `time_limit` is in seconds, for all of it. `admit` is asked about the host of the URL and of each redirect.
        """

    async def call(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        time_limit: float | None = None,
        max_bytes: int | None = None,
    ) -> HttpAnswer:
        """Send a request to a URL that the operator configured, wherever it is. Redirects are not followed."""


class NoHttpClient(HttpClient):
    """Refuses everything: the client of a context that nobody gave one."""

    @override
    async def fetch(self, url: str, **_options: Any) -> HttpAnswer:
        raise BlockedError("There is no HTTP client here; give the registry one: FunctionRegistry(http=Outbound()).")

    @override
    async def call(self, method: str, url: str, **options: Any) -> HttpAnswer:
        return await self.fetch(url)
