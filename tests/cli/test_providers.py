import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

import antwort

Cli = Callable[..., Result]


def _rows(result: Result) -> dict[str, dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return {row["name"]: row for row in json.loads(result.stdout)}


def test_without_configuration_the_default_set_is_on(cli: Cli) -> None:
    rows = _rows(cli("providers", "list", "--json"))
    assert rows["basics"] == {
        "name": "basics",
        "state": "default",
        "origin": f"antwort {antwort.__version__}",
        "functions": ["calculate", "current_time"],
        "routes": [],
        "checks": [],
    }
    assert rows["web_search"]["state"] == "available"
    assert rows["web_search"]["functions"] == []


def test_each_origin_is_named(cli: Cli, config: Callable[[str], Path], plugin: Callable[[str, str], None]) -> None:
    config(
        """
        plugins_dir: plugins
        providers:
          basics:
            enabled: true
          more_basics:
            enabled: true
            use: antwort.providers.basics:Basics
        """
    )
    plugin(
        "weather",
        """
        class Weather(Provider):
            @route("GET", "/v1/weather/status")
            async def status(self) -> dict[str, str]:
                '''Tell the state.'''
                return {}
        """,
    )
    rows = _rows(cli("providers", "list", "--json"))
    assert rows["basics"]["state"] == "enabled"
    assert rows["more_basics"]["origin"] == "use: antwort.providers.basics:Basics"
    assert rows["weather"]["origin"] == str(Path("plugins", "weather.py"))
    assert rows["weather"]["state"] == "enabled"
    assert rows["weather"]["routes"] == ["GET /v1/weather/status"]


def test_a_provider_that_was_turned_off_is_just_available(cli: Cli, config: Callable[[str], Path]) -> None:
    config("providers:\n  basics:\n    enabled: false\n")
    rows = _rows(cli("providers", "list", "--json"))
    assert rows["basics"]["state"] == "available"


def test_providers_that_run_code_are_not_in_the_default_set(cli: Cli) -> None:
    rows = _rows(cli("providers", "list", "--json"))
    assert {rows[name]["state"] for name in ("code_interpreter", "workspace")} == {"available"}


def test_what_only_has_checks_says_so(cli: Cli, config: Callable[[str], Path]) -> None:
    config("providers:\n  guardrails:\n    enabled: true\n    settings: {patterns: {stages: [input, call]}}\n")
    checks = ["input: patterns", "call: patterns"]
    assert _rows(cli("providers", "list", "--json"))["guardrails"]["checks"] == checks
    assert ", ".join(checks) in cli("providers", "list").stdout


def test_the_table_has_a_line_for_each(cli: Cli) -> None:
    lines = [line.split() for line in cli("providers", "list").stdout.splitlines()]
    assert lines[0] == ["NAME", "STATE", "ORIGIN", "FUNCTIONS", "ROUTES", "CHECKS"]
    assert ["basics", "default", "antwort", antwort.__version__, "calculate,", "current_time"] in lines
