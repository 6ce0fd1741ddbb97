"""What a journal knows to be stored when whoever writes it is cut off."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.storage.samples import TENANT, entry, record

from antwort.engine.journal import GroupedSaves, Journal
from antwort.storage import SqliteStore
from antwort.storage.base import FencedError, JournalEntry


@pytest.mark.parametrize("begun", [True, False])
async def test_what_could_not_be_stored_when_it_was_cut_off_is_stored_with_what_comes_next(
    tmp_path: Path, begun: bool
) -> None:
    path = tmp_path / "antwort.db"
    store = SqliteStore.open(path, busy_timeout=0.1)
    journal = Journal(store, record(), [entry("a")], 1)
    if begun:
        await journal.save()
    journal.note(entry("b"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        saving = asyncio.ensure_future(journal.save())
        for _ in range(4):
            await asyncio.sleep(0)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
    assert journal.begun == begun
    journal.note(entry("c"))
    await journal.save()
    assert await store.journal(TENANT, "resp_1") == [entry("a"), entry("b"), entry("c")]
    await store.close()


async def test_what_changes_in_the_same_moment_is_stored_together(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "antwort.db")
    journal = Journal(store, record(), [entry("a")], 1)
    await journal.save()
    saves, written = GroupedSaves(journal), list[tuple[int, int, int]]()
    write = store.append

    async def counted(*args: Any, start: int, again: Sequence[tuple[int, JournalEntry]]) -> None:
        written.append((start, len(args[3]), len(again)))
        await write(*args, start=start, again=again)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "append", counted)
        for name in "bcd":
            journal.note(entry(name))
        await asyncio.gather(*[saves.save(position) for position in (1, 2, 3)])
        journal.entries[1] = entry("B")
        journal.note(entry("e"))
        await asyncio.gather(saves.save(1), saves.save(4))
    assert written == [(1, 3, 0), (4, 1, 1)]
    assert await store.journal(TENANT, "resp_1") == [entry(name) for name in "aBcde"]
    await store.close()


async def test_who_no_longer_waits_for_a_group_stops_nobody_else(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "antwort.db")
    journal = Journal(store, record(), [entry("a")], 1)
    await journal.save()
    saves = GroupedSaves(journal)
    for name in "bc":
        journal.note(entry(name))
    left, stays = saves.save(1), saves.save(2)
    left.cancel()
    await stays
    assert await store.journal(TENANT, "resp_1") == [entry("a"), entry("b"), entry("c")]
    await store.close()


async def test_what_cannot_be_stored_together_is_known_to_all_who_wait(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "antwort.db")
    journal = Journal(store, record(), [entry("a")], 1)
    await journal.save()
    await store.claim(TENANT, "resp_1")  # somebody else has it now
    saves = GroupedSaves(journal)
    for name in "bc":
        journal.note(entry(name))
    results = await asyncio.gather(saves.save(1), saves.save(2), return_exceptions=True)
    assert [type(result) for result in results] == [FencedError, FencedError]
    await store.close()
