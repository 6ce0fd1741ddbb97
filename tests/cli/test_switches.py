"""`antwort providers` and `antwort functions`: out of service and back, on a server beside the command."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from pydantic import SecretStr

from antwort.app import Antwort
from antwort.config import ApiKeyConfig, AuthConfig, Config, ProviderConfig
from antwort.testing import RunningApp, ScriptedBackend, running

Cli = Callable[..., Result]
Refused = Callable[..., str]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[RunningApp]:
    keys = [
        ApiKeyConfig(id=name, key=SecretStr(f"key-of-{name}"), tenant="acme", subject=name, scopes=[scope])
        for name, scope in (("ops", "admin:write"), ("watch", "admin"))
    ]
    providers = {"basics": ProviderConfig(enabled=True)}
    config = Config(data_dir=tmp_path / "data", auth=AuthConfig(api_keys=keys), providers=providers)
    with running(Antwort(config, backend=ScriptedBackend([]))) as served:
        yield served


def test_a_provider_and_a_function_are_disabled_and_enabled(cli: Cli, served: RunningApp) -> None:
    at = ("--url", served.url, "--api-key", "key-of-ops")
    told = cli("functions", "disable", "calculate", *at).stdout
    assert told.startswith("The function 'calculate' is disabled, by 'ops' since 2")
    assert not served.app.registry.can_execute("calculate")
    assert served.app.registry.can_execute("current_time")
    told = cli("providers", "disable", "basics", *at).stdout
    assert told.startswith("The provider 'basics' is disabled, by 'ops' since 2")
    assert not served.app.registry.can_execute("current_time")
    told = cli("functions", "enable", "calculate", *at).stdout
    assert told.startswith("The function 'calculate' is disabled with its provider 'basics', by 'ops' since 2")
    assert cli("providers", "enable", "basics", *at).stdout == "The provider 'basics' is enabled.\n"
    assert served.app.registry.can_execute("calculate")

    found = json.loads(cli("providers", "disable", "basics", "--json", *at).stdout)
    assert (found["enabled"], found["disabled"]["by"]) == (False, "ops")
    assert json.loads(cli("providers", "enable", "basics", "--json", *at).stdout)["disabled"] is None


def test_what_cannot_be_switched_is_one_line(refused: Refused, served: RunningApp) -> None:
    at = ("--url", served.url, "--api-key", "key-of-ops")
    assert "did you mean 'basics'?" in refused("providers", "disable", "basic", *at)
    assert "There are: calculate, current_time." in refused("functions", "enable", "nothing", *at)
    line = refused("providers", "disable", "basics", "--url", served.url, "--api-key", "key-of-watch")
    assert "admin:write" in line
