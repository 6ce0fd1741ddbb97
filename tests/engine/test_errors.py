"""Errors that end a response take along what it held: when garbage is collected, to free much at once takes long."""

import contextlib
import gc
import logging
import weakref
from pathlib import Path

import pytest

from antwort import Antwort
from antwort.backends.chat.answer import ChatAnswer
from antwort.config import BackendConfig, Config, EngineConfig
from antwort.context import Context
from antwort.errors import APIError, BadRequestError
from antwort.provider import Provider, function
from antwort.testing import ScriptedBackend, ScriptServer, call, fail, turn
from antwort.types import JSON
from antwort.wire.requests import CreateResponse, TextConfig


async def test_a_response_that_failed_is_gone_without_a_collection(tmp_path: Path) -> None:
    app = Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend([turn(error=fail(500, "Broken."))]))
    async with app:
        create = CreateResponse(input="Hi", store=False)
        plan = await app.engine.plan(create, Context("tenant", scopes=frozenset({"*"})))
        loop = app.engine.loop(plan, app.engine.journal(plan), None)
        alive = weakref.ref(loop)
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(APIError):
                await loop.run()
            del loop
            assert alive() is None
        finally:
            gc.enable()


class Quiet(Provider):
    """A provider with a function that says nothing."""

    @function
    async def whisper(self) -> None:
        """Say nothing."""


async def test_a_response_that_made_a_call_is_gone_without_a_collection(tmp_path: Path) -> None:
    backend = ScriptedBackend([turn(calls=[call("whisper")]), turn("Done.")])
    async with Antwort(Config(data_dir=tmp_path), providers=[Quiet()], backend=backend) as app:
        plan = await app.engine.plan(CreateResponse(input="Hi", store=False), Context("t", scopes=frozenset({"*"})))
        loop = app.engine.loop(plan, app.engine.journal(plan), None)
        alive = weakref.ref(loop)
        gc.collect()
        gc.disable()
        try:
            assert (await loop.run()).status == "completed"
            del loop
            assert alive() is None
        finally:
            gc.enable()


class Unheard:
    """A sink that nobody reads."""

    started = False

    def put(self, kind: str, *events: bytes) -> None:
        """Drop events."""

    async def flush(self) -> None:
        """Drop nothing more."""


async def test_what_is_too_deep_to_be_written_is_the_requests_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema: JSON = {}
    for _ in range(50_000):
        schema = {"properties": schema}
    text = TextConfig(format={"type": "json_schema", "name": "deep", "schema": schema})
    async with Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend([])) as app:
        plan = await app.engine.plan(CreateResponse(input="Hi", text=text), Context("t", scopes=frozenset({"*"})))
        with pytest.raises(BadRequestError, match="nested too deeply"):
            await app.engine.respond(plan, Unheard())
        plan.response.background = True
        with pytest.raises(BadRequestError, match="nested too deeply"):
            app.engine.record(plan)
    assert not caplog.records


class Begun(Unheard):
    """A sink that has sent something, so that errors are events."""

    started = True


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("sink", [None, Unheard(), Begun()])
async def test_a_response_that_failed_is_counted_and_told_to_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sink: Unheard | None, *, store: bool
) -> None:
    app = Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend([turn(error=fail(500, "Broken."))]))
    async with app:
        create = CreateResponse(input="Hi", store=store)
        plan = await app.engine.plan(create, Context("tenant", scopes=frozenset({"*"})))
        with contextlib.nullcontext() if isinstance(sink, Begun) else pytest.raises(APIError):
            await app.engine.respond(plan, sink)
        page = app.metrics.render(None)[0].decode()
    assert 'antwort_responses_total{status="failed"} 1.0' in page
    assert f"response {plan.response.id} failed: " in caplog.text


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("status", [500, 503, 429])
async def test_an_answer_that_fails_in_its_middle_is_told_to_the_log_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int, *, background: bool
) -> None:
    broken = turn(["It ", "is"], error=fail(status, "Out of memory.", code=str(status), after=1))
    with ScriptServer([broken]) as server:
        engine = EngineConfig(max_broken_answers=1)
        config = Config(data_dir=tmp_path, engine=engine, backends={"local": BackendConfig(url=server.url)})
        async with Antwort(config) as app:
            create = CreateResponse(model="scripted", input="Hi", stream=True, background=background or None)
            plan = await app.engine.plan(create, Context("tenant", scopes=frozenset({"*"})))
            if background:
                await app.runs.accept(plan)
                types = [event.type async for event in app.runs.events("tenant", plan.response.id)]
                assert types[-1] == "response.failed"
            else:
                await app.engine.respond(plan, Begun())
    told = [record.getMessage() for record in caplog.records if "Out of memory" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith(f"response {plan.response.id} failed: ")


async def test_an_answer_that_cannot_be_read_is_told_to_the_log_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def puzzled(_reader: object, _event: object) -> None:
        raise TypeError("what is this?")

    monkeypatch.setattr(ChatAnswer, "take", puzzled)
    with ScriptServer(["Hello."]) as server:
        config = Config(data_dir=tmp_path, backends={"local": BackendConfig(url=server.url, retries=0)})
        async with Antwort(config) as app:
            create = CreateResponse(model="scripted", input="Hi", stream=True)
            plan = await app.engine.plan(create, Context("tenant", scopes=frozenset({"*"})))
            with pytest.raises(APIError, match="could not be read"):
                await app.engine.respond(plan, Unheard())
    ours = [record for record in caplog.records if record.name.startswith("antwort.")]  # the model's server logs, too
    assert len([record for record in ours if record.levelno >= logging.WARNING]) == 1
    assert "what is this?" in caplog.text
