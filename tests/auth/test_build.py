import json
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from antwort.auth import (
    Chain,
    KeyFile,
    allowed_hosts,
    build_authenticator,
    check_bind,
    hash_key,
    is_anonymous,
    keys_file,
    shows_console,
)
from antwort.config import Config
from antwort.errors import AuthenticationError, ConfigError

JWT = {"issuer": "https://id.example", "audience": "antwort"}
KEY = {"id": "team-a", "key": "sk-team-a", "tenant": "acme"}


def config(tmp_path: Path, *, host: str = "127.0.0.1", allow_anonymous: bool = False, **auth: Any) -> Config:
    server = {"host": host, "allow_anonymous": allow_anonymous}
    return Config.model_validate({"data_dir": tmp_path / "data", "server": server, "auth": auth})


def bearer(token: str) -> Headers:
    return Headers({"authorization": f"Bearer {token}"})


async def refuses_everybody(chain: Chain) -> bool:
    with pytest.raises(AuthenticationError):
        await chain.authenticate(Headers())
    return True


async def test_without_anything_configured_everybody_is_anonymous(tmp_path: Path) -> None:
    chain = build_authenticator(config(tmp_path))
    assert (await chain.authenticate(Headers())).tenant == "default"
    assert chain.describe() == "none"


async def test_mode_none_ignores_keys_that_exist(tmp_path: Path) -> None:
    chain = build_authenticator(config(tmp_path, mode="none", api_keys=[KEY], jwt=JWT))
    assert (await chain.authenticate(Headers())).subject == "anonymous"


@pytest.mark.parametrize("mode", ["auto", "required"])
async def test_keys_of_the_configuration_are_accepted_and_nothing_else(mode: str, tmp_path: Path) -> None:
    chain = build_authenticator(config(tmp_path, mode=mode, api_keys=[KEY]))
    principal = await chain.authenticate(bearer("sk-team-a"))
    assert (principal.tenant, principal.subject, principal.key_id) == ("acme", "team-a", "team-a")
    assert await refuses_everybody(chain)
    assert chain.describe() == "API keys (1)"


async def test_a_key_may_be_configured_by_its_hash(tmp_path: Path) -> None:
    digest = hash_key("sk-team-a")
    for given in (digest, digest.upper()):
        chain = build_authenticator(config(tmp_path, api_keys=[{"id": "a", "hash": given, "scopes": ["read"]}]))
        assert (await chain.authenticate(bearer("sk-team-a"))).scopes == {"read"}


@pytest.mark.parametrize("mode", ["auto", "required"])
async def test_keys_of_the_file_are_accepted(mode: str, tmp_path: Path) -> None:
    settings = config(tmp_path, mode=mode)
    _, plaintext = KeyFile(tmp_path / "data" / "keys.json").new("acme")
    chain = build_authenticator(settings)
    assert (await chain.authenticate(bearer(plaintext))).tenant == "acme"
    assert await refuses_everybody(chain)


async def test_the_file_of_keys_may_be_elsewhere(tmp_path: Path) -> None:
    settings = config(tmp_path, keys_file=tmp_path / "elsewhere.json")
    _, plaintext = keys_file(settings).new("acme")
    assert (tmp_path / "elsewhere.json").exists()
    assert (await build_authenticator(settings).authenticate(bearer(plaintext))).tenant == "acme"


async def test_revoking_the_last_key_does_not_open_the_server(tmp_path: Path) -> None:
    settings = config(tmp_path)
    record, _ = keys_file(settings).new("acme")
    keys_file(settings).revoke(record.id)
    chain = build_authenticator(settings)
    assert await refuses_everybody(chain)
    assert chain.describe() == "API keys (0)"


async def test_a_link_to_a_file_of_keys_that_is_gone_does_not_open_the_server(tmp_path: Path) -> None:
    settings = config(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "keys.json").symlink_to(tmp_path / "gone.json")
    assert await refuses_everybody(build_authenticator(settings))


def test_a_folder_of_keys_one_cannot_look_into_does_not_open_the_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot look for the file of API keys"):
        build_authenticator(config(tmp_path, keys_file=tmp_path / ("x" * 300)))


def test_a_broken_file_of_keys_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "keys.json").write_text("{")
    with pytest.raises(ConfigError, match=r"keys\.json"):
        build_authenticator(config(tmp_path))


async def test_keys_and_tokens_are_both_accepted_when_both_are_configured(tmp_path: Path) -> None:
    chain = build_authenticator(config(tmp_path, api_keys=[KEY], jwt=JWT))
    assert chain.describe() == "API keys (1), JWT (https://id.example)"
    assert (await chain.authenticate(bearer("sk-team-a"))).tenant == "acme"
    await chain.close()


def test_authentication_that_is_required_but_impossible_stops_the_start_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="antwort keys new"):
        build_authenticator(config(tmp_path, mode="required"))


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"id": "a", "hash": "sha256:short"}, "hexadecimal"),
        ({"id": "a", "key": "sk secret-1"}, "blanks"),
        ({"id": "a", "key": "secret-1\n"}, "blanks"),
        ({"id": "a", "key": "secret-1", "subject": " "}, "subject"),
    ],
)
def test_a_key_that_could_not_work_stops_the_start_and_is_not_repeated(
    entry: dict[str, str], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        build_authenticator(config(tmp_path, api_keys=[entry]))
    assert caught.value.where == "auth.api_keys 'a'"
    assert "secret-1" not in str(caught.value)


def test_two_servers_in_one_process_share_nothing(tmp_path: Path) -> None:
    open_one = config(tmp_path / "one")
    closed_one = config(tmp_path / "two", api_keys=[KEY])
    assert [build_authenticator(each).describe() for each in (open_one, closed_one, open_one)] == [
        "none",
        "API keys (1)",
        "none",
    ]


# --- the check of the address ----------------------------------------------------------------------------------------


def resolve(name: str) -> list[str]:
    """Resolve the names of these tests, without a network."""
    return {
        "loop.example": ["127.0.0.1", "::1"],
        "elsewhere.example": ["192.0.2.7"],
        "both.example": ["127.0.0.1", "192.0.2.7"],
    }.get(name, [])


LOOPBACK = ["127.0.0.1", "127.8.9.10", "::1", "[::1]", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "localhost", "LocalHost"]
REACHABLE = ["0.0.0.0", "::", "[::]", "192.0.2.7", "::ffff:192.0.2.7", "10.0.0.1", "2001:db8::1", "fe80::1%eth0"]
NAMES = ["elsewhere.example", "both.example", "unknown.example", "127.0.0.1.example", "[]"]


@pytest.mark.parametrize("host", [*LOOPBACK, "loop.example"])
def test_an_anonymous_server_may_listen_where_only_this_machine_reaches_it(host: str, tmp_path: Path) -> None:
    check_bind(config(tmp_path, host=host), resolve=resolve)


@pytest.mark.parametrize("host", [*REACHABLE, *NAMES])
def test_an_anonymous_server_is_refused_where_others_can_reach_it(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        check_bind(config(tmp_path, host=host), resolve=resolve)
    message = str(caught.value)
    assert f"'{host}'" in message
    assert "antwort keys new" in message
    assert "--allow-anonymous" in message


def test_an_empty_host_means_every_address(tmp_path: Path) -> None:
    settings = config(tmp_path)
    everywhere = settings.model_copy(update={"server": settings.server.model_copy(update={"host": ""})})
    with pytest.raises(ConfigError, match="--allow-anonymous"):
        check_bind(everywhere, resolve=resolve)


def test_mode_none_is_told_that_keys_alone_would_not_help(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set 'auth\.mode' to 'auto' and create an API key"):
        check_bind(config(tmp_path, host="0.0.0.0", mode="none", api_keys=[KEY]))


def test_the_flag_allows_an_anonymous_server_anywhere(tmp_path: Path) -> None:
    check_bind(config(tmp_path, host="0.0.0.0", allow_anonymous=True))


@pytest.mark.parametrize("auth", [{"api_keys": [KEY]}, {"jwt": JWT}, {"mode": "required"}])
def test_a_server_with_authentication_may_listen_anywhere(auth: dict[str, Any], tmp_path: Path) -> None:
    check_bind(config(tmp_path, host="0.0.0.0", **auth))


def test_a_file_of_keys_without_keys_counts_as_authentication(tmp_path: Path) -> None:
    settings = config(tmp_path, host="0.0.0.0")
    assert is_anonymous(settings)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "keys.json").write_text(json.dumps({"version": 1, "keys": []}))
    assert not is_anonymous(settings)
    check_bind(settings)


def test_names_are_resolved_by_the_system(tmp_path: Path) -> None:
    check_bind(config(tmp_path, host="127.1"))
    with pytest.raises(ConfigError, match="--allow-anonymous"):
        check_bind(config(tmp_path, host="x" * 300))


# --- the hosts that are answered to ----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [*LOOPBACK, "loop.example"])
def test_an_anonymous_server_of_this_machine_answers_to_the_names_of_it_only(host: str, tmp_path: Path) -> None:
    found = allowed_hosts(config(tmp_path, host=host), resolve=resolve)
    assert found == ["localhost", "*.localhost", "127.0.0.0/8", "::1", host]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "elsewhere.example", "both.example"])
def test_where_others_can_reach_it_a_server_answers_to_all_names(host: str, tmp_path: Path) -> None:
    assert allowed_hosts(config(tmp_path, host=host, allow_anonymous=True), resolve=resolve) == []


@pytest.mark.parametrize("auth", [{"api_keys": [KEY]}, {"jwt": JWT}, {"mode": "required"}])
def test_a_server_with_authentication_answers_to_all_names(auth: dict[str, Any], tmp_path: Path) -> None:
    assert allowed_hosts(config(tmp_path, **auth)) == []


@pytest.mark.parametrize("auth", [{}, {"api_keys": [KEY]}])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_hosts_of_the_configuration_are_taken_as_they_are(host: str, auth: dict[str, Any], tmp_path: Path) -> None:
    settings = config(tmp_path, host=host, **auth)
    told = settings.server.model_copy(update={"allowed_hosts": ["api.example"]})
    assert allowed_hosts(settings.model_copy(update={"server": told})) == ["api.example"]


def test_the_console_is_shown_where_strangers_need_a_key_and_on_this_machine(tmp_path: Path) -> None:
    assert shows_console(config(tmp_path))
    assert shows_console(config(tmp_path, host="0.0.0.0", api_keys=[KEY]))
    assert not shows_console(config(tmp_path, host="0.0.0.0", allow_anonymous=True))
    assert not shows_console(config(tmp_path, host="0.0.0.0", allow_anonymous=True, mode="none", api_keys=[KEY]))
    off = config(tmp_path).server.model_copy(update={"console": False})
    assert not shows_console(config(tmp_path).model_copy(update={"server": off}))
