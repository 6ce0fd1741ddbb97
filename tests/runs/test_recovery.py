"""Runs that were cut off, at every point of their life, and how the next start goes on with them."""

from pathlib import Path
from typing import Any

import pytest
from tests.runs.embedded import SEARCH, TENANT, Embedded, embedded, is_delta, text_of

from antwort.context import Context, Source
from antwort.engine.window import INTERRUPTED
from antwort.errors import BadRequestError
from antwort.functions import FunctionSpec
from antwort.storage.base import JournalEntry, ResponseRecord
from antwort.testing import Gate, call, matching, turn
from antwort.types import JSON


class Functions:
    """Functions that stop at a gate the first time, as if the process had died there."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.calls: list[str] = []

    async def charge(self, order: str) -> str:
        """Charge an order."""
        return await self._work(f"charged {order}")

    async def look_up(self, key: str) -> str:
        """Look something up."""
        return await self._work(f"found {key}")

    async def quick(self, key: str) -> str:
        """Look something up quickly."""
        self.calls.append(key)
        return f"known {key}"

    async def search(self) -> str:
        """Search."""
        return await self._work("found it")

    async def _work(self, result: str) -> str:
        self.calls.append(result)
        await self.gate.wait()
        return result

    def specs(self) -> list[FunctionSpec]:
        return [
            FunctionSpec.of(self.charge),
            FunctionSpec.of(self.look_up, {"idempotent": True}),
            FunctionSpec.of(self.quick, {"idempotent": True}),
            FunctionSpec.of(self.search, {"hosted": SEARCH}),
        ]


def answers(app: Embedded, number: int = -1) -> dict[str, str]:
    """Return what the model was told about its calls."""
    return {item["call_id"]: item["output"] for item in app.asked(number) if item["type"] == "function_call_output"}


def function_tool(name: str) -> JSON:
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}


# --- before the model has said anything -------------------------------------------------------------------------------


async def test_a_run_that_was_only_queued_is_done(tmp_path: Path) -> None:
    async with embedded(tmp_path, []) as app:
        response_id = await app.accept("Hello?")
        # Nothing is awaited here, so its task had no turn yet.
    async with embedded(tmp_path, [turn("Here I am.", expect=matching(last="Hello?"))]) as app:
        response, stream = await app.result(response_id)
    assert stream.types[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert (response["status"], stream.text) == ("completed", "Here I am.")


async def test_a_run_is_done_whose_process_died_before_its_first_event_was_stored(tmp_path: Path) -> None:
    async with embedded(tmp_path, ["Here I am."]) as app:
        record, entries = await stored_request(app, {"input": "Hello?", "background": True})
        await app.store.create(record, entries)
        assert await app.runs.recover() == 1
        response, stream = await app.result(record.id)
    assert stream.types[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert response["status"] == "completed"


async def test_a_run_that_waited_for_the_model_asks_it_again(tmp_path: Path) -> None:
    gate = Gate()
    async with embedded(tmp_path, [turn("Never.", wait_for=gate)]) as app:
        response_id = await app.accept("Hello?")
        await gate.reached()
    async with embedded(tmp_path, ["Here I am."]) as app:
        response, stream = await app.result(response_id)
        assert [text_of(item) for item in app.asked()] == ["Hello?"]
    assert [text_of(item) for item in response["output"]] == ["Here I am."]
    assert stream.types.count("response.in_progress") == 1


# --- in the middle of a call ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", [True, False])
async def test_a_started_call_is_repeated_if_it_can_be_and_else_told_to_be_interrupted(
    tmp_path: Path, shown: bool
) -> None:
    calls = [
        call("quick", key="q", call_id="call_q"),
        call("charge", order="o", call_id="call_o"),
        call("look_up", key="k", call_id="call_k"),
    ]
    before = Functions()
    async with embedded(tmp_path, [turn("Let me see.", calls=calls)], before.specs()) as app:
        response_id = await app.accept(show_calls=shown)
        await before.gate.reached()
        if shown:
            await app.read_until(response_id, lambda event: event.get("item", {}).get("output") == "known q")
        else:
            await until_stored(app, response_id, "call_q")
    after = Functions()
    after.gate.open()
    async with embedded(tmp_path, ["Done."], after.specs()) as app:
        response, _ = await app.result(response_id)
        assert answers(app) == {"call_q": "known q", "call_o": INTERRUPTED, "call_k": "found k"}
    assert after.calls == ["found k"]
    items = [item for item in response["output"] if item["type"] == "antwort:function_call"]
    assert [item["output"] for item in items] == (["known q", INTERRUPTED, "found k"] if shown else [])


async def test_a_hosted_call_that_was_interrupted_has_failed(tmp_path: Path) -> None:
    functions = Functions()
    async with embedded(tmp_path, [turn(calls=[call("search")])], functions.specs()) as app:
        response_id = await app.accept(tools=[{"type": "web_search"}])
        await functions.gate.reached()
    async with embedded(tmp_path, ["Done."], functions.specs()) as app:
        response, _ = await app.result(response_id)
        assert list(answers(app).values()) == [INTERRUPTED]
    assert [(item["type"], item["status"]) for item in response["output"]] == [
        ("web_search_call", "failed"),
        ("message", "completed"),
    ]


@pytest.mark.parametrize("name", ["charge", "look_up", "search"])
async def test_a_call_of_a_function_that_is_gone_is_told_to_be_interrupted(tmp_path: Path, name: str) -> None:
    functions = Functions()
    arguments = {"charge": {"order": "o"}, "look_up": {"key": "k"}, "search": {}}[name]
    async with embedded(tmp_path, [turn(calls=[call(name, arguments)])], functions.specs()) as app:
        response_id = await app.accept(show_calls=True)
        await functions.gate.reached()
    async with embedded(tmp_path, ["Done."]) as app:
        response, _ = await app.result(response_id)
        assert list(answers(app).values()) == [INTERRUPTED]
    assert response["status"] == "completed"


async def test_a_call_for_the_client_beside_one_of_ours_still_ends_the_run(tmp_path: Path) -> None:
    functions = Functions()
    calls = [call("look_up", key="k"), call("theirs", call_id="call_theirs")]
    async with embedded(tmp_path, [turn(calls=calls)], functions.specs()) as app:
        response_id = await app.accept(tools=[function_tool("theirs")])
        await functions.gate.reached()
    functions.gate.open()
    async with embedded(tmp_path, [], functions.specs()) as app:
        response, _ = await app.result(response_id)
    assert [(item["type"], item["status"]) for item in response["output"]] == [("function_call", "completed")]


# --- what was counted -------------------------------------------------------------------------------------------------


async def test_tokens_and_limits_count_from_the_beginning_and_not_from_the_restart(tmp_path: Path) -> None:
    functions = Functions()
    first = turn(calls=[call("quick", key="q"), call("look_up", key="k")], usage=(100, 50))
    async with embedded(tmp_path, [first], functions.specs()) as app:
        response_id = await app.accept(max_tool_calls=2, tool_choice="required", max_output_tokens=80)
        await functions.gate.reached()
    functions.gate.open()
    steps = [
        turn(
            calls=[call("quick", key="r", call_id="call_r")],
            usage=(10, 5),
            expect=matching(tool_choice="auto", max_output_tokens=30),
        ),
        turn("Done.", usage=(1, 2), expect=matching(without_tools=["quick"])),
    ]
    async with embedded(tmp_path, steps, functions.specs()) as app:
        response, _ = await app.result(response_id)
        assert "limit of function calls" in answers(app)["call_r"]
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (111, 57)
    assert response["tool_choice"] == "required"


async def test_turns_count_from_the_beginning(tmp_path: Path) -> None:
    functions = Functions()
    async with embedded(
        tmp_path, [turn(calls=[call("look_up", key="k")])], functions.specs(), engine={"max_turns": 1}
    ) as app:
        response_id = await app.accept()
        await functions.gate.reached()
    functions.gate.open()
    async with embedded(tmp_path, [], functions.specs(), engine={"max_turns": 1}) as app:
        response, _ = await app.result(response_id)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_turns"})


async def test_sources_keep_their_numbers(tmp_path: Path) -> None:
    functions = Functions()

    async def find(ctx: Context) -> str:
        """Find something."""
        return f"[{ctx.sources.add(Source('A page', 'https://example.com/page'))}] A page."

    specs = [FunctionSpec.of(find), *functions.specs()]
    steps = [turn(calls=[call("find")]), turn(calls=[call("look_up", key="k")])]
    async with embedded(tmp_path, steps, specs) as app:
        response_id = await app.accept()
        await functions.gate.reached()
    functions.gate.open()
    async with embedded(tmp_path, ["It says so [1]."], specs) as app:
        response, _ = await app.result(response_id)
    (annotation,) = response["output"][0]["content"][0]["annotations"]
    assert (annotation["url"], annotation["start_index"]) == ("https://example.com/page", 11)


async def test_sources_of_a_run_that_continues_another_response_keep_their_numbers(tmp_path: Path) -> None:
    gate = Gate()

    async def find(ctx: Context, name: str) -> str:
        """Find something."""
        number = ctx.sources.add(Source(name, f"https://example.com/{name}"))
        if name == "milk":
            await gate.wait()
        return f"[{number}] {name}"

    specs = [FunctionSpec.of(find, {"idempotent": True})]
    steps = [turn(calls=[call("find", name="tea")]), turn("[1]")]
    steps += [turn(calls=[call("find", name="sugar")]), turn(calls=[call("find", name="milk", call_id="call_m")])]
    async with embedded(tmp_path, steps, specs) as app:
        first = await app.accept()
        await app.result(first)
        response_id = await app.accept(previous_response_id=first)
        await gate.reached()
    gate.open()
    async with embedded(tmp_path, ["Tea [1], sugar [2], milk [3].", "Milk [3]."], specs) as app:
        response, _ = await app.result(response_id)
        assert answers(app)["call_m"] == "[3] milk"
        last, _ = await app.result(await app.accept(previous_response_id=response_id))
    cited = [annotation["title"] for annotation in response["output"][-1]["content"][0]["annotations"]]
    assert cited == ["tea", "sugar", "milk"]
    assert [annotation["title"] for annotation in last["output"][-1]["content"][0]["annotations"]] == ["milk"]


async def test_sources_of_calls_that_a_run_names_keep_their_numbers(tmp_path: Path) -> None:
    async def find(ctx: Context, name: str) -> str:
        """Find something."""
        return f"[{ctx.sources.add(Source(name, f'https://example.com/{name}'))}] {name}"

    gate = Gate()
    steps = [turn(calls=[call("find", name="tea")]), turn("[1]"), turn("Never.", wait_for=gate)]
    async with embedded(tmp_path, steps, [find]) as app:
        first, _ = await app.result(await app.accept(show_calls=True))
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        response_id = await app.accept(input=[reference, {"role": "user", "content": "Milk?"}])
        await gate.reached()
    steps = [turn(calls=[call("find", name="milk", call_id="call_m")]), turn("Tea [1], milk [2].")]
    async with embedded(tmp_path, steps, [find]) as app:
        response, _ = await app.result(response_id)
        assert answers(app)["call_m"] == "[2] milk"
    cited = [annotation["title"] for annotation in response["output"][-1]["content"][0]["annotations"]]
    assert cited == ["tea", "milk"]


# --- what cannot go on ------------------------------------------------------------------------------------------------

AGENT = {"instructions": "Be brief.", "model": "scripted"}


@pytest.mark.parametrize("asked", [{"agent": "brief"}, {"model": "brief"}])
async def test_a_run_whose_agent_was_removed_has_failed_and_says_why(tmp_path: Path, asked: JSON) -> None:
    async with embedded(tmp_path, [turn(["Half", Gate()])], agents={"brief": AGENT}) as app:
        response_id = await app.accept(**asked)
        await app.read_until(response_id, is_delta)
    async with embedded(tmp_path, []) as app:
        response, stream = await app.result(response_id)
        assert await app.runs.recover() == 0
    assert response["status"] == "failed"
    assert "agent 'brief'" in response["error"]["message"]
    assert [text_of(item) for item in response["output"]] == ["Half"]
    assert stream.types[-2:] == ["error", "response.failed"]


async def test_a_run_whose_agent_is_still_there_goes_on_with_it(tmp_path: Path) -> None:
    async with embedded(tmp_path, [turn(["Half", Gate()])], agents={"brief": AGENT}) as app:
        response_id = await app.accept(agent="brief")
        await app.read_until(response_id, is_delta)
    step = turn("Whole.", expect=matching(instructions="Be brief.", model="scripted"))
    async with embedded(tmp_path, [step], agents={"brief": AGENT}) as app:
        assert (await app.result(response_id))[0]["status"] == "completed"


async def test_a_run_whose_hosted_tool_is_gone_has_failed_with_its_call_closed(tmp_path: Path) -> None:
    functions = Functions()
    async with embedded(tmp_path, [turn(calls=[call("search")])], functions.specs()) as app:
        response_id = await app.accept(tools=[{"type": "web_search"}])
        await functions.gate.reached()
    async with embedded(tmp_path, []) as app:
        response, _ = await app.result(response_id)
    assert response["status"] == "failed"
    assert "web_search" in response["error"]["message"]
    assert [item["status"] for item in response["output"]] == ["failed"]


async def test_a_run_that_only_waited_and_cannot_begin_any_more_has_failed(tmp_path: Path) -> None:
    async with embedded(tmp_path, [], agents={"brief": AGENT}) as app:
        response_id = await app.accept(agent="brief")
    async with embedded(tmp_path, []) as app:
        response, _ = await app.result(response_id)
    assert (response["status"], response["output"]) == ("failed", [])


async def test_a_request_that_cannot_be_read_any_more_has_failed_and_not_stopped_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded(tmp_path, ["Here I am."]) as app:
        broken, entries = await stored_request(app, {"input": "Hello?", "background": True})
        broken.request = {"input": "Hello?", "no_such_parameter": True}
        await app.store.create(broken, entries)
        good, entries = await stored_request(app, {"input": "Hello?", "background": True})
        await app.store.create(good, entries)
        assert await app.runs.recover() == 2
        assert (await app.result(broken.id))[0]["error"]["code"] == "server_error"
        assert (await app.result(good.id))[0]["status"] == "completed"
    assert f"response {broken.id} cannot be taken up again" in caplog.text


async def test_a_response_before_it_that_was_deleted_meanwhile_is_left_out(tmp_path: Path) -> None:
    gate = Gate()
    async with embedded(tmp_path, ["One.", "Two.", turn("Never.", wait_for=gate)]) as app:
        first = await app.app.run("First?")
        second = await app.app.run("Second?", previous_response_id=first.id)
        response_id = await app.accept("Third?", previous_response_id=second.id)
        await gate.reached()
        assert await app.store.delete(TENANT, second.id)
    async with embedded(tmp_path, ["Three."]) as app:
        response, _ = await app.result(response_id)
        assert [text_of(item) for item in app.asked()] == ["First?", "One.", "Third?"]
    assert (response["status"], response["previous_response_id"]) == ("completed", second.id)


async def test_a_run_keeps_its_tenant_subject_and_scopes(tmp_path: Path) -> None:
    seen: list[Context] = []

    async def who(ctx: Context) -> str:
        """Tell who asks."""
        seen.append(ctx)
        return "you"

    async with embedded(tmp_path, [turn("Never.", wait_for=Gate())], [who]) as app:
        create: JSON = {"input": "Who am I?", "background": True}
        record, entries = await stored_request(app, create, Context("acme", "anna", frozenset({"functions:call"})))
        record.extra = {"scopes": ["functions:call"]}
        await app.store.create(record, entries)
    async with embedded(tmp_path, [turn(calls=[call("who")]), "You."], [who]) as app:
        async for _ in app.runs.events("acme", record.id):
            pass
        with pytest.raises(BadRequestError, match="not found"):
            await app.app.run("And?", previous_response_id=record.id)
    (ctx,) = seen
    assert (ctx.tenant, ctx.subject, ctx.response_id) == ("acme", "anna", record.id)
    assert ctx.scopes == frozenset({"functions:call"})


async def stored_request(
    app: Embedded, create: JSON, ctx: Context | None = None
) -> tuple[ResponseRecord, list[JournalEntry]]:
    """Return what a process stores that dies right after it has accepted a request."""
    plan = await app.plan(create, ctx)
    plan.response.status = "queued"
    record = app.app.engine.record(plan)
    return record, plan.input


async def until_stored(app: Embedded, response_id: str, call_id: str) -> None:
    """Wait until the output of a call is stored."""
    while True:
        for entry in await app.store.journal(TENANT, response_id):
            if entry.call is not None and entry.call.call_id == call_id and entry.call.is_over:
                return


# --- compaction, custom tools, summaries -----------------------------------------------------------------------------


async def test_a_run_that_was_to_compact_still_does_nothing_else(tmp_path: Path) -> None:
    window: Any = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"type": "compaction_trigger"},
    ]
    async with embedded(tmp_path, [turn("Sum", wait_for=Gate())]) as app:
        response_id = await app.accept(window)
        await app.read_until(response_id, lambda event: event["type"] == "response.in_progress")
    async with embedded(tmp_path, [turn("Summary.")]) as app:
        response, _ = await app.result(response_id)
    assert [item["type"] for item in response["output"]] == ["compaction"]


async def test_a_call_of_a_custom_tool_waits_for_the_client_after_a_crash_too(tmp_path: Path) -> None:
    functions = Functions()
    tools = [{"type": "custom", "name": "run_sql"}]
    calls = [call("run_sql", input="SELECT 1"), call("charge", order="1")]
    async with embedded(tmp_path, [turn(calls=calls)], functions=functions.specs()) as app:
        response_id = await app.accept(tools=tools)
        await app.read_until(response_id, lambda event: event["type"] == "response.output_item.done")
    async with embedded(tmp_path, [], functions=functions.specs()) as app:
        response, _ = await app.result(response_id)
    assert [item["type"] for item in response["output"]] == ["custom_tool_call"]
    assert response["status"] == "completed"
