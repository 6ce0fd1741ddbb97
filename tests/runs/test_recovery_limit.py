"""A start that finds many runs unfinished takes up a few at a time."""

import gc
from pathlib import Path
from typing import Any

from tests.runs.embedded import TENANT, Embedded, embedded, text_of

from antwort.storage.base import ResponseRecord
from antwort.testing import Gate, turn


async def interrupted(folder: Path, count: int, **options: Any) -> list[str]:
    """Leave runs that all stand at the model; return their ids, oldest first."""
    gates = [Gate() for _ in range(count)]
    async with embedded(folder, [turn("Never.", wait_for=gate) for gate in gates]) as app:
        ids = [await app.accept(f"Question {number}?", **options) for number in range(count)]
        for gate in gates:
            await gate.reached()
    return ids


def questions(app: Embedded) -> list[str]:
    """Return what the model was asked, in order."""
    return [text_of(request.items[-1]) for request in app.model.requests]


async def test_at_most_as_many_runs_as_the_limit_says_are_at_the_model(tmp_path: Path) -> None:
    ids = await interrupted(tmp_path, 5)
    gates = [Gate() for _ in ids]
    one, two, *rest = [turn(f"Answer {number}.", wait_for=gate) for number, gate in enumerate(gates)]
    async with embedded(tmp_path, [one, two, "At once.", *rest], engine={"parallel_recoveries": 2}) as app:
        await gates[0].reached()
        await gates[1].reached()
        # A new run waits for nobody. It began last and is over, so the others have had every chance to begin.
        new = await app.accept("New?")
        assert (await app.result(new))[0]["status"] == "completed"
        assert sorted(questions(app)[:2]) == ["Question 0?", "Question 1?"], "two at once, in either order"
        assert questions(app)[2:] == ["New?"]
        for waiting in ids[2:]:
            assert (await app.retrieve(waiting))["status"] == "in_progress"
        for number in range(2, 5):
            gates[number - 2].open()
            await gates[number].reached()
            assert len(app.model.requests) == number + 2  # with the new one
        gates[3].open()
        gates[4].open()
        results = [(await app.result(response_id))[0] for response_id in ids]
    asked = [question for question in questions(app) if question != "New?"]
    assert asked[2:] == ["Question 2?", "Question 3?", "Question 4?"]
    assert [(result["status"], text_of(result["output"][-1])) for result in results] == [
        ("completed", f"Answer {asked.index(f'Question {number}?')}.") for number in range(5)
    ]


async def test_the_records_of_runs_that_wait_for_their_turn_are_not_in_memory(tmp_path: Path) -> None:
    ids = await interrupted(tmp_path, 4)
    gate = Gate()
    steps = [turn("First.", wait_for=gate), turn("Second."), turn("Third."), turn("Fourth.")]
    async with embedded(tmp_path, steps, engine={"parallel_recoveries": 1}) as app:
        await gate.reached()
        # The thread that writes may not yet have put down the last record it handed over. It has when it does this.
        assert await app.store.claim(TENANT, "resp_unknown") is None
        gc.collect()
        held = {thing.id for thing in gc.get_objects() if isinstance(thing, ResponseRecord)}
        assert held & set(ids) == {ids[0]}
        gate.open()
        for response_id in ids:
            assert (await app.result(response_id))[0]["status"] == "completed"


async def test_a_run_that_waits_for_its_turn_can_be_cancelled_and_deleted(tmp_path: Path) -> None:
    ids = await interrupted(tmp_path, 4)
    gate = Gate()
    steps = [turn("First.", wait_for=gate), turn("Last.")]
    async with embedded(tmp_path, steps, engine={"parallel_recoveries": 1}) as app:
        await gate.reached()
        assert (await app.runs.cancel(TENANT, ids[1]))["status"] == "cancelled"
        assert await app.store.delete(TENANT, ids[2])
        gate.open()
        assert (await app.result(ids[0]))[0]["status"] == "completed"
        assert (await app.result(ids[3]))[0]["status"] == "completed"
        await app.result(ids[1], cancelled=True)
        assert questions(app) == ["Question 0?", "Question 3?"]


async def test_what_a_waiting_run_continues_may_be_deleted_meanwhile(tmp_path: Path) -> None:
    async with embedded(tmp_path, ["One."]) as app:
        before = await app.app.run("Before?")
    ids = await interrupted(tmp_path, 2, previous_response_id=before.id)
    gate = Gate()
    steps = [turn("First.", wait_for=gate), turn("Second.")]
    async with embedded(tmp_path, steps, engine={"parallel_recoveries": 1}) as app:
        await gate.reached()
        assert await app.store.delete(TENANT, before.id)
        gate.open()
        response, _ = await app.result(ids[1])
        assert [text_of(item) for item in app.asked()] == ["Question 1?"]
    assert response["status"] == "completed"


async def test_runs_that_still_wait_when_the_server_stops_go_on_at_the_next_start(tmp_path: Path) -> None:
    ids = await interrupted(tmp_path, 3)
    gate = Gate()
    async with embedded(tmp_path, [turn("Never.", wait_for=gate)], engine={"parallel_recoveries": 1}) as app:
        await gate.reached()
    async with embedded(tmp_path, ["One.", "Two.", "Three."]) as app:
        for response_id in ids:
            assert (await app.result(response_id))[0]["status"] == "completed"
