"""A hangup: a server reads its configuration again, unless it belongs to a terminal."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from antwort.cli.reload import RELOADED

Cli = Callable[..., Result]
Process = Callable[..., subprocess.Popen[str]]
Server = subprocess.Popen[str]

PATIENCE = 60.0
NOTHING = "the configuration was read again, and nothing has changed: "
IN_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "antwort", "serve", "--port", "0", "--log-level", "error"])
"""


def write(
    keys: Sequence[str], *, tenants: Sequence[str] = (), basics: bool = True, level: str = "error", more: str = ""
) -> None:
    """Write `antwort.yaml`, with some API keys."""
    given = [
        f"{{id: {key}, key: key-of-{key}, tenant: {tenant}}}"
        for key, tenant in zip(keys, tenants or ["acme"] * len(keys), strict=True)
    ]
    Path("antwort.yaml").write_text(
        f"backends: {{default: {{url: demo}}}}\nauth: {{api_keys: [{', '.join(given)}]}}\n"
        f"observability: {{log_level: {level}, audit_file: audit.log}}\n"
        f"providers: {{basics: {{enabled: {str(basics).lower()}}}}}\n{more}",
        encoding="utf-8",
    )


def serve(process: Process) -> tuple[Server, str]:
    """Start a server; return it with its URL."""
    server = process("serve", "--port", "0")
    assert server.stdout is not None
    return server, next(line.split()[-1] for line in server.stdout if line.startswith("Listening on "))


def hang_up(server: Server) -> dict[str, Any]:
    """Have a server read its configuration again; return the event of the audit log that tells what came of it."""
    before = len(reloads())
    server.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE
    while len(reloads()) == before:
        assert time.monotonic() < deadline, "it has not read it"
        time.sleep(0.01)
    return reloads()[-1]


def reloads() -> list[dict[str, Any]]:
    lines = Path("audit.log").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == "configuration.reloaded"]


def said(server: Server, words: str) -> str:
    """Return the next message of the log that has some words."""
    assert server.stderr is not None
    messages = (str(json.loads(line)["message"]) for line in server.stderr)
    return next(message for message in messages if words in message)


def get(url: str, key: str, path: str = "/v1/models") -> httpx.Response:
    return httpx.get(url + path, headers={"Authorization": f"Bearer key-of-{key}"}, timeout=PATIENCE)


def calculates(url: str, key: str) -> bool:
    return "calculate" in get(url, key, "/v1/functions").text


def test_what_can_be_used_at_once_is_and_the_rest_is_named(process: Process) -> None:
    write(["ada", "bob"])
    server, url = serve(process)
    assert [get(url, key).status_code for key in ("ada", "bob", "eve")] == [200, 200, 401]
    assert calculates(url, "ada")

    write(["bob", "eve"], basics=False, level="info", more="limits: {per_key: {requests_per_minute: 9}}\n")
    event = hang_up(server)
    assert event["changed"] == [
        "auth.api_keys",
        "limits.per_key.requests_per_minute",
        "observability.log_level",
        "providers.basics.enabled",
    ]
    assert event["restart"] == []
    assert [get(url, key).status_code for key in ("ada", "bob", "eve")] == [401, 200, 200]
    assert get(url, "bob").headers["x-ratelimit-limit-requests"] == "9"
    assert not calculates(url, "eve")

    write(["eve"], level="info", more="server: {shutdown_timeout: 7}\nlimits: {per_tenant: {max_runs: 3}}\n")
    event = hang_up(server)
    assert said(server, "restart to use") == "restart to use: limits.per_tenant.max_runs, server.shutdown_timeout"
    assert event["restart"] == ["limits.per_tenant.max_runs", "server.shutdown_timeout"]
    assert "x-ratelimit-limit-requests" not in get(url, "eve").headers
    assert calculates(url, "eve")
    assert hang_up(server)["changed"] == []

    server.send_signal(signal.SIGTERM)
    stdout, stderr = server.communicate(timeout=PATIENCE)
    assert (server.returncode, stdout) == (0, "")
    assert "key-of-" not in stderr


def test_what_is_not_right_changes_nothing(cli: Cli, process: Process) -> None:
    write(["ada"])
    server, url = serve(process)
    write(["bob"], more="server: {prot: 1}\n")
    server.send_signal(signal.SIGHUP)
    line = said(server, NOTHING)
    assert cli("check", "--no-probe").stderr == f"antwort: {line.removeprefix(NOTHING)}\n"

    write([])
    server.send_signal(signal.SIGHUP)
    assert "left without authentication" in said(server, NOTHING)

    write(["ada", "bob"], tenants=["acme", "globex"])
    server.send_signal(signal.SIGHUP)
    assert "the keys are those of several" in said(server, NOTHING)

    Path("antwort.yaml").unlink()
    server.send_signal(signal.SIGHUP)
    assert said(server, NOTHING).endswith("antwort.yaml: the configuration file does not exist")
    assert [get(url, key).status_code for key in ("ada", "bob")] == [200, 401]
    assert reloads() == []


def test_a_server_without_authentication_stays_so(process: Process) -> None:
    write([])
    server, url = serve(process)
    write(["ada"])
    assert hang_up(server)["restart"] == ["auth.api_keys"]
    assert get(url, "nobody").status_code == 200


@pytest.mark.usefixtures("_clean_place")
def test_a_terminal_that_is_closed_takes_its_server_along() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", IN_A_TERMINAL]
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as server:
        try:
            os.close(theirs)
            assert server.stdout is not None
            assert any(line.startswith("Listening on ") for line in server.stdout)
            os.close(ours)
            stdout, stderr = server.communicate(timeout=PATIENCE)
            assert (server.returncode, stdout, stderr) == (0, "", "")
        finally:
            server.kill()


def test_the_documentation_lists_what_is_used_without_a_restart() -> None:
    page = (Path(__file__).parents[2] / "docs/operations.md").read_text(encoding="utf-8")
    section = page.partition("## Reloading the configuration\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert re.findall(r"`([^`]+)`", " ".join(rows)) == [*RELOADED, "providers.<name>.enabled"]
