import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antwort.config import Config, LoadedConfig, Override
from antwort.config.secrets import MASK, is_secret_collection, is_secret_name, mask_urls

Load = Callable[..., LoadedConfig]


def _shown(loaded: LoadedConfig) -> dict[str, Any]:
    return {entry.key: entry.value for entry in loaded.entries()}


@pytest.mark.parametrize(
    "name",
    [
        "key", "api_key", "apiKey", "API_KEY", "apikey", "X-Api-Key", "OPENAI_API_KEY", "private_key", "secret",
        "client_secret", "token", "accessToken", "x-auth-token", "password", "dbpassword", "passwd", "pwd",
        "authorization", "Authorization", "credentials", "passphrase", "aws_secret_access_key",
    ],
)  # fmt: skip
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "max_tokens", "keys_file", "api_key_file", "token_url", "key_id", "public_key", "keyboard", "monkey",
        "secret_name", "password_hash", "url", "tokens", "bypass", "compass", "7",
    ],
)  # fmt: skip
def test_names_that_only_resemble_those_of_secrets_are_not_masked(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(("name", "expected"), [("tokens", True), ("api_keys", True), ("keys", True), ("urls", False)])
def test_collections_of_secrets_are_known(name: str, expected: bool) -> None:
    assert is_secret_collection(name) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgres://user:pw@host/db", f"postgres://user:{MASK}@host/db"),
        ("redis://:pw@host", f"redis://:{MASK}@host"),
        ("postgres://user:p@ss/w#rd@host/db", f"postgres://user:{MASK}@host/db"),
        ("amqp://u:123@host", f"amqp://u:{MASK}@host"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
        ("http://host:8080", "http://host:8080"),
        ("http://[::1]:8080/a@b", "http://[::1]:8080/a@b"),
        ("http://user@host/", "http://user@host/"),
        ("http://host/?q=1&api_key=abc&max_tokens=5", f"http://host/?q=1&api_key={MASK}&max_tokens=5"),
        ("someone@example.org", "someone@example.org"),
        ("user:pw@host", f"user:{MASK}@host"),
        ("user:p@ss/w#rd@host:6333/a", f"user:{MASK}@host:6333/a"),
        ("//user:pw@host", f"//user:{MASK}@host"),
        ("it is 'user:pw@host'", f"it is 'user:{MASK}@host'"),
        ("host:8080/a@b", "host:8080/a@b"),
        ("see providers.x: someone@example.org", "see providers.x: someone@example.org"),
    ],
)
def test_passwords_in_urls_are_masked(text: str, expected: str) -> None:
    assert mask_urls(text) == expected


def test_every_leaf_is_shown_with_its_origin(load: Load) -> None:
    file = "server:\n  port: 1\n  host: h\nauth:\n  api_keys:\n    - id: a\n      key: s3cret\n"
    environ = {"ANTWORT_SERVER__HOST": "e"}
    loaded = load(file, environ, Override("observability.log_level", "debug", "--log-level"))

    shown = {entry.key: (entry.value, str(entry.origin)) for entry in loaded.entries()}

    assert shown["data_dir"] == (".antwort", "default")
    assert shown["server.port"] == (1, "antwort.yaml:2")
    assert shown["server.host"] == ("e", "environment ANTWORT_SERVER__HOST")
    assert shown["server.cors_origins"] == ([], "default")
    assert shown["observability.log_level"] == ("debug", "flag --log-level")
    assert shown["auth.api_keys.0.id"] == ("a", "antwort.yaml:6")
    assert shown["auth.api_keys.0.key"] == (MASK, "antwort.yaml:7")
    assert shown["auth.api_keys.0.tenant"] == ("default", "default")
    assert shown["limits.per_key.requests_per_minute"] == (None, "default")
    assert shown["providers"] == (None, "default")


def test_without_a_file_every_field_is_shown_as_default() -> None:
    entries = LoadedConfig(Config()).entries()

    assert {str(entry.origin) for entry in entries} == {"default"}
    assert [entry.key for entry in entries[:4]] == ["data_dir", "plugins_dir", "strict_names", "server.host"]


def test_a_secret_from_a_file_has_the_origin_of_the_key_that_named_the_file(load: Load) -> None:
    Path("key").write_text("s3cret")
    loaded = load("auth:\n  api_keys:\n    - id: a\n      key_file: key\n")

    [entry] = [entry for entry in loaded.entries() if entry.key == "auth.api_keys.0.key"]

    assert (entry.value, str(entry.origin)) == (MASK, "antwort.yaml:4")


def test_secrets_in_the_raw_settings_of_providers_are_masked(load: Load) -> None:
    file = """
        providers:
          x:
            api_key: s3cret
            password: 53035
            api_key_file: /run/key
            max_tokens: 512
            token: null
            url: http://user:s3cret@host
            headers: {Authorization: Bearer s3cret, Accept: text}
            tokens: [s3cret, s3cret]
            credentials: {user: s3cret, more: [{deep: s3cret}]}
            urls: ["http://a:s3cret@b", "http://c"]
            empty: {}
            none: []
    """
    prefix = "providers.x.settings."
    shown = {k.removeprefix(prefix): v for k, v in _shown(load(file)).items() if k.startswith(prefix)}

    assert shown == {
        "api_key": MASK,
        "password": MASK,
        "api_key_file": "/run/key",
        "max_tokens": 512,
        "token": None,
        "url": f"http://user:{MASK}@host",
        "headers.Authorization": MASK,
        "headers.Accept": MASK,
        "tokens": [MASK, MASK],
        "credentials.user": MASK,
        "credentials.more.0.deep": MASK,
        "urls": [f"http://a:{MASK}@b", "http://c"],
        "empty": {},
        "none": [],
    }


def test_values_from_variables_with_the_name_of_a_secret_are_masked(load: Load) -> None:
    file = """
        server:
          host: ${HOST}
          cors_origins: ["${HOST}", "${MY_TOKEN}"]
        providers:
          x: {header: "Bearer ${MY_TOKEN}", size: "${MAX_TOKENS}"}
    """
    shown = _shown(load(file, {"HOST": "h", "MY_TOKEN": "s3cret", "MAX_TOKENS": "5"}))

    assert shown["server.host"] == "h"
    assert shown["server.cors_origins"] == ["h", MASK]
    assert shown["providers.x.settings.header"] == MASK
    assert shown["providers.x.settings.size"] == "5"


def test_headers_of_backends_are_shown_by_their_names_alone(load: Load) -> None:
    shown = _shown(load("backends: {main: {url: 'http://m/v1', headers: {X-Gateway: s3cret, X-Team: blue}}}"))

    assert shown["backends.main.headers.X-Gateway"] == MASK
    assert shown["backends.main.headers.X-Team"] == MASK


def test_a_provider_with_the_name_of_a_secret_is_not_masked(load: Load) -> None:
    shown = _shown(load("providers: {token: {enabled: true, url: u}, credentials: {}}"))

    assert shown["providers.token.enabled"] is True
    assert shown["providers.token.settings.url"] == "u"
    assert shown["providers.credentials.enabled"] is False


def test_what_is_shown_can_be_printed_as_json(load: Load) -> None:
    loaded = load("data_dir: /x\nproviders: {x: {a: [1, {b: null}], c: 1.5}}\n")

    assert json.loads(json.dumps(_shown(loaded))) == _shown(loaded)


def test_reprs_of_what_was_loaded_hold_no_secret(load: Load) -> None:
    loaded = load("auth: {api_keys: [{id: a, key: s3cret}]}\nproviders: {x: {api_key: s3cret}}\n")

    assert "s3cret" not in repr(loaded)
    assert "s3cret" not in repr(loaded.entries())
