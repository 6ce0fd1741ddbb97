import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Cli = Callable[..., Result]


@pytest.fixture
def _sources(config: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    config(
        """
        server:
          port: 9000
          shutdown_timeout: 90
        storage:
          keep: {responses: 720h}
        auth:
          api_keys:
            - id: ci
              key: a-very-secret-key
        providers:
          basics:
            enabled: false
            api_token: another-secret
        """
    )
    monkeypatch.setenv("ANTWORT_SERVER__MAX_BODY_BYTES", "1MiB")


@pytest.mark.usefixtures("_sources")
def test_every_value_is_shown_with_its_origin(cli: Cli) -> None:
    result = cli("config", "show", "--data-dir", "elsewhere")
    assert result.exit_code == 0
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in result.stdout.splitlines()}
    assert rows["KEY"] == ["VALUE", "ORIGIN"]
    assert rows["data_dir"] == ["elsewhere", "flag --data-dir"]
    assert rows["server.port"] == ["9000", "antwort.yaml:3"]
    assert rows["server.max_body_bytes"] == ["1048576", "environment ANTWORT_SERVER__MAX_BODY_BYTES"]
    assert rows["server.host"] == ["127.0.0.1", "default"]
    assert rows["plugins_dir"] == ["null", "default"]
    assert rows["storage.keep.responses"] == ["30d", "antwort.yaml:6"]
    assert rows["server.shutdown_timeout"] == ["90s", "antwort.yaml:4"]
    assert rows["engine.deadline"] == ["1h", "default"]


@pytest.mark.usefixtures("_sources")
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_secrets_are_masked(cli: Cli, form: list[str]) -> None:
    result = cli("config", "show", *form)
    assert "secret" not in result.output
    assert "***" in result.stdout
    assert "auth.api_keys.0.key" in result.stdout


@pytest.mark.usefixtures("_sources")
def test_as_json_values_keep_their_types(cli: Cli) -> None:
    rows = {row["key"]: row for row in json.loads(cli("config", "show", "--json").stdout)}
    assert rows["server.port"] == {"key": "server.port", "value": 9000, "origin": "antwort.yaml:3"}
    assert rows["plugins_dir"]["value"] is None
    assert rows["storage.keep.responses"]["value"] == 2_592_000


def test_durations_that_are_shown_can_be_given_again(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTWORT_STORAGE__KEEP__EVENTS", "36h")
    monkeypatch.setenv("ANTWORT_FUNCTIONS__GRACE", "35ms")
    shown = {line.split()[0]: line.split()[1] for line in cli("config", "show").stdout.splitlines()[1:]}
    given = {key: value for key, value in shown.items() if re.fullmatch(r"\d+(ms|[smhd])", value)}
    assert len(given) > 15
    for key, value in given.items():
        monkeypatch.setenv(f"ANTWORT_{key.replace('.', '__').upper()}", value)
    again = {line.split()[0]: line.split()[1] for line in cli("config", "show").stdout.splitlines()[1:]}
    assert again == shown


def test_a_flag_wins_over_the_file_and_a_named_file_over_the_one_in_the_folder(
    cli: Cli, config: Callable[[str], Path]
) -> None:
    config("data_dir: from-default-file\n")
    Path("other.yaml").write_text("data_dir: from-other-file\n", encoding="utf-8")
    rows = {row["key"]: row for row in json.loads(cli("config", "show", "--json", "--config", "other.yaml").stdout)}
    assert (rows["data_dir"]["value"], rows["data_dir"]["origin"]) == ("from-other-file", "other.yaml:1")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("server:\n  prot: 1\n", "antwort.yaml:2: server.prot: unknown key; did you mean 'port'?"),
        ("server: [\n", "antwort.yaml:2: not valid YAML: "),
        ("- a\n", "antwort.yaml:1: the configuration must be a mapping of keys to values"),
    ],
)
def test_a_bad_file_is_one_line_with_the_place(
    refused: Callable[..., str], config: Callable[[str], Path], text: str, line: str
) -> None:
    config(text)
    assert refused("config", "show").startswith(line)


def test_a_file_that_is_missing_is_named(refused: Callable[..., str]) -> None:
    assert refused("config", "show", "--config", "no.yaml") == "no.yaml: the configuration file does not exist"
