"""Addresses whose credentials fail again and again are slowed down, and nobody else is."""

import itertools

import pytest
from starlette.datastructures import Headers
from typing_extensions import override

from antwort.auth import ApiKeyAuthenticator, Chain, Logins
from antwort.auth.build import _record as record
from antwort.auth.limits import MAX_ADDRESSES
from antwort.config import ApiKeyConfig
from antwort.context import Principal
from antwort.errors import AuthenticationError, RateLimitError

HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"
LONG = "a-key-that-is-long-enough-to-be-safe-from-guesses"


class Counted(Chain):
    """A chain that counts how often it is asked."""

    asked = 0

    @override
    async def authenticate(self, headers: Headers) -> Principal:
        self.asked += 1
        return await super().authenticate(headers)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def chain() -> Counted:
    keys = [ApiKeyConfig(id=name, key=name) for name in ("short", "other", LONG)]  # type: ignore[arg-type]
    return Counted([ApiKeyAuthenticator([record(key) for key in keys])])


@pytest.fixture
def logins(chain: Chain, clock: Clock) -> Logins:
    return Logins(chain, 5, clock=clock)


def bearer(key: str) -> Headers:
    return Headers({"authorization": f"Bearer {key}"})


async def fail(logins: Logins, times: int, address: str = HERE) -> list[type[Exception]]:
    kinds: list[type[Exception]] = []
    for number in range(times):
        with pytest.raises((AuthenticationError, RateLimitError)) as raised:
            await logins.authenticate(bearer(f"guess-{number}"), address)
        kinds.append(raised.type)
    return kinds


async def test_after_too_many_failures_guesses_are_not_looked_at_any_more(
    logins: Logins, chain: Counted, clock: Clock
) -> None:
    assert await fail(logins, 20) == [AuthenticationError] * 5 + [RateLimitError] * 15
    assert chain.asked == 5
    with pytest.raises(RateLimitError) as refused:  # it is a good one, but might as well be a guess
        await logins.authenticate(bearer("short"), HERE)
    assert refused.value.headers["retry-after"] == "60"
    assert "auth.max_failures" in refused.value.message
    clock.now += 60
    assert (await logins.authenticate(bearer("short"), HERE)).key_id == "short"
    assert await fail(logins, 1) == [AuthenticationError]


async def test_whoever_shares_the_address_is_not_locked_out(logins: Logins) -> None:
    await logins.authenticate(bearer("short"), ELSEWHERE)
    await fail(logins, 20)
    assert (await logins.authenticate(bearer("short"), HERE)).key_id == "short"
    assert (await logins.authenticate(bearer(LONG), HERE)).key_id == LONG
    assert (await logins.authenticate(bearer("other"), ELSEWHERE)).key_id == "other"


async def test_a_long_credential_that_fails_is_too_many_as_well(logins: Logins) -> None:
    await fail(logins, 5)
    with pytest.raises(RateLimitError):
        await logins.authenticate(bearer("x" * 100), HERE)


async def test_requests_without_credentials_are_no_attempts(logins: Logins) -> None:
    for _ in range(20):
        with pytest.raises(AuthenticationError, match="Missing"):
            await logins.authenticate(Headers({}), HERE)
    assert len(logins) == 0
    await fail(logins, 20)
    with pytest.raises(AuthenticationError, match="Missing"):
        await logins.authenticate(Headers({}), HERE)


async def test_malformed_credentials_are_attempts(logins: Logins) -> None:
    malformed = Headers({"authorization": "Bearer two words"})
    for kind in [AuthenticationError] * 5 + [RateLimitError] * 3:
        with pytest.raises(kind):
            await logins.authenticate(malformed, HERE)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "not-an:address", False),
    ],
)
async def test_of_ipv6_a_whole_network_is_one_address(logins: Logins, first: str, second: str, same: bool) -> None:
    await fail(logins, 5, first)
    assert await fail(logins, 1, second) == [RateLimitError if same else AuthenticationError]


async def test_only_so_many_addresses_are_remembered_and_old_ones_are_forgotten(logins: Logins, clock: Clock) -> None:
    addresses = (f"10.{a}.{b}.{c}" for a, b, c in itertools.product(range(2), range(256), range(256)))
    for address in itertools.islice(addresses, MAX_ADDRESSES + 50):
        await fail(logins, 1, address)
    assert len(logins) == MAX_ADDRESSES
    clock.now += 60
    for address in itertools.islice(addresses, 10):
        await fail(logins, 1, address)
    assert len(logins) == MAX_ADDRESSES - 10
