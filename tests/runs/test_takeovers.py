"""Runs that end the process, and the innocent ones beside them."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.runs.embedded import TENANT, Embedded, embedded, text_of
from tests.runs.processes import ServerProcess
from tests.runs.steady_model import steady_model

from antwort.concurrency.slots import Queues
from antwort.functions import FunctionSpec
from antwort.runs.background import Takeover, TakeoverQueue
from antwort.testing import Gate, call, lint_response, lint_stream, matching, turn

FULL = "ANTWORT_TEST_FULL" in os.environ
INNOCENT = 40 if FULL else 10
POISON = 3 if FULL else 1
PATIENCE = 60.0


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with steady_model() as url:
        yield url


async def test_a_run_that_ends_the_process_has_failed_after_a_few_takeovers_and_the_others_complete(
    model: str, tmp_path: Path
) -> None:
    server = ServerProcess(tmp_path, model, sections={"engine": {"max_takeovers": 2}})
    server.start()
    names = [f"run-{number}" for number in range(INNOCENT)]
    for number in range(POISON):
        names.insert(number * 7 + 3, f"poison-{number}")
    try:
        runs = await accepted(server, names)
        starts = 0
        while not await finished(server, runs):
            server.kill()
            while not await asyncio.to_thread(server.try_to_start):
                starts += 1
            starts += 1
            assert starts <= 1 + 2 * POISON + 1, "each start more has ended because of one that was to have failed"
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
            for response_id, name in runs.items():
                await check(client, response_id, name)
    finally:
        server.kill()
    executions = server.executions()
    assert [executions[f"call_poison-{number}_0_0"] for number in range(POISON)] == [3] * POISON
    assert server.errors.count("is not taken up again") == POISON


async def accepted(server: ServerProcess, names: list[str]) -> dict[str, str]:
    """Have runs accepted until the server ends; return their names by id."""
    runs: dict[str, str] = {}

    async def accept(client: httpx.AsyncClient, name: str) -> None:
        body = {"model": "steady", "input": name, "background": True}
        runs[(await client.post("/v1/responses", json=body)).json()["id"]] = name

    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
        await asyncio.gather(*(accept(client, name) for name in names))
    return runs


async def finished(server: ServerProcess, runs: dict[str, str]) -> bool:
    """Wait until all runs are over, or the server has ended; tell which."""
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
            for response_id in runs:
                await client.get(f"/v1/responses/{response_id}", params={"stream": True})
                if (await client.get(f"/v1/responses/{response_id}")).json()["status"] in {"queued", "in_progress"}:
                    return False
    except httpx.TransportError:
        return False
    return True


async def check(client: httpx.AsyncClient, response_id: str, name: str) -> None:
    stream = lint_stream((await client.get(f"/v1/responses/{response_id}", params={"stream": True})).content)
    response = lint_response((await client.get(f"/v1/responses/{response_id}")).json())
    assert response == stream.response
    if name.startswith("poison"):
        assert response["status"] == "failed"
        assert "executing 'explode'. It is not tried again." in response["error"]["message"]
    else:
        assert response["status"] == "completed", response["error"]
        assert text_of(response["output"][-1]).startswith("It is done.")


# --- whose turn it is -------------------------------------------------------------------------------------------------


async def left(folder: Path, names: dict[str, int]) -> dict[str, str]:
    """Leave runs as crashes do, each taken up so many times in vain; return their ids by name."""
    gates = {name: Gate() for name in names}
    ids = {}
    async with embedded(folder, [turn("Never.", wait_for=gate) for gate in gates.values()]) as app:
        for name in names:
            ids[name] = await app.accept(name)
        for gate in gates.values():
            await gate.reached()
        await noted(app, {ids[name]: times for name, times in names.items()})
    return ids


async def noted(app: Embedded, takeovers: dict[str, int]) -> None:
    for response_id, times in takeovers.items():
        record = await app.store.get(TENANT, response_id)
        assert record is not None
        await app.store.note(TENANT, response_id, record.epoch, {"takeovers": times})
        record.extra["takeovers"] = times


def asked(app: Embedded) -> list[str]:
    return [text_of(request.items[0]) for request in app.model.requests]


async def test_runs_that_got_no_further_before_go_on_alone_after_the_others(tmp_path: Path) -> None:
    names = {"twice": 2, "once": 1, "fresh 1": 0, "also once": 1, "fresh 2": 0}
    ids = await left(tmp_path, names)
    gates = [Gate() for _ in names]
    async with embedded(tmp_path, [turn("Done.", wait_for=gate) for gate in gates]) as app:
        await gates[0].reached()
        await gates[1].reached()
        for number in range(2):
            gates[number].open()
        for number in range(2, 5):
            await gates[number].reached()
            assert len(app.model.requests) == number + 1
            gates[number].open()
        for response_id in ids.values():
            assert (await app.result(response_id))[0]["status"] == "completed"
    assert sorted(asked(app)[:2]) == ["fresh 1", "fresh 2"]
    assert asked(app)[2:] == ["once", "also once", "twice"]


async def test_a_run_that_got_further_makes_room_for_the_next(tmp_path: Path) -> None:
    ids = await left(tmp_path, {"first": 1, "second": 1})
    gate = Gate()

    async def look() -> str:
        """Look."""
        return "seen"

    steps = [
        turn(calls=[call("look")]),
        turn("First.", wait_for=gate, by=matching(last="seen")),
        turn("Second.", by=matching(last="second")),
    ]
    async with embedded(tmp_path, steps, [look]) as app:
        await gate.reached()
        assert (await app.result(ids["second"]))[0]["status"] == "completed"
        gate.open()
        assert (await app.result(ids["first"]))[0]["status"] == "completed"
        assert asked(app)[0] == "first"


async def test_what_a_run_counts_is_forgotten_when_it_got_further(tmp_path: Path) -> None:
    ids = await left(tmp_path, {"it": 2})
    gate = Gate()

    async def look() -> str:
        """Look."""
        return "seen"

    async with embedded(tmp_path, [turn(calls=[call("look")]), turn("Never.", wait_for=gate)], [look]) as app:
        await gate.reached()
        record = await app.store.get(TENANT, ids["it"])
        assert record is not None
        assert "takeovers" not in record.extra


async def test_a_takeover_is_counted_before_it_runs_and_uncounted_when_the_server_stops_in_good_order(
    tmp_path: Path,
) -> None:
    ids = await left(tmp_path, {"it": 2})
    gate = Gate()
    async with embedded(tmp_path, [turn("Never.", wait_for=gate)]) as app:
        await gate.reached()
        running = await app.store.get(TENANT, ids["it"])
    async with embedded(tmp_path, ["Done."]) as app:
        response, _ = await app.result(ids["it"])
    assert running is not None
    assert running.extra["takeovers"] == 3
    assert response["status"] == "completed"


async def test_a_run_that_was_taken_up_too_often_has_failed_and_says_what_it_was_doing(tmp_path: Path) -> None:
    gate = Gate()

    async def look() -> str:
        """Look."""
        await gate.wait()
        return "seen"

    specs = [FunctionSpec.of(look, {"idempotent": True})]
    async with embedded(tmp_path, [turn(calls=[call("look")])], specs) as app:
        response_id = await app.accept()
        await gate.reached()
        await noted(app, {response_id: 3})
    async with embedded(tmp_path, [], specs) as app:
        response, stream = await app.result(response_id)
    assert response["status"] == "failed"
    assert response["error"]["message"] == (
        "The server ended while it made this response, and again each of the 3 times it went on with it, "
        "executing 'look'. It is not tried again."
    )
    assert stream.types[-2:] == ["error", "response.failed"]


async def test_a_run_that_waits_for_its_turn_alone_can_be_cancelled(tmp_path: Path) -> None:
    ids = await left(tmp_path, {"one": 1, "two": 1, "three": 1})
    gate = Gate()
    async with embedded(tmp_path, [turn("One.", wait_for=gate), "Three."]) as app:
        await gate.reached()
        assert (await app.runs.cancel(TENANT, ids["two"]))["status"] == "cancelled"
        gate.open()
        assert (await app.result(ids["one"]))[0]["status"] == "completed"
        assert (await app.result(ids["three"]))[0]["status"] == "completed"


async def test_runs_that_are_taken_up_take_turns_between_tenants() -> None:
    queue = TakeoverQueue(2, Queues(several=True).named("recovery", bounded=False))
    entered: list[str] = []

    async def take_up(tenant: str, number: int) -> None:
        slot = queue.slot(Takeover(tenant, f"resp_{tenant}_{number}", epoch=2, before=0))
        await slot.enter()
        entered.append(tenant)
        await asyncio.sleep(0)
        slot.leave()

    tasks = [asyncio.create_task(take_up("a", number)) for number in range(2000)]
    tasks += [asyncio.create_task(take_up("b", number)) for number in range(3)]
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*tasks)
    assert len(entered) == 2003, "however many there are, all have their turn"
    assert max(index for index, tenant in enumerate(entered) if tenant == "b") < 10
