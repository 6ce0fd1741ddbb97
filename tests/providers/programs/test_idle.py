"""The processes of the interpreter end when nobody needs them, and are there again for the next program."""

import asyncio
import time

import pytest

from antwort.providers.programs.interpreter import ProgramInterpreter
from antwort.providers.programs.settings import ProgramsSettings

PATIENCE = 60.0


async def test_processes_that_nobody_needs_end_and_come_back() -> None:
    interpreter = ProgramInterpreter(ProgramsSettings(processes=2), idle=0.05)
    try:
        for _ in range(2):
            async with interpreter.session("acme") as session:
                await asyncio.sleep(0.2)  # longer than they may be idle
                assert interpreter.is_started
                assert await session.feed_run("6 * 7") == 42
            end = time.monotonic() + PATIENCE
            while interpreter.is_started:
                assert time.monotonic() < end, "they go on"
                await asyncio.sleep(0.01)
    finally:
        await interpreter.close()


async def test_a_program_that_is_given_up_while_the_processes_start_leaves_them_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached = asyncio.Event()
    right = ProgramInterpreter._limits
    interpreter = ProgramInterpreter(ProgramsSettings(processes=2))

    def noted(self: ProgramInterpreter) -> object:
        reached.set()
        return right.__get__(self)

    monkeypatch.setattr(ProgramInterpreter, "_limits", property(noted))
    try:
        first = asyncio.ensure_future(interpreter.fresh())
        await reached.wait()  # the processes are there, and nothing was taken from them yet
        first.cancel()
        await asyncio.wait([first])
        fresh = await interpreter.fresh()
        async with interpreter.session("acme") as session:
            await session.load_session(fresh)
            assert await session.feed_run("6 * 7") == 42
    finally:
        await interpreter.close()
