"""What a journal knows to be stored when whoever writes it is cut off."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest
from tests.storage.samples import TENANT, entry, record

from antwort.engine.journal import Journal
from antwort.storage import SqliteStore


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
