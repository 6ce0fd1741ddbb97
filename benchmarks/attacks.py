"""How long everybody else waits while somebody attacks: the longest wait of a client that asks for a sign of life.

Each attack has a server of its own, as a user starts it, with a hostile model server behind it. The first row is the
same without an attack: what the machine itself adds.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.attackers import ATTACKS, KEY
from benchmarks.measure import BenchmarkError, Row
from benchmarks.processes import Cores, Server, available_cores, child, read_line, running

PROJECT = Path(__file__).parents[1]
BAR = 100.0
"""Milliseconds."""
SETTLED = 1.0
"""Seconds between the start of a server and the attack."""

PLUGIN = '''"""Functions and routes that return too much."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable

from starlette.responses import Response, StreamingResponse

from antwort.provider import Provider, function, route


WORDS = "word " * 10_000_000


class Flood(Provider):
    """Returns too much."""

    name = "flood"

    @function
    async def count_for_ever(self) -> Iterable[int]:
        """Count."""
        return itertools.count()

    @function
    async def long_list(self) -> list[int]:
        """List."""
        return [7] * 5_000_000

    @function
    async def many_numbers(self) -> list[int]:
        """List different ones, made while others have their turn."""
        made: list[int] = []
        for start in range(0, 5_000_000, 20_000):
            made.extend(range(start, start + 20_000))
            await asyncio.sleep(0)
        return made

    @function
    async def crash(self) -> None:
        """Fail with many words."""
        raise ValueError(WORDS)

    @route("GET", "/v1/flood/stream")
    async def stream(self) -> Response:
        """Stream for ever, and never wait."""

        async def pieces() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 1000

        return StreamingResponse(pieces())

    @route("GET", "/v1/flood/numbers")
    async def numbers(self) -> Iterable[int]:
        """Count as far as a route may."""
        return itertools.count()

    @function
    async def quick(self, number: int) -> int:
        """Return a number."""
        return number
'''

CONFIG: dict[str, Any] = {
    "auth": {"api_keys": [{"id": "attacker", "key": KEY}]},
    "plugins_dir": "plugins",
    "providers": {"flood": {"enabled": True}, "basics": {"enabled": True}},
}


def attacks_rows(*, full: bool, only: Sequence[str] = ()) -> list[Row]:
    """Measure the longest wait under each attack."""
    seconds = 20.0 if full else 6.0
    cores = available_cores()
    rows = []
    with cores.reserved(), hostile_model(cores) as model:
        for name in [None, *(only or ATTACKS)]:
            worst = longest_wait(cores, model.port, name, seconds)
            rows.append(Row(f"longest wait: {name or 'nobody attacks'}", worst, "ms", BAR if name else None))
    return rows


@contextlib.contextmanager
def hostile_model(cores: Cores) -> Iterator[Server]:
    """Give the model server that does harm."""
    with running(program("hostile"), core=cores.client, cwd=PROJECT) as server:
        yield server


@contextlib.contextmanager
def pinging(port: int, *model: str) -> Iterator[subprocess.Popen[bytes]]:
    """Give a client that asks a server for signs of life, or for small responses of a model."""
    command = program("pinger", port, *model)
    with child(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pinger:
        yield pinger


def program(name: str, *arguments: object) -> list[str]:
    """Return the command of one of these modules."""
    return [sys.executable, "-m", f"benchmarks.{name}", *map(str, arguments)]


def longest_wait(cores: Cores, model_port: int, attack: str | None, seconds: float) -> float | None:
    """Return the longest wait in milliseconds; None if the server did not survive."""
    with (
        TemporaryDirectory(prefix="antwort-attack-") as folder,
        _server(cores, Path(folder), model_port) as server,
        pinging(server.port) as pinger,
    ):
        time.sleep(SETTLED)
        report_of(pinger)
        if attack is None:
            time.sleep(seconds)
        else:
            _attack(server, attack, seconds)
        report = report_of(pinger)
    return None if report["lost"] == report["pings"] else float(report["worst"]) * 1e3


@contextlib.contextmanager
def _server(cores: Cores, folder: Path, model_port: int) -> Iterator[Server]:
    (folder / "plugins").mkdir()
    (folder / "plugins" / "flood.py").write_text(PLUGIN)
    backend = {"url": f"http://127.0.0.1:{model_port}/v1", "retries": 0}
    config = folder / "antwort.yaml"
    config.write_text(json.dumps({**CONFIG, "backends": {"main": backend}}))  # JSON is YAML
    command = (sys.executable, "-m", "antwort", "serve", "--port", "0", "--config", str(config))
    with running([*command, "--data-dir", str(folder / "data")], core=cores.server, cwd=folder) as server:
        yield server


def _attack(server: Server, name: str, seconds: float) -> None:
    with child(program("attackers", server.port, name, seconds), cwd=PROJECT) as attacker:
        try:
            code = attacker.wait(timeout=seconds + 30)
        except subprocess.TimeoutExpired:
            return  # the server has stopped it from ending; the wait tells
    if code:
        raise BenchmarkError(f"the attacker of '{name}' ended with code {code}")


def report_of(pinger: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return what a pinger has seen since the last time."""
    if pinger.stdin is None:
        raise BenchmarkError("the pinger does not listen")
    pinger.stdin.write(b"\n")
    pinger.stdin.flush()
    line = read_line(pinger, time.monotonic() + 60)
    report: dict[str, Any] = json.loads(line or '{"worst": 60, "pings": 1, "lost": 1}')
    return report
