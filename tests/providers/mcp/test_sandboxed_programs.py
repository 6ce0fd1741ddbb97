"""Programs of the operator that run in the sandbox: they work there, see nothing of ours, and end with the server."""

import asyncio
import json
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import create, outputs
from tests.providers.mcp.stage import staged
from tests.providers.mcp.test_approvals import items, types
from tests.providers.mcp.test_programs import TOOL

from antwort import Antwort
from antwort.config import Config
from antwort.errors import ConfigError
from antwort.providers.mcp.provider import Mcp
from antwort.testing import call, turn
from antwort.types import JSON

CODE = """
import json, os, socket, subprocess
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("shop")


def attempt(act):
    try:
        return act()
    except OSError as error:
        return type(error).__name__


@server.tool()
def read(path: str) -> str:
    "Read a file."
    return attempt(Path(path).read_text)


@server.tool()
def write(path: str) -> str:
    "Write a file."
    return str(attempt(lambda: Path(path).write_text("tea")))


@server.tool()
def reach(port: int) -> str:
    "Reach this machine."
    return str(attempt(lambda: socket.create_connection(("127.0.0.1", port)) and "reached"))


@server.tool()
def environment() -> str:
    "Tell the environment."
    return json.dumps(sorted(os.environ))


@server.tool()
def begin(argument: str) -> str:
    "Start a program that goes on."
    subprocess.Popen(["sleep", argument], start_new_session=True)
    return "begun"


@server.tool()
def fill() -> str:
    "Take much memory."
    return str(len(bytearray(1 << 30)))


server.run("stdio")
"""
SYSTEM = {"/usr", "/usr/local"}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Give a folder that can be shown in the sandbox, wherever those of other tests are: it has its own `/dev/shm`."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def sandboxed(folder: Path, **fields: Any) -> JSON:
    """Return the settings of a server that runs in the sandbox, with what its Python needs to see."""
    file = folder / "own" / "server.py"
    file.parent.mkdir()
    file.write_text(CODE)
    readable = [str(file.parent), *sorted({sys.prefix, sys.base_prefix} - SYSTEM)]
    own = {"command": [sys.executable, str(file)], "sandbox": {"readable": readable}, **fields}
    return {"servers": {"shop": own}}


def calls(*wanted: tuple[str, JSON]) -> list[Any]:
    """Return steps in which a model makes calls, one after the other."""
    made = [turn(calls=[call(name, call_id=f"call_{n}", **given)]) for n, (name, given) in enumerate(wanted)]
    return [*made, "Done."]


def goes_on(mark: str) -> bool:
    """Tell whether there is a process, wherever it is, that was started with some argument."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in command.read_bytes():
                return True
        except OSError:  # it has just ended
            continue
    return False


async def examined(folder: Path, settings: JSON) -> list[str]:
    provider = Mcp.from_settings(settings)
    async with Antwort(Config(data_dir=folder / "data", providers={}), providers=[provider]):
        return [*await provider.examine()]


def test_a_program_in_the_sandbox_is_a_server_and_sees_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER", "a-secret-of-the-server")
    own = tmp_path / "own" / "server.py"
    secret = tmp_path / "data" / "secret.txt"
    secret.parent.mkdir()
    secret.write_text("a secret")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        steps = calls(
            ("read", {"path": str(own)}),
            ("read", {"path": str(secret)}),
            ("write", {"path": str(own)}),
            ("write", {"path": "/tmp/note"}),
            ("reach", {"port": listening.getsockname()[1]}),
            ("environment", {}),
        )
        with staged(tmp_path, steps, settings=sandboxed(tmp_path, env={"KEY": "k"})) as stage:
            response = create(stage, False, input="Go!", tools=[TOOL])
            assert types(response) == ["mcp_list_tools", *["mcp_call"] * 6, "message"]
            source, hidden, changed, scratch, reached, environment = outputs(stage)
    assert source == CODE
    assert hidden == "FileNotFoundError"
    assert changed == "OSError"  # it is read-only
    assert scratch == "3"
    assert reached == "OSError"  # there are no sockets for it
    assert {"KEY", "PATH"} <= {*json.loads(environment)}
    assert "OTHER" not in environment
    assert own.read_text() == CODE


def test_the_network_is_there_if_the_operator_says_so(tmp_path: Path) -> None:
    settings = sandboxed(tmp_path)
    settings["servers"]["shop"]["sandbox"]["network"] = True
    with socket.create_server(("127.0.0.1", 0)) as listening:
        steps = calls(("reach", {"port": listening.getsockname()[1]}))
        with staged(tmp_path, steps, settings=settings) as stage:
            create(stage, False, input="Go!", tools=[TOOL])
            assert outputs(stage) == ["reached"]


def test_a_program_in_the_sandbox_ends_with_the_server_and_so_does_what_it_has_started(tmp_path: Path) -> None:
    settings, mark = sandboxed(tmp_path), f"86400.{time.time_ns()}"
    with staged(tmp_path, calls(("begin", {"argument": mark})), settings=settings) as stage:
        create(stage, False, input="Go!", tools=[TOOL])
        assert outputs(stage) == ["begun"]
        assert goes_on(mark)
        assert goes_on(str(tmp_path / "own"))
    assert not goes_on(mark)
    assert not goes_on(str(tmp_path / "own"))


def test_a_program_that_takes_too_much_memory_costs_its_own_call(tmp_path: Path) -> None:
    settings = sandboxed(tmp_path)
    steps = calls(("fill", {}), ("write", {"path": "/tmp/note"}))
    with staged(tmp_path, steps, settings=settings) as stage:
        response = create(stage, False, input="Go!", tools=[TOOL])
        filled, written = [item for item in items(response) if item["type"] == "mcp_call"]
        assert filled["error"] is not None
        assert written["output"] == "3"


def test_without_a_sandbox_a_program_is_not_started_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "started"
    settings = {"servers": {"shop": {"command": ["/usr/bin/touch", str(mark)], "sandbox": True, "offer": "always"}}}
    monkeypatch.setenv("PATH", str(tmp_path))  # where no bubblewrap is
    (problem,) = asyncio.run(examined(tmp_path, settings))
    assert problem.startswith(
        "servers.shop: The program of the server cannot be started: it has no sandbox here. code needs a sandbox"
    )
    assert "apt-get install bubblewrap" in problem
    with staged(tmp_path, ["Well."], settings=settings) as stage:
        response = create(stage, False, input="Hi", tools=[TOOL])
        assert items(response)[0]["tools"] == []
        assert items(response)[0]["error"] == "The program of the server cannot be started: it has no sandbox here."
    assert not mark.exists()


@pytest.mark.parametrize(
    ("shown", "problem"),
    [("", "data_dir is {0}/data, and code in the sandbox can read {0}"), ("/nothing", "There is no '{0}/nothing'")],
)
def test_what_cannot_be_shown_is_told(tmp_path: Path, shown: str, problem: str) -> None:
    own = {"command": ["/bin/true"], "sandbox": {"readable": [f"{tmp_path}{shown}"]}}
    (told,) = asyncio.run(examined(tmp_path, {"servers": {"shop": own}}))
    assert problem.format(tmp_path) in told


def test_a_program_that_is_not_seen_in_the_sandbox_is_told_with_the_cure(tmp_path: Path) -> None:
    settings = {"servers": {"shop": {"command": [str(tmp_path / "server")], "sandbox": True}}}
    (told,) = asyncio.run(examined(tmp_path, settings))
    assert "not found" in told
    assert "sandbox.readable" in told


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"url": "http://127.0.0.1/mcp", "sandbox": True}, "sandbox is for a server that is a program"),
        ({"command": ["server"], "folder": "/srv", "sandbox": True}, "name it in sandbox.readable"),
        ({"command": ["server"], "sandbox": {"readable": ["beside"]}}, "readable"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: JSON, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Mcp.from_settings({"servers": {"shop": fields}})


def test_outside_is_said_by_false() -> None:
    provider = Mcp.from_settings({"servers": {"shop": {"command": ["server"], "sandbox": False}}})
    assert provider.settings.servers["shop"].sandbox is None
