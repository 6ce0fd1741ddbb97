import asyncio
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.auth.conftest import Clock
from typing_extensions import override

from antwort.auth import RateLimiter
from antwort.auth import limits as module
from antwort.concurrency.peers import Peers
from antwort.config import RateConfig
from antwort.context import Principal
from antwort.errors import RateLimitError
from antwort.storage.postgres import PostgresStore

ALICE = Principal("acme", "alice", method="api_key", key_id="k1")
BOB = Principal("acme", "bob", method="api_key", key_id="k2")
OTHER = Principal("globex", "carol", method="api_key", key_id="k3")
NONE = RateConfig()


class Worker(Peers):
    """One of several workers, whose letters come at once."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 2
        self.others: list[Worker] = []
        self.listeners: dict[str, Callable[[str], None]] = {}

    @override
    def tell(self, kind: str, text: str) -> None:
        for other in self.others:
            other.listeners[kind](text)

    @override
    def hear(self, kind: str, listener: Callable[[str], None]) -> None:
        self.listeners[kind] = listener


def rate(per_minute: int, burst: int | None = None) -> RateConfig:
    return RateConfig(requests_per_minute=per_minute, burst=burst)


def taken(limiter: RateLimiter, principal: Principal, attempts: int) -> int:
    count = 0
    for _ in range(attempts):
        try:
            limiter.check(principal)
        except RateLimitError:
            continue
        count += 1
    return count


def test_without_limits_nothing_is_counted() -> None:
    def no_clock() -> float:
        raise AssertionError("nobody needs the time")

    limiter = RateLimiter(NONE, NONE, no_clock)
    assert [dict(limiter.check(ALICE)) for _ in range(3)] == [{}, {}, {}]
    assert len(limiter) == 0


def test_a_minutes_worth_is_taken_at_once_and_no_more(clock: Clock) -> None:
    assert taken(RateLimiter(rate(60), NONE, clock), ALICE, 100) == 60


def test_other_limits_count_anew_and_those_that_stay_go_on(clock: Clock) -> None:
    limiter = RateLimiter(rate(60, burst=5), rate(60, burst=8), clock)
    assert taken(limiter, ALICE, 100) == 5
    limiter.limit(rate(60, burst=2), rate(60, burst=8))
    assert taken(limiter, ALICE, 100) == 2
    assert taken(limiter, BOB, 100) == 1  # the eighth of the tenant
    limiter.limit(NONE, NONE)
    assert taken(limiter, ALICE, 100) == 100


def test_workers_of_which_one_has_other_limits_already_count_what_both_have(clock: Clock) -> None:
    one, other = Worker(), Worker()
    one.others, other.others = [other], [one]
    limiter = RateLimiter(rate(60, burst=5), rate(60, burst=8), clock, peers=one)
    changed = RateLimiter(NONE, rate(60, burst=8), clock, peers=other)
    assert taken(limiter, ALICE, 3) == 3
    assert taken(changed, ALICE, 100) == 5
    assert taken(limiter, ALICE, 100) == 0


def test_a_burst_of_its_own_is_taken_at_once(clock: Clock) -> None:
    limiter = RateLimiter(rate(60, burst=5), NONE, clock)
    assert taken(limiter, ALICE, 100) == 5
    clock.advance(2)
    assert taken(limiter, ALICE, 100) == 2
    clock.advance(3600)
    assert taken(limiter, ALICE, 100) == 5


def test_the_headers_tell_limit_rest_and_reset(clock: Clock) -> None:
    limiter = RateLimiter(rate(60, burst=3), NONE, clock)
    assert dict(limiter.check(ALICE)) == {
        "x-ratelimit-limit-requests": "3",
        "x-ratelimit-remaining-requests": "2",
        "x-ratelimit-reset-requests": "1s",
    }
    clock.advance(0.5)
    headers = limiter.check(ALICE)
    assert headers["x-ratelimit-remaining-requests"] == "1"
    assert headers["x-ratelimit-reset-requests"] == "1.5s"


def test_a_refusal_tells_when_to_come_back_and_then_takes_the_request(clock: Clock) -> None:
    limiter = RateLimiter(rate(6, burst=1), NONE, clock)
    limiter.check(ALICE)
    clock.advance(2.5)
    with pytest.raises(RateLimitError, match=r"credential: 6 requests per minute.*7\.5s") as caught:
        limiter.check(ALICE)
    assert caught.value.retry_after == pytest.approx(7.5, abs=0.001)
    assert caught.value.headers["retry-after"] == "8"
    assert caught.value.headers["x-ratelimit-remaining-requests"] == "0"
    assert caught.value.headers["x-ratelimit-reset-requests"] == "7.5s"
    assert caught.value.retry_after is not None
    clock.advance(caught.value.retry_after)
    limiter.check(ALICE)


def test_refused_requests_do_not_push_the_next_one_back(clock: Clock) -> None:
    limiter = RateLimiter(rate(60, burst=1), NONE, clock)
    assert taken(limiter, ALICE, 50) == 1
    clock.advance(1)
    assert taken(limiter, ALICE, 50) == 1


def test_every_credential_has_its_own_bucket(clock: Clock) -> None:
    limiter = RateLimiter(rate(60, burst=2), NONE, clock)
    assert [taken(limiter, who, 5) for who in (ALICE, BOB, OTHER)] == [2, 2, 2]


def test_callers_without_a_key_id_are_told_apart_by_tenant_and_subject(clock: Clock) -> None:
    limiter = RateLimiter(rate(60, burst=1), NONE, clock)
    callers = [
        Principal("a/b", "c", method="jwt"),
        Principal("a", "b/c", method="jwt"),
        Principal("a", "k", method="jwt"),
        Principal("a", "x", method="api_key", key_id="k"),
    ]
    assert [taken(limiter, who, 2) for who in callers] == [1, 1, 1, 1]


def test_the_keys_of_a_tenant_share_its_bucket(clock: Clock) -> None:
    limiter = RateLimiter(NONE, rate(60, burst=3), clock)
    assert [taken(limiter, who, 2) for who in (ALICE, BOB, OTHER)] == [2, 1, 2]
    with pytest.raises(RateLimitError, match="tenant"):
        limiter.check(BOB)


def test_the_headers_are_those_of_the_tighter_limit(clock: Clock) -> None:
    limiter = RateLimiter(rate(60, burst=5), rate(60, burst=3), clock)
    assert limiter.check(ALICE)["x-ratelimit-remaining-requests"] == "2"
    limiter = RateLimiter(rate(60, burst=2), rate(60, burst=3), clock)
    assert limiter.check(ALICE)["x-ratelimit-limit-requests"] == "2"


def test_what_the_credentials_limit_refuses_does_not_count_for_the_tenant(clock: Clock) -> None:
    limiter = RateLimiter(rate(60, burst=1), rate(60, burst=3), clock)
    assert taken(limiter, ALICE, 50) == 1
    assert taken(limiter, BOB, 1) == 1
    assert taken(limiter, Principal("acme", "dora", method="api_key", key_id="k4"), 1) == 1


def test_what_the_tenants_limit_refuses_does_not_count_for_the_credential(clock: Clock) -> None:
    limiter = RateLimiter(rate(1, burst=2), rate(60, burst=1), clock)
    assert taken(limiter, ALICE, 50) == 1
    clock.advance(1)
    assert taken(limiter, ALICE, 50) == 1


def test_full_buckets_are_forgotten(clock: Clock) -> None:
    limiter = RateLimiter(rate(60), NONE, clock)
    for number in range(1000):
        limiter.check(Principal("acme", str(number)))
    assert len(limiter) == 1000
    clock.advance(60)
    for number in range(600):
        limiter.check(Principal("acme", f"new {number}"))
    assert len(limiter) == 600


def test_the_number_of_buckets_is_bounded_and_the_least_recently_used_go(clock: Clock) -> None:
    limiter = RateLimiter(rate(1, burst=3), NONE, clock, capacity=10)
    limiter.check(ALICE)
    for number in range(9):
        limiter.check(Principal("acme", str(number)))
    limiter.check(ALICE)
    limiter.check(Principal("acme", "one too many"))
    assert taken(limiter, ALICE, 5) == 1
    for number in range(100):
        limiter.check(Principal("acme", f"new {number}"))
    assert len(limiter) == 10


@settings(deadline=None)
@given(
    per_minute=st.integers(1, 600),
    burst=st.integers(1, 50),
    gaps=st.lists(st.floats(0, 30), max_size=100),
)
def test_no_span_of_time_takes_more_than_burst_and_rate_allow(per_minute: int, burst: int, gaps: list[float]) -> None:
    clock = Clock()
    limiter = RateLimiter(rate(per_minute, burst), NONE, clock)
    times: deque[float] = deque()
    for gap in gaps:
        clock.advance(gap)
        if taken(limiter, ALICE, 1):
            times.append(clock.now)
    for start, first in enumerate(times):
        for end in range(start, len(times)):
            assert end - start + 1 <= burst + (times[end] - first) * per_minute / 60 + 0.01


@pytest.mark.parametrize(
    ("per_minute", "burst", "reset"), [(6000, 10, "10ms"), (60, 60, "1s"), (1, 2, "1m0s"), (40, 5, "1.5s")]
)
def test_spans_are_written_the_way_clients_know(per_minute: int, burst: int, reset: str, clock: Clock) -> None:
    assert RateLimiter(rate(per_minute, burst), NONE, clock).check(ALICE)["x-ratelimit-reset-requests"] == reset


# --- over several servers ---------------------------------------------------------------------------------------------


class Post:
    """Letters between servers, delivered when somebody says so."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[str], None]] = []
        self.sent: list[str] = []

    def tell(self, kind: str, text: str) -> None:
        self.sent.append(text)

    def hear(self, kind: str, listener: Callable[[str], None]) -> None:
        self.listeners.append(listener)

    async def deliver(self, letters: int) -> None:
        """Wait for so many letters, and give them to all, as the database does it with those of one server."""
        async with asyncio.timeout(60):
            while len(self.sent) < letters:  # noqa: ASYNC110 - a timer tells
                await asyncio.sleep(0)
        for text in self.sent:
            for listener in self.listeners:
                listener(text)
        self.sent.clear()


async def test_what_servers_take_too_much_before_they_know_is_owed(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    post = Post()
    limiters = [RateLimiter(NONE, rate(60, burst=10), clock, others=post) for _ in range(3)]
    assert [taken(limiter, ALICE, 20) for limiter in limiters] == [10, 10, 10]
    await post.deliver(3)
    clock.advance(20)  # in which one server alone would give 20, which all together have given already
    assert [taken(limiter, ALICE, 20) for limiter in limiters] == [0, 0, 0]
    clock.advance(1)
    assert [taken(limiter, ALICE, 1) for limiter in limiters] == [1, 1, 1]
    await post.deliver(3)
    assert [taken(limiter, ALICE, 1) for limiter in limiters] == [0, 0, 0]
    clock.advance(3)
    assert taken(limiters[2], ALICE, 20) == 1


async def test_workers_of_one_server_do_not_count_twice_what_they_tell_each_other(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    post = Post()
    one, other = (RateLimiter(NONE, rate(60, burst=10), clock, others=post, peers=Peers(server="a")) for _ in range(2))
    assert taken(one, ALICE, 4) == 4
    await post.deliver(1)
    assert taken(other, ALICE, 20) == 10


async def test_servers_tell_each_other_through_the_database(ready_url: str, clock: Clock) -> None:
    stores = [await asyncio.to_thread(PostgresStore.open, ready_url) for _ in range(2)]
    try:
        async with stores[0].letters() as sending, stores[1].letters() as hearing:
            assert sending is not None
            assert hearing is not None
            listening = asyncio.Event()
            hearing.hear("hello", lambda _: listening.set())
            one, other = (RateLimiter(rate(600), rate(60, burst=10), clock, others=at) for at in (sending, hearing))
            async with asyncio.timeout(60):
                while not listening.is_set():
                    sending.tell("hello", "you")
                    await asyncio.sleep(0.02)
                assert taken(one, ALICE, 20) == 10
                while len(other) < 2:  # noqa: ASYNC110 - the bucket of the key, and that of the tenant
                    await asyncio.sleep(0.02)
            assert taken(other, BOB, 20) == 0
            assert taken(other, OTHER, 1) == 1
    finally:
        for store in stores:
            await store.close()
