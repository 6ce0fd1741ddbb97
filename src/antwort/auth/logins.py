"""Authentication for requests from somewhere: addresses whose credentials fail again and again are slowed down."""

import ipaddress
import time
from collections.abc import Callable

from msgspec import Struct
from starlette.datastructures import Headers

from antwort.auth.base import KEY_HEADERS, Chain, credential
from antwort.context import Principal
from antwort.errors import AuthenticationError, RateLimitError

WINDOW = 60.0
"""Seconds after which failures are forgotten."""
MAX_ADDRESSES = 10_000
UNGUESSABLE = 32
"""Characters of a credential that nobody finds by trying: tokens and the keys that we make are longer."""


class _Failures(Struct):
    since: float
    count: int = 0


class Logins:
    """Asks a chain of authenticators, and counts by address what it rejects.

    Many clients can share an address, so none is locked out by the failures of another. Beyond `most` failures in a
    minute, credentials that fail get a 429 in place of a 401, and credentials that could be guessed are not looked at
    any more, unless they have been good before. What could not be guessed is always looked at. Requests without
    credentials are no attempt, and do not count. Use it from one event loop.
    """

    def __init__(self, chain: Chain, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._chain = chain
        self.anyone = chain.anyone
        """Who calls, if nobody has to prove anything: there is nothing to ask then."""
        self._most = most
        self._clock = clock
        self._failures: dict[str, _Failures] = {}
        self._known: set[str] = set()
        self._good: set[int] = set()
        """Hashes of keys that have been accepted: who meets one by accident is still asked for a key."""

    def __len__(self) -> int:
        """Return the number of addresses that are remembered."""
        return len(self._failures)

    async def authenticate(self, headers: Headers, address: str) -> Principal:
        """Return the caller; raise AuthenticationError or, if there were too many of those, RateLimitError."""
        failures = self._found(address) if self._failures else None
        if failures is not None and failures.count >= self._most and self._is_guess(headers):
            raise self._refusal(failures)
        try:
            principal = await self._chain.authenticate(headers)
        except AuthenticationError as error:
            if not any(name in headers for name in ("authorization", *KEY_HEADERS)):
                raise
            failures = self._count(address)
            if failures.count > self._most:
                raise self._refusal(failures) from error
            raise
        if principal.key_id is not None and principal.key_id not in self._known:
            self._known.add(principal.key_id)
            self._good.add(hash(credential(headers)))
        return principal

    def _is_guess(self, headers: Headers) -> bool:
        try:
            token = credential(headers)
        except AuthenticationError:
            return True
        return token is not None and len(token) < UNGUESSABLE and hash(token) not in self._good

    def _found(self, address: str) -> _Failures | None:
        failures = self._failures.get(_network(address))
        return failures if failures is not None and self._clock() - failures.since < WINDOW else None

    def _count(self, address: str) -> _Failures:
        failures = self._found(address)
        if failures is None:
            network, now = _network(address), self._clock()
            self._failures.pop(network, None)  # so that the first ones are the oldest
            failures = self._failures[network] = _Failures(now)
            # Two for each that may come: the old ones go faster than new ones arrive.
            for _ in range(2):
                oldest, entry = next(iter(self._failures.items()))
                if len(self._failures) <= MAX_ADDRESSES and now - entry.since < WINDOW:
                    break
                del self._failures[oldest]
        failures.count += 1
        return failures

    def _refusal(self, failures: _Failures) -> RateLimitError:
        wait = failures.since + WINDOW - self._clock()
        return RateLimitError(
            "Too many attempts to authenticate have failed at this address (auth.max_failures). Check the credentials,"
            f" and try again in {max(1, round(wait))} seconds.",
            retry_after=wait,
        )


def _network(address: str) -> str:
    """Return whose address it is: of IPv6, everybody has a whole network."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, 64), strict=False))
