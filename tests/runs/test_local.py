"""Background runs in one process: their life, their readers, how they are cancelled and fenced."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.runs.embedded import SEARCH, TENANT, embedded, events_of, is_delta, text_of

from antwort.app import Antwort
from antwort.config import Config
from antwort.context import Context
from antwort.engine.window import INTERRUPTED
from antwort.errors import BadRequestError, NotFoundError, ServiceUnavailableError
from antwort.functions import FunctionSpec
from antwort.runs.local import LocalRuns
from antwort.testing import (
    Gate,
    RunningApp,
    ScriptedBackend,
    ScriptServer,
    call,
    fail,
    lint_response,
    lint_stream,
    matching,
    running,
    turn,
)

PATIENCE = 60.0


def client_of(server: RunningApp) -> httpx.Client:
    return httpx.Client(base_url=f"{server.url}/v1", timeout=PATIENCE)


def app_with(folder: Path, backend: str | ScriptedBackend, **options: Any) -> Antwort:
    return Antwort(Config(data_dir=folder, providers={}), backend=backend, **options)


# --- life -------------------------------------------------------------------------------------------------------------


def test_a_run_is_queued_then_in_progress_then_completed(tmp_path: Path) -> None:
    gate = Gate()
    with (
        ScriptedBackend([turn(["It is ", "done."], wait_for=gate)]) as model,
        running(app_with(tmp_path, model)) as server,
        client_of(server) as client,
    ):
        accepted = client.post("/responses", json={"input": "Go on.", "background": True})
        queued = lint_response(accepted.json())
        assert (accepted.status_code, queued["status"], queued["background"]) == (200, "queued", True)
        gate.wait_reached()
        begun = lint_response(client.get(f"/responses/{queued['id']}").json())
        assert (begun["status"], begun["output"]) == ("in_progress", [])
        gate.open()
        stream = lint_stream(client.get(f"/responses/{queued['id']}", params={"stream": True}).content)
        assert stream.types[:3] == ["response.created", "response.queued", "response.in_progress"]
        assert (stream.types[-1], stream.text) == ("response.completed", "It is done.")
        assert lint_response(client.get(f"/responses/{queued['id']}").json()) == stream.response


def test_a_streamed_run_sends_its_events_from_the_first_and_goes_on_when_the_client_leaves(tmp_path: Path) -> None:
    gate = Gate()
    with (
        ScriptedBackend([turn(["It is ", gate, "done."])]) as model,
        running(app_with(tmp_path, model)) as server,
        client_of(server) as client,
    ):
        seen = b""
        body = {"input": "Go on.", "background": True, "stream": True}
        with client.stream("POST", "/responses", json=body) as response:
            for data in response.iter_raw():
                seen += data
                if b"output_text.delta" in seen and seen.endswith(b"\n\n"):
                    break
        events = events_of(seen)
        gate.open()
        url = f"/responses/{events[0]['response']['id']}"
        last = events[-1]["sequence_number"]
        whole = client.get(url, params={"stream": True}).content
        assert lint_stream(whole).text == "It is done."
        assert seen + client.get(url, params={"stream": True, "starting_after": last}).content == whole


async def test_a_failure_of_the_model_ends_the_run_as_failed(tmp_path: Path) -> None:
    async with embedded(tmp_path, [turn(["It "], error=fail(500, "Overloaded.", after=1))]) as app:
        response, stream = await app.result(await app.accept())
    assert response["status"] == "failed"
    assert "Overloaded." in response["error"]["message"]
    assert [text_of(item) for item in response["output"]] == ["It "]
    assert stream.types[-2:] == ["error", "response.failed"]


async def test_a_run_that_reaches_its_deadline_ends_as_incomplete_with_all_items_closed(tmp_path: Path) -> None:
    steps = [turn(["Half an ans"], hang_after=1)]
    async with embedded(tmp_path, steps, engine={"deadline": 0.5}) as app:
        response, _ = await app.result(await app.accept())
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "deadline"})
    assert [(item["status"], text_of(item)) for item in response["output"]] == [("incomplete", "Half an ans")]


async def test_a_call_that_runs_at_the_deadline_does_not_stay_in_progress(tmp_path: Path) -> None:
    async def wait() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return "never"

    options: Any = {"engine": {"deadline": 0.5}}
    steps = [turn(calls=[call("wait")]), turn("Late.")]
    async with embedded(tmp_path, steps, [FunctionSpec.of(wait, {"hosted": SEARCH})], **options) as app:
        response, _ = await app.result(await app.accept())
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "deadline"})
    assert response["output"][0]["status"] == "failed"


# --- readers ----------------------------------------------------------------------------------------------------------


async def test_no_model_is_asked_when_a_call_has_taken_the_time_that_there_was(tmp_path: Path) -> None:
    async def linger(ctx: Context) -> str:
        """Take nearly all the time."""
        await asyncio.sleep((ctx.remaining() or 0) - 0.008)  # timers may be as early as that
        return "Done."

    async with embedded(tmp_path, [turn(calls=[call("linger")])], [linger], engine={"deadline": 0.5}) as app:
        response, _ = await app.result(await app.accept())
        assert len(app.model.requests) == 1
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "deadline"})


async def test_pieces_that_come_together_are_joined_up_to_4_kib(tmp_path: Path) -> None:
    pieces = ["x" * 1000] * 20 + ["ü€😀"] * 1000 + ["y" * 10_000]
    async with embedded(tmp_path, [turn(pieces, burst=len(pieces))]) as app:
        response, stream = await app.result(await app.accept())
    deltas = [event["delta"] for event in stream.events if is_delta(event)]
    assert "".join(deltas) == text_of(response["output"][0]) == "".join(pieces)
    assert all(len(delta.encode()) <= 4096 for delta in deltas[:-1])
    assert deltas[-1] == "y" * 10_000  # one piece of the model is never torn apart
    assert len(deltas) == 5 + 3 + 1


async def test_joined_pieces_keep_their_log_probabilities_and_kinds_are_not_mixed(tmp_path: Path) -> None:
    step = turn(["a", "b", "c"], reasoning=["p", "q"], logprobs=True, burst=5)
    async with embedded(tmp_path, [step]) as app:
        response_id = await app.accept(include=["message.output_text.logprobs"])
        response, stream = await app.result(response_id)
    assert [event["delta"] for event in stream.events if is_delta(event)] == ["pq", "abc"]
    assert [logprob["token"] for logprob in response["output"][1]["content"][0]["logprobs"]] == ["a", "b", "c"]


async def test_what_was_said_before_a_pause_is_not_held_back(tmp_path: Path) -> None:
    gate = Gate()
    async with embedded(tmp_path, [turn(["Wait", gate, " for it."])]) as app:
        response_id = await app.accept()
        seen = await app.read_until(response_id, is_delta)
        assert seen[-1]["delta"] == "Wait"
        gate.open()
        _, stream = await app.result(response_id)
    assert stream.text == "Wait for it."


async def test_live_readers_and_those_who_come_back_at_any_point_see_the_same_bytes(tmp_path: Path) -> None:
    gates = [Gate() for _ in range(8)]
    pieces = [piece for number, gate in enumerate(gates) for piece in (f"piece {number}, ", gate)]
    async with embedded(tmp_path, [turn([*pieces, "end"])]) as app:
        response_id = await app.accept()
        readers = []
        for gate in gates:
            readers += [asyncio.ensure_future(app.read(response_id)) for _ in range(5)]
            await gate.reached()
            gate.open()
        whole = await app.read(response_id)
        async with asyncio.timeout(PATIENCE):
            assert set(await asyncio.gather(*readers)) == {whole}
        frames = whole.split(b"\n\n")
        for number in range(len(lint_stream(whole).events)):
            assert await app.read(response_id, after=number) == b"\n\n".join(frames[number + 1 :])


async def test_a_reader_who_does_not_read_does_not_slow_the_run(tmp_path: Path) -> None:
    pieces = ["x" * 4096] * 2000
    # Without signs of life: the two are compared, and how many there are depends on the machine.
    engine = {"heartbeat": 3600, "max_answer_length": 10_000_000}
    quiet = Config.model_validate({"data_dir": tmp_path, "providers": {}, "engine": engine})
    with (
        ScriptedBackend([turn(pieces)]) as model,
        running(Antwort(quiet, backend=model)) as server,
        client_of(server) as client,
    ):
        body = {"input": "Talk.", "background": True, "stream": True}
        with client.stream("POST", "/responses", json=body) as idle, client_of(server) as other:
            (listed,) = other.get("/responses").json()["data"]
            whole = other.get(f"/responses/{listed['id']}", params={"stream": True}).content
            assert len(lint_stream(whole).text) == 4096 * 2000
            assert idle.read() == whole


def test_a_reader_is_answered_at_once_and_gets_signs_of_life_while_nothing_happens(tmp_path: Path) -> None:
    gate = Gate()
    settings = Config.model_validate({"data_dir": tmp_path, "providers": {}, "engine": {"heartbeat": 0.02}})
    with (
        ScriptedBackend([turn("Done.", wait_for=gate)]) as model,
        running(Antwort(settings, backend=model)) as server,
        client_of(server) as client,
    ):
        url = f"/responses/{client.post('/responses', json={'input': 'Wait.', 'background': True}).json()['id']}"
        gate.wait_reached()
        with client.stream("GET", url, params={"stream": True, "starting_after": 2}) as response:
            coming = response.iter_raw()
            seen = next(coming)
            assert seen.startswith(b": ")
            gate.open()
            seen += b"".join(coming)
    stream = lint_stream(seen, starting_after=2)
    assert (stream.text, stream.comments > 0) == ("Done.", True)


async def test_finished_runs_and_readers_who_left_leave_nothing_behind(tmp_path: Path) -> None:
    gate = Gate()
    async with embedded(tmp_path, [turn(["a", gate, "b"]), turn("c")]) as app:
        first = await app.accept()
        await app.read_until(first, is_delta)
        waiting = asyncio.ensure_future(app.read(first))
        await gate.reached()
        gone = asyncio.ensure_future(app.read(first))
        await asyncio.sleep(0)
        gone.cancel()
        assert not app.runs.idle
        gate.open()
        await waiting
        await app.result(await app.accept())
        await app.read_until(first, is_delta)
        with pytest.raises(asyncio.CancelledError):
            await gone
        await app.at_rest()
        assert app.runs.idle


async def test_the_stream_of_a_run_that_is_deleted_ends(tmp_path: Path) -> None:
    gate = Gate()
    async with embedded(tmp_path, [turn(["a", gate, "b"])]) as app:
        response_id = await app.accept()
        reading = asyncio.ensure_future(app.read(response_id))
        await gate.reached()
        assert await app.store.delete(TENANT, response_id)
        gate.open()
        async with asyncio.timeout(PATIENCE):
            assert (await reading).endswith(b"data: [DONE]\n\n")
        with pytest.raises(NotFoundError):
            await app.retrieve(response_id)


async def test_a_run_that_is_deleted_stops(tmp_path: Path) -> None:
    gate = Gate()
    async with embedded(tmp_path, [turn(["a", gate, "b"])]) as app:
        response_id = await app.accept()
        await gate.reached()
        assert await app.runs.delete(TENANT, response_id)
        async with asyncio.timeout(PATIENCE):
            await app.at_rest()
        assert app.runs.idle
        assert not await app.runs.delete(TENANT, response_id)


async def test_a_store_that_fails_once_leaves_no_gap_in_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, failed = Gate(), Gate()
    async with embedded(tmp_path, [turn(["Before, ", gate, "after.", failed])]) as app:
        response_id = await app.accept()
        await app.read_until(response_id, is_delta)
        working = app.store.add_events

        async def failing(*arguments: Any) -> None:
            monkeypatch.setattr(app.store, "add_events", working)
            failed.open()
            raise ServiceUnavailableError("The database cannot be used now: the disk is full.")

        monkeypatch.setattr(app.store, "add_events", failing)
        gate.open()
        response, stream = await app.result(response_id)
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert stream.text == "Before, after."


# --- cancelling -------------------------------------------------------------------------------------------------------


async def test_a_run_that_has_not_begun_can_be_cancelled(tmp_path: Path) -> None:
    async with embedded(tmp_path, []) as app:
        response_id = await app.accept()
        await app.runs.close()  # before its task had a turn
        runs = LocalRuns(app.app.engine)
        cancelled = await runs.cancel(TENANT, response_id)
        assert lint_response(cancelled)["status"] == "cancelled"
        assert [event.type async for event in runs.events(TENANT, response_id)] == [
            "response.created",
            "response.queued",
        ]
        assert (await runs.recover(), runs.idle) == (0, True)


def test_cancelling_while_the_model_speaks_closes_the_connection_to_it(tmp_path: Path) -> None:
    gate = Gate()
    with (
        ScriptServer([turn(["Never ", gate, "mind."])]) as model,
        running(app_with(tmp_path, model.url)) as server,
        client_of(server) as client,
    ):
        seen = b""
        body = {"input": "Talk.", "background": True, "stream": True}
        with client.stream("POST", "/responses", json=body) as response, client_of(server) as other:
            coming = response.iter_raw()
            while b"output_text.delta" not in seen:
                seen += next(coming)
            response_id = events_of(seen)[0]["response"]["id"]
            gate.wait_reached()
            cancelled = lint_response(other.post(f"/responses/{response_id}/cancel").json())
            assert (cancelled["status"], text_of(cancelled["output"][0])) == ("cancelled", "Never ")
            gate.wait_abandoned()
            seen += b"".join(coming)
        stream = lint_stream(seen, cancelled=True)
        assert stream.types[-1] == "response.output_item.done"
        assert seen.endswith(b"data: [DONE]\n\n")
        assert client.get(f"/responses/{response_id}", params={"stream": True}).content == seen
        assert client.get(f"/responses/{response_id}").json() == cancelled
        assert client.post(f"/responses/{response_id}/cancel").json() == cancelled
    assert model.cancelled == [1]


@pytest.mark.parametrize("shown", [True, False])
async def test_cancelling_while_a_function_runs_cancels_the_function(tmp_path: Path, shown: bool) -> None:
    gate = Gate()

    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "never"

    async with embedded(tmp_path, [turn("Let me see.", calls=[call("wait")])], [wait]) as app:
        response_id = await app.accept(show_calls=shown)
        await gate.reached()
        await app.runs.cancel(TENANT, response_id)
        await gate.abandoned()
        response, _ = await app.result(response_id, cancelled=True)
        outputs = [item["output"] for item in response["output"] if item["type"] == "antwort:function_call"]
        assert outputs == ([INTERRUPTED] if shown else [])


async def test_a_hosted_call_that_is_cancelled_has_failed(tmp_path: Path) -> None:
    gate = Gate()

    async def search() -> str:
        """Search."""
        await gate.wait()
        return "never"

    async with embedded(tmp_path, [turn(calls=[call("search")])], [FunctionSpec.of(search, {"hosted": SEARCH})]) as app:
        response_id = await app.accept()
        await gate.reached()
        await app.runs.cancel(TENANT, response_id)
        response, _ = await app.result(response_id, cancelled=True)
    assert [(item["type"], item["status"]) for item in response["output"]] == [("web_search_call", "failed")]


async def test_cancelling_a_run_that_is_over_changes_nothing(tmp_path: Path) -> None:
    async with embedded(tmp_path, ["Done."]) as app:
        response_id = await app.accept()
        response, _ = await app.result(response_id)
        assert await app.runs.cancel(TENANT, response_id) == response
        assert (await app.result(response_id))[0] == response


async def test_several_who_cancel_at_once_all_get_the_cancelled_run(tmp_path: Path) -> None:
    gate = Gate()
    async with embedded(tmp_path, [turn(["a", gate, "b"])]) as app:
        response_id = await app.accept()
        await gate.reached()
        async with asyncio.timeout(PATIENCE):
            results = await asyncio.gather(*(app.runs.cancel(TENANT, response_id) for _ in range(5)))
        response, _ = await app.result(response_id, cancelled=True)
        assert all(result == response for result in results)


async def test_a_run_that_ends_while_it_is_cancelled_is_either(tmp_path: Path) -> None:
    gates = [Gate() for _ in range(10, 30)]
    steps = [turn(["a", gate], by=matching(text=f"number {n}")) for n, gate in enumerate(gates, 10)]
    async with embedded(tmp_path, steps) as app:
        for number, gate in enumerate(gates, 10):
            response_id = await app.accept(f"number {number}")
            await gate.reached()
            gate.open()
            for _ in range(number - 10):
                await asyncio.sleep(0)
            response = await app.runs.cancel(TENANT, response_id)
            assert response["status"] in {"cancelled", "completed"}
            assert (await app.result(response_id, cancelled=response["status"] == "cancelled"))[0] == response


async def test_a_foreground_response_cannot_be_cancelled(tmp_path: Path) -> None:
    async with embedded(tmp_path, ["Done."]) as app:
        response = await app.app.run("Hello?")
        with pytest.raises(BadRequestError, match=r"^Cannot cancel a synchronous response\.$"):
            await app.runs.cancel(TENANT, response.id)


async def test_nobody_cancels_or_reads_a_run_of_another_tenant(tmp_path: Path) -> None:
    gate = Gate()
    async with embedded(tmp_path, [turn(["Mine", gate])]) as app:
        response_id = await app.accept()
        await gate.reached()
        with pytest.raises(NotFoundError):
            await app.runs.cancel("somebody-else", response_id)
        assert [event async for event in app.runs.events("somebody-else", response_id)] == []
        gate.open()
        assert (await app.result(response_id))[0]["status"] == "completed"


# --- fencing ----------------------------------------------------------------------------------------------------------


async def test_a_run_that_another_process_has_taken_over_is_left_to_it(tmp_path: Path) -> None:
    gate, second_gate = Gate(), Gate()
    async with embedded(tmp_path, [turn(["First ", gate, "writer."])]) as first:
        response_id = await first.accept()
        await first.read_until(response_id, is_delta)
        reading = asyncio.ensure_future(first.read(response_id))
        async with embedded(tmp_path, [turn(["Second ", second_gate, "writer."])]) as second:
            await second_gate.reached()
            gate.open()
            await first.at_rest()
            second_gate.open()
            response, stream = await second.result(response_id)
            async with asyncio.timeout(PATIENCE):
                seen = await reading  # a reader at the first process sees what the second writes
            assert seen == await second.read(response_id)
    assert [text_of(item) for item in response["output"]] == ["Second writer."]
    assert stream.types.count("response.completed") == 1


async def test_a_function_that_runs_while_the_run_is_taken_over_does_not_write_its_result(tmp_path: Path) -> None:
    gate = Gate()
    calls: list[str] = []

    async def charge() -> str:
        """Charge."""
        calls.append("charged")
        await gate.wait()
        return "charged"

    async with embedded(tmp_path, [turn(calls=[call("charge")])], [charge]) as first:
        response_id = await first.accept()
        await gate.reached()
        async with embedded(tmp_path, ["It was interrupted."], [charge]) as second:
            response, _ = await second.result(response_id)
            gate.open()
            await first.at_rest()
            assert first.runs.idle
            assert await second.retrieve(response_id) == response
            assert second.asked()[-1]["output"] == INTERRUPTED
    assert calls == ["charged"]


async def test_a_run_is_executed_by_one_of_two_processes_that_start_together(tmp_path: Path) -> None:
    async with embedded(tmp_path, [turn("Never.", wait_for=Gate()) for _ in range(5)]) as app:
        ids = [await app.accept(f"number {number}") for number in range(5)]
    steps = [turn(f"Answer {n}.", by=matching(text=f"number {n}")) for n in range(5)]
    async with contextlib.AsyncExitStack() as stack:
        apps = await asyncio.gather(*(stack.enter_async_context(embedded(tmp_path, steps)) for _ in range(2)))
        for number, response_id in enumerate(ids):
            response, stream = await apps[0].result(response_id)
            assert response["output"][-1]["content"][0]["text"] == f"Answer {number}."
            assert stream.types.count("response.completed") == 1
