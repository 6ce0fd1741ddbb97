import os
from collections.abc import Callable
from pathlib import Path

import pytest

from antwort.config import Config, LoadedConfig, Override, load_config
from antwort.errors import ConfigError

Load = Callable[..., LoadedConfig]
Problems = Callable[..., list[str]]


def test_nothing_given_loads_the_defaults(load: Load) -> None:
    loaded = load()

    assert loaded == LoadedConfig(Config())
    assert loaded.path is None
    assert str(loaded.origin("server.port")) == "default"


def test_flag_over_environment_over_file_over_default(load: Load) -> None:
    file = "server: {port: 1, host: a, shutdown_timeout: 1}"
    environ = {"ANTWORT_SERVER__PORT": "2", "ANTWORT_SERVER__HOST": "b"}

    loaded = load(file, environ, Override("server.port", 3, "--port"))

    server = loaded.config.server
    assert (server.port, server.host, server.shutdown_timeout, server.protect_metrics) == (3, "b", 1.0, False)
    keys = ["port", "host", "shutdown_timeout"]
    assert [str(loaded.origin(f"server.{key}")) for key in keys] == [
        "flag --port",
        "environment ANTWORT_SERVER__HOST",
        "antwort.yaml:1",
    ]


def test_a_flag_that_was_not_given_changes_nothing(load: Load) -> None:
    loaded = load("server: {port: 1}", {}, Override("server.port", None, "--port"))

    assert loaded.config.server.port == 1
    assert str(loaded.origin("server.port")) == "antwort.yaml:1"


def test_lists_are_replaced_not_joined(load: Load) -> None:
    file = """
        auth:
          api_keys:
            - {id: a, hash: x}
            - {id: b, hash: y}
    """
    loaded = load(file, {"ANTWORT_AUTH__API_KEYS": "[{id: c, hash: z}]"})

    assert [key.id for key in loaded.config.auth.api_keys] == ["c"]
    assert str(loaded.origin("auth.api_keys.0.id")) == "environment ANTWORT_AUTH__API_KEYS"
    assert "auth.api_keys.1" not in loaded.origins


def test_a_secret_of_a_higher_source_replaces_the_secret_file_of_a_lower_one(load: Load, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file")
    file = """
        providers:
          search:
            api_key: inline
            password_file: /nowhere
            key_file: /kept
            cert: c
    """
    environ = {
        "ANTWORT_PROVIDERS__SEARCH__API_KEY_FILE": "secret",
        "ANTWORT_PROVIDERS__SEARCH__PASSWORD": "p",
        "ANTWORT_PROVIDERS__SEARCH__CERT_FILE": "both may be settings",
    }

    providers = load(file, environ).config.providers

    assert providers is not None
    assert providers["search"].settings == {
        "key_file": "/kept",
        "cert": "c",
        "api_key_file": "secret",
        "password": "p",
        "cert_file": "both may be settings",
    }


def test_the_file_named_by_the_caller_wins_over_the_variable(load: Load, tmp_path: Path) -> None:
    given, named = tmp_path / "given.yaml", tmp_path / "named.yaml"
    given.write_text("server: {port: 1}")
    named.write_text("server: {port: 2}")
    Path("antwort.yaml").write_text("server: {port: 3}")
    environ = {"ANTWORT_CONFIG": str(named)}

    assert load_config(given, environ=environ).config.server.port == 1
    assert load_config(str(given), environ=environ).config.server.port == 1
    assert load_config(environ=environ).config.server.port == 2
    assert load_config(environ={}).config.server.port == 3
    assert load_config(environ={"ANTWORT_CONFIG": ""}).config.server.port == 3
    assert load_config(environ=environ).path == named


def test_the_environment_of_the_process_is_the_default(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTWORT_SERVER__PORT", "9001")

    assert load_config().config.server.port == 9001


@pytest.mark.parametrize("environ", [{}, {"ANTWORT_CONFIG": "missing.yaml"}])
def test_a_file_that_was_asked_for_must_exist(load: Load, environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"^missing.yaml: the configuration file does not exist$"):
        load_config(None if environ else Path("missing.yaml"), environ=environ)


def test_a_directory_is_not_a_file(load: Load) -> None:
    Path("antwort.yaml").mkdir()

    with pytest.raises(ConfigError, match=r"^antwort.yaml: .* is a directory$"):
        load()


def test_a_file_that_cannot_be_opened_says_why(load: Load) -> None:
    Path("loop.yaml").symlink_to("loop.yaml")

    with pytest.raises(ConfigError, match=r"^loop.yaml: .* cannot be read: .*symbolic links"):
        load_config(Path("loop.yaml"), environ={})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(Path("a\0b"), environ={})


def test_a_file_may_be_a_pipe(load: Load) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"server: {port: 7}")
    os.close(writing)
    try:
        assert load_config(Path(f"/dev/fd/{reading}"), environ={}).config.server.port == 7
    finally:
        os.close(reading)


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(problems: Problems) -> None:
    file = """\
        observability:
          log_level: loud
        server:
          port: ${PORT}
          hots: x
        data_dir: a
        data_dir: b
    """
    environ = {"ANTWORT_FUNCTIONS__THREADS": "0"}

    assert problems(file, environ, Override("limits.per_key.burst", 0, "--burst")) == [
        "antwort.yaml:2: observability.log_level: input should be 'debug', 'info', 'warning' or 'error' (got 'loud')",
        "antwort.yaml:4: server.port: the environment variable in ${PORT} is not set; set it or give a default",
        "antwort.yaml:5: server.hots: unknown key; did you mean 'host'?",
        "antwort.yaml:7: data_dir: given twice, on lines 6 and 7",
        "environment ANTWORT_FUNCTIONS__THREADS: functions.threads: input should be greater than 0 (got '0')",
        "flag --burst: limits.per_key.burst: input should be greater than 0 (got 0)",
    ]


def test_a_loaded_config_cannot_be_changed(load: Load) -> None:
    with pytest.raises(AttributeError):
        load().path = Path("x")  # type: ignore[misc]


def test_two_configurations_live_side_by_side(load: Load) -> None:
    one, two = load("server: {port: 1}"), load("server: {port: 2}")

    assert (one.config.server.port, two.config.server.port) == (1, 2)


def test_the_origin_of_a_key_that_was_not_given_is_that_of_the_nearest_around_it(load: Load) -> None:
    loaded = load("auth:\n  api_keys:\n    - id: a\n      hash: h\n", {"ANTWORT_LIMITS__PER_KEY__BURST": ""})

    assert str(loaded.origin("auth.api_keys.0.tenant")) == "antwort.yaml:3"
    assert str(loaded.origin("auth.mode")) == "antwort.yaml:1"
    assert str(loaded.origin("limits.per_key")) == "default"


def test_the_origin_of_a_section_made_by_a_variable_is_the_variable(load: Load) -> None:
    loaded = load(None, {"ANTWORT_SERVER__PORT": "1"})

    assert str(loaded.origin("server")) == "environment ANTWORT_SERVER__PORT"
