"""The client for the world outside, as functions and routes get it: `ctx.http`."""

import asyncio
import codecs
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

import msgspec
from typing_extensions import override

from antwort.concurrency.backoff import Backoff
from antwort.errors import FunctionError
from antwort.lazy_imports import compiled_on_use

_CHARSET = compiled_on_use(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_OF_NAMES = frozenset({"punycode", "idna"})
"""Encodings of host names, which no text has: the time to decode one grows with the square of its length."""
_LONGEST_WAIT = 24 * 3600.0
"""Seconds that a server can ask to wait; more is taken for so many."""


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
            named = codecs.lookup(charset or self.charset or "utf-8").name
            return self.body.decode("utf-8" if named in _OF_NAMES else named, errors="replace")
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
        on_piece: Callable[[bytes], Awaitable[None]] | None = None,
        guarded: bool = False,
        on_head: Callable[[Mapping[str, str]], None] | None = None,
        tenant: str = "",
        standing: bool = False,
    ) -> HttpAnswer:
        """Send a request to a URL that the operator configured, wherever it is. Redirects are not followed.

        `on_piece` gets the pieces of the body as they come, whatever the status; the answer has all of them. `on_head`
        gets the headers before. A URL that comes from anybody else has to be `guarded`: only public addresses are asked
        then, as with `fetch`. Tenants take turns at the connections to one server. An answer of the
        operator's services that is `standing`, such as a stream of events without an end, has a connection of a few
        others: it takes none of those that requests wait for.
        """


class NoHttpClient(HttpClient):
    """Refuses everything: the client of a context that nobody gave one."""

    @override
    async def fetch(self, url: str, **_options: Any) -> HttpAnswer:
        raise BlockedError("There is no HTTP client here; give the registry one: FunctionRegistry(http=Outbound()).")

    @override
    async def call(self, method: str, url: str, **options: Any) -> HttpAnswer:
        return await self.fetch(url)


# --- trying again ----------------------------------------------------------------------------------------------------


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `Retry-After` asks to wait, given as a number or as a date: a day at most.

    None if it is not there or cannot be read. Names of headers are in lower case.
    """
    value = headers.get("retry-after", "").strip()
    try:
        if value.isascii() and value.replace(".", "", 1).isdecimal():
            seconds = float(value)
        else:
            seconds = (parsedate_to_datetime(value).astimezone(UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError, OSError):  # no date, or one beyond what a clock can show
        return None
    return min(max(0.0, seconds), _LONGEST_WAIT)


def _may_pass(answer: HttpAnswer) -> bool:
    """Tell whether a failure may be over soon: too many requests, or an error of the server."""
    return answer.status == 429 or answer.status >= 500


async def call_again(
    call: Callable[[], Awaitable[HttpAnswer]],
    *,
    retries: int,
    patience: float,
    passing: Callable[[HttpAnswer], bool] = _may_pass,
    first_pause: float = 0.2,
    longest_pause: float = 5.0,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> HttpAnswer:
    """Send a request that may be sent twice, again while the failure may pass; return the last answer.

    It passes if nobody could be reached, or the answer is `passing`. What `Retry-After` asks for is waited, unless it
    is more than `patience` seconds: then the answer is returned at once. Else the pauses double, from the first to the
    longest, each by chance a little shorter. Raise UnreachableError if the last try reached nobody; any other
    OutboundError is raised at once.
    """
    backoff = Backoff(first_pause, longest_pause, 0.5)
    for tries in range(retries + 1):
        wait, is_last = backoff.pause(tries), tries == retries
        try:
            answer = await call()
        except UnreachableError:
            if is_last:
                raise
        else:
            asked = retry_after(answer.headers)
            if is_last or not passing(answer) or (asked is not None and asked > patience):
                return answer
            wait = wait if asked is None else asked
        await sleep(wait)
    raise AssertionError("the last try returns or raises")
