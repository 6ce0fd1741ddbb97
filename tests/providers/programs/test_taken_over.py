"""A program whose run somebody else has taken over keeps nothing: it would be what the other one goes on from."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from tests.providers.programs.stage import TOOL, program, served_programs

from antwort.context import ANONYMOUS_TENANT
from antwort.functions import FunctionSpec

PATIENCE = 60.0


def test_a_program_that_was_taken_over_keeps_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def charge() -> str:
        """Charge an order."""
        begun.set()
        await go_on.wait()
        return "charged"

    with (
        caplog.at_level(logging.INFO, "antwort"),
        served_programs(tmp_path, [program("print(await charge())")], more=[FunctionSpec.of(charge)]) as stage,
    ):
        server = stage.server

        def done(work: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(work, server.loop).result(PATIENCE)

        fields = {"input": "Go!", "background": True, "tools": [TOOL, {"type": "function", "name": "charge"}]}
        name = stage.request("POST", "/responses", json=fields).json()["id"]
        done(begun.wait())
        assert done(server.app.engine.store.claim(ANONYMOUS_TENANT, name)) is not None
        server.loop.call_soon_threadsafe(go_on.set)
        end = time.monotonic() + PATIENCE
        while f"response {name} was taken over" not in caplog.text:
            assert time.monotonic() < end
            time.sleep(0.01)
        where = {"scope": "agent", "scope_id": f"{name}.program"}
        assert done(server.app.engine.store.values.list(ANONYMOUS_TENANT, where=where, limit=9, now=0)) == []
