"""HTTP to one model server: its requests, its limits, and what goes wrong as errors of the API."""

import base64
import logging
import os
import re
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cached_property
from time import monotonic
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from msgspec import Struct

from antwort import __version__
from antwort.backends.errors import BROKEN, BUSY, DISCONNECTED, FAILED, TIMEOUT, UNREACHABLE, StalledError
from antwort.concurrency.slots import Queue, QueueFullError, Slots
from antwort.config import BackendConfig
from antwort.config.secrets import is_secret_name
from antwort.errors import (
    APIError,
    BadGatewayError,
    BadRequestError,
    ConfigError,
    GatewayTimeoutError,
    ServiceUnavailableError,
)
from antwort.http1.client import (
    BusyError,
    ClosedError,
    ConnectTimeoutError,
    Http1Client,
    Http1Connection,
    Parts,
    ProtocolError,
    TooLongError,
)
from antwort.http1.proxies import Proxy, ProxyError
from antwort.observability.redaction import MASK, SHORTEST_VALUE, written_forms

# --- limits: every dimension of an answer ends somewhere -------------------------------------------------------------


SMALL = 64 * 1024
"""Bytes of JSON that are not worth a look: however many values they hold, they are soon read."""
_MARKS = (b",", b"{", b"[")


class AnswerLimits(Struct, frozen=True):
    """The limits of one backend's answers."""

    backend: str
    header_bytes: int
    event_bytes: int
    answer_bytes: int
    whole_bytes: int
    """The smaller of the two: an answer that came as a whole and has no more is within both."""
    values: int
    calls: int
    items: int
    models: int

    @classmethod
    def of(cls, backend: str, config: BackendConfig) -> "AnswerLimits":
        """Take them from the configuration."""
        return cls(
            backend,
            int(config.max_header_bytes),
            int(config.max_event_bytes),
            int(config.max_answer_bytes),
            int(min(config.max_event_bytes, config.max_answer_bytes)),
            config.max_values,
            config.max_calls,
            config.max_items,
            config.max_models,
        )

    @classmethod
    def default(cls, backend: str) -> "AnswerLimits":
        """Return those of a configuration that says nothing about them."""
        fields: dict[str, Any] = {"url": "http://localhost"}
        return cls.of(backend, BackendConfig(**fields))

    def check_values(self, body: bytes) -> None:
        """Refuse JSON that holds too many values to be read at once, during which nobody else has a turn.

        What may begin or part values is counted, also within texts: that is quick, and no answer has so many.
        """
        if len(body) > SMALL:
            self._count_values(body)

    def _count_values(self, body: bytes) -> None:
        count = 0
        for start in range(0, len(body), SMALL):  # no further than it takes: many marks take long to be counted
            count += sum(body.count(mark, start, start + SMALL) for mark in _MARKS)
            if count > self.values:
                raise self.excess(f"more than {self.values:,} values at once", "max_values")

    def too_many_items(self) -> BadGatewayError:
        """Return the error for a turn in which texts, thoughts and refusals change too often: each begins an item."""
        return self.excess(f"more than {self.items:,} items in one turn", "max_items")

    def excess(self, what: str, setting: str) -> BadGatewayError:
        """Return the error for an answer that goes beyond one; the same request would likely get the same answer."""
        return BadGatewayError(
            f"The backend '{self.backend}' sent {what} (`backends.{self.backend}.{setting}`).", code=FAILED
        )


# --- the transport ---------------------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)


_CUT = "…"
"""Stands where a text was cut off."""


class SentSecrets:
    """Masks them in errors, also where a server has broken them by blanks, or where one was cut off."""

    def __init__(self, values: Iterable[str]) -> None:
        self._forms = written_forms(map(str.strip, values))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(r"\s*".join(map(re.escape, "".join(form.split()))) for form in self._forms))

    def mask(self, error: APIError) -> None:
        """Mask them in whatever of an error a client is told."""
        if self._forms:
            error.message = self._masked(error.message)
            error.args = (error.message,)
            error.param = error.param and self._masked(error.param)
            if isinstance(error, BadRequestError):  # else the code is ours
                error.code = error.code and self._masked(error.code)

    def are_in(self, text: str) -> bool:
        """Tell whether one of them is in a text."""
        return bool(self._forms) and self._pattern.search(text) is not None

    def _masked(self, text: str) -> str:
        before, cut, behind = self._pattern.sub(MASK, text).rpartition(_CUT)
        return f"{self._without_begun(before)}{cut}{behind}" if cut else behind

    def _without_begun(self, text: str) -> str:
        """Mask one that begins at the end of a text, and of which the rest was cut off."""
        for form in self._forms:
            for size in range(len(form) - 1, SHORTEST_VALUE - 1, -1):
                if text.endswith(form[:size]):
                    return text[:-size] + MASK
        return text


def sent_secrets(backend: str, headers: Mapping[str, str], parts: SplitResult) -> SentSecrets:
    """Return those in the headers of every request and in the URL of a server."""
    values = [value for name, value in headers.items() if is_secret_name(name)]
    values += [value.partition(" ")[2] for value in values]  # without `Bearer`
    values += [unquote(parts.password or "")]
    values += [value for name, value in parse_qsl(parts.query) if is_secret_name(name)]
    # Servers that want no key are often given their name as one, and our own words have that in them.
    return SentSecrets(value for value in values if value not in backend)


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_JSON: Mapping[str, str] = MappingProxyType({"content-type": "application/json"})


class Timeouts(Struct, frozen=True):
    """Seconds to wait for a server."""

    connect: float
    first_byte: float | None
    """None for as long as the request has: an answer that is not streamed begins when it is complete."""
    chunk: float

    @classmethod
    def of(cls, config: BackendConfig) -> "Timeouts":
        """Take them from the configuration."""
        return cls(config.connect_timeout, config.first_byte_timeout, config.chunk_timeout)


class Reply(Struct, eq=False):
    """An answer whose head has arrived. Whoever got it reads it to the end or aborts it."""

    status: int
    headers: Mapping[str, str]
    _exchange: Http1Connection
    _transport: "Transport"
    _times: Timeouts
    _pause: float | None = None
    """Seconds the server may be silent between two pieces of a stream, from the moment it is one."""
    _size: int = 0
    """Bytes of it that were read piece by piece."""
    _over: bool = False

    def whole(self) -> bytes | None:
        """Return the answer, if all of it is there and no limit is near; else it is to be read."""
        return self._exchange.whole(self._transport.limits.whole_bytes)

    async def read(self, limit: int | None = None) -> bytes:
        """Read the answer to its end; a longer one than the limit is a BadGatewayError."""
        parts: list[bytes] = []
        size = 0
        while not self._exchange.is_read and (part := await self.chunk()):
            size += len(part)
            if limit is not None and size > limit:
                self.abort()
                parts.clear()  # or the error would keep them: to free much of that at once takes long
                raise self._transport.limits.excess(f"an answer of more than {limit:,} bytes", "max_event_bytes")
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def is_read(self) -> bool:
        """Whether it has ended, and all of it was read."""
        return self._exchange.is_read

    async def head(self, limit: int) -> bytes:
        """Read at most so many bytes and drop the rest."""
        parts: list[bytes] = []
        size = 0
        while size < limit and (part := await self.chunk()):
            size += len(part)
            parts.append(part)
        self.abort()
        return b"".join(parts)[:limit]

    async def chunk(self) -> bytes:
        """Return what arrived since the last call, or wait for it; empty at the end."""
        try:
            data = await self._exchange.chunk()
        except _FAILURES as error:
            raise self._transport.failure_within(error, self._times, self._pause) from error
        self._size += len(data)
        limits = self._transport.limits
        if self._size > limits.answer_bytes:
            self.abort()
            raise limits.excess(f"an answer of more than {limits.answer_bytes:,} bytes", "max_answer_bytes")
        return data

    async def hand_over(self, taker: Callable[[bytes], bool]) -> None:
        """Give what arrives to a function at once, until it wants no more or there is something for `chunk`."""
        self._size += await self._exchange.hand_over(taker, self._transport.limits.answer_bytes - self._size)

    def limit_silence(self, seconds: float) -> None:
        """Let the server be silent for so long from now on, between two pieces of a stream."""
        self._pause = seconds
        self._exchange.limit_silence(seconds)

    def abort(self) -> None:
        """Give the connection back, once; if the answer was not read to its end it is closed."""
        if not self._over:
            self._over = True
            self._exchange.abort()


_FAILURES = (TimeoutError, OSError, BusyError, QueueFullError, ProtocolError, TooLongError)
_QUIET = 60.0
"""Seconds between two lines in the log about connections that are all in use."""


class Transport:
    """One pool of connections to one server, opened when it is first needed.

    Proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY`, …), looked up once. Redirects are not followed: a key
    is sent nowhere but to the configured place. No cookies are kept.
    """

    def __init__(self, name: str, config: BackendConfig, queue: Queue | None = None) -> None:
        self.name = name
        self.limits = AnswerLimits.of(name, config)
        self.timeouts = Timeouts.of(config)
        parts = urlsplit(config.url)
        self.host = parts.hostname or ""
        self.address = config.address
        """The one of the host's addresses that is meant; None if any is."""
        self._query = f"?{parts.query}" if parts.query else ""
        fixed = _headers(name, config, parts)
        self.secrets = sent_secrets(name, fixed, parts)
        self._path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
        place, tls = parts.netloc.rpartition("@")[2], parts.scheme == "https"
        proxy = Proxy.for_url(parts)
        if proxy is not None and not tls:
            self._path = f"http://{place}{self._path}"
            fixed = {**proxy.headers, **fixed}
        self._fixed_head = "".join(
            f"{key}: {value}\r\n" for key, value in {"host": place, "accept-encoding": "identity", **fixed}.items()
        )
        self._heads: dict[str, bytes] = {}
        """How requests begin that send JSON and have no further headers, by path; there are few."""
        self._client = Http1Client(
            config.address or self.host,
            parts.port or (443 if tls else 80),
            tls=tls,
            limit=config.max_connections,
            patience=config.connection_wait,
            max_head=self.limits.header_bytes,
            server_hostname=self.host,
            slots=Slots(config.max_connections, queue),
            proxy=proxy,
        )
        self._warned_busy = float("-inf")

    def post(
        self,
        path: str,
        body: bytes | Parts,
        headers: Mapping[str, str] = NO_HEADERS,
        timeouts: Timeouts | None = None,
        tenant: str = "",
    ) -> Coroutine[Any, Any, Reply]:
        """Send a JSON body, as a whole or in parts, and return the answer as soon as its head is there."""
        return self._send("POST", path, body, {**_JSON, **headers} if headers else _JSON, timeouts, tenant=tenant)

    def get(
        self, path: str, headers: Mapping[str, str] = NO_HEADERS, timeouts: Timeouts | None = None
    ) -> Coroutine[Any, Any, Reply]:
        """Ask for something."""
        return self._send("GET", path, b"", headers, timeouts)

    @property
    def in_use(self) -> int:
        """How many requests are under way."""
        return self._client.slots.taken

    @property
    def waiting(self) -> int:
        """How many requests wait for a connection, because all are in use."""
        return self._client.slots.waiting

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        await self._client.close()

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes | Parts,
        headers: Mapping[str, str],
        timeouts: Timeouts | None,
        *,
        tenant: str = "",
    ) -> Reply:
        times = timeouts or self.timeouts
        message = self._message(method, path, body, headers)
        try:
            exchange = await self._client.exchange(message, times.connect, times.first_byte, tenant)
        except _FAILURES as error:
            raise self._failure_before(error, times) from error
        return Reply(exchange.status, exchange.headers, exchange, self, times)

    def _failure_before(self, error: Exception, times: Timeouts) -> APIError:
        """Say why no answer began. If a time was up, say which: to connect, which may be tried again, or to answer."""
        if isinstance(error, ConnectTimeoutError):
            setting = "connect_timeout" if times.connect == self.timeouts.connect else ""
            shown = _written_limit(self.name, times.connect, setting)
            return GatewayTimeoutError(
                f"The backend '{self.name}' could not be connected to within{shown}.", code=UNREACHABLE
            )
        if isinstance(error, TimeoutError):
            shown = self._first_byte(times)
            return GatewayTimeoutError(f"The backend '{self.name}' did not answer within{shown}.", code=TIMEOUT)
        if isinstance(error, BusyError):
            self._tell_busy()
        return _failure(self.limits, error)

    def _tell_busy(self) -> None:
        """Write to the log that requests are refused, once for the many that it may be."""
        now = monotonic()
        if now - self._warned_busy >= _QUIET:
            self._warned_busy = now
            logger.warning(
                "all %d connections to the backend '%s' are in use, %d more requests wait for one, and others are "
                "refused (backends.%s.max_connections, connection_wait)",
                self.in_use,
                self.name,
                self.waiting,
                self.name,
            )

    def failure_within(self, error: Exception, times: Timeouts, pause: float | None) -> APIError:
        """Say why an answer does not go on: the server may have been silent for longer than the pause it may make."""
        if not isinstance(error, TimeoutError):
            return _failure(self.limits, error)
        shown = self._first_byte(times) if pause is None else _written_limit(self.name, pause, "chunk_timeout")
        return StalledError(f"The backend '{self.name}' stopped in its answer for{shown}.")

    def _first_byte(self, times: Timeouts) -> str:
        setting = "first_byte_timeout" if times.first_byte == self.timeouts.first_byte else ""
        return _written_limit(self.name, times.first_byte, setting)

    def _message(self, method: str, path: str, body: bytes | Parts, headers: Mapping[str, str]) -> bytes | Parts:
        """Write a request; what is the same every time is written once."""
        head = self._heads.get(path) if headers is _JSON else self._head(method, path, headers)
        if head is None:
            head = self._heads[path] = self._head(method, path, headers)
        if isinstance(body, bytes):
            return head + b"%d\r\n\r\n" % len(body) + body
        first, *rest = body
        return [head + b"%d\r\n\r\n" % sum(map(len, body)) + first, *rest]

    def _head(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        query = self._query.replace("?", "&", 1) if "?" in path else self._query
        head = f"{method} {self._path}{path}{query} HTTP/1.1\r\n{self._fixed_head}{lines}content-length: "
        return head.encode("latin-1")


def _headers(name: str, config: BackendConfig, parts: SplitResult) -> dict[str, str]:
    headers = {"user-agent": f"antwort/{__version__}"}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    if config.api_key is not None:
        headers["authorization"] = f"Bearer {config.api_key.get_secret_value().strip()}"
    headers |= {key.lower(): value for key, value in config.headers.items()}
    for key, value in headers.items():
        if not (_HEADER_NAME.fullmatch(key) and value.isascii() and value.isprintable()):
            raise ConfigError(
                f"The header '{key}' cannot be sent: names and values must be plain ASCII, without line breaks.",
                where=f"backends.{name}",
            )
    return headers


def _written_limit(name: str, seconds: float | None, setting: str) -> str:
    """Write a limit for a message, with the setting it comes from, if it does."""
    shown = "" if seconds is None else f" {round(seconds, 3):g} s"
    return f"{shown} (`backends.{name}.{setting}`)" if setting else shown


def _failure(limits: AnswerLimits, error: Exception) -> APIError:
    """Say what went wrong, without addresses: they may hold credentials, and are the operator's business."""
    name = limits.backend
    if isinstance(error, BusyError):
        return ServiceUnavailableError(
            f"All connections to the backend '{name}' are in use (`backends.{name}.max_connections`). Try again.",
            code=BUSY,
            headers={"retry-after": "1"},
        )
    if isinstance(error, QueueFullError):
        return ServiceUnavailableError(str(error), code=BUSY, headers={"retry-after": "1"})
    if isinstance(error, TooLongError):
        return limits.excess(f"a head of more than {limits.header_bytes:,} bytes", "max_header_bytes")
    reason = _unreachable(error)
    if reason is not None:
        return ServiceUnavailableError(f"The backend '{name}' cannot be reached: {reason}.", code=UNREACHABLE)
    if isinstance(error, ClosedError):
        return BadGatewayError(
            f"The backend '{name}' closed the connection before its answer ended.", code=DISCONNECTED
        )
    return BadGatewayError(f"The backend '{name}' does not answer in HTTP as it should.", code=BROKEN)


def _unreachable(error: Exception) -> str | None:
    """Return why no connection came about, or None if one did."""
    if isinstance(error, socket.gaierror):
        return "its host name is not known"
    if isinstance(error, ProxyError):
        return "the proxy does not let us through"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its TLS certificate is not trusted"
    if isinstance(error, ssl.SSLError):
        return "TLS could not be agreed on"
    if isinstance(error, OSError) and not isinstance(error, ClosedError | TimeoutError):
        return os.strerror(error.errno).lower() if error.errno else "no connection came about"
    return None
