"""How long a tenant waits while another attacks a queue that both share."""

import asyncio
import contextlib
import gc
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from antwort import Antwort
from antwort.config import Config
from antwort.context import Context
from antwort.errors import APIError
from antwort.wire.requests import decode_create
from benchmarks.gateway import Bench, open_bench
from benchmarks.measure import Row
from benchmarks.shared_files import (
    ATTACKER,
    FILE_ROUNDS,
    FILES,
    KEYS,
    OTHER,
    UNDER_WAY,
    share_rows,
    shared_files_rows,
)
from benchmarks.shared_runs import RUN_ROUNDS, RUNS, shared_runs_rows
from benchmarks.sub_agents import MODEL, arguments

ROUNDS = 15
ATTACKS = 16
"""At the same time, of each kind."""
CHILDREN = 900
TREES = 5
PASS = 5.0
"""Milliseconds that sub-agents have the event loop at a stretch."""
METHOD = f"""\
Shares: two tenants of one server. What one asks for, alone and while the other has begun more than there is room for:
commands, code and plain functions that sleep, commands and programs that compute without end, slow answers of a model
with few connections, {TREES} trees of {CHILDREN} sub-agents, {RUNS} background runs that a killed server left (the time
is that of the next start until the run is done), pages that take a minute to be read, and texts of many chunks. In ms,
time that passes, medians of {ROUNDS} times, {FILE_ROUNDS} of files and runs; the bar is twice the time alone plus one
unit of work. A unit is what the attack may do at a stretch where only one can work at a time: a pass of the event
loop for sub-agents, {PASS:g} ms, and for files one large chunk that is embedded, which is how much longer a file of one
such chunk takes alone. Where places are left for others it is nothing. The lag is the longest wait of the event loop
meanwhile; that of a server with files is the longest wait for a sign of life."""

QUICK, SLOW = "paced-1-1", "paced-25-1000"
"""Models of the mock backend: pieces that are streamed, and milliseconds between them."""
Work = Callable[[], Awaitable[object]]


class Deaf:
    """Takes the events of a response, and forgets them."""

    started = True

    def put(self, kind: str, *events: bytes) -> None:
        """Forget them."""

    async def flush(self) -> None:
        """Hold nobody back."""


def rest(seconds: float) -> str:
    """Do nothing for a while, on a thread."""
    time.sleep(seconds)
    return "rested"


def shares_rows(
    *,
    rounds: int = ROUNDS,
    attacks: int = ATTACKS,
    children: int = CHILDREN,
    files: int = FILES,
    runs: int = RUNS,
    under_way: float = UNDER_WAY,
) -> list[Row]:
    """Measure all queues."""
    with open_bench() as bench:
        rows = uvloop.run(_rows(bench, rounds, attacks, children, under_way))
        rows += shared_runs_rows(bench, rounds=min(rounds, RUN_ROUNDS), runs=runs)
    return rows + shared_files_rows(rounds=min(rounds, FILE_ROUNDS), files=files, under_way=under_way)


async def _rows(bench: Bench, rounds: int, attacks: int, children: int, under_way: float) -> list[Row]:
    config = {
        "auth": {"api_keys": KEYS},
        "sandbox": {"unbounded": "allow"},  # it is measured wherever it is
        "backends": {
            "default": {"url": bench.mock_url},
            "small": {"url": bench.mock_url, "models": [QUICK, SLOW], "max_connections": 8, "connection_wait": "60s"},
        },
        "functions": {"threads": 8},
        "engine": {"run": {"max_agents": children + 1}},
        "providers": {
            "workspace": {"enabled": True},
            "code_interpreter": {"enabled": True},
            "programs": {"enabled": True, "settings": {"seconds": "60s"}},
            "sub_agents": {"enabled": True},
            "variables": {"enabled": True},
        },
    }
    folder: Path = bench.folder / "shares"
    rows: list[Row] = []
    async with Antwort(Config.model_validate({**config, "data_dir": folder}), functions=[rest]) as app:
        gc.freeze()
        gc.set_threshold(20_000, 2, 1_000)  # as in the server

        def call(tenant: str, name: str, given: dict[str, Any], number: int = 0) -> Work:
            ctx = Context(tenant, run_id=f"run_{tenant}_{number}", agent_id=f"agent_{number}")
            return lambda: app.registry.execute(name, given, ctx)

        def tree() -> Awaitable[object]:
            tools = [{"type": "function", "name": name} for name in ("spawn_many", "store_get")]
            return app.run(arguments(children), tenant=ATTACKER, model=MODEL, tools=tools, store=False)

        def asked() -> Awaitable[object]:
            return app.run("Hello", tenant=OTHER, model="json", store=False)

        def answered(tenant: str, model: str) -> Work:
            request = {"input": "Hello", "model": model, "stream": True, "store": False}

            async def answer() -> None:
                plan = await app.engine.plan(decode_create(msgspec.json.encode(request)), Context(tenant))
                await app.engine.respond(plan, Deaf())

            return answer

        sleeping: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
            "commands": ("shell", {"command": "sleep 25"}, {"command": "echo hello"}),
            "commands that compute": ("shell", {"command": "while :; do :; done"}, {"command": "echo hello"}),
            "code": ("code_interpreter", {"code": "import time; time.sleep(25)"}, {"code": "1 + 1"}),
            "programs": ("run_program", {"code": "while True:\n    pass"}, {"code": "1 + 1"}),
            "plain functions": ("rest", {"seconds": 2.0}, {"seconds": 0.0}),
        }
        for what, (name, holding, quick) in sleeping.items():
            attack = [call(ATTACKER, name, holding, number) for number in range(attacks)]
            rows += await _measured(what, call(OTHER, name, quick), attack, rounds, under_way, unit=0.0)
        slow = [answered(ATTACKER, SLOW)] * attacks
        rows += await _measured("connections to a model", answered(OTHER, QUICK), slow, rounds, under_way, unit=0.0)
        rows += await _measured("sub-agents", asked, [tree] * TREES, rounds, under_way, unit=PASS)
    return rows


async def _measured(
    what: str, work: Work, attack: list[Work], rounds: int, under_way: float, *, unit: float
) -> list[Row]:
    await work()
    alone, _ = await _times(work, rounds)
    async with _attacking(attack, under_way):
        beside, lag = await _times(work, rounds)
    return share_rows(what, alone, beside, lag, unit)


@contextlib.asynccontextmanager
async def _attacking(attack: list[Work], under_way: float) -> AsyncIterator[None]:
    async def one(work: Work) -> None:
        with contextlib.suppress(APIError):
            while True:
                await work()

    tasks = [asyncio.create_task(one(work)) for work in attack]
    await asyncio.sleep(under_way)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _times(work: Work, rounds: int) -> tuple[float, float]:
    """Return the median of some times, and the longest lag meanwhile, in milliseconds."""
    worst = 0.0

    async def ping() -> None:
        nonlocal worst
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            worst = max(worst, time.perf_counter() - before - 0.005)

    pinging = asyncio.create_task(ping())
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - started)
    pinging.cancel()
    await asyncio.gather(pinging, return_exceptions=True)
    return statistics.median(taken) * 1e3, worst * 1e3
