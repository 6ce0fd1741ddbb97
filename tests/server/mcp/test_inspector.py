"""The command line of the protocol's inspector before `/mcp` and before `antwort mcp`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.node_scripts import FOLDER, NODE
from tests.server.mcp.stage import Face, serving

PACKAGE = FOLDER / "node_modules" / "@modelcontextprotocol" / "inspector"
PROGRAM = PACKAGE / "clients" / "launcher" / "build" / "index.js"


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    with serving(tmp_path_factory.mktemp("data")) as face:
        yield face


def inspect(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(NODE), str(PROGRAM), "--cli", *arguments],
        env={"PATH": os.defpath, "HOME": str(folder), "NO_COLOR": "1"},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def found(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_it_lists_and_calls_over_http(tmp_path: Path, face: Face) -> None:
    place = [f"{face.url}/mcp", "--transport", "http", "--header", "Authorization: Bearer key-of-acme"]
    tools = found(inspect(tmp_path, *place, "--method", "tools/list"))["tools"]
    assert {tool["name"] for tool in tools} >= {"add", "whose", "respond"}
    add = ["--tool-name", "add", "--tool-arg", "a=2", "--tool-arg", "b=3"]
    assert found(inspect(tmp_path, *place, "--method", "tools/call", *add))["content"][0]["text"] == "5"


def test_it_is_refused_without_a_key(tmp_path: Path, face: Face) -> None:
    done = inspect(tmp_path, f"{face.url}/mcp", "--transport", "http", "--method", "tools/list")
    assert done.returncode != 0
    assert "auth_required" in done.stderr


def test_it_starts_antwort_mcp(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "antwort", "mcp", "--no-probe", "--data-dir", str(tmp_path / "data")]
    call = ["--method", "tools/call", "--tool-name", "calculate", "--tool-arg", "expression=6*7"]
    assert found(inspect(tmp_path, *call, "--", *program))["content"][0]["text"] == "42"
