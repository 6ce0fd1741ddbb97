"""Attacks on queues: calls of one tenant that do not end, and one of another tenant beside them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from antwort import Antwort
from antwort.config import Config, LoadedConfig
from antwort.context import Context
from antwort.functions import ToolResult

PATIENCE = 120.0
"""Seconds after which a test fails instead of hanging."""


def config_of_two(tmp_path: Path, **sections: Any) -> LoadedConfig:
    """Return the configuration of a server that has keys of two tenants."""
    keys = [{"id": name, "key": f"secret-{name}", "tenant": name} for name in ("attacker", "other")]
    storage = {"url": f"sqlite:///{tmp_path / 'antwort.db'}"}
    given = {"auth": {"api_keys": keys}, "storage": storage, "data_dir": tmp_path / "data", **sections}
    return LoadedConfig(Config.model_validate(given))


@contextlib.asynccontextmanager
async def attacked(
    app: Antwort, queue: str, name: str, arguments: Mapping[str, Any], *, number: int, waiting: int
) -> AsyncIterator[list["asyncio.Task[ToolResult]"]]:
    """Let a tenant begin so many calls that do not end; go on when so many of them wait in a queue."""
    calls = [
        asyncio.create_task(app.registry.execute(name, arguments, call_of("attacker", index)))
        for index in range(number)
    ]
    try:
        await until_waiting(app, queue, waiting)
        yield calls
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


def call_of(tenant: str, number: int = 0) -> Context:
    """Return who makes a call: each is one of an agent and a run of its own."""
    return Context(tenant, run_id=f"run_{tenant}_{number}", agent_id=f"agent_{number}")


async def until_waiting(app: Antwort, queue: str, number: int) -> None:
    """Wait until so many wait in a queue."""
    async with asyncio.timeout(PATIENCE):
        while app.queues.by_name[queue].waiting < number:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)


async def check_other_tenant(
    app: Antwort, queue: str, name: str, holding: Mapping[str, Any], quick: Mapping[str, Any], *, waiting: int
) -> str:
    """Check that a call of another tenant ends while three that hold slots do not, and more wait; return its result."""
    async with attacked(app, queue, name, holding, number=3 + waiting, waiting=waiting) as calls:
        async with asyncio.timeout(PATIENCE):
            result = await app.registry.execute(name, quick, call_of("other"))
        assert not result.is_error, result.output
        assert not any(call.done() for call in calls), "it has not waited for anything of theirs"
        assert app.queues.by_name[queue].waiting == waiting, "nor has it made room for them"
        page = app.metrics.render(None)[0].decode()
        assert f'antwort_queue_waiting{{queue="{queue}"}} {float(waiting)}' in page
    assert app.queues.by_name[queue].waiting == 0
    return result.output
