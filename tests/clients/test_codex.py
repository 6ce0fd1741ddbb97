"""Codex as it is shipped: it runs commands, goes on where it stopped, writes to a schema, and compacts."""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.clients.node_scripts import FOLDER
from tests.clients.stage import KEY, Stage, said, staged
from tests.http.sdk import Served
from tests.support.postgres import on_one_store

from antwort.testing import ScriptServer, call, turn
from antwort.types import JSON

_PATIENCE = 120.0
_ARCH = {"aarch64": "arm64", "x86_64": "x64"}[platform.machine()]
CODEX = next((FOLDER / "node_modules" / "@openai" / f"codex-linux-{_ARCH}").glob("vendor/*/bin/codex"))
pytestmark = on_one_store()
OVER = pytest.mark.parametrize("websocket", [False, True], ids=["http", "websocket"])


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder in which Codex has its sandbox: it refuses a home among temporary files."""
    with tempfile.TemporaryDirectory(dir=FOLDER / "node_modules", prefix=".codex-", ignore_cleanup_errors=True) as made:
        yield Path(made)


class Codex:
    """Codex in a folder of its own."""

    def __init__(
        self,
        served: Served,
        folder: Path,
        *,
        websocket: bool = False,
        model: str = "scripted",
        mcp: JSON | None = None,
        **settings: Any,
    ) -> None:
        self.project = folder / "project"
        self._home = folder / "home"
        self._temporary = folder / "tmp"  # a home that were among temporary files would be refused
        for made in (self.project, self._home, self._temporary):
            made.mkdir(parents=True)
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        provider = {
            "name": "antwort",
            "base_url": f"{served.server.url}/v1",
            "wire_api": "responses",
            "env_key": "ANTWORT_KEY",
            "supports_websockets": websocket,
        }
        config = [f'model = "{model}"', 'model_provider = "antwort"', *lines, "[model_providers.antwort]"]
        config += [f"{name} = {json.dumps(value)}" for name, value in provider.items()]
        if mcp is not None:
            config += ["[mcp_servers.antwort]", *(f"{name} = {json.dumps(value)}" for name, value in mcp.items())]
        (self._home / "config.toml").write_text("\n".join(config))

    def run(self, *arguments: str) -> list[Any]:
        """Run `codex exec`; return the items it has completed."""
        done = subprocess.run(
            [CODEX, "exec", *arguments[:-1], "--json", "--skip-git-repo-check", arguments[-1]],
            cwd=self.project,
            env={
                "PATH": os.defpath,
                "HOME": str(self._home),
                "CODEX_HOME": str(self._home),
                "TMPDIR": str(self._temporary),
                "ANTWORT_KEY": KEY,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert events[-1]["type"] == "turn.completed"
        return [event["item"] for event in events if event["type"] == "item.completed"]


def catalogue(home: Path) -> dict[str, str | None]:
    """Return the models that Codex knows, and how each uses tools."""
    environment = {"PATH": os.defpath, "HOME": str(home), "CODEX_HOME": str(home)}
    listed = subprocess.run([CODEX, "debug", "models"], env=environment, capture_output=True, check=True)
    return {model["slug"]: model.get("tool_mode") for model in json.loads(listed.stdout)["models"]}


SHELL = "echo hello > said.txt && cat said.txt"
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hi\n*** End Patch"
STEPS = {
    None: [call("exec_command", cmd=SHELL), call("apply_patch", input=PATCH)],
    "code_mode_only": [
        call("functions__exec", input=f"text(await tools.exec_command({{cmd: {json.dumps(SHELL)}}}))"),
        call("functions__exec", input=f"text(await tools.apply_patch({json.dumps(PATCH)}))"),
    ],
}
"""A command and a patch, by how a model uses tools."""


def test_each_model_of_its_catalogue_gets_its_tools_from_a_default_server(folder: Path, database_url: str) -> None:
    (folder / "home").mkdir()
    known = catalogue(folder / "home")
    names = (
        [*known] if os.environ.get("ANTWORT_TEST_FULL") else [*{mode: name for name, mode in known.items()}.values()]
    )
    for name in names:
        steps = [*(turn(calls=[made]) for made in STEPS[known[name]]), turn("Done."), turn("It said hello.")]
        with ScriptServer(steps) as model:
            backends = {"main": {"url": model.url, "retries": 0}}
            with staged(model, folder / name / "data", database_url, backends=backends) as served:
                codex = Codex(served, folder / name, model=name)
                assert messages(codex.run("--sandbox", "workspace-write", "Make two files.")) == ["Done."]
                assert (codex.project / "said.txt").read_text() == "hello\n"
                assert (codex.project / "new.txt").read_text() == "hi\n"
                assert messages(codex.run("resume", "--last", "What did it say?")) == ["It said hello."]
        assert {body["model"] for body in model.requests} == {name}
        offered = {tool["function"]["name"] for tool in model.requests[0]["tools"]}
        assert offered > {step.name for step in STEPS[known[name]]}
        outputs = [str(text) for role, text in said(model.requests[3]) if role == "tool"]
        assert ["hello" in outputs[0], len(outputs)] == [True, 2]


def messages(items: list[Any]) -> list[str]:
    return [item["text"] for item in items if item["type"] == "agent_message"]


@OVER
def test_it_runs_a_command_and_goes_on_where_it_stopped(stage: Stage, folder: Path, websocket: bool) -> None:
    steps = [
        turn("I'll look.", calls=[call("exec_command", cmd="echo hello > said.txt && cat said.txt")]),
        turn("The file says hello."),
        turn("It said hello."),
    ]
    with stage(*steps) as served:
        codex = Codex(served, folder, websocket=websocket)
        items = codex.run("--sandbox", "workspace-write", "Make a file and read it.")
        ran = [item for item in items if item["type"] == "command_execution"]
        assert [(item["aggregated_output"], item["exit_code"]) for item in ran] == [("hello\n", 0)]
        assert (codex.project / "said.txt").read_text() == "hello\n"
        assert messages(items) == ["I'll look.", "The file says hello."]
        assert messages(codex.run("resume", "--last", "What did it say?")) == ["It said hello."]
        metrics = httpx.get(f"{served.server.url}/metrics", headers={"authorization": f"Bearer {KEY}"}).text
    assert ('antwort_websocket_frames_total{direction="received"} 0.0' in metrics) != websocket
    roles = [role for role, _ in said(served.bodies[2])]
    assert (roles.count("assistant"), roles.count("tool"), roles[-1]) == (2, 1, "user")
    assert "multi_agent_v1__spawn_agent" in [tool["function"]["name"] for tool in served.bodies[0]["tools"]]


@OVER
def test_it_writes_to_a_schema(stage: Stage, folder: Path, websocket: bool) -> None:
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "integer"}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    (folder / "schema.json").write_text(json.dumps(schema))
    with stage('{"answer": 42}') as served:
        codex = Codex(served, folder, websocket=websocket)
        assert messages(codex.run("--output-schema", str(folder / "schema.json"), "What is it?")) == ['{"answer": 42}']
    assert served.bodies[0]["response_format"]["json_schema"]["schema"] == schema


@OVER
def test_it_compacts_what_has_become_too_long(stage: Stage, folder: Path, websocket: bool) -> None:
    steps = ["First answer.", "A summary.", "Second answer."]
    with stage(*steps) as served:
        codex = Codex(served, folder, websocket=websocket, model_auto_compact_token_limit=10)
        codex.run("First question.")
        items = codex.run("resume", "--last", "Second question.")
    assert messages(items) == ["Second answer."]
    assert "A summary." in str(served.bodies[-1])


@pytest.mark.parametrize("way", ["http", "stdio"])
def test_antwort_is_its_mcp_server(stage: Stage, folder: Path, way: str) -> None:
    steps = [turn(calls=[call("mcp__antwort__calculate", expression="6*7")]), turn("42.")]
    with stage(*steps) as served:
        mcp: JSON = {"url": f"{served.server.url}/mcp", "bearer_token_env_var": "ANTWORT_KEY"}
        if way == "stdio":
            options = ["--no-probe", "--data-dir", str(folder / "data")]
            mcp = {"command": sys.executable, "args": ["-m", "antwort", "mcp", *options]}
        mcp |= {"default_tools_approval_mode": "approve", "startup_timeout_sec": 60, "required": True}
        codex = Codex(served, folder, mcp=mcp)
        items = codex.run("What is 6*7?")
        calls = [item for item in items if item["type"] == "mcp_tool_call"]
        assert [(item["server"], item["tool"], item["status"]) for item in calls] == [
            ("antwort", "calculate", "completed")
        ]
        assert calls[0]["result"]["content"][0]["text"] == "42"
        assert messages(items) == ["42."]
