"""Runs that others have taken over, or that nobody would miss: what one worker makes of them, on one PostgreSQL."""

import asyncio
from pathlib import Path

import psycopg
import pytest
from tests.runs.embedded import TENANT, Embedded, embedded

from antwort.provider import function
from antwort.runs.recovery import StoredRun
from antwort.testing import Gate, call, turn
from antwort.types import JSON

ELSEWHERE = "elsewhere-0"
PATIENCE = 60.0


def options(url: str, lease: float = 0.5, **more: JSON) -> JSON:
    return {"storage": {"url": url}, "engine": {"takeover_after": lease}, **more}


async def test_a_worker_stops_to_work_on_what_another_one_has_taken_over(tmp_path: Path, ready_url: str) -> None:
    gate = Gate()
    async with embedded(tmp_path, [turn("Never.", wait_for=gate), "Done."], **options(ready_url)) as app:
        run = await app.accept()
        await gate.reached()
        await app.store.claim(TENANT, run, worker=ELSEWHERE)  # without a letter about it
        async with asyncio.timeout(PATIENCE):
            await gate.abandoned()
        response, _ = await app.result(run)  # since that one is dead
        assert response["status"] == "completed"


async def test_whoever_takes_a_run_over_says_so_to_the_one_who_had_it(tmp_path: Path, ready_url: str) -> None:
    gate = Gate()
    # The first one looks for those that are gone so seldom that it is the letter it hears.
    async with embedded(tmp_path / "1", [turn("Never.", wait_for=gate)], **shared(ready_url, 600.0)) as first:
        run = await first.accept()
        await gate.reached()
        await first.store.claim(TENANT, run, worker=ELSEWHERE)
        async with embedded(tmp_path / "2", ["Done."], **shared(ready_url, 0.5)) as second:
            async with asyncio.timeout(PATIENCE):
                await gate.abandoned()
            await second.result(run)


def shared(url: str, lease: float) -> JSON:
    bucket = {"bucket": "none", "endpoint": "http://127.0.0.1:9"}
    key = "c2l4dGVlbiBieXRlcywgdHdpY2UsIGFzIGl0IG11c3Q="
    return {**options(url, lease), "storage": {"url": url, "s3": bucket}, "encryption": {"key": key}}


async def test_readers_learn_of_the_end_of_a_run_that_was_taken_over_and_ended_elsewhere(
    tmp_path: Path, ready_url: str
) -> None:
    gate = Gate()
    async with embedded(tmp_path, [turn("Never.", wait_for=gate)], **options(ready_url)) as app:
        run = await app.accept()
        await gate.reached()
        reading = asyncio.create_task(app.read(run))
        claimed = await app.store.claim(TENANT, run, worker=ELSEWHERE)
        assert claimed is not None
        await (await StoredRun.load(app.app.engine, claimed, lambda _: None)).cancel()
        async with asyncio.timeout(PATIENCE):
            await reading


@function(approval="always", attach=True)
async def refund() -> str:
    """Give the money back."""
    return "refunded"


async def test_a_run_whose_worker_died_before_it_saw_the_answer_goes_on_while_servers_run(
    tmp_path: Path, ready_url: str
) -> None:
    async with embedded(tmp_path, [turn(calls=[call("refund")]), "Done."], [refund], **options(ready_url)) as app:
        run = await app.accept()
        await parked(app, run)
        with psycopg.connect(ready_url) as connection:  # as if it was parked after the answer came
            connection.execute("""UPDATE questions SET status = 'answered', answer = '{"approve": true}'""")
        response, _ = await app.result(run)
        assert response["status"] == "completed"


async def parked(app: Embedded, run: str) -> None:
    async with asyncio.timeout(PATIENCE):
        await app.runs.rest(TENANT, run)
    await app.at_rest()


async def test_what_a_server_that_does_not_work_could_not_cancel_is_anybodys(
    tmp_path: Path, ready_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancel(_: StoredRun) -> None:
        raise RuntimeError("it broke")

    async with embedded(tmp_path, [], **options(ready_url, server={"with_worker": False})) as app:
        run = await app.accept()
        with monkeypatch.context() as broken, pytest.raises(RuntimeError, match="it broke"):
            broken.setattr(StoredRun, "cancel", cancel)
            await app.runs.cancel(TENANT, run)
        assert [left.worker for left in await app.store.unfinished()] == [""]


async def test_a_worker_that_stops_begins_nothing_that_it_was_about_to_take_over(
    tmp_path: Path, ready_url: str
) -> None:
    async with embedded(tmp_path, [], **options(ready_url, server={"with_worker": False})) as app:
        run = await app.accept()
        left = await app.store.unfinished()
        app.runs.send_away()
        await app.runs._take_over(left)
        assert app.runs.idle
        record = await app.store.get(TENANT, run)
        assert record is not None
        assert (record.status, record.epoch) == ("queued", left[0].epoch + 1)
