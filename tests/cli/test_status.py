"""`antwort status`: how a running server is, from beside it."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
from click.testing import Result
from pydantic import SecretStr

from antwort.app import Antwort
from antwort.cli.status import figures_of
from antwort.config import ApiKeyConfig, AuthConfig, Config, ServerConfig
from antwort.testing import Gate, ScriptedBackend, call, running, turn

Cli = Callable[..., Result]

PAGE = r"""# HELP antwort_queue_waiting Who waits.
antwort_build_info{version="1",worker="0"} 1.0
antwort_build_info{version="1",worker="1"} 1.0
antwort_queue_waiting{queue="backend \"main\"",worker="0"} 2.0
antwort_queue_waiting{queue="backend \"main\"",worker="1"} 3.0
antwort_queue_waiting{queue="agents",worker="1"} 0.0
antwort_backend_connections{backend="main",state="active",worker="0"} 4
antwort_backend_connections{backend="main",state="active",worker="1"} 1
antwort_ingestion_queue_depth{worker="0"} 7
antwort_ingestion_queue_depth{worker="1"} 7
of_somebody_else NaN
"""


def test_a_server_tells_what_it_does(cli: Cli, tmp_path: Path) -> None:
    gate = Gate()
    config = Config.model_validate({"data_dir": tmp_path, "providers": {"user": {"enabled": True}}})
    steps = [turn(calls=[call("ask_user", question="Which?")]), turn("Slow.", wait_for=gate)]
    with running(Antwort(config, backend=ScriptedBackend(steps))) as served:
        for tools in ([{"type": "function", "name": "ask_user"}], []):
            body = {"input": "Go!", "background": True, "tools": tools}
            name = httpx.post(f"{served.url}/v1/responses", json=body, timeout=60).json()["id"]
            while tools and not httpx.get(f"{served.url}/v1/runs/{name}", timeout=60).json()["waiting"]:
                pass
        gate.wait_reached()
        found = json.loads(cli("status", "--json", "--url", served.url).stdout)
        assert (found["ready"], found["why"]) == (True, None)
        assert found["version"] == httpx.get(f"{served.url}/healthz").json()["version"]
        assert found["runs"] == {"in_progress": 2, "queued": 0, "waiting": 1}
        assert (found["figures"]["workers"], found["figures"]["queues"]) == (1, {})
        told = cli("status", "--url", served.url)
        assert told.exit_code == 0
        lines = dict(line.split(maxsplit=1) for line in told.stdout.splitlines())
        assert lines["server"] == f"{served.url}/v1, ready"
        assert (lines["workers"], lines["waiting"]) == ("1", "nobody")
        assert lines["runs"] == "2 in progress, 1 of them waiting; 0 queued"
        gate.open()


def test_what_the_key_may_not_see_is_left_out(cli: Cli, tmp_path: Path) -> None:
    keys = [
        ApiKeyConfig(id="all", key=SecretStr("key-of-all"), tenant="acme"),
        ApiKeyConfig(id="few", key=SecretStr("key-of-few"), tenant="acme", scopes=["responses:write"]),
    ]
    config = Config(data_dir=tmp_path, auth=AuthConfig(api_keys=keys), server=ServerConfig(protect_metrics=True))
    with running(Antwort(config, backend=ScriptedBackend([]))) as served:
        for key, sees in (("key-of-all", True), ("key-of-few", False)):
            found = json.loads(cli("status", "--json", "--url", served.url, "--api-key", key).stdout)
            assert (found["ready"], found["figures"] is not None, found["runs"] is not None) == (True, sees, sees)


def test_a_server_that_is_not_ready_is_exit_code_1_with_the_reason(cli: Cli, tmp_path: Path) -> None:
    app = Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend([]))
    with running(app) as served:
        (tmp_path / "antwort.db").unlink()
        result = cli("status", "--url", served.url)
        assert result.exit_code == 1
        assert f"{served.url}/v1, not ready" in result.stdout
        assert "version" in result.stdout
        assert "its file is gone" in result.stderr


def test_without_a_server_it_is_told_how_to_start_one(cli: Cli) -> None:
    result = cli("status", "--url", "http://127.0.0.1:9")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Start the server ('antwort serve'), or say where it is with --url." in result.stderr


def test_figures_of_several_workers_are_added_up_but_not_the_files_that_each_counts() -> None:
    found = figures_of(PAGE)
    assert (found.workers, found.queues) == (2, {'backend "main"': 5})
    assert (found.connections, found.ingestion) == ({"main": {"active": 5}}, 7)
