import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import Headers
from typing_extensions import override

from antwort.auth import Anonymous, Authenticator, Chain, credential
from antwort.context import Principal
from antwort.errors import AuthenticationError


class Fixed:
    """An authenticator with one answer, which counts how often it is asked."""

    def __init__(self, answer: Principal | AuthenticationError | None) -> None:
        self.answer = answer
        self.asked = 0
        self.closed = False

    async def authenticate(self, headers: Headers, /) -> Principal | None:
        self.asked += 1
        if isinstance(self.answer, AuthenticationError):
            raise self.answer
        return self.answer

    async def holder(self, tenant: str, key_id: str, /) -> Principal | None:
        known = self.answer if isinstance(self.answer, Principal) else None
        return known if known is not None and (known.tenant, known.key_id) == (tenant, key_id) else None

    def describe(self) -> str:
        return "fixed"

    async def close(self) -> None:
        self.closed = True


class Unclosable(Fixed):
    @override
    async def close(self) -> None:
        raise RuntimeError("cannot close")


ALICE = Principal("acme", "alice")
BOB = Principal("acme", "bob")


@pytest.mark.parametrize(
    "value", ["Bearer secret-1", "bearer secret-1", "BEARER secret-1", "Bearer   secret-1", "  Bearer secret-1  "]
)
def test_the_bearer_token_is_read_whatever_the_case_of_its_scheme(value: str) -> None:
    assert credential(Headers({"authorization": value})) == "secret-1"


@pytest.mark.parametrize("name", ["x-api-key", "api-key", "X-API-Key", "Api-Key"])
def test_a_key_in_a_header_of_its_own_is_read(name: str) -> None:
    assert credential(Headers({name: "secret-1"})) == "secret-1"


def test_the_bearer_token_goes_before_the_key_header() -> None:
    assert credential(Headers({"x-api-key": "two", "authorization": "Bearer one"})) == "one"


def test_a_key_header_is_read_beside_another_scheme() -> None:
    assert credential(Headers({"x-api-key": "two", "authorization": "Basic b25l"})) == "two"


@pytest.mark.parametrize("headers", [{}, {"authorization": "Basic b25l"}, {"x-api-key": "  "}])
def test_without_a_token_or_key_there_is_no_credential(headers: dict[str, str]) -> None:
    assert credential(Headers(headers)) is None


@pytest.mark.parametrize(
    "value", ["", " ", "Bearer", "Bearer ", "secret-1", "Bearer secret-1 more", "Bearer secret-1\tx"]
)
def test_a_malformed_header_is_a_clear_401_that_does_not_repeat_it(value: str) -> None:
    with pytest.raises(AuthenticationError, match=r"malformed.*Authorization: Bearer") as caught:
        credential(Headers({"authorization": value}))
    assert "secret-1" not in str(caught.value)


def test_two_authorization_headers_are_refused() -> None:
    raw = [(b"authorization", b"Bearer one"), (b"authorization", b"Bearer two")]
    with pytest.raises(AuthenticationError, match="more than one"):
        credential(Headers(raw=raw))


async def test_the_first_principal_wins_and_ends_the_search() -> None:
    first, second, third = Fixed(None), Fixed(ALICE), Fixed(BOB)
    assert await Chain([first, second, third]).authenticate(Headers()) is ALICE
    assert (first.asked, second.asked, third.asked) == (1, 1, 0)


async def test_a_rejection_ends_the_search() -> None:
    second = Fixed(BOB)
    with pytest.raises(AuthenticationError, match="no good"):
        await Chain([Fixed(AuthenticationError("no good")), second]).authenticate(Headers())
    assert second.asked == 0


async def test_missing_credentials_are_told_from_refused_ones() -> None:
    chain = Chain([Fixed(None)])
    with pytest.raises(AuthenticationError) as missing:
        await chain.authenticate(Headers())
    assert missing.value.message == "Missing credentials. Send 'Authorization: Bearer <API key>'."
    assert missing.value.headers["www-authenticate"] == "Bearer"
    for headers in ({"authorization": "Bearer secret-1"}, {"x-api-key": "secret-1"}, {"api-key": "secret-1"}):
        with pytest.raises(AuthenticationError, match="credentials are not accepted") as refused:
            await chain.authenticate(Headers(headers))
        assert "secret-1" not in refused.value.message


async def test_all_are_closed_although_one_fails_to() -> None:
    first, last = Fixed(None), Fixed(None)
    with pytest.raises(RuntimeError, match="cannot close"):
        await Chain([first, Unclosable(None), last]).close()
    assert first.closed
    assert last.closed


async def test_anonymous_accepts_everybody_as_one_caller_even_with_a_malformed_header() -> None:
    anonymous: Authenticator = Anonymous()
    principal = await anonymous.authenticate(Headers({"authorization": "nonsense"}))
    assert principal == Principal("default", "anonymous", frozenset({"*"}), method="none", key_id=None)
    assert anonymous.describe() == "none"
    await anonymous.close()


@settings(deadline=None)
@given(st.text(st.characters(max_codepoint=255)))
def test_any_header_gives_a_token_nothing_or_an_authentication_error(value: str) -> None:
    try:
        token = credential(Headers({"authorization": value}))
    except AuthenticationError as error:
        assert error.message == "The Authorization header is malformed. Send 'Authorization: Bearer <API key>'."  # noqa: PT017
    else:
        assert token is None or (token and token in value)


async def test_a_chain_knows_the_keys_of_all_its_authenticators() -> None:
    key = Principal("acme", "eve", method="api_key", key_id="k1")
    chain = Chain([Anonymous(), Fixed(ALICE), Fixed(key)])
    assert await chain.holder("acme", "k1") == key
    assert [await chain.holder("acme", "k2"), await chain.holder("other", "k1")] == [None, None]
