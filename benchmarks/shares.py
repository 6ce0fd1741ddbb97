"""How long a tenant waits while another attacks a queue that both share."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from antwort import Antwort
from antwort.config import Config
from antwort.context import Context
from antwort.errors import APIError
from benchmarks.gateway import Bench, open_bench
from benchmarks.measure import Row
from benchmarks.sub_agents import MODEL, arguments

ATTACKER, OTHER = "attacker", "other"
ROUNDS = 15
CHILDREN = 900
TREES = 5
LAG = 100.0
"""Milliseconds that the event loop may be late."""
METHOD = f"""\
Shares: two tenants of one app. What one asks for, alone and while the other has begun more than there is room for:
commands and code that sleep, programs that compute without end, and {TREES} trees of {CHILDREN} sub-agents. In ms, time
that passes, medians of {ROUNDS} times; the bar is twice the time alone plus one unit of work, which is a sub-agent's
5 ms, and nothing for the others. The lag is the longest wait of the event loop meanwhile."""

Work = Callable[[], Awaitable[object]]


def shares_rows(*, rounds: int = ROUNDS, children: int = CHILDREN) -> list[Row]:
    """Measure all queues."""
    with open_bench() as bench:
        return uvloop.run(_rows(bench, rounds, children))


async def _rows(bench: Bench, rounds: int, children: int) -> list[Row]:
    config = {
        "auth": {"api_keys": [{"id": name, "key": f"secret-{name}", "tenant": name} for name in (ATTACKER, OTHER)]},
        "backends": {"default": {"url": bench.mock_url}},
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
    async with Antwort(Config.model_validate({**config, "data_dir": folder})) as app:

        def call(tenant: str, name: str, given: dict[str, Any], number: int = 0) -> Work:
            ctx = Context(tenant, run_id=f"run_{tenant}_{number}", agent_id=f"agent_{number}")
            return lambda: app.registry.execute(name, given, ctx)

        def tree() -> Awaitable[object]:
            tools = [{"type": "function", "name": name} for name in ("spawn_many", "store_get")]
            return app.run(arguments(children), tenant=ATTACKER, model=MODEL, tools=tools, store=False)

        def asked() -> Awaitable[object]:
            return app.run("Hello", tenant=OTHER, model="json", store=False)

        sleeping: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
            "commands": ("shell", {"command": "sleep 25"}, {"command": "echo hello"}),
            "code": ("code_interpreter", {"code": "import time; time.sleep(25)"}, {"code": "1 + 1"}),
            "programs": ("run_program", {"code": "while True:\n    pass"}, {"code": "1 + 1"}),
        }
        for what, (name, holding, quick) in sleeping.items():
            attack = [call(ATTACKER, name, holding, number) for number in range(16)]
            rows += await _measured(what, call(OTHER, name, quick), attack, rounds, unit=0.0)
        rows += await _measured("sub-agents", asked, [tree] * TREES, rounds, unit=5.0)
    return rows


async def _measured(what: str, work: Work, attack: list[Work], rounds: int, unit: float) -> list[Row]:
    await work()
    alone, _ = await _times(work, rounds)
    async with _attacking(attack):
        beside, lag = await _times(work, rounds)
    return [
        Row(f"shares: {what}, alone", alone, "ms"),
        Row(f"shares: {what}, beside an attack", beside, "ms", 2 * alone + unit),
        Row(f"shares: {what}, lag of the event loop", lag, "ms", LAG),
    ]


@contextlib.asynccontextmanager
async def _attacking(attack: list[Work]) -> AsyncIterator[None]:
    async def one(work: Work) -> None:
        with contextlib.suppress(APIError):
            while True:
                await work()

    tasks = [asyncio.create_task(one(work)) for work in attack]
    await asyncio.sleep(2.0)  # until all of it is under way
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
