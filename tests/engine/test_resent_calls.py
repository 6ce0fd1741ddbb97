"""A client that keeps the history itself sends back the items of calls: the model reads them as it did at first."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError
from tests.http.sdk import Served, create, served

from antwort.provider import Hosted, Provider, ToolResult, function
from antwort.testing import call, turn
from antwort.types import JSON

NOT_SENT = "(The output of this call was not sent along.)"
INTERRUPTED = "The call was interrupted and its result is not known. Check before you repeat it."
PROVIDERS = {
    "workspace": {"enabled": True},
    "code_interpreter": {"enabled": True},
    "programs": {"enabled": True},
    "sub_agents": {"enabled": True},
    "file_search": {"enabled": True, "settings": {"embedding_url": "http://127.0.0.1:9", "embedding_model": "e"}},
    "web_search": {"enabled": True, "settings": {"url": "http://127.0.0.1:9"}},
}
USER: Any = {"role": "user", "content": "Go on."}
SHELL: Any = {"type": "shell", "environment": {"type": "container_auto"}}
CODE: Any = {"type": "code_interpreter_call", "id": "ci_1", "code": "print(5)", "container_id": "cntr_x"}
COMMAND: Any = {"type": "shell_call", "call_id": "c1", "action": {"commands": ["echo hey; false"], "timeout_ms": 9}}
SAID: Any = {"stdout": "hey\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}
PROGRAM: Any = {"type": "program", "call_id": "p1", "code": "z = 9"}
CALLER: Any = {"type": "program", "caller_id": "p1"}
NESTED: Any = {"type": "function_call", "call_id": "n1", "name": "ask", "arguments": "{}", "caller": CALLER}
SEARCH: Any = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "tea"}}
PAGE = {"type": "find_in_page", "url": "http://a.b", "pattern": "x"}


def read(stage: Served, number: int = -1) -> list[tuple[str, JSON, str]]:
    """Return the calls in what a Chat Completions server was asked: name, arguments and output of each."""
    messages = stage.bodies[number]["messages"]
    calls = [made for message in messages for made in message.get("tool_calls", ())]
    outputs = [message for message in messages if message["role"] == "tool"]
    assert [made["id"] for made in calls] == [output["tool_call_id"] for output in outputs]
    functions = [made["function"] for made in calls]
    return [
        (function["name"], json.loads(function["arguments"]), output["content"])
        for function, output in zip(functions, outputs, strict=True)
    ]


def shell_output(*chunks: JSON) -> JSON:
    return {"type": "shell_call_output", "call_id": "c1", "output": [*chunks]}


SENT: dict[str, tuple[list[JSON], list[tuple[str, JSON, str]]]] = {
    "code": (
        [{**CODE, "status": "completed", "outputs": [{"type": "logs", "logs": "5\n"}]}],
        [("code_interpreter", {"code": "print(5)"}, "5")],
    ),
    "code and a picture": (
        [{**CODE, "outputs": [{"type": "image", "url": "/v1/a.png"}]}],
        [("code_interpreter", {"code": "print(5)"}, "[picture: /v1/a.png]")],
    ),
    "code without its outputs": (
        [{**CODE, "outputs": None, "status": "completed"}, {**CODE, "id": "ci_2", "status": "failed"}],
        [
            ("code_interpreter", {"code": "print(5)"}, NOT_SENT),
            ("code_interpreter", {"code": "print(5)"}, "The call has failed."),
        ],
    ),
    "the same code twice": ([CODE, {**CODE, "id": "ci_2"}], [("code_interpreter", {"code": "print(5)"}, NOT_SENT)] * 2),
    "no code at all": ([{"type": "code_interpreter_call"}], [("code_interpreter", {"code": ""}, NOT_SENT)]),
    "a command": (
        [COMMAND, shell_output(SAID)],
        [("shell", {"command": "echo hey; false", "timeout_ms": 9}, "hey\n[exit code 1]")],
    ),
    "a command that took too long": (
        [COMMAND, shell_output({"stdout": "", "stderr": "E", "outcome": {"type": "timeout"}})],
        [("shell", {"command": "echo hey; false", "timeout_ms": 9}, "[errors]\nE\n[ended: it took too long]")],
    ),
    "a command without its output": (
        [COMMAND],
        [("shell", {"command": "echo hey; false", "timeout_ms": 9}, NOT_SENT)],
    ),
    "a command that a crash has cut off": (
        [{**COMMAND, "id": "sc_1", "status": "incomplete", "environment": None}],
        [("shell", {"command": "echo hey; false", "timeout_ms": 9}, INTERRUPTED)],
    ),
    "a program": (
        [PROGRAM, {"type": "program_output", "call_id": "p1", "result": "9"}],
        [("run_program", {"code": "z = 9"}, "9")],
    ),
    "a program with calls of its own": (
        [
            PROGRAM,
            NESTED,
            {"type": "function_call_output", "call_id": "n1", "output": "yes"},
            {"type": "antwort:function_call", "name": "add", "arguments": "{}", "output": "2", "caller": CALLER},
            {"type": "program_output", "call_id": "p1", "result": "9"},
        ],
        [("run_program", {"code": "z = 9"}, "9")],
    ),
    "a program without its output": ([PROGRAM], [("run_program", {"code": "z = 9"}, NOT_SENT)]),
    "an output without its program": ([{"type": "program_output", "call_id": "p1", "result": "9"}], []),
    "a search": ([SEARCH], [("web_search", {"query": "tea"}, NOT_SENT)]),
    "a page": ([{**SEARCH, "action": PAGE}], [("find_in_page", {"url": "http://a.b", "pattern": "x"}, NOT_SENT)]),
    "a search of nothing": ([{"type": "web_search_call"}], []),
    "a search of files": (
        [{"type": "file_search_call", "queries": ["tea", "cups"]}],
        [("file_search", {"query": "tea; cups"}, NOT_SENT)],
    ),
    "a search of files that has found nothing": (
        [{"type": "file_search_call", "queries": ["tea"], "results": []}],
        [("file_search", {"query": "tea"}, "No results were found.")],
    ),
    "a function that was shown": (
        [{"type": "antwort:function_call", "name": "add", "arguments": '{"a":1}', "output": "2"}],
        [("add", {"a": 1}, "2")],
    ),
    "a sub-agent": (
        [
            {"type": "multi_agent_call", "call_id": "m1", "action": "wait_agent", "arguments": '{"agent":"a"}'},
            {"type": "multi_agent_call_output", "call_id": "m1", "output": [{"type": "output_text", "text": "Done."}]},
        ],
        [("wait_agent", {"agent": "a"}, "Done.")],
    ),
    "what nobody here has": ([{"type": "image_generation_call", "result": "…"}, {"type": "odd_call"}], []),
}


def staged(tmp_path: Path, answers: int) -> contextlib.AbstractContextManager[Served]:
    return served(tmp_path, ["Yes."] * answers, over_http=True, section=PROVIDERS)


def test_the_model_reads_calls_that_are_sent_back(tmp_path: Path) -> None:
    with staged(tmp_path, len(SENT)) as stage:
        for what, (sent, expected) in SENT.items():
            items: Any = [USER, *sent, USER]
            create(stage, False, input=items, tools=[SHELL])
            assert read(stage) == expected, what


def test_whoever_continues_reads_them_too(tmp_path: Path) -> None:
    with staged(tmp_path, 2 * len(SENT)) as stage:
        for what, (sent, expected) in SENT.items():
            items: Any = [USER, *sent, USER]
            first = create(stage, False, input=items, tools=[SHELL])
            create(stage, False, input="And now?", previous_response_id=first.id, tools=[SHELL])
            assert read(stage) == expected, what


def test_calls_that_a_conversation_is_given_are_read_as_well(tmp_path: Path) -> None:
    with staged(tmp_path, len(SENT)) as stage:
        for what, (sent, expected) in SENT.items():
            items: Any = [{name: value for name, value in item.items() if name != "id"} for item in sent]
            talk = stage.client(strict=False).conversations.create(items=items)
            create(stage, False, input="Go on.", conversation=talk.id, tools=[SHELL])
            assert read(stage) == expected, what


def test_what_a_search_has_found_is_marked_as_coming_from_outside(tmp_path: Path) -> None:
    chunk = {"file_id": "f", "filename": "tea.txt", "text": "A drink.", "score": 0.5}
    with staged(tmp_path, 3) as stage:
        results = [{"type": "url", "title": "Tea", "url": "https://a.b/tea", "snippet": "A drink."}]
        sources = {**SEARCH["action"], "sources": [{"type": "url", "url": "https://a.b/tea"}]}
        for item, text in (
            ({**SEARCH, "results": results}, "Tea\nURL: https://a.b/tea\nA drink."),
            ({**SEARCH, "action": sources}, "URL: https://a.b/tea"),
            ({"type": "file_search_call", "queries": ["tea"], "results": [chunk]}, "tea.txt\nA drink."),
        ):
            create(stage, False, input=[USER, item, USER])
            [(_, _, output)] = read(stage)
            assert text in output
            assert "information" in output


def test_a_long_output_has_its_middle_left_out(tmp_path: Path) -> None:
    with staged(tmp_path, 1) as stage:
        long = {**CODE, "outputs": [{"type": "logs", "logs": f"first{'x' * 300_000}last"}]}
        create(stage, False, input=[USER, long, USER])
        [(_, _, output)] = read(stage)
        assert len(output) < 101_000
        assert output.startswith("first")
        assert output.endswith("last")
        assert "characters left out" in output


def test_a_command_of_the_client_stays_the_client_s(tmp_path: Path) -> None:
    with staged(tmp_path, 1) as stage:
        local: Any = {"type": "shell", "environment": {"type": "local"}}
        create(stage, False, input=[USER, COMMAND, shell_output(SAID), USER], tools=[local])
        assert read(stage) == [("shell", {"commands": ["echo hey; false"], "timeout_ms": 9}, "hey\n(exit code 1)")]


def test_a_program_that_waits_cannot_be_answered_by_sending_it_back(tmp_path: Path) -> None:
    with staged(tmp_path, 0) as stage:
        answer = {"type": "function_call_output", "call_id": "n1", "output": "yes"}
        with pytest.raises(BadRequestError, match="`previous_response_id`") as caught:
            create(stage, False, input=[USER, PROGRAM, NESTED, answer])
        assert (caught.value.param, caught.value.code) == ("input", "previous_response_needed")


class Glossary(Provider):
    """A provider as anybody may write one."""

    @function(hosted=Hosted(types=("glossary",), item="glossary_call", output_item="glossary_output"))
    async def look_up(self, term: str) -> str:
        """Look a term up."""
        return f"{term}: a drink"

    @function(
        hosted=Hosted(
            types=("guess",),
            item="guess_call",
            describe=lambda arguments: {"term": arguments.get("term")},
            read_arguments=lambda item: {"term": item["term"]},
            read_output=lambda item: str(item["found"]),
        )
    )
    async def guess(self, term: str) -> ToolResult:
        """Guess a term."""
        return ToolResult("It is a drink.", item={"found": "It is a drink."})


def test_what_a_provider_shows_is_read_as_it_was(tmp_path: Path) -> None:
    steps = [turn(calls=[call("look_up", term="tea"), call("guess", term="tea")]), turn("A drink."), turn("Yes.")]
    with served(tmp_path, steps, over_http=True, providers=[Glossary()]) as stage:
        tools = [{"type": "glossary"}, {"type": "guess"}]
        first = stage.request("POST", "/responses", json={"input": "Tea?", "tools": tools}).json()
        create(stage, False, input=[USER, *first["output"], USER])
        assert read(stage) == read(stage, 1)


def test_a_face_that_cannot_read_what_is_sent_is_logged_and_the_call_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with served(tmp_path, ["Yes."] * 2, over_http=True, providers=[Glossary()]) as stage:
        create(stage, False, input=[USER, {"type": "guess_call"}, USER])
        assert read(stage) == []
        create(stage, False, input=[USER, {"type": "guess_call", "term": "tea"}, USER])
        assert read(stage) == [("guess", {"term": "tea"}, NOT_SENT)]
    assert "function guess: `read_arguments` has failed" in caplog.text
    assert "function guess: `read_output` has failed" in caplog.text
