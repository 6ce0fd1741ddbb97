import asyncio
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.datastructures import Headers
from tests.auth.conftest import Clock
from typing_extensions import override

from antwort.auth import ApiKey, ApiKeyAuthenticator, KeyFile, hash_key
from antwort.auth.keys import Stamp
from antwort.context import Principal
from antwort.errors import AuthenticationError, ConfigError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATIN = st.characters(max_codepoint=255)


def bearer(token: str) -> Headers:
    return Headers({"authorization": f"Bearer {token}"})


def static(name: str, key: str) -> ApiKey:
    return ApiKey(id=name, hash=hash_key(key), tenant="acme", subject=name, created_at=NOW)


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


async def test_a_key_of_the_file_is_accepted_for_its_tenant_subject_and_scopes(file: KeyFile) -> None:
    kept, plaintext = file.new("acme", "bob", ["read"])
    principal = await ApiKeyAuthenticator(file=file).authenticate(bearer(plaintext))
    assert principal == Principal("acme", "bob", frozenset({"read"}), method="api_key", key_id=kept.id)


async def test_a_key_is_accepted_in_the_headers_other_clients_use(file: KeyFile) -> None:
    _, plaintext = file.new("acme")
    authenticator = ApiKeyAuthenticator(file=file)
    for name in ("x-api-key", "api-key"):
        assert await authenticator.authenticate(Headers({name: plaintext})) is not None


@pytest.mark.parametrize("key", ["sk-team-a", "a.b.c", "ak_short", "schlüssel", "ak_abcdefghij_" + "x" * 43])
async def test_a_key_of_the_configuration_may_be_any_string(key: str, file: KeyFile) -> None:
    authenticator = ApiKeyAuthenticator([static("team-a", key), static("team-b", "sk-team-b")], file)
    sent = Headers(raw=[(b"authorization", b"Bearer " + key.encode())])
    principal = await authenticator.authenticate(sent)
    assert principal is not None
    assert principal.key_id == "team-a"


async def test_whom_a_key_stands_for_is_known_by_its_id_as_long_as_it_is_in_force(file: KeyFile, clock: Clock) -> None:
    kept, _ = file.new("acme", "bob", ["read"])
    over, _ = file.new("acme", expires_at=NOW)
    authenticator = ApiKeyAuthenticator([static("team-a", "sk-team-a")], file, clock=clock, now=lambda: NOW)
    assert await authenticator.holder("acme", kept.id) == kept.principal()
    assert await authenticator.holder("acme", "team-a") == static("team-a", "sk-team-a").principal()
    for tenant, name in (("other", kept.id), ("acme", over.id), ("acme", "nobody")):
        assert await authenticator.holder(tenant, name) is None
    file.revoke(kept.id)
    clock.now += 1
    assert await authenticator.holder("acme", kept.id) is None


async def test_a_key_of_our_form_that_is_unknown_is_rejected_without_being_repeated(file: KeyFile) -> None:
    authenticator = ApiKeyAuthenticator(file=file)
    for key in ("ak_abcdefghij_" + "s" * 43, "ak_", "ak_abcdefghij", "ak_abcdefghij_short"):
        with pytest.raises(AuthenticationError, match="not valid") as caught:
            await authenticator.authenticate(bearer(key))
        assert "abcdefghij" not in caught.value.message


async def test_a_known_id_with_a_wrong_secret_is_rejected(file: KeyFile) -> None:
    _, plaintext = file.new("acme")
    wrong = plaintext[:-1] + ("A" if plaintext[-1] != "A" else "B")
    with pytest.raises(AuthenticationError, match="not valid"):
        await ApiKeyAuthenticator(file=file).authenticate(bearer(wrong))


async def test_an_unknown_key_is_compared_just_as_a_known_one(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(left: str, right: str) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr("hmac.compare_digest", compare)
    _, plaintext = file.new("acme")
    authenticator = ApiKeyAuthenticator(file=file)
    await authenticator.authenticate(bearer(plaintext))
    with pytest.raises(AuthenticationError):
        await authenticator.authenticate(bearer("ak_abcdefghij_" + "s" * 43))
    await authenticator.authenticate(bearer("sk-unknown"))
    assert len(compared) == 3


@pytest.mark.parametrize("token", ["eyJh.eyJp.c2ln", "sk-unknown", "x"])
async def test_what_is_not_one_of_our_keys_is_left_to_others(token: str, file: KeyFile) -> None:
    assert await ApiKeyAuthenticator([static("a", "sk-a")], file).authenticate(bearer(token)) is None


async def test_without_credentials_it_abstains(file: KeyFile) -> None:
    assert await ApiKeyAuthenticator(file=file).authenticate(Headers()) is None


async def test_a_key_is_accepted_until_it_expires(file: KeyFile) -> None:
    _, plaintext = file.new("acme", expires_at=NOW)
    before = ApiKeyAuthenticator(file=file, now=lambda: NOW - timedelta(microseconds=1))
    assert await before.authenticate(bearer(plaintext)) is not None
    with pytest.raises(AuthenticationError, match="expired"):
        await ApiKeyAuthenticator(file=file, now=lambda: NOW).authenticate(bearer(plaintext))


async def test_a_new_key_is_accepted_without_restart(file: KeyFile, clock: Clock) -> None:
    authenticator = ApiKeyAuthenticator([static("a", "sk-a")], file, clock=clock)
    _, first = file.new("acme")
    clock.advance(1)
    assert await authenticator.authenticate(bearer(first)) is not None
    _, second = file.new("acme")
    clock.advance(1)
    assert await authenticator.authenticate(bearer(second)) is not None
    assert await authenticator.authenticate(bearer("sk-a")) is not None
    assert authenticator.describe() == "API keys (3)"


async def test_a_revoked_key_is_refused_without_restart(file: KeyFile, clock: Clock) -> None:
    kept, plaintext = file.new("acme")
    authenticator = ApiKeyAuthenticator(file=file, clock=clock)
    assert await authenticator.authenticate(bearer(plaintext)) is not None
    file.revoke(kept.id)
    clock.advance(1)
    with pytest.raises(AuthenticationError, match="not valid"):
        await authenticator.authenticate(bearer(plaintext))


class CountingFile(KeyFile):
    stamps = 0
    reads = 0

    @override
    def stamp(self) -> Stamp | None:
        self.stamps += 1
        return super().stamp()

    @override
    def read(self) -> tuple[ApiKey, ...]:
        self.reads += 1
        return super().read()


async def test_the_file_is_looked_at_once_a_second_and_read_only_when_it_changed(tmp_path: Path, clock: Clock) -> None:
    file = CountingFile(tmp_path / "keys.json")
    _, plaintext = file.new("acme")
    authenticator = ApiKeyAuthenticator(file=file, clock=clock)
    file.stamps = file.reads = 0
    for _ in range(50):
        await authenticator.authenticate(bearer(plaintext))
    assert (file.stamps, file.reads) == (0, 0)
    clock.advance(1)
    await asyncio.gather(*(authenticator.authenticate(bearer(plaintext)) for _ in range(50)))
    assert (file.stamps, file.reads) == (1, 0)


async def test_looking_at_the_file_does_not_block_the_event_loop(file: KeyFile, clock: Clock) -> None:
    authenticator = ApiKeyAuthenticator(file=file, clock=clock)
    _, plaintext = await asyncio.to_thread(file.new, "acme")
    clock.advance(1)
    with blockbuster_ctx():
        assert await authenticator.authenticate(bearer(plaintext)) is not None


@pytest.mark.parametrize("damage", ["broken", "removed"])
async def test_while_the_file_cannot_be_read_the_last_keys_stay_and_one_error_is_logged(
    damage: str, file: KeyFile, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    _, plaintext = file.new("acme")
    good = file.path.read_bytes()
    authenticator = ApiKeyAuthenticator(file=file, clock=clock)
    if damage == "broken":
        file.path.write_text("{")
    else:
        file.path.unlink()
    for _ in range(3):
        clock.advance(1)
        assert await authenticator.authenticate(bearer(plaintext)) is not None
    errors = [entry for entry in caplog.records if entry.levelno == logging.ERROR]
    assert len(errors) == 1
    assert str(file.path) in errors[0].getMessage()
    file.path.write_bytes(good)
    _, second = file.new("acme")
    clock.advance(1)
    assert await authenticator.authenticate(bearer(second)) is not None
    file.path.write_text("{")
    clock.advance(1)
    assert await authenticator.authenticate(bearer(second)) is not None
    assert len([entry for entry in caplog.records if entry.levelno == logging.ERROR]) == 2


def test_a_file_that_is_broken_at_the_start_is_an_error(file: KeyFile) -> None:
    file.path.write_text("{")
    with pytest.raises(ConfigError, match=r"keys\.json"):
        ApiKeyAuthenticator(file=file)


def test_the_same_key_under_two_names_is_an_error_that_names_them_and_not_the_key() -> None:
    with pytest.raises(ConfigError, match="'a' and 'b' are the same key") as caught:
        ApiKeyAuthenticator([static("a", "sk-same"), static("b", "sk-same")])
    assert "sk-same" not in str(caught.value)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.text(LATIN) | st.from_regex(r"[Bb]earer (ak_)?[a-z2-7]{0,12}_?\S*", fullmatch=True, alphabet=LATIN))
def test_any_header_gives_a_principal_none_or_an_authentication_error(value: str, tmp_path: Path) -> None:
    authenticator = ApiKeyAuthenticator([static("a", "sk-a")], KeyFile(tmp_path / "keys.json"))
    try:
        result = asyncio.run(authenticator.authenticate(Headers({"authorization": value})))
    except AuthenticationError:
        return
    assert result is None or result.key_id == "a"
