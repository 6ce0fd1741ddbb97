import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import jwt
import pytest
from blockbuster import blockbuster_ctx
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import Headers
from tests.auth.conftest import Clock, Issuer, public_jwk

from antwort.auth.jwt import JwtAuthenticator, may_follow
from antwort.config import JwtConfig
from antwort.context import Principal
from antwort.errors import AuthenticationError, ConfigError, ServiceUnavailableError

DISCOVERY = "/.well-known/openid-configuration"
LATIN = st.characters(max_codepoint=255)

Build = Callable[..., JwtAuthenticator]


def bearer(token: str) -> Headers:
    return Headers({"authorization": f"Bearer {token}"})


def encode(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def json_answer(document: Any) -> tuple[int, bytes, dict[str, str]]:
    return 200, json.dumps(document).encode(), {}


@pytest.fixture
async def build(issuer: Issuer, clock: Clock) -> AsyncIterator[Build]:
    """Build authenticators for the issuer, with some settings changed; all are closed at the end."""
    async with AsyncExitStack() as stack:

        def build(**changes: Any) -> JwtAuthenticator:
            config = JwtConfig.model_validate({"issuer": issuer.url, "audience": "antwort", **changes})
            authenticator = JwtAuthenticator(config, clock=clock)
            stack.push_async_callback(authenticator.close)
            return authenticator

        yield build


async def rejection(authenticator: JwtAuthenticator, token: str) -> str:
    with pytest.raises(AuthenticationError) as caught:
        await authenticator.authenticate(bearer(token))
    for part in token.split("."):
        assert not part or part not in caught.value.message
    return caught.value.message


# --- what is accepted ------------------------------------------------------------------------------------------------


async def test_a_token_is_accepted_with_keys_found_by_discovery(issuer: Issuer, build: Build) -> None:
    principal = await build().authenticate(bearer(issuer.token()))
    assert principal == Principal("acme", "alice", frozenset({"read", "write"}), method="jwt", key_id=None)
    assert issuer.hits == {DISCOVERY: 1, "/jwks": 1}


async def test_a_token_is_accepted_with_keys_from_a_url(issuer: Issuer, build: Build) -> None:
    issuer.answers["/keys"] = json_answer(issuer.jwks())
    assert await build(jwks_url=f"{issuer.url}/keys").authenticate(bearer(issuer.token())) is not None
    assert issuer.hits == {"/keys": 1}


async def test_a_token_is_accepted_with_keys_from_a_file(issuer: Issuer, build: Build, tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(issuer.jwks()))
    authenticator = build(issuer="urn:offline", jwks_file=path)
    assert await authenticator.authenticate(bearer(issuer.token(iss="urn:offline"))) is not None
    assert not issuer.hits


async def test_elliptic_curves_are_accepted(issuer: Issuer, build: Build) -> None:
    issuer.keys["curve"] = ec.generate_private_key(ec.SECP256R1())
    assert await build().authenticate(bearer(issuer.token("curve", algorithm="ES256"))) is not None


async def test_a_key_that_names_no_algorithm_serves_all_of_its_kind(issuer: Issuer, build: Build) -> None:
    authenticator = build(algorithms=["RS256", "PS256", "ES256"])
    for algorithm in ("RS256", "PS256"):
        assert await authenticator.authenticate(bearer(issuer.token(algorithm=algorithm))) is not None


async def test_a_token_without_a_key_id_is_checked_against_every_key(
    issuer: Issuer, build: Build, rsa_keys: list[rsa.RSAPrivateKey]
) -> None:
    issuer.keys["two"] = rsa_keys[1]
    token = jwt.encode(issuer.claims(), rsa_keys[1], "RS256")
    assert await build().authenticate(bearer(token)) is not None


async def test_one_of_several_audiences_is_enough(issuer: Issuer, build: Build) -> None:
    token = issuer.token(aud=["elsewhere", "antwort"])
    assert await build(audience=["antwort", "other"]).authenticate(bearer(token)) is not None


async def test_clocks_may_differ_by_the_leeway(issuer: Issuer, build: Build) -> None:
    now = time.time()
    authenticator = build(leeway=120)
    assert await authenticator.authenticate(bearer(issuer.token(exp=now - 60))) is not None
    assert await authenticator.authenticate(bearer(issuer.token(nbf=now + 60))) is not None


async def test_claims_may_be_nested_or_have_dots_in_their_name(issuer: Issuer, build: Build) -> None:
    claims: dict[str, Any] = {
        "realm": {"tenant": "deep"},
        "https://a.example/who": "eve",
        "access": {"roles": ["x", "y"]},
    }
    names = {"tenant_claim": "realm.tenant", "subject_claim": "https://a.example/who", "scope_claim": "access.roles"}
    principal = await build(**names).authenticate(bearer(issuer.token(**claims)))
    assert principal == Principal("deep", "eve", frozenset({"x", "y"}), method="jwt")


async def test_a_token_without_scopes_grants_nothing(issuer: Issuer, build: Build) -> None:
    principal = await build().authenticate(bearer(issuer.token(scope=None)))
    assert principal is not None
    assert not principal.grants("read")


async def test_scopes_of_the_configuration_are_granted_to_every_token(issuer: Issuer, build: Build) -> None:
    authenticator = build(scopes=["responses:*"])
    for scope, carried in ((None, {"responses:*"}), ("openid metrics", {"responses:*", "openid", "metrics"})):
        principal = await authenticator.authenticate(bearer(issuer.token(scope=scope)))
        assert principal is not None
        assert principal.scopes == carried
        assert principal.grants("responses:read")
        assert not principal.grants("conversations:read")


# --- what is left to others ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token", ["sk-1", "ak_abcdefghij_x", "a.b", "a.b.c.d", "a.b.c", "é.b.c", "W10.W10.x", "MQ.MQ.MQ"]
)
async def test_what_is_not_a_token_is_left_to_others(token: str, build: Build, issuer: Issuer) -> None:
    assert await build().authenticate(bearer(token)) is None
    assert not issuer.hits


@pytest.mark.parametrize("other", ["https://other.example", None])
async def test_a_token_of_another_issuer_is_left_to_others(other: str | None, build: Build, issuer: Issuer) -> None:
    assert await build().authenticate(bearer(issuer.token(iss=other))) is None
    assert not issuer.hits


async def test_without_credentials_it_abstains(build: Build) -> None:
    assert await build().authenticate(Headers()) is None


# --- what is rejected ------------------------------------------------------------------------------------------------


async def test_a_token_signed_with_the_public_key_as_a_shared_secret_is_rejected(
    issuer: Issuer, build: Build, rsa_keys: list[rsa.RSAPrivateKey]
) -> None:
    pem = rsa_keys[0].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{encode({'alg': 'HS256', 'kid': 'one'})}.{encode(issuer.claims())}"
    mac = base64.urlsafe_b64encode(hmac.new(pem, signed.encode(), hashlib.sha256).digest()).rstrip(b"=").decode()
    assert "algorithm" in await rejection(build(), f"{signed}.{mac}")


@pytest.mark.parametrize("algorithm", ["none", "None", "", None, ["RS256"], 1])
async def test_an_unsigned_token_is_rejected_before_anything_is_loaded(
    algorithm: Any, issuer: Issuer, build: Build
) -> None:
    token = f"{encode({'alg': algorithm, 'kid': 'one'})}.{encode(issuer.claims())}."
    assert "algorithm" in await rejection(build(), token)
    assert not issuer.hits


async def test_an_algorithm_that_is_not_allowed_is_rejected(issuer: Issuer, build: Build) -> None:
    assert "Sign it with ES256." in await rejection(build(algorithms=["ES256"]), issuer.token())


async def test_a_key_serves_only_the_algorithm_it_names(issuer: Issuer, build: Build) -> None:
    key = {**issuer.jwks()["keys"][0], "alg": "RS256"}
    issuer.answers["/jwks"] = json_answer({"keys": [key]})
    authenticator = build(algorithms=["RS256", "RS512"])
    assert await authenticator.authenticate(bearer(issuer.token())) is not None
    assert "key is not known" in await rejection(authenticator, issuer.token(algorithm="RS512"))


async def test_a_shared_secret_in_the_key_set_is_never_used(issuer: Issuer, build: Build) -> None:
    secret = base64.urlsafe_b64encode(b"s" * 32).decode().rstrip("=")
    issuer.answers["/jwks"] = json_answer({"keys": [{"kty": "oct", "kid": "one", "k": secret, "alg": "RS256"}]})
    with pytest.raises(ServiceUnavailableError, match="no key is usable"):
        await build().authenticate(bearer(issuer.token()))


async def test_a_token_signed_with_another_key_is_rejected(
    issuer: Issuer, build: Build, rsa_keys: list[rsa.RSAPrivateKey]
) -> None:
    forged = jwt.encode(issuer.claims(), rsa_keys[1], "RS256", headers={"kid": "one"})
    assert "signature" in await rejection(build(), forged)


async def test_a_token_with_a_key_of_its_own_in_the_header_is_rejected(
    issuer: Issuer, build: Build, rsa_keys: list[rsa.RSAPrivateKey]
) -> None:
    headers = {"kid": "mine", "jwk": public_jwk(rsa_keys[1]), "jku": f"{issuer.url}/mine"}
    assert "not known" in await rejection(build(), jwt.encode(issuer.claims(), rsa_keys[1], "RS256", headers=headers))
    assert "/mine" not in issuer.hits


async def test_a_token_whose_claims_were_changed_is_rejected(issuer: Issuer, build: Build) -> None:
    header, _, signature = issuer.token().split(".")
    changed = f"{header}.{encode(issuer.claims(tenant='globex'))}.{signature}"
    assert "signature" in await rejection(build(), changed)


async def test_a_key_that_is_too_short_is_not_trusted(issuer: Issuer, build: Build) -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    issuer.keys["weak"] = weak
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = issuer.token("weak")
    assert "too weak" in await rejection(build(), token)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, "no 'exp' claim"),
        ({"exp": "soon"}, "not valid"),
        ({"exp": float("inf")}, "not valid"),
        ({"nbf": 99999999999}, "not valid yet"),
        ({"iat": 99999999999}, "not valid yet"),
        ({"aud": "elsewhere"}, "wrong audience"),
        ({"aud": ["elsewhere"]}, "wrong audience"),
        ({"aud": 1}, "wrong audience"),
        ({"aud": None}, "no 'aud' claim"),
        ({"tenant": None}, "'tenant'"),
        ({"tenant": 7}, "'tenant'"),
        ({"tenant": ["acme"]}, "'tenant'"),
        ({"tenant": " "}, "'tenant'"),
        ({"sub": None}, "'sub'"),
        ({"sub": ""}, "'sub'"),
        ({"sub": 7}, "not valid"),
        ({"scope": 7}, "'scope'"),
        ({"scope": ["read", 7]}, "'scope'"),
    ],
)
async def test_a_token_with_wrong_claims_is_rejected_with_the_reason(
    changes: dict[str, Any], problem: str, issuer: Issuer, build: Build
) -> None:
    assert problem in await rejection(build(), issuer.token(**changes))


@pytest.mark.parametrize("claim", ["realm.tenant", "tenant.deeper", "realm"])
async def test_a_nested_claim_that_is_not_there_is_named(claim: str, issuer: Issuer, build: Build) -> None:
    assert f"'{claim}'" in await rejection(build(tenant_claim=claim), issuer.token(realm={"other": 1}))


# --- how keys are loaded ---------------------------------------------------------------------------------------------


async def test_keys_are_loaded_once_for_requests_that_come_together(issuer: Issuer, build: Build) -> None:
    authenticator = build()
    issuer.gate.clear()
    requests = [asyncio.create_task(authenticator.authenticate(bearer(issuer.token()))) for _ in range(20)]
    await asyncio.sleep(0)
    issuer.gate.set()
    assert None not in await asyncio.gather(*requests)
    assert issuer.hits["/jwks"] == 1


async def test_a_client_that_hangs_up_does_not_stop_the_load_for_the_others(issuer: Issuer, build: Build) -> None:
    authenticator = build()
    issuer.gate.clear()
    first, second = (asyncio.create_task(authenticator.authenticate(bearer(issuer.token()))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    issuer.gate.set()
    assert await second is not None
    assert issuer.hits["/jwks"] == 1


async def test_loading_keys_does_not_block_the_event_loop(issuer: Issuer, build: Build) -> None:
    authenticator, token = build(), issuer.token()
    with blockbuster_ctx():
        assert await authenticator.authenticate(bearer(token)) is not None


async def test_a_rotated_key_is_loaded_when_a_token_names_it(
    issuer: Issuer, build: Build, clock: Clock, rsa_keys: list[rsa.RSAPrivateKey]
) -> None:
    authenticator = build()
    assert await authenticator.authenticate(bearer(issuer.token())) is not None
    issuer.keys["two"] = rsa_keys[1]
    clock.advance(10)
    assert await authenticator.authenticate(bearer(issuer.token("two"))) is not None
    assert issuer.hits["/jwks"] == 2


async def test_a_key_the_issuer_withdrew_is_refused_after_the_refresh(
    issuer: Issuer, build: Build, clock: Clock, rsa_keys: list[rsa.RSAPrivateKey]
) -> None:
    authenticator, old = build(refresh=300), issuer.token()
    assert await authenticator.authenticate(bearer(old)) is not None
    issuer.keys = {"two": rsa_keys[1]}
    clock.advance(299)
    assert await authenticator.authenticate(bearer(old)) is not None
    clock.advance(1)
    assert "not known" in await rejection(authenticator, old)


async def test_a_storm_of_unknown_keys_makes_one_load_in_ten_seconds(
    issuer: Issuer, build: Build, clock: Clock, rsa_keys: list[rsa.RSAPrivateKey]
) -> None:
    authenticator = build()
    await authenticator.authenticate(bearer(issuer.token()))
    clock.advance(10)
    storm = [jwt.encode(issuer.claims(), rsa_keys[1], "RS256", headers={"kid": f"unknown {n}"}) for n in range(20)]
    for _ in range(3):
        requests = (authenticator.authenticate(bearer(token)) for token in storm)
        for outcome in await asyncio.gather(*requests, return_exceptions=True):
            assert isinstance(outcome, AuthenticationError)
    assert issuer.hits["/jwks"] == 2
    clock.advance(10)
    await rejection(authenticator, storm[0])
    assert issuer.hits["/jwks"] == 3
    assert await authenticator.authenticate(bearer(issuer.token())) is not None


async def test_when_a_refresh_fails_the_keys_of_before_stay_and_it_is_logged(
    issuer: Issuer, build: Build, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    authenticator = build(refresh=300)
    await authenticator.authenticate(bearer(issuer.token()))
    issuer.answers["/jwks"] = (500, b"secret trace", {})
    clock.advance(300)
    assert await authenticator.authenticate(bearer(issuer.token())) is not None
    assert "stay in force" in caplog.text
    assert "answered 500" in caplog.text
    assert "secret trace" not in caplog.text


async def test_an_issuer_that_failed_does_not_slow_down_tokens_with_known_keys(
    issuer: Issuer, build: Build, clock: Clock
) -> None:
    authenticator = build(refresh=300)
    await authenticator.authenticate(bearer(issuer.token()))
    issuer.answers["/jwks"] = (500, b"", {})
    clock.advance(300)
    await authenticator.authenticate(bearer(issuer.token()))
    issuer.gate.clear()  # from here on the issuer hangs: who waits for it, waits for ever
    clock.advance(10)
    assert await authenticator.authenticate(bearer(issuer.token())) is not None
    issuer.gate.set()


async def test_without_any_keys_the_answer_is_503_and_the_issuer_is_asked_again_later(
    issuer: Issuer, build: Build, clock: Clock
) -> None:
    authenticator = build()
    issuer.answers["/jwks"] = (500, b"", {})
    for _ in range(3):
        with pytest.raises(ServiceUnavailableError, match=r"keys are not available: the issuer answered 500") as caught:
            await authenticator.authenticate(bearer(issuer.token()))
        assert caught.value.headers["retry-after"] == "10"
        assert issuer.url not in caught.value.message
    assert issuer.hits["/jwks"] == 1
    del issuer.answers["/jwks"]
    clock.advance(10)
    assert await authenticator.authenticate(bearer(issuer.token())) is not None


@pytest.mark.parametrize(
    ("path", "answer", "problem"),
    [
        (DISCOVERY, (404, b"", {}), "answered 404"),
        (DISCOVERY, json_answer({"issuer": "https://other.example", "jwks_uri": "x"}), "another issuer"),
        (DISCOVERY, (302, b"", {"location": "file:///etc/passwd"}), "answered 302"),
        (DISCOVERY, (302, b"", {"location": "ftp://127.0.0.1/keys"}), "answered 302"),
        (DISCOVERY, (200, b"[]", {}), "not a JSON object"),
        ("/jwks", (200, b"<html>", {}), "not JSON"),
        ("/jwks", (200, b"[" * 100_000, {}), "not JSON"),
        ("/jwks", (200, b" " * (1 << 20) + b"{}", {}), "larger than"),
        ("/jwks", (200, b"{}", {"content-length": "nonsense"}), "cannot be reached"),
        ("/jwks", json_answer({"keys": []}), "no key is usable"),
        ("/jwks", json_answer({"keys": {"a": 1}}), "no key is usable"),
        ("/jwks", json_answer({"keys": [1, {}, {"kty": "RSA"}, {"kty": "RSA", "n": 1, "e": []}]}), "no key is usable"),
        ("/jwks", json_answer({"keys": [{"kty": ["RSA"]}, {"kty": "EC", "crv": "P-256"}]}), "no key is usable"),
    ],
)
async def test_an_issuer_that_answers_nonsense_gives_503_with_the_problem(
    path: str, answer: tuple[int, bytes, dict[str, str]], problem: str, issuer: Issuer, build: Build
) -> None:
    issuer.answers[path] = answer
    with pytest.raises(ServiceUnavailableError, match=problem):
        await build().authenticate(bearer(issuer.token()))


@pytest.mark.parametrize("url", [None, 7, "file:///etc/passwd", "ftp://127.0.0.1/keys", "/jwks"])
async def test_discovery_that_leads_off_the_web_is_refused(url: Any, issuer: Issuer, build: Build) -> None:
    issuer.answers[DISCOVERY] = json_answer({"issuer": issuer.url, "jwks_uri": url})
    with pytest.raises(ServiceUnavailableError, match="no usable 'jwks_uri'"):
        await build().authenticate(bearer(issuer.token()))


async def test_a_redirect_on_the_web_is_followed(issuer: Issuer, build: Build) -> None:
    issuer.answers["/moved"] = (302, b"", {"location": f"{issuer.url}/jwks"})
    assert await build(jwks_url=f"{issuer.url}/moved").authenticate(bearer(issuer.token())) is not None


async def test_an_issuer_nobody_answers_for_gives_503_and_its_url_is_logged_without_secrets(
    issuer: Issuer, build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    token = issuer.token()
    issuer.close()
    url = issuer.url.replace("http://", "http://user:hidden-1@") + "/keys?token=hidden-2"
    with pytest.raises(ServiceUnavailableError, match="cannot be reached"):
        await build(jwks_url=url).authenticate(bearer(token))
    assert f"{issuer.url}/keys" in caplog.text
    assert "hidden" not in caplog.text


async def test_an_issuer_that_hangs_gives_503(issuer: Issuer) -> None:
    issuer.gate.clear()
    authenticator = JwtAuthenticator(JwtConfig(issuer=issuer.url, audience="antwort"), timeout=0.05)
    with pytest.raises(ServiceUnavailableError, match="in time"):
        await authenticator.authenticate(bearer(issuer.token()))


async def test_an_issuer_whose_answer_trickles_without_end_gives_503(issuer: Issuer) -> None:
    config = JwtConfig(issuer=issuer.url, audience="antwort", jwks_url=f"{issuer.url}/trickle")
    with pytest.raises(ServiceUnavailableError, match="in time"):
        await JwtAuthenticator(config, timeout=0.1).authenticate(bearer(issuer.token()))


@pytest.mark.parametrize(
    ("origin", "url", "allowed"),
    [
        ("https://a.example", "https://b.example", True),
        ("https://a.example", "http://a.example", False),
        ("http://a.example", "https://a.example", True),
        ("http://a.example", "file:///etc/passwd", False),
        ("https://a.example", "", False),
    ],
)
def test_keys_that_are_fetched_encrypted_stay_encrypted(origin: str, url: str, allowed: bool) -> None:
    assert may_follow(origin, url) is allowed


async def test_closing_gives_up_a_load_that_is_under_way(issuer: Issuer, build: Build) -> None:
    authenticator = build()
    issuer.gate.clear()
    request = asyncio.create_task(authenticator.authenticate(bearer(issuer.token())))
    await asyncio.sleep(0)
    await authenticator.close()
    await asyncio.wait([request])
    assert request.cancelled()


# --- the configuration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, "{", "[]", '{"keys": []}'])
def test_a_file_of_keys_that_cannot_be_used_stops_the_start(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"jwks\.json.*JSON Web Key Set"):
        JwtAuthenticator(JwtConfig(issuer="urn:x", audience="antwort", jwks_file=path))


async def test_a_changed_file_of_keys_is_read_again(
    issuer: Issuer, build: Build, clock: Clock, tmp_path: Path, rsa_keys: list[rsa.RSAPrivateKey]
) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(issuer.jwks()))
    authenticator = build(jwks_file=path)
    issuer.keys["two"] = rsa_keys[1]
    path.write_text(json.dumps(issuer.jwks()))
    assert await authenticator.authenticate(bearer(issuer.token("two"))) is not None


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"issuer": "my-issuer"}, "auth.jwt.issuer"),
        ({"issuer": "x", "jwks_url": "file:///etc/keys"}, "auth.jwt.jwks_url"),
    ],
)
def test_keys_from_nowhere_stop_the_start(settings: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError, match="http or https URL") as caught:
        JwtAuthenticator(JwtConfig.model_validate({"audience": "antwort", **settings}))
    assert caught.value.where == where


def test_it_names_its_issuer() -> None:
    assert (
        JwtAuthenticator(JwtConfig(issuer="https://id.example", audience="a")).describe() == "JWT (https://id.example)"
    )


SEGMENT = st.from_regex(r"[A-Za-z0-9_-]{0,20}", fullmatch=True) | st.recursive(
    st.none() | st.integers() | st.text() | st.sampled_from(["urn:x", "RS256", "one"]),
    lambda inner: st.dictionaries(st.sampled_from(["alg", "kid", "iss", "crit", "b64", "exp", "aud"]), inner),
).map(encode)


@pytest.fixture(scope="module")
def offline(rsa_keys: list[rsa.RSAPrivateKey], tmp_path_factory: pytest.TempPathFactory) -> JwtAuthenticator:
    path = tmp_path_factory.mktemp("jwt") / "jwks.json"
    path.write_text(json.dumps({"keys": [{"kid": "one", **public_jwk(rsa_keys[0])}]}))
    return JwtAuthenticator(JwtConfig(issuer="urn:x", audience="antwort", jwks_file=path))


@settings(deadline=None)
@given(value=st.text(LATIN) | st.tuples(SEGMENT, SEGMENT, SEGMENT).map(lambda parts: f"Bearer {'.'.join(parts)}"))
def test_any_header_gives_none_or_an_authentication_error(value: str, offline: JwtAuthenticator) -> None:
    try:
        result = asyncio.run(offline.authenticate(Headers({"authorization": value})))
    except AuthenticationError:
        return
    assert result is None
