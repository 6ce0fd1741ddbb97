import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Cli = Callable[..., Result]
Write = Callable[[str], Path]
Plugin = Callable[[str, str], None]


def test_every_part_that_works_has_its_line(cli: Cli, config: Write) -> None:
    config("server:\n  port: 0\n")
    result = cli("check")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "ok  configuration: antwort.yaml",
        "ok  authentication: none",
        "ok  provider basics: calculate, current_time",
    ]


def test_as_json_it_is_one_object(cli: Cli) -> None:
    assert json.loads(cli("check", "--json").stdout) == {
        "ok": True,
        "parts": {
            "configuration": "defaults",
            "authentication": "none",
            "provider basics": "calculate, current_time",
        },
        "problems": [],
    }


def test_all_problems_of_the_file_are_shown_one_line_each(cli: Cli, config: Write) -> None:
    config("server:\n  prot: 1\n  port: 70000\n")
    result = cli("check")
    assert (result.exit_code, result.stdout) == (2, "")
    first, second = result.stderr.splitlines()
    assert first == "antwort: antwort.yaml:2: server.prot: unknown key; did you mean 'port'?"
    assert second.startswith("antwort: antwort.yaml:3: server.port: ")


def test_problems_as_json_have_their_place(cli: Cli, config: Write) -> None:
    config("server:\n  prot: 1\n")
    result = cli("check", "--json")
    assert (result.exit_code, result.stderr) == (2, "")
    answer = json.loads(result.stdout)
    assert answer["ok"] is False
    assert answer["problems"] == [
        {"where": "antwort.yaml:2", "message": "server.prot: unknown key; did you mean 'port'?"}
    ]


def test_problems_of_several_parts_are_found_in_one_run(cli: Cli, config: Write, plugin: Plugin) -> None:
    config(
        """
        plugins_dir: plugins
        server:
          host: 192.0.2.1
        auth:
          mode: none
        providers:
          web_serch:
            enabled: true
          basics:
            enabled: true
            colour: red
        """
    )
    plugin(
        "broken", "class Broken(Provider):\n    def __init__(self, settings):\n        raise ValueError('no luck')\n"
    )
    result = cli("check")
    assert (result.exit_code, result.stdout) == (2, "ok  configuration: antwort.yaml\n")
    lines = result.stderr.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("antwort: server.host: Other machines can reach '192.0.2.1'")
    assert lines[1].startswith("antwort: antwort.yaml:8: providers.web_serch: unknown provider type; did you mean")
    assert lines[2].startswith("antwort: antwort.yaml:12: providers.basics.settings.colour: unknown key")
    assert lines[3].endswith("providers.broken: plugins/broken.py cannot be loaded: ValueError: no luck")


def test_a_provider_is_started_and_closed(cli: Cli, plugin: Plugin) -> None:
    plugin(
        "resource",
        """
        from pathlib import Path

        class Resource(Provider):
            async def lifespan(self):
                Path("trace").write_text("opened")
                yield
                Path("trace").write_text(Path("trace").read_text() + " closed")
        """,
    )
    result = cli("check", "--plugins-dir", "plugins")
    assert "ok  provider resource: no functions" in result.stdout.splitlines()
    assert Path("trace").read_text(encoding="utf-8") == "opened closed"


def test_a_provider_that_does_not_start_is_one_line(cli: Cli, plugin: Plugin) -> None:
    plugin(
        "broken",
        """
        class Broken(Provider):
            async def lifespan(self):
                raise ConnectionError("no database")
                yield
        """,
    )
    result = cli("check", "--plugins-dir", "plugins")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "broken" in line
    assert "ConnectionError: no database" in line


def test_required_authentication_without_a_key_is_a_problem(cli: Cli, config: Write) -> None:
    config("auth:\n  mode: required\n")
    result = cli("check")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "antwort keys new" in result.stderr
