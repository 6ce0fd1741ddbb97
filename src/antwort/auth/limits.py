"""Rate limits: a bucket of requests per credential and one per tenant, refilled steadily."""

import asyncio
import ipaddress
import json
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from starlette.datastructures import Headers

from antwort.auth.base import KEY_HEADERS, Chain, credential
from antwort.concurrency.peers import Letters, Peers
from antwort.config import RateConfig
from antwort.context import Principal
from antwort.errors import AuthenticationError, RateLimitError

NOTHING: Mapping[str, str] = {}
MAX_BUCKETS = 100_000
_TAKEN = "request"
"""What workers of one server tell each other: the owners of the buckets of a request, by kind."""
_TAKEN_THERE = "requests"
"""What servers of one database tell each other: how many requests an owner has made since the last such letter."""
PAUSE = 0.5
"""Seconds for which a server gathers what it tells the others."""
EPSILON = 1e-6
"""Seconds given away so that rounding never costs a request."""


class _Outcome(Struct, frozen=True):
    """What a request would make of a bucket."""

    full_at: float
    """When the bucket would be full again. Nothing else has to be remembered."""
    remaining: int
    wait: float
    """Seconds until the request can be taken; none to wait when negative or zero."""


class _Buckets:
    """Buckets of one kind, by the generic cell rate algorithm: one number each, and none for a bucket that is full."""

    def __init__(self, kind: str, owner: Callable[[Principal], Hashable], rate: int, burst: int, capacity: int) -> None:
        self.kind = kind
        self.owner = owner
        self.rate = rate
        self.burst = burst
        self._interval = 60.0 / rate
        self._capacity = capacity
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def peek(self, owner: Hashable, now: float, count: int = 1) -> _Outcome:
        """Tell what a request, or several, would do, without taking them."""
        full_at = max(self._full_at.get(owner, now), now) + count * self._interval
        slack = self.burst * self._interval - (full_at - now) + EPSILON
        return _Outcome(full_at, max(0, int(slack / self._interval)), -slack)

    def take(self, owner: Hashable, full_at: float, now: float) -> None:
        """Remember a request, and forget buckets that are full again or too many."""
        self._full_at[owner] = full_at
        self._full_at.move_to_end(owner)
        # Two for each that may come: the old ones go faster than new ones arrive.
        for _ in range(2):
            oldest, due = next(iter(self._full_at.items()))
            if due > now and len(self._full_at) <= self._capacity:
                break
            del self._full_at[oldest]

    def headers(self, remaining: int, seconds: float) -> dict[str, str]:
        """Return the headers that clients of OpenAI read; `seconds` are those until the bucket is full."""
        return {
            "x-ratelimit-limit-requests": str(self.burst),
            "x-ratelimit-remaining-requests": str(remaining),
            "x-ratelimit-reset-requests": _duration(seconds),
        }

    def refusal(self, outcome: _Outcome, now: float) -> RateLimitError:
        """Return the error for a request that cannot be taken."""
        return RateLimitError(
            f"Rate limit reached for this {self.kind}: {self.rate} requests per minute. "
            f"Try again in {_duration(outcome.wait)}.",
            retry_after=outcome.wait,
            headers=self.headers(0, outcome.full_at - self._interval - now),
        )


class RateLimiter:
    """Count requests against the limits of their credential and of their tenant; without limits, do nothing.

    A bucket holds `burst` requests, by default as many as a minute brings. Use it from one event loop. Workers of one
    server tell each other at once what they took, and `others`, the servers of one database, twice a second: what
    several of them took too much meanwhile, a bucket owes, and gives nothing until it is made up for.
    """

    def __init__(
        self,
        per_key: RateConfig,
        per_tenant: RateConfig,
        clock: Callable[[], float] = time.monotonic,
        *,
        capacity: int = MAX_BUCKETS,
        peers: Peers | None = None,
        others: Letters | None = None,
    ) -> None:
        self._clock = clock
        self._peers = peers or Peers()
        self._others = others
        self._untold: Counter[tuple[str, Hashable]] = Counter()
        """The requests that other servers were not told of yet, by the kind of their bucket and its owner."""
        self._letters = 0
        self._capacity = capacity
        self._buckets: list[_Buckets] = []
        self.limit(per_key, per_tenant)
        self._peers.hear(_TAKEN, self._count_elsewhere)
        if others is not None:
            others.hear(_TAKEN_THERE, self._count_of_others)

    def __len__(self) -> int:
        """Return the number of buckets that are not full."""
        return sum(len(buckets) for buckets in self._buckets)

    def limit(self, per_key: RateConfig, per_tenant: RateConfig) -> None:
        """Have these limits from now on. Buckets of a kind whose limit is another are full again."""
        known = {(buckets.kind, buckets.rate, buckets.burst): buckets for buckets in self._buckets}
        found: list[_Buckets] = []
        for kind, owner, config in (("credential", _credential, per_key), ("tenant", _tenant, per_tenant)):
            if (rate := config.requests_per_minute) is not None:
                burst = config.burst or rate
                new = _Buckets(kind, owner, rate, burst, self._capacity)
                found.append(known.get((kind, rate, burst), new))
        self._buckets = found

    def check(self, principal: Principal) -> Mapping[str, str]:
        """Take a request and return the headers for its answer; raise `RateLimitError` when none is left.

        A request that one limit refuses does not count against the other.
        """
        if not self._buckets:
            return NOTHING
        now = self._clock()
        outcomes: list[tuple[_Buckets, Hashable, _Outcome]] = []
        for buckets in self._buckets:
            owner = buckets.owner(principal)
            outcome = buckets.peek(owner, now)
            if outcome.wait > 0:
                raise buckets.refusal(outcome, now)
            outcomes.append((buckets, owner, outcome))
        for buckets, owner, outcome in outcomes:
            buckets.take(owner, outcome.full_at, now)
            if self._others is not None:
                self._tell_later(buckets.kind, owner)
        if self._peers.count > 1:
            self._peers.tell(_TAKEN, json.dumps({buckets.kind: owner for buckets, owner, _ in outcomes}))
        tightest, _, outcome = min(outcomes, key=lambda item: item[2].remaining)
        return tightest.headers(outcome.remaining, outcome.full_at - now)

    def _count_elsewhere(self, told: str) -> None:
        """Count a request that another worker has taken, which for a moment may have other limits."""
        now, owners = self._clock(), json.loads(told)
        for buckets in self._buckets:
            if buckets.kind in owners:
                known = _known(owners[buckets.kind])
                buckets.take(known, buckets.peek(known, now).full_at, now)

    def _tell_later(self, kind: str, owner: Hashable) -> None:
        """Tell other servers of a request, with all that come in the next moment."""
        if not self._untold:
            asyncio.get_running_loop().call_later(PAUSE, self._tell_others)
        self._untold[kind, owner] += 1

    def _tell_others(self) -> None:
        untold, self._untold = self._untold, Counter()
        for (kind, owner), count in untold.items():
            self._letters += 1  # of two letters that are the same one is sent
            letter = [self._peers.server, self._letters, kind, owner, count]
            if self._others is not None:
                self._others.tell(_TAKEN_THERE, json.dumps(letter))

    def _count_of_others(self, letter: str) -> None:
        """Count what another server has taken; what other workers of this one took they have told."""
        server, _, kind, owner, count = msgspec.json.decode(letter, type=tuple[str, int, str, Any, int])
        now = self._clock()
        for buckets in self._buckets:
            if server != self._peers.server and buckets.kind == kind and count > 0:
                known = _known(owner)
                buckets.take(known, buckets.peek(known, now, count).full_at, now)


def _known(owner: Any) -> Hashable:
    """Return the owner of a bucket as it was before it was written as JSON."""
    return tuple(owner) if isinstance(owner, list) else str(owner)


def _credential(principal: Principal) -> Hashable:
    return principal.tenant, principal.method, principal.key_id or principal.subject


def _tenant(principal: Principal) -> Hashable:
    return principal.tenant


def _duration(seconds: float) -> str:
    """Return a span the way OpenAI writes it: `120ms`, `1.5s`, `6m0s`."""
    milliseconds = max(0, math.ceil(seconds * 1000))
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}m{rest / 1000:g}s" if minutes else f"{rest / 1000:g}s"


# --- addresses whose credentials fail again and again are slowed down ------------------------------------------------


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
