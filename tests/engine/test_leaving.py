"""A client that leaves in the very moment in which the end of its response is stored."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from antwort import Antwort
from antwort.config import Config
from antwort.context import Context
from antwort.storage.base import (
    ACTIVE,
    ConversationRecord,
    JournalEntry,
    ResponseRecord,
    StoreUnavailableError,
)
from antwort.testing import ScriptedBackend
from antwort.wire.requests import CreateResponse


async def test_who_leaves_while_the_end_is_stored_leaves_a_response_that_has_ended_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend(["Hello."]))
    async with app:
        store, stored = app.engine.store, asyncio.Event()
        create = store.create

        async def slow_create(record: ResponseRecord, entries: list[JournalEntry], **options: Any) -> None:
            await create(record, entries, **options)
            stored.set()
            await asyncio.Event().wait()  # the answer of the database takes its time

        monkeypatch.setattr(store, "create", slow_create)
        plan = await app.engine.plan(CreateResponse(input="Hi"), Context("tenant", scopes=frozenset({"*"})))
        task = asyncio.create_task(app.engine.respond(plan))
        await stored.wait()
        with caplog.at_level(logging.WARNING):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        response = await app.engine.retrieve("tenant", plan.response.id)
        assert (response["status"], len(response["output"])) == ("completed", 1)
        page = app.metrics.render(None)[0].decode()
        assert 'antwort_responses_total{status="completed"} 1.0' in page
        assert 'antwort_responses_total{status="cancelled"} 0.0' in page
        assert not caplog.records


class Told:
    """A sink that keeps the types of events."""

    started = True

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def put(self, kind: str, *events: bytes) -> None:
        self.kinds += [kind] * len(events)

    async def flush(self) -> None:
        """Keep them."""


async def test_an_end_that_cannot_be_stored_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend(["Hello."]))
    async with app:

        async def fail(*_: Any, **_options: Any) -> None:
            raise StoreUnavailableError("The database cannot be used now: another process holds it.")

        monkeypatch.setattr(app.engine.store, "create", fail)
        plan = await app.engine.plan(CreateResponse(input="Hi"), Context("tenant", scopes=frozenset({"*"})))
        told = Told()
        await app.engine.respond(plan, told)
    assert told.kinds[-2:] == ["error", "response.failed"]
    assert "response.completed" not in told.kinds


@pytest.mark.parametrize("stored", [True, False])
async def test_a_conversation_takes_up_an_answer_once_though_its_client_has_left(tmp_path: Path, stored: bool) -> None:
    app = Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend(["Hello."]))
    async with app:
        store = app.engine.store
        await store.conversations.create(ConversationRecord("conv_1", "tenant", 1))
        create = CreateResponse(input="Hi", store=stored, conversation="conv_1")
        plan = await app.engine.plan(create, Context("tenant", scopes=frozenset({"*"})))
        task = asyncio.create_task(app.engine.respond(plan))
        while plan.response.status in ACTIVE:  # noqa: ASYNC110 - nobody tells when it begins to end
            await asyncio.sleep(0)
        task.cancel()  # its end is on its way to the database
        with pytest.raises(asyncio.CancelledError):
            await task
        said = await store.conversations.history("tenant", "conv_1")
    assert said is not None
    assert [entry.direction for entry in said] == ["input", "output"]
