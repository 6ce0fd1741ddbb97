from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from antwort.config import Config, LoadedConfig

Load = Callable[..., LoadedConfig]
Problems = Callable[..., list[str]]


def test_sections_and_top_level_keys_are_read(load: Load) -> None:
    config = load(
        None,
        {
            "ANTWORT_DATA_DIR": "/data",
            "ANTWORT_STRICT_NAMES": "true",
            "ANTWORT_LIMITS__PER_KEY__REQUESTS_PER_MINUTE": "60",
            "ANTWORT_SERVER__MAX_BODY_BYTES": "1MiB",
        },
    ).config

    assert config.data_dir == Path("/data")
    assert config.strict_names
    assert config.limits.per_key.requests_per_minute == 60
    assert config.server.max_body_bytes == 1024**2


@pytest.mark.parametrize("name", ["ANTWORT_SERVER__PORT", "antwort_server__port", "Antwort_Server__Port"])
def test_names_are_read_in_any_case(load: Load, name: str) -> None:
    loaded = load(None, {name: "1"})

    assert loaded.config.server.port == 1
    assert str(loaded.origin("server.port")) == f"environment {name}"


def test_what_kubernetes_injects_for_a_service_called_antwort_is_ignored(load: Load) -> None:
    environ = {
        "ANTWORT_SERVICE_HOST": "10.0.0.1",
        "ANTWORT_SERVICE_PORT": "8080",
        "ANTWORT_SERVICE_PORT_HTTP": "8080",
        "ANTWORT_PORT": "tcp://10.0.0.1:8080",
        "ANTWORT_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "ANTWORT_PORT_8080_TCP_PROTO": "tcp",
        "ANTWORT_SERVER_PORT": "tcp://10.0.0.2:8080",
        "ANTWORT": "x",
        "ANTWORT_": "x",
        "ANTWORTS__X": "x",
    }

    loaded = load(None, environ)
    assert (loaded.config, loaded.warnings) == (Config(), ())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ANTWORT_PORT", "ANTWORT_SERVER__PORT"),
        ("ANTWORT_SERVER_PORT", "ANTWORT_SERVER__PORT"),
        ("antwort_host", "ANTWORT_SERVER__HOST"),
        ("ANTWORT_LOG_LEVEL", "ANTWORT_OBSERVABILITY__LOG_LEVEL"),
        ("ANTWORT_STORAGE_URL", "ANTWORT_STORAGE__URL"),
        ("ANTWORT_LIMITS_PER_KEY_BURST", "ANTWORT_LIMITS__PER_KEY__BURST"),
        ("ANTWORT_BACKEND", "ANTWORT_BACKENDS__DEFAULT__URL"),
        ("ANTWORT_MODEL", "ANTWORT_ENGINE__DEFAULT_MODEL"),
        ("ANTWORT_BURST", "ANTWORT_LIMITS__PER_KEY__BURST or ANTWORT_LIMITS__PER_TENANT__BURST"),
    ],
)
def test_a_variable_that_lacks_its_section_is_named_with_the_right_one(load: Load, name: str, meant: str) -> None:
    loaded = load(None, {name: "9000"})
    assert loaded.config == Config()
    assert loaded.warnings == (f"environment {name}: it is not read; the name is {meant}",)


@pytest.mark.parametrize("name", ["ANTWORT_CONFIG_DIR", "ANTWORT_NO_PROBE", "ANTWORT_WEATHER_KEY", "ANTWORT_TIMEOUT_X"])
def test_a_variable_that_resembles_no_setting_is_somebody_elses(load: Load, name: str) -> None:
    assert load(None, {name: "1"}).warnings == ()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ANTWORT_SERVR__PORT", "servr: unknown key; did you mean 'server'?"),
        ("ANTWORT_SERVER__PRT", "server.prt: unknown key; did you mean 'port'?"),
        ("ANTWORT_SERVER__PORT__X", "server.port: input should be a valid integer"),
        ("ANTWORT_SERVER__", "fits no key; the form is ANTWORT_SECTION__KEY"),
        ("ANTWORT___PORT", "fits no key; the form is ANTWORT_SECTION__KEY"),
    ],
)
def test_a_name_with_two_underscores_that_fits_nothing_is_an_error(problems: Problems, name: str, message: str) -> None:
    [line] = problems(None, {name: "1"})

    assert line == f"environment {name}: {message}"


def test_an_empty_variable_counts_as_not_set(load: Load) -> None:
    environ = {"ANTWORT_SERVER__PORT": "", "ANTWORT_PLUGINS_DIR": "", "ANTWORT_SERVR__X": ""}

    assert load("server: {port: 5}", environ).config == Config.model_validate({"server": {"port": 5}})


def test_lists_and_mappings_are_yaml_or_json(load: Load) -> None:
    config = load(
        None,
        {
            "ANTWORT_SERVER__CORS_ORIGINS": "[https://a, https://b]",
            "ANTWORT_AUTH__API_KEYS": '[{"id": "ci", "hash": "h", "scopes": ["a"]}]',
            "ANTWORT_LIMITS": "{per_key: {requests_per_minute: 5}}",
            "ANTWORT_PROVIDERS": ' {"search": {"enabled": true, "sizes": [1, 2]}}',
        },
    ).config

    assert config.server.cors_origins == ["https://a", "https://b"]
    assert [(key.id, key.scopes) for key in config.auth.api_keys] == [("ci", ["a"])]
    assert config.limits.per_key.requests_per_minute == 5
    assert config.providers is not None
    assert config.providers["search"].enabled
    assert config.providers["search"].settings == {"sizes": [1, 2]}


def test_a_value_that_is_no_list_is_told_the_form(problems: Problems) -> None:
    environ = {"ANTWORT_SERVER__CORS_ORIGINS": "https://a", "ANTWORT_AUTH__API_KEYS__0__ID": "x"}

    plain, indexed = problems(None, environ)

    assert plain.endswith("server.cors_origins: input should be a valid list (got 'https://a'); write it as [a, b]")
    assert indexed == "environment ANTWORT_AUTH__API_KEYS__0__ID: auth.api_keys: input should be a valid list"


def test_a_broken_list_is_an_error_that_names_the_variable(problems: Problems) -> None:
    [line] = problems(None, {"ANTWORT_SERVER__CORS_ORIGINS": "[a, b"})

    assert line.startswith("environment ANTWORT_SERVER__CORS_ORIGINS: server.cors_origins: not valid YAML: ")


def test_brackets_in_a_text_stay_text(load: Load) -> None:
    jwt = {"ANTWORT_AUTH__JWT__ISSUER": "{i}", "ANTWORT_AUTH__JWT__AUDIENCE": "[a, b]"}
    config = load(
        None, {"ANTWORT_SERVER__HOST": "[::1]", "ANTWORT_PROVIDERS__X__SETTINGS__PASSWORD": "[p,", **jwt}
    ).config

    assert config.server.host == "[::1]"
    assert config.auth.jwt is not None
    assert config.auth.jwt.issuer == "{i}"
    assert config.auth.jwt.audience == ["a", "b"]
    assert config.providers is not None
    assert config.providers["x"].settings == {"password": "[p,"}


def test_settings_of_providers_are_reached_both_ways(load: Load) -> None:
    file = """
        providers:
          web_search:
            settings: {url: http://file, nested: {a: 1, b: 2}, apiKey: k}
          My-Provider:
            enabled: false
    """
    environ = {
        "ANTWORT_PROVIDERS__WEB_SEARCH__SETTINGS__URL": "http://environment",
        "ANTWORT_PROVIDERS__WEB_SEARCH__SETTINGS__NESTED__B": "3",
        "ANTWORT_PROVIDERS__WEB_SEARCH__MAX_RESULTS": "7",
        "ANTWORT_PROVIDERS__WEB_SEARCH__SETTINGS__APIKEY": "other",
        "ANTWORT_PROVIDERS__MY_PROVIDER__ENABLED": "true",
        "ANTWORT_PROVIDERS__NEW__ENABLED": "true",
    }
    loaded = load(file, environ)
    providers = loaded.config.providers

    assert providers is not None
    assert list(providers) == ["web_search", "My-Provider", "new"]
    assert providers["web_search"].settings == {
        "url": "http://environment",
        "nested": {"a": 1, "b": "3"},
        "apiKey": "other",
        "max_results": "7",
    }
    assert providers["My-Provider"].enabled
    assert providers["new"].enabled
    name = "ANTWORT_PROVIDERS__WEB_SEARCH__MAX_RESULTS"
    assert str(loaded.origin("providers.web_search.settings.max_results")) == f"environment {name}"
    assert str(loaded.origin("providers.web_search.settings.nested.a")) == "antwort.yaml:4"


def test_a_setting_beside_enabled_overrides_one_below_settings_of_the_file(load: Load) -> None:
    loaded = load("providers: {x: {settings: {url: a}}}", {"ANTWORT_PROVIDERS__X__URL": "b"})

    assert loaded.config.providers is not None
    assert loaded.config.providers["x"].settings == {"url": "b"}


def test_the_longer_name_wins_over_the_mapping_that_holds_it(load: Load) -> None:
    environ = {"ANTWORT_SERVER__PORT": "2", "ANTWORT_SERVER": "{port: 1, host: h}"}

    server = load(None, environ).config.server

    assert (server.port, server.host) == (2, "h")


def test_secrets_come_from_files_named_by_variables(load: Load) -> None:
    Path("key").write_text("ak-1\n")

    config = load(None, {"ANTWORT_AUTH__API_KEYS": "[{id: a, key_file: key}]"}).config

    assert config.auth.api_keys[0].key == SecretStr("ak-1")
