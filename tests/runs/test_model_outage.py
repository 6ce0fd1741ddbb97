"""The model server goes away while a background run works: the run waits, and goes on when it is back."""

from pathlib import Path

import pytest
from tests.runs.embedded import TENANT, embedded, is_delta, logged, text_of

from antwort.backends.errors import DISCONNECTED, TIMEOUT, UNAVAILABLE
from antwort.errors import APIError, RateLimitError, ServiceUnavailableError
from antwort.runs.run import ModelOutage
from antwort.testing import Gate, call, fail, turn
from antwort.testing.script import Failure

AWAY = fail(503, "Not now.", code=UNAVAILABLE)


@pytest.mark.parametrize("failure", [AWAY, fail(504, "Not now.", code=TIMEOUT), fail(429, "Not now.")])
async def test_a_run_waits_for_a_model_that_is_away_and_goes_on(tmp_path: Path, failure: Failure) -> None:
    steps = [turn(error=failure), turn("Here I am.")]
    async with embedded(tmp_path, steps) as app:
        response, stream = await app.result(await app.accept())
    assert (response["status"], stream.text) == ("completed", "Here I am.")
    assert stream.types.count("response.in_progress") == 1


async def test_an_answer_that_the_model_has_cut_off_is_begun_again_and_there_once(tmp_path: Path) -> None:
    gate = Gate()
    steps = [turn(["It is ", gate, "d"], error=fail(502, "Not now.", code=DISCONNECTED, after=2)), turn("It is done.")]
    async with embedded(tmp_path, steps) as app:
        response_id = await app.accept()
        seen = await app.read_until(response_id, is_delta)
        gate.open()
        response, stream = await app.result(response_id)
    assert stream.events[: len(seen)] == seen
    assert [text_of(item) for item in response["output"]] == ["It is done."]
    done = [event for event in stream.events if event["type"] == "response.output_item.done"]
    assert [event["item"]["status"] for event in done] == ["incomplete", "completed"]


async def test_what_was_done_before_is_not_done_again(tmp_path: Path) -> None:
    calls: list[int] = []

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        calls.append(a + b)
        return a + b

    steps = [turn(calls=[call("add", a=1, b=2)]), turn(error=AWAY), turn(error=AWAY), turn("3")]
    async with embedded(tmp_path, steps, [add]) as app:
        response, _ = await app.result(await app.accept())
    assert (response["status"], calls) == ("completed", [3])


async def test_a_run_that_has_waited_long_enough_fails_with_the_reason(tmp_path: Path) -> None:
    steps = [turn(error=fail(503, "Overloaded.", code=UNAVAILABLE))]
    async with embedded(tmp_path, steps, engine={"outage_patience": 0}) as app:
        response, stream = await app.result(await app.accept())
    assert response["status"] == "failed"
    assert "Overloaded." in response["error"]["message"]
    assert stream.types[-2:] == ["error", "response.failed"]


async def test_a_model_that_breaks_off_every_answer_is_asked_a_few_times_and_the_response_says_so(
    tmp_path: Path,
) -> None:
    steps = [turn(["It is ", "d"], error=fail(502, "Closed.", code=DISCONNECTED, after=2)) for _ in range(2)]
    async with embedded(tmp_path, steps, engine={"max_broken_answers": 2}) as app:
        response, stream = await app.result(await app.accept())
        assert len(app.model.requests) == 2
    assert response["status"] == "failed"
    assert response["error"]["message"].partition(": ")[2].startswith("Closed. Of 2 answers none came to its end")
    assert stream.types[-2:] == ["error", "response.failed"]


async def test_answers_that_break_off_count_anew_once_the_response_got_further(tmp_path: Path) -> None:
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    broken = turn(["It"], error=fail(502, "Closed.", code=DISCONNECTED, after=1))
    steps = [broken, turn(calls=[call("add", a=1, b=2)]), broken, turn("3")]
    async with embedded(tmp_path, steps, [add], engine={"max_broken_answers": 2}) as app:
        response, _ = await app.result(await app.accept())
    assert response["status"] == "completed"


def test_a_server_that_is_away_is_waited_for_however_often_it_was_asked() -> None:
    outage = ModelOutage(100.0, 3, clock=lambda: 0.0, jitter=lambda low, _: low)
    error = ServiceUnavailableError("Away.")
    assert all(outage.pause(error) is not None for _ in range(100))
    assert [outage.pause(error, broke_off=True) is None for _ in range(3)] == [False, False, True]
    assert "`engine.max_broken_answers`" in outage.last_error(error).message


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_what_would_fail_again_fails_at_once(tmp_path: Path, status: int) -> None:
    async with embedded(tmp_path, [turn(error=fail(status, "No."))]) as app:
        response, _ = await app.result(await app.accept())
    assert response["status"] == "failed"


async def test_a_run_that_waits_can_be_cancelled(tmp_path: Path) -> None:
    failure = fail(429, "Slow down.", headers={"retry-after": "600"})
    async with embedded(tmp_path, [turn(error=failure)]) as app:
        with logged("waits for the model") as waiting:
            response_id = await app.accept()
            await waiting.wait()
        assert (await app.runs.cancel(TENANT, response_id))["status"] == "cancelled"
        await app.result(response_id, cancelled=True)


async def test_a_run_that_waits_goes_on_at_the_next_start(tmp_path: Path) -> None:
    failure = fail(429, "Slow down.", headers={"retry-after": "600"})
    async with embedded(tmp_path, [turn(error=failure)]) as app:
        with logged("waits for the model") as waiting:
            response_id = await app.accept()
            await waiting.wait()
    async with embedded(tmp_path, ["Here I am."]) as app:
        response, _ = await app.result(response_id)
    assert [text_of(item) for item in response["output"]] == ["Here I am."]


async def test_runs_that_wait_for_the_model_keep_no_other_from_being_taken_up(tmp_path: Path) -> None:
    gates = [Gate(), Gate()]
    async with embedded(tmp_path, [turn("Never.", wait_for=gate) for gate in gates]) as app:
        ids = [await app.accept("One?"), await app.accept("Two?")]
        for gate in gates:
            await gate.reached()
    failure = fail(429, "Slow down.", headers={"retry-after": "600"})
    async with embedded(tmp_path, [turn(error=failure), "Two."], engine={"parallel_recoveries": 1}) as app:
        assert (await app.result(ids[1]))[0]["status"] == "completed"
        assert (await app.retrieve(ids[0]))["status"] == "in_progress"


def test_pauses_grow_are_random_and_respect_what_the_server_asks_for() -> None:
    now = [0.0]
    outage = ModelOutage(100.0, 5, clock=lambda: now[0], jitter=lambda _, high: high)
    error = ServiceUnavailableError("Away.")
    pauses: list[float] = []
    while (pause := outage.pause(error)) is not None:
        pauses.append(pause)
        now[0] += pause
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 9]
    outage.reset()
    assert outage.pause(error) == 1
    assert outage.pause(RateLimitError("Slow down.", retry_after=20)) == 20
    assert outage.pause(ServiceUnavailableError("Away.", headers={"retry-after": "25"})) == 25
    lower = ModelOutage(100.0, 5, clock=lambda: 0.0, jitter=lambda low, _: low)
    assert [lower.pause(APIError("Away.")) for _ in range(3)] == [0.5, 1, 2]
