"""Every feature side by side for a long time: what each answer says, memory, and what is left over."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.asking import KEYS, SECRET
from benchmarks.attacks import PROJECT, pinging, program, report_of
from benchmarks.crowd import KINDS
from benchmarks.gateway import ANTWORT, TIMES
from benchmarks.measure import BenchmarkError, Row
from benchmarks.obedient import MODEL
from benchmarks.processes import Server, child, read_line, running

SECONDS = 1200.0
EACH = 2
"""People of each kind and tenant."""
PARTING = 60.0
"""Seconds that the last answers may take, and in which what nobody uses any more must be gone."""
FEATURES = ("basics", "files", "programs", "sub_agents", "user", "variables", "workspace", "code_interpreter")
METHOD = f"""\
Everything at once: {EACH} people of each of {len(KINDS)} kinds and of two tenants do their thing over and over, from
plain responses to sub-agents, shells, code, programs, files, file search, Messages, chat completions, batches and
decisions, some by another antwort behind this one. The model does what it is told, so that every answer is known
beforehand: each is compared. Neither answers nor the database may have a key that people made up. Memory of the last
quarter of the time is held against that of the second; programs that were started for calls must be gone at the end."""


def everything_rows(*, seconds: float, each: int = EACH) -> list[Row]:
    """Let people use everything for some time."""
    with (
        TemporaryDirectory(prefix="antwort-everything-") as folder,
        running(program("obedient"), core=None, cwd=PROJECT) as model,
        running(_behind(Path(folder), model.port), core=None, cwd=Path(folder), timeout=120) as behind,
        running(_command(Path(folder), model.port, behind.port), core=None, cwd=Path(folder), timeout=120) as server,
        pinging(server.port) as pinger,
    ):
        memory, crowd = _watched(server, seconds, each)
        pings = report_of(pinger)
        left = _left_over(server)
        told = _told(Path(folder))
    for problem in crowd["problems"]:
        print(f"wrong: {problem}", file=sys.stderr)
    early, late = _quarters(memory)
    if not late:
        raise BenchmarkError("the server has died")
    return [
        *(Row(f"everything: {kind}, right", count, "times") for kind, count in crowd["right"].items()),
        Row("everything: wrong, failed or lost", sum(crowd["wrong"].values()), "times", 0),
        Row("everything: memory with all programs", late / 1e6, "MB"),
        Row("everything: memory, against before", late / early, TIMES, 1.1),
        Row("everything: keys that people made up in the database", told, "keys", 0),
        Row("everything: sandboxes that are left over", left, "programs", 0),
        Row("everything: signs of life that failed", pings["lost"], "times", 0),
        Row("everything: a sign of life, 99 of 100", pings["late"] * 1e3, "ms"),
        Row("everything: a sign of life, longest", pings["worst"] * 1e3, "ms"),
    ]


def _behind(folder: Path, model_port: int) -> list[str]:
    """Return the command of another antwort, which is asked in Messages."""
    data = ("--data-dir", str(folder / "behind"))
    return [*ANTWORT, "serve", "--port", "0", *data, "--backend", f"http://127.0.0.1:{model_port}/v1"]


def _command(folder: Path, model_port: int, behind_port: int) -> list[str]:
    providers: dict[str, Any] = {name: {"enabled": True, "offer": "on_request"} for name in FEATURES}
    providers["file_search"] = {"enabled": True}
    providers["guardrails"] = {"enabled": True, "settings": {"patterns": {"own": {"whisper": {"pattern": SECRET}}}}}
    behind = {"url": f"http://127.0.0.1:{behind_port}/v1", "api": "anthropic", "extra_body": {"store": False}}
    config = {
        "auth": {"api_keys": [{"id": name, "key": key, "tenant": name} for name, key in KEYS.items()]},
        "sandbox": {"unbounded": "allow"},  # it is measured wherever it is
        "backends": {"main": {"url": f"http://127.0.0.1:{model_port}/v1", "models": [MODEL]}, "behind": behind},
        "providers": providers,
        "server": {"chat_completions": {"functions": True}},
    }
    path = folder / "antwort.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return [*ANTWORT, "serve", "--port", "0", "--config", str(path), "--data-dir", str(folder / "data")]


def _watched(server: Server, seconds: float, each: int) -> tuple[list[int], dict[str, Any]]:
    """Start the people, and return the memory of the server for each second, and their report."""
    memory = []
    with child(program("crowd", server.port, seconds, each), cwd=PROJECT, stdout=subprocess.PIPE) as crowd:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(1)
            memory.append(server.resident_bytes())
        report: dict[str, Any] = json.loads(read_line(crowd, time.monotonic() + PARTING + 120) or "{}")
    if not report:
        raise BenchmarkError("the people have left without a report")
    return memory, report


def _quarters(memory: list[int]) -> tuple[float, float]:
    """Return what was used on average in the second and in the last quarter: programs come and go."""
    quarter = max(1, len(memory) // 4)
    parts = memory[quarter : 2 * quarter] or memory, memory[-quarter:]
    early, late = (sum(part) / len(part) for part in parts)
    return early, late


def _left_over(server: Server) -> int:
    """Return how many sandboxes of commands there are still, after a while at most; sessions of code may wait."""
    deadline = time.monotonic() + PARTING
    while True:
        left = sum(_is_command(pid) for pid in server.processes())
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(1)


def _told(folder: Path) -> int:
    """Return how many keys that somebody has made up are in the database."""
    files = [folder / "data" / name for name in ("antwort.db", "antwort.db-wal")]
    return sum(len(re.findall(SECRET.encode(), path.read_bytes())) for path in files if path.exists())


def _is_command(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"bash" in words
