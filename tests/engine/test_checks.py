"""Checks in the loop: what they say of inputs, outputs, calls and results holds on every way that leads there."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from tests.engine.guards import REASON, SECRET, STARS, WORD, Guards
from tests.http.sdk import CLIENT_TOOL, Served, create, done, outputs, served
from typing_extensions import override

from antwort.context import Context
from antwort.engine.planning.checked_input import REFUSED
from antwort.functions import (
    Allow,
    CheckedCall,
    CheckSpec,
    FunctionSpec,
    Provider,
    Refuse,
    ToolResult,
    Verdict,
    check,
)
from antwort.provider import Hosted, function
from antwort.testing import call, turn

TOLD = f"I know it: {SECRET}, and no more."
MASKED = f"I know it: {STARS}, and no more."
PIECES = [TOLD[start : start + 3] for start in range(0, len(TOLD), 3)]
ECHO: Any = {"type": "function", "name": "echo"}


async def echo(text: str) -> str:
    """Say something again."""
    return f"echo: {text}"


async def leak() -> str:
    """Tell the secret."""
    return SECRET


async def shout() -> str:
    """Say the word."""
    return WORD


def guarded(tmp_path: Path, steps: list[Any], *stages: str, **options: Any) -> Any:
    provider = options.pop("provider", None) or Guards(*stages)
    functions = options.pop("functions", (echo, leak, shout))
    return served(tmp_path / "data", steps, providers=[provider], functions=functions, **options)


def said_to_model(stage: Served, number: int = -1) -> str:
    return str(list(stage.requests[number].items))


def assert_nowhere(folder: Path, text: str = SECRET) -> None:
    """Assert that no file has a text."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert any(file.suffix == ".db" for file in files)
    assert [file for file in files if text.encode() in file.read_bytes()] == []


def refusals(response: Any) -> list[str]:
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    return [part.refusal for part in parts if part.type == "refusal"]


# --- input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_secret_of_the_input_is_masked_before_anybody_reads_or_keeps_it(tmp_path: Path, stream: bool) -> None:
    with guarded(tmp_path, ["Fine.", "Still fine."], "input", storage={}) as stage:
        response = create(stage, stream, input=f"It is {SECRET}!")
        assert response.output_text == "Fine."
        items = stage.client().responses.input_items.list(response.id)
        assert items.data[0].content[0].text == f"It is {STARS}!"
        create(stage, stream, input="And now?", previous_response_id=response.id)
        assert f"It is {STARS}!" in said_to_model(stage)
        assert SECRET not in said_to_model(stage)
    assert_nowhere(tmp_path)


@pytest.mark.parametrize("stream", [False, True])
def test_a_refused_input_is_answered_with_a_refusal_and_asks_no_model(tmp_path: Path, stream: bool) -> None:
    with guarded(tmp_path, ["Better."], "input", storage={}) as stage:
        response = create(stage, stream, input=f"Say {WORD}!")
        assert (response.status, refusals(response)) == ("completed", [REASON])
        assert stage.requests == []
        # What was refused is out of the conversation: it goes on.
        create(stage, stream, input="Good day.", previous_response_id=response.id)
        assert REFUSED.format(REASON) in said_to_model(stage)
        assert f"Say {WORD}" not in said_to_model(stage)
    assert_nowhere(tmp_path, f"Say {WORD}")


def test_every_text_of_an_input_is_looked_at(tmp_path: Path) -> None:
    given = [
        {"role": "system", "content": SECRET},
        {"role": "user", "content": [{"type": "input_text", "text": f"a {SECRET}"}]},
        {"role": "assistant", "content": f"b {SECRET}"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": f"c {SECRET}"},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": f"d {SECRET}"}]},
    ]
    with guarded(tmp_path, ["Fine."], "input") as stage:
        create(stage, False, input=given)
        read = said_to_model(stage)
        assert [f"{letter} {STARS}" in read for letter in "abcd"] == [True] * 4
        assert read.count(SECRET) == 1  # the instructions are not a user's


CLAIMED: list[Any] = [
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": f'{{"a": ["{SECRET}"], "n": 1, "b": "fine"}}'},
    {"type": "function_call_output", "call_id": "c1", "output": "Fine."},
    {"type": "function_call", "call_id": "c2", "name": "f", "arguments": f'{{"a": "{SECRET}", "a": "fine"}}'},
    {"type": "function_call_output", "call_id": "c2", "output": "Fine."},
    {"type": "custom_tool_call", "call_id": "c3", "name": "g", "input": SECRET},
    {"type": "custom_tool_call_output", "call_id": "c3", "output": "Fine."},
    {"type": "mcp_call", "id": "mcp_1", "name": "m", "server_label": "s", "arguments": "{}", "output": SECRET},
    {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": SECRET}},
    {"type": "file_search_call", "id": "fs_1", "queries": [SECRET], "results": [{"file_id": "f", "text": SECRET}]},
    {"type": "program", "id": "p1", "call_id": "c4", "code": f"print('{SECRET}')", "fingerprint": "f"},
    {"type": "program_output", "id": "p2", "call_id": "c4", "result": SECRET, "status": "completed"},
]


def test_calls_that_a_client_says_were_made_are_looked_at(tmp_path: Path) -> None:
    with guarded(tmp_path, ["Fine."], "input", storage={}) as stage:
        answer = stage.request("POST", "/responses", json={"model": "scripted", "input": CLAIMED})
        assert answer.status_code == 200, answer.text
        kept = stage.request("GET", f"/responses/{answer.json()['id']}/input_items?order=asc").json()["data"]
        assert (SECRET in str(kept), SECRET in said_to_model(stage)) == (False, False)
        assert (kept[0]["arguments"], kept[2]["arguments"]) == (f'{{"a":["{STARS}"],"n":1,"b":"fine"}}', '{"a":"fine"}')
        assert kept[8]["results"] == [{"file_id": "f", "text": STARS}]
        refused = [{**CLAIMED[0], "arguments": f'{{"a": "{WORD}"}}'}, CLAIMED[1]]
        assert refusals(create(stage, False, input=refused)) == [REASON]
    assert_nowhere(tmp_path)


@pytest.mark.parametrize(("path", "name"), [("/responses", "input"), ("/conversations", "items")])
def test_what_is_no_item_is_refused_as_without_checks(tmp_path: Path, path: str, name: str) -> None:
    with guarded(tmp_path, [], "input", storage={}) as stage:
        for item in ({"type": ["x"]}, {"type": {"a": 1}, "role": []}, {"role": ["user"], "content": "x"}):
            answer = stage.request("POST", path, json={name: [item]})
            assert answer.status_code == 400, answer.text


def test_what_is_found_only_in_the_texts_of_a_call_together_takes_all_of_them(tmp_path: Path) -> None:
    class Pairs(Provider):
        @check("input")
        def pairs(self, text: str) -> Verdict:
            """Refuse two together."""
            return Refuse(REASON) if "left" in text and "right" in text else Allow()

    given = [{**CLAIMED[0], "arguments": '{"a": "left", "b": ["right"]}'}, CLAIMED[1]]
    with guarded(tmp_path, [], provider=Pairs(), storage={}) as stage:
        response = create(stage, False, input=given)
        assert refusals(response) == [REASON]
        kept = stage.request("GET", f"/responses/{response.id}/input_items").text
        assert ("left" in kept, "right" in kept, REFUSED.format(REASON) in kept) == (False, False, True)


def test_the_input_of_a_background_response_is_checked_too(tmp_path: Path) -> None:
    with guarded(tmp_path, ["Fine."], "input", storage={}) as stage:
        client = stage.client()
        accepted = client.responses.create(model="scripted", input=f"It is {SECRET}!", background=True)
        assert done(stage, accepted.id)["status"] == "completed"
        assert STARS in said_to_model(stage)
        refused = client.responses.create(model="scripted", input=f"Say {WORD}!", background=True)
        found = done(stage, refused.id)
        assert (found["status"], found["output"][0]["content"][0]["refusal"]) == ("completed", REASON)
        assert REASON in str(stage.resume(refused.id).events)
    assert_nowhere(tmp_path)


def test_items_that_are_added_to_a_conversation_are_checked(tmp_path: Path) -> None:
    with guarded(tmp_path, ["Fine."], "input", storage={}) as stage:
        client = stage.client()
        one = client.conversations.create(items=[{"type": "message", "role": "user", "content": SECRET}])
        with pytest.raises(openai.BadRequestError, match=REASON):
            client.conversations.items.create(one.id, items=[{"type": "message", "role": "user", "content": WORD}])
        create(stage, False, input="And?", conversation=one.id)
        assert STARS in said_to_model(stage)
    assert_nowhere(tmp_path)


def test_the_variables_of_a_prompt_are_checked(tmp_path: Path) -> None:
    prompts = {"greeting": {"template": "Greet {{name}}."}}
    with guarded(tmp_path, ["Hello."], "input", prompts=prompts, storage={}) as stage:
        prompt: Any = {"id": "greeting", "variables": {"name": SECRET}}
        response = create(stage, False, prompt=prompt)
        assert stage.requests[0].instructions == f"Greet {STARS}."
        assert STARS in str(response.prompt)
        assert refusals(create(stage, False, prompt={**prompt, "variables": {"name": WORD}})) == [REASON]
    assert_nowhere(tmp_path)


def test_what_is_to_be_decided_about_is_checked(tmp_path: Path) -> None:
    question = {"type": "predicate", "name": "a", "instructions": "Is it so?"}
    with guarded(tmp_path, [], "input") as stage:
        found = stage.request("POST", "/decisions", json={"model": "scripted", "input": WORD, "questions": [question]})
        assert (found.status_code, found.json()["error"]["code"]) == (400, "content_refused"), found.text


def test_windows_that_are_counted_or_compacted_are_checked(tmp_path: Path) -> None:
    with guarded(tmp_path, ["A summary."], "input") as stage:
        client = stage.client()
        said: Any = [{"role": "user", "content": SECRET}, {"role": "assistant", "content": "So?"}]
        client.responses.compact(model="scripted", input=said)
        assert STARS in said_to_model(stage)
        assert SECRET not in said_to_model(stage)
        with pytest.raises(openai.BadRequestError, match=REASON):
            client.responses.compact(model="scripted", input=[{"role": "user", "content": WORD}])
        assert client.responses.input_tokens.count(model="scripted", input=WORD).input_tokens > 0


# --- output ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_secret_of_the_answer_is_masked_in_items_and_events(tmp_path: Path, stream: bool, background: bool) -> None:
    with guarded(tmp_path, [turn(PIECES, reasoning=PIECES)], "output", storage={}) as stage:
        response = create(stage, stream, input="What is it?", background=background, store=True)
        if background:
            response = stage.client().responses.retrieve(done(stage, response.id)["id"])
            assert SECRET not in str(stage.resume(response.id).events)
        assert response.output_text == MASKED
        assert stage.request("GET", f"/responses/{response.id}").json()["output"][0]["content"][0]["text"] == MASKED
        assert stage.client().responses.retrieve(response.id).output_text == MASKED
    assert_nowhere(tmp_path)


@pytest.mark.parametrize("stream", [False, True])
def test_a_refused_answer_ends_with_a_refusal_behind_what_was_shown(tmp_path: Path, stream: bool) -> None:
    pieces = [*(f"word{number} " for number in range(20)), WORD, " and more"]
    steps = [turn(pieces, calls=[call("echo", text="x")])]
    with guarded(tmp_path, steps, "output", storage={}) as stage:
        response = create(stage, stream, input="Go on.")
        assert (response.status, refusals(response)) == ("completed", [REASON])
        assert response.output_text == ("" if not stream else response.output_text)
        assert "".join(pieces[:20]).startswith(response.output_text)
        assert [item.type for item in response.output if item.type != "message"] == []
        if stream:
            assert response.output_text.startswith("word0 word1 ")
    assert_nowhere(tmp_path, WORD)


def test_an_answer_goes_on_while_it_is_made_as_far_as_nothing_can_be_in_it(tmp_path: Path) -> None:
    words = [f"word{number} " for number in range(100)]
    with guarded(tmp_path, [turn(words)], "output") as stage:
        stream = stage.stream(model="scripted", input="?")
        deltas = [event["delta"] for event in stream.events if event["type"] == "response.output_text.delta"]
        assert ("".join(deltas), len(deltas) > 10) == ("".join(words), True)


def test_probabilities_are_left_out_where_answers_are_checked(tmp_path: Path) -> None:
    with guarded(tmp_path, [turn(PIECES, logprobs=True)], "output") as stage:
        found = stage.stream(model="scripted", input="?", include=["message.output_text.logprobs"], top_logprobs=2)
        assert SECRET.split()[0] not in str(found.events)


def test_a_stop_sequence_ends_an_answer_that_is_checked(tmp_path: Path) -> None:
    with guarded(tmp_path, [turn([*PIECES, " STOP more"])], "output") as stage:
        client = anthropic.Anthropic(base_url=stage.server.url, api_key="none", max_retries=0)
        message = client.messages.create(
            model="scripted", max_tokens=100, stop_sequences=["STOP"], messages=[{"role": "user", "content": "?"}]
        )
        assert (message.stop_reason, message.content[0].text) == ("stop_sequence", f"{MASKED} ")  # type: ignore[union-attr]


@pytest.mark.parametrize("stream", [False, True])
def test_a_message_of_anthropics_api_ends_with_a_refusal(tmp_path: Path, stream: bool) -> None:
    with guarded(tmp_path, [turn(["Well, ", WORD])], "input", "output") as stage:
        client = anthropic.Anthropic(base_url=stage.server.url, api_key="none", max_retries=0)
        for asked in (f"Say {WORD}", "Say something"):
            body: Any = {"model": "scripted", "max_tokens": 100, "messages": [{"role": "user", "content": asked}]}
            if stream:
                with client.messages.stream(**body) as events:
                    message = events.get_final_message()
            else:
                message = client.messages.create(**body)
            assert (message.stop_reason, message.content[-1].text) == ("refusal", REASON)  # type: ignore[union-attr]
        assert len(stage.requests) == 1


# --- calls and results -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_the_arguments_of_a_call_are_masked_before_it_is_made_and_shown(tmp_path: Path, stream: bool) -> None:
    steps = [turn(calls=[call("echo", text=f"a {SECRET}")]), "Done."]
    with guarded(tmp_path, steps, "call", storage={}) as stage:
        create(stage, stream, input="?", tools=[ECHO])
        assert outputs(stage) == [f"echo: a {STARS}"]
        assert SECRET not in said_to_model(stage)
    assert_nowhere(tmp_path)


def test_a_refused_call_is_not_made_and_the_model_reads_why(tmp_path: Path) -> None:
    made: list[str] = []

    async def act(text: str) -> str:
        """Do it."""
        made.append(text)
        return "done"

    steps = [turn(calls=[call("act", text=WORD), call("act", text="well")]), "Done."]
    with guarded(tmp_path, steps, "call", functions=[act]) as stage:
        response = create(stage, False, input="?", tools=[{"type": "function", "name": "act"}])
        assert (made, outputs(stage), response.output_text) == (["well"], [REASON, "done"], "Done.")


@pytest.mark.parametrize("stream", [False, True])
def test_calls_for_the_client_are_masked_and_those_that_are_refused_stay_here(tmp_path: Path, stream: bool) -> None:
    steps = [
        turn(calls=[call("get_weather", city=WORD)]),
        turn(calls=[call("get_weather", city="approve")]),
        turn(calls=[call("get_weather", city=SECRET)]),
    ]
    with guarded(tmp_path, steps, "call") as stage:
        response = create(stage, stream, input="?", tools=[CLIENT_TOOL])
        [made] = [item for item in response.output if item.type == "function_call"]
        assert made.arguments == f'{{"city":"{STARS}"}}'
        assert outputs(stage)[0] == REASON
        assert "It is dear." in outputs(stage)[1]


def test_nothing_is_hidden_behind_a_name_that_arguments_have_twice(tmp_path: Path) -> None:
    given = f'{{"city": "{SECRET}", "city": "Rome"}}'
    with guarded(tmp_path, [turn(calls=[call("get_weather", given)])], "call") as stage:
        response = create(stage, False, input="x", tools=[CLIENT_TOOL])
        found: Any = response.output[0]
        assert found.arguments == '{"city":"Rome"}'


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1" * 400])
def test_checks_read_arguments_as_functions_do(tmp_path: Path, number: str) -> None:
    async def measure(text: str, size: float) -> str:
        """Measure something."""
        raise AssertionError((text, size))

    steps = [turn(calls=[call("measure", f'{{"text": "{WORD}", "size": {number}}}')]), "Done."]
    with guarded(tmp_path, steps, provider=Named(), functions=[measure]) as stage:
        create(stage, False, input="x", tools=[{"type": "function", "name": "measure"}])
        assert outputs(stage) == [REASON]


def test_a_call_is_checked_with_what_its_references_stand_for(tmp_path: Path) -> None:
    sent: list[str] = []

    async def big() -> str:
        """Return very much, of which a check of results sees the beginning."""
        return f"{'x y ' * 10_000}{SECRET}{' x y' * 10_000}"

    async def send(text: str) -> str:
        """Send something."""
        sent.append(text)
        return "Sent."

    tools: Any = [{"type": "function", "name": "big"}, {"type": "function", "name": "send"}]
    options: Any = {"functions": [big, send], "section": {"variables": {"enabled": True}}, "storage": {}}
    with guarded(tmp_path, [turn(calls=[call("big")]), "Done."], "call", "result", **options) as stage:
        first = create(stage, False, input="Go.", tools=tools, store=True)
        reference = json.loads(outputs(stage)[-1])["$ref"]
    steps = [turn(calls=[call("send", text={"$ref": reference})]), "Done."]
    with guarded(tmp_path, steps, "call", "result", **options) as stage:
        create(stage, False, input="On.", tools=tools, previous_response_id=first.id)
    assert [(STARS in text, SECRET in text, len(text) > 80_000) for text in sent] == [(True, False, True)]


class Named(Provider):
    """Refuses a word in one argument, and sees no other."""

    @check("call")
    def named(self, call: CheckedCall) -> Verdict:
        """Look at the text."""
        return Refuse(REASON) if call.arguments.get("text") == WORD else Allow()


def test_a_call_that_a_check_asks_about_waits_for_an_approval_with_the_reason(tmp_path: Path) -> None:
    steps = [turn(calls=[call("echo", text="approve")]), "Done."]
    with guarded(tmp_path, steps, "call") as stage:
        response = create(stage, False, input="?", tools=[ECHO])
        [request] = [item for item in response.output if item.type == "mcp_approval_request"]
        assert request.to_dict()["reason"] == "It is dear."
        answer: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
        last = create(stage, False, input=[answer], previous_response_id=response.id, tools=[ECHO])
        assert (outputs(stage), last.output_text) == (["echo: approve"], "Done.")


def test_results_are_masked_or_withheld_before_the_model_reads_them(tmp_path: Path) -> None:
    tools: Any = [{"type": "function", "name": name} for name in ("leak", "shout")]
    with guarded(tmp_path, [turn(calls=[call("leak"), call("shout")]), "Done."], "result", storage={}) as stage:
        create(stage, False, input="?", tools=tools)
        assert outputs(stage) == [STARS, f"The result of shout is withheld: {REASON}"]
    assert_nowhere(tmp_path)
    assert_nowhere(tmp_path, WORD)


@pytest.mark.parametrize("output", ["Much was found.", ""])
def test_what_only_clients_are_shown_of_a_result_is_checked_too(tmp_path: Path, output: str) -> None:
    @function(hosted=Hosted(types=("find",), item="file_search_call"))
    async def find(queries: list[str]) -> ToolResult:
        """Find something."""
        return ToolResult(output, item={"queries": queries, "results": [{"file_id": "f", "text": SECRET}]})

    steps = [turn(calls=[call("find", queries=["x"])]), "Done."]
    with guarded(tmp_path, steps, "result", functions=[find], storage={}) as stage:
        body = {"model": "scripted", "input": "?", "tools": [{"type": "find"}], "include": ["file_search_call.results"]}
        answer = stage.request("POST", "/responses", json=body).text
        assert ("Done." in answer, SECRET in answer) == (True, False)
    assert_nowhere(tmp_path)


def test_calls_that_calls_make_are_checked_as_all_others(tmp_path: Path) -> None:
    async def each(ctx: Context) -> list[Any]:
        """Make calls."""
        made = [await ctx.call_function("echo", {"text": text}) for text in (SECRET, WORD)]
        return [*(one.output for one in made), (await ctx.call_function("leak")).output]

    functions = [echo, leak, FunctionSpec.of(each, {"calls_functions": True})]
    tools: Any = [{"type": "function", "name": name} for name in ("each", "echo", "leak")]
    with guarded(tmp_path, [turn(calls=[call("each")]), "Done."], "call", "result", functions=functions) as stage:
        create(stage, False, input="?", tools=tools)
        assert outputs(stage) == [f'["echo: {STARS}","{REASON}","{STARS}"]']


def test_sub_agents_are_checked_as_the_agent_above_them(tmp_path: Path) -> None:
    async def ask(ctx: Context) -> list[str]:
        """Ask others."""
        return [(await ctx.run_agent(text)).text for text in (f"It is {SECRET}", f"Say {WORD}")]

    steps = [turn(calls=[call("ask")]), turn(TOLD), "Done."]
    with guarded(tmp_path, steps, "input", "output", functions=[ask], storage={}) as stage:
        create(stage, False, input="?", tools=[{"type": "function", "name": "ask"}])
        assert outputs(stage) == [f'["{MASKED}","{REASON}"]']
        assert STARS in said_to_model(stage, 1)
    assert_nowhere(tmp_path)


# --- several checks, and those that fail -----------------------------------------------------------------------------


class Second(Provider):
    """A check that sees what another one has left."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    @check("input", "output")
    async def look(self, text: str) -> Verdict:
        """Take note."""
        self.seen.append(text)
        return Allow()


def test_a_check_sees_what_those_before_it_have_left(tmp_path: Path) -> None:
    second = Second()
    with served(tmp_path, [turn(PIECES)], providers=[Guards("input", "output"), second]) as stage:
        assert create(stage, True, input=SECRET).output_text == MASKED
    assert second.seen == [STARS, MASKED]


class Broken(Provider):
    """Checks that say nothing that could be used."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    @override
    def configures(self, check: CheckSpec) -> CheckSpec | None:
        return check if check.name == self.how else None

    @check("input")
    def raises(self, text: str) -> Verdict:
        """Fail with the text."""
        raise ValueError(text)

    @check("input", timeout=0.01)
    async def hangs(self, text: str, ctx: Context) -> Verdict:
        """Take for ever."""
        await asyncio.Event().wait()
        return Allow()

    @check("input")
    def says_rubbish(self, text: str) -> Any:
        """Return no verdict."""
        return True

    @check("input", on_error="allow")
    def is_not_needed(self, text: str) -> Verdict:
        """Fail, and be left out."""
        raise SystemExit(text)


@pytest.mark.parametrize("how", ["raises", "hangs", "says_rubbish"])
def test_what_could_not_be_checked_is_refused_and_told_nowhere(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served(tmp_path / "data", [], providers=[Broken(how)], storage={}) as stage:
        response = create(stage, False, input=SECRET)
        assert refusals(response) == [f"It could not be checked ({how}), so it is not let through."]
        metrics = httpx.get(f"{stage.server.url}/metrics").text
        assert f'antwort_checks_total{{check="{how}",outcome="error",provider="broken",stage="input"}} 1.0' in metrics
    assert f"check {how} of provider broken failed" in caplog.text
    assert SECRET not in caplog.text
    assert_nowhere(tmp_path)


def test_a_check_that_may_fail_lets_through_what_it_could_not_look_at(tmp_path: Path) -> None:
    with served(tmp_path, ["Fine."], providers=[Broken("is_not_needed")]) as stage:
        assert create(stage, False, input="Hello").output_text == "Fine."


def test_a_provider_that_is_switched_off_checks_nothing(tmp_path: Path) -> None:
    with guarded(tmp_path, ["a", "b"], "input") as stage:
        assert refusals(create(stage, False, input=WORD)) == [REASON]
        stage.server.app.registry.disable("guards")
        assert create(stage, False, input=WORD).output_text == "a"
        stage.server.app.registry.enable("guards")
        assert refusals(create(stage, False, input=WORD)) == [REASON]
        assert create(stage, False, input="fine").output_text == "b"


class Judge(Provider):
    """A check that asks a model."""

    @check("input", "output")
    async def judge(self, text: str, ctx: Context) -> Verdict:
        """Ask."""
        result = await ctx.call_model(f"Is this fine? {text}")
        assert result.text == "yes", result
        return Allow()


@pytest.mark.parametrize("background", [False, True])
def test_a_model_that_judges_is_not_judged_and_is_counted_and_kept_nowhere(tmp_path: Path, background: bool) -> None:
    by = {"Is this fine? Hello": "yes", "Is this fine? Well.": "yes"}
    steps = [turn(by["Is this fine? Hello"], usage=(3, 1)), turn("Well.", usage=(5, 2)), turn("yes", usage=(7, 1))]
    with served(tmp_path, steps, providers=[Judge()], engine={"run": {"max_in_flight": 1}}) as stage:
        response = create(stage, True, input="Hello", background=background)
        body = done(stage, response.id) if background else response.to_dict()
        assert body["usage"]["total_tokens"] == 19  # type: ignore[index]
        assert [said_to_model(stage, n).count("Is this fine?") for n in range(3)] == [1, 0, 1]
        runs = stage.request("GET", f"/responses/{response.id}/agents").json()["data"]
        assert len(runs) == 1
