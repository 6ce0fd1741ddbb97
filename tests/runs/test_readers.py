"""What a run stores when depends on whether somebody reads it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runs.embedded import TENANT, Embedded, embedded, is_delta

from antwort.engine.output import coalescer
from antwort.runs.background import Readers
from antwort.testing import Gate, turn


def count_writes(app: Embedded, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the name of each write of a response is added."""
    written: list[str] = []

    def counted(name: str) -> Callable[..., Awaitable[None]]:
        write = getattr(app.store, name)

        async def count(*args: Any, **options: Any) -> None:
            written.append(name)
            await write(*args, **options)

        return count

    for name in ("create", "append", "update", "add_events"):
        monkeypatch.setattr(app.store, name, counted(name))
    return written


async def test_a_run_that_nobody_reads_is_stored_in_a_few_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalescer, "UNREAD_SECONDS", 3600.0)
    async with embedded(tmp_path, [turn([f"word {number} " for number in range(64)])]) as app:
        written = count_writes(app, monkeypatch)
        response_id = await app.accept()
        await app.at_rest()
        assert written == ["create", "update", "update"]  # accepted, begun, ended
        _, stream = await app.result(response_id)
    assert stream.text == "".join(f"word {number} " for number in range(64))


async def test_much_that_nobody_reads_is_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescer, "UNREAD_SECONDS", 3600.0)
    async with embedded(tmp_path, [turn(["x" * 4096] * 64)]) as app:
        written = count_writes(app, monkeypatch)
        await app.accept()
        await app.at_rest()
    assert written.count("add_events") == 4


async def test_whoever_begins_to_read_a_run_gets_at_once_what_was_kept_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalescer, "UNREAD_SECONDS", 3600.0)
    gates = [Gate(), Gate()]
    async with embedded(tmp_path, [turn(["Wait", gates[0], " for", gates[1], " it."])]) as app:
        response_id = await app.accept()
        await gates[0].reached()
        assert not any(event.type.endswith(".delta") for event in await app.store.events(TENANT, response_id))
        seen = await app.read_until(response_id, is_delta)
        assert seen[-1]["delta"] == "Wait"
        gates[0].open()
        await gates[1].reached()  # nobody reads any more
        gates[1].open()
        await app.at_rest()
        _, stream = await app.result(response_id)
    assert [event["delta"] for event in stream.events if is_delta(event)] == ["Wait", " for it."]


async def test_what_nobody_reads_here_is_stored_for_those_who_read_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalescer, "UNREAD_SECONDS", 0.01)
    gate = Gate()
    async with embedded(tmp_path, [turn(["Wait", gate, " for it."])]) as app:
        response_id = await app.accept()
        await gate.reached()
        while not any(event.type.endswith(".delta") for event in await app.store.events(TENANT, response_id)):
            pass  # each look gives the run its turn
        gate.open()
        await app.at_rest()


def test_a_run_that_is_worked_on_anew_hears_of_readers_when_its_first_work_ends_late() -> None:
    readers = Readers()
    first: list[bool] = []
    later: list[bool] = []
    before, after = readers.told("resp_a", first.append), readers.told("resp_a", later.append)
    before.__enter__()
    after.__enter__()
    before.__exit__(None, None, None)  # it was taken over, and has come back before this had noticed
    with readers.reading("resp_a"):
        assert (first, later) == ([False], [False, True])
    after.__exit__(None, None, None)
    assert readers.none
