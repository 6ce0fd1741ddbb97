"""OpenAI's `shell` tool with a container, through the SDK and the Agents SDK, on any model."""

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openai import BadRequestError, NotFoundError
from openai.types.responses import ResponseFunctionShellToolCall, ResponseFunctionShellToolCallOutput
from openai.types.responses.response_function_shell_tool_call_output import OutputOutcomeExit, OutputOutcomeTimeout
from tests.providers.workspace.stage import SHELL, calling, outputs, staged

from antwort.lazy_imports import imported_on_use
from antwort.provider import Finished
from antwort.providers.workspace.shell import CommandOutput
from antwort.testing import call, turn

if TYPE_CHECKING:
    import agents
else:
    agents = imported_on_use("agents")


def items(response: Any) -> tuple[ResponseFunctionShellToolCall, ResponseFunctionShellToolCallOutput]:
    """Return the items of the first command."""
    said, got = response.output[:2]
    assert isinstance(said, ResponseFunctionShellToolCall)
    assert isinstance(got, ResponseFunctionShellToolCallOutput)
    assert said.call_id == got.call_id
    return said, got


def test_a_command_has_openai_s_items(tmp_path: Path) -> None:
    steps = calling(("shell", {"command": "echo out; echo err >&2; exit 3", "timeout_ms": 5000}))
    with staged(tmp_path, steps) as stage:
        client = stage.client()
        answer = client.responses.create(model="m", input="Go.", tools=[SHELL])
        said, got = items(answer)
        assert said.status == got.status == "completed"
        assert said.action.commands == ["echo out; echo err >&2; exit 3"]
        assert said.action.timeout_ms == 5000
        assert said.environment is not None
        assert said.environment.type == "container_reference"
        (output,) = got.output
        assert (output.stdout, output.stderr) == ("out\n", "err\n")
        assert output.outcome == OutputOutcomeExit(type="exit", exit_code=3)
        assert outputs(stage) == ["out\n[errors]\nerr\n[exit code 3]"]
        assert client.responses.retrieve(answer.id).output == answer.output
        tool = answer.tools[0]
        assert tool.type == "shell"
        workspace = stage.request("GET", f"/workspaces/{said.environment.container_id}")
        assert workspace.status_code == 200


def test_a_command_has_the_same_items_in_a_stream(tmp_path: Path) -> None:
    with staged(tmp_path, calling(("shell", {"command": "echo out"}))) as stage:
        events = list(stage.client().responses.create(model="m", input="Go.", tools=[SHELL], stream=True))
        ended = [event.item.type for event in events if event.type == "response.output_item.done"]
        assert ended == ["shell_call", "shell_call_output", "message"]
        commands = [event for event in events if event.type.startswith("response.shell_call_command.")]
        assert [event.type.rpartition(".")[2] for event in commands] == ["added", "delta", "done"]
        assert commands[-1].type == "response.shell_call_command.done"
        assert commands[-1].command == "echo out"
        assert events[-1].type == "response.completed"
        said, got = items(events[-1].response)
        assert said.action.commands == ["echo out"]
        assert got.output[0].stdout == "out\n"
    with staged(tmp_path, calling(("shell", {"command": "echo out"}))) as stage:
        stage.stream(model="m", input="Go.", tools=[SHELL])


def test_a_command_that_takes_too_long_has_its_outcome(tmp_path: Path) -> None:
    with staged(tmp_path, calling(("shell", {"command": "echo begun; sleep 60", "timeout_ms": 1000}))) as stage:
        _, got = items(stage.client().responses.create(model="m", input="Go.", tools=[SHELL]))
    assert got.output[0].outcome == OutputOutcomeTimeout(type="timeout")
    assert got.output[0].stdout == "begun\n"


def test_a_command_that_cannot_be_made_has_an_output_that_says_why_and_can_be_sent_back(tmp_path: Path) -> None:
    steps = [turn(calls=[call("shell", command="")]), turn("Done."), turn("Still done.")]
    with staged(tmp_path, steps) as stage:
        client = stage.client()
        answer = client.responses.create(model="m", input="Go.", tools=[SHELL])
        said, got = items(answer)
        assert said.status == "completed"
        assert got.output[0].outcome == OutputOutcomeExit(type="exit", exit_code=1)
        assert "command" in got.output[0].stderr
        carried: Any = [item.to_dict() for item in answer.output]
        history: Any = [{"role": "user", "content": "Go."}, *carried, {"role": "user", "content": "Sure?"}]
        again = client.responses.create(model="m", input=history, tools=[SHELL], store=False)
        assert again.output_text == "Still done."


def test_calls_of_one_turn_are_executed_in_order(tmp_path: Path) -> None:
    calls = [
        call("shell", command="sleep 0.2; echo hi > f"),
        call("shell", command="cat f"),
        call("write_file", path="f", content="new"),
        call("read_file", path="f"),
        call("write_file", path="f", content="newer"),
        call("read_file", path="f"),
    ]
    with staged(tmp_path, [turn(calls=calls), turn("Done.")]) as stage:
        stage.client().responses.create(model="m", input="Go.", tools=[SHELL])
        _, shown, _, first, _, second = outputs(stage)
    assert shown == "hi"
    assert "newer" not in first
    assert "newer" in second


def test_a_container_is_named_to_go_on_in_it(tmp_path: Path) -> None:
    steps = [*calling(("shell", {"command": "echo mine > a"})), *calling(("shell", {"command": "cat a"}))]
    with staged(tmp_path, steps) as stage:
        client = stage.client()
        said, _ = items(client.responses.create(model="m", input="Go.", tools=[SHELL]))
        assert said.environment is not None
        assert said.environment.type == "container_reference"
        tool: Any = {"type": "shell", "environment": said.environment.model_dump()}
        _, got = items(client.responses.create(model="m", input="Go.", tools=[tool]))
        assert got.output[0].stdout == "mine\n"
        tool["environment"]["container_id"] = "resp_nobodys"
        with pytest.raises(NotFoundError, match="There is no workspace with the id 'resp_nobodys'") as refused:
            client.responses.create(model="m", input="Go.", tools=[tool])
        assert refused.value.param == "tools[0].environment.container_id"


def carried_on(response: Any) -> Any:
    """Return the input of a client that sends all again."""
    said = [item.to_dict() for item in response.output]
    return [{"role": "user", "content": "Go."}, *said, {"role": "user", "content": "Go on."}]


def workspace_of(response: Any) -> str:
    """Return the workspace of the first command."""
    environment = items(response)[0].environment
    assert environment is not None
    assert environment.type == "container_reference"
    return environment.container_id


def test_any_container_goes_on_in_the_one_of_an_earlier_call_that_is_sent_again(tmp_path: Path) -> None:
    shell = ("shell", {"command": "cat a b"})
    steps = calling(("shell", {"command": "echo mine > a"}))
    steps += calling(("shell", {"command": "ls"}), ("write_file", {"path": "b", "content": "ours"}), shell)
    steps += calling(shell)
    with staged(tmp_path, steps) as stage:
        client = stage.client()
        create: Any = {"model": "m", "tools": [SHELL], "store": False}
        first = client.responses.create(input="Go.", **create)
        second = client.responses.create(input=carried_on(first), **create)
        assert outputs(stage)[-1] == "mine\nours"
        assert workspace_of(second) == workspace_of(first)
        assert second.tools[0].to_dict() == SHELL
        stage.request("DELETE", f"/workspaces/{workspace_of(first)}").raise_for_status()
        third = client.responses.create(input=carried_on(first), **create)
        assert "mine" not in outputs(stage)[-1]
        assert workspace_of(third) != workspace_of(first)


def test_a_run_with_a_workspace_of_its_own_does_not_go_on_in_an_earlier_one(tmp_path: Path) -> None:
    command = ("shell", {"command": "echo mine >> a; cat a"})
    with staged(tmp_path, [*calling(command), *calling(command)], per="run") as stage:
        client = stage.client()
        first = client.responses.create(model="m", input="Go.", tools=[SHELL])
        client.responses.create(model="m", input=carried_on(first), tools=[SHELL])
        assert outputs(stage)[-1] == "mine"


def test_nobody_goes_on_in_a_workspace_of_another_tenant(tmp_path: Path) -> None:
    keys = {name: f"key-of-{name}-0123456789" for name in "ab"}
    auth = {"api_keys": [{"id": name, "key": key, "tenant": name} for name, key in keys.items()]}
    steps = [*calling(("shell", {"command": "echo mine > a"})), *calling(("shell", {"command": "cat a"}))]
    sections = {"auth": auth, "sandbox": {"unbounded": "allow"}, "providers": {"workspace": {"enabled": True}}}
    with staged(tmp_path, steps, sections=sections) as stage:
        ours, theirs = (stage.client(key) for key in keys.values())
        first = theirs.responses.create(model="m", input="Go.", tools=[SHELL])
        second = ours.responses.create(model="m", input=carried_on(first), tools=[SHELL])
        assert "mine" not in outputs(stage)[-1]
        assert workspace_of(second) != workspace_of(first)


def test_long_output_is_cut_in_the_item(tmp_path: Path) -> None:
    with staged(tmp_path, calling(("shell", {"command": "seq 1 100000"}))) as stage:
        _, got = items(stage.client().responses.create(model="m", input="Go.", tools=[SHELL]))
    assert len(got.output[0].stdout) < 101_000
    assert got.output[0].stdout.endswith("100000\n")
    assert "characters …]" in got.output[0].stdout


async def test_much_output_that_is_no_text_leaves_the_event_loop_to_others() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    data = random.Random(1).randbytes(2 << 20)
    others = asyncio.create_task(take_turns())
    said = await CommandOutput.of(Finished("exit", 0, data, "☕".encode() * 50_000, 0.0))
    others.cancel()
    assert said.stdout == data.decode(errors="replace")
    assert said.stderr == "☕" * 50_000
    assert turns >= 32  # one for each 64 KB, or more


def test_a_request_that_does_not_name_the_tool_has_a_function_without_items(tmp_path: Path) -> None:
    with staged(tmp_path, calling(("shell", {"command": "echo out"}))) as stage:
        answer = stage.client().responses.create(model="m", input="Go.")
    assert [item.type for item in answer.output] == ["message"]


@pytest.mark.parametrize(
    ("environment", "param"),
    [
        ({"type": "elsewhere"}, "tools[0].environment.type"),
        ({"type": "container_reference"}, "tools[0].environment.container_id"),
        ({"type": "container_auto", "file_ids": ["file_1"]}, "tools[0].environment.file_ids"),
        ({"type": "container_auto", "memory_limit": "2g"}, "tools[0].environment.memory_limit"),
        (
            {"type": "container_auto", "network_policy": {"type": "allowlist", "allowed_domains": ["a.org"]}},
            "tools[0].environment.network_policy",
        ),
    ],
)
def test_what_is_not_served_is_refused(tmp_path: Path, environment: Any, param: str) -> None:
    with staged(tmp_path) as stage, pytest.raises(BadRequestError) as refused:
        stage.client().responses.create(model="m", input="Go.", tools=[{"type": "shell", "environment": environment}])
    assert refused.value.param == param


@pytest.mark.parametrize(
    "environment",
    [
        {"type": "container_auto", "memory_limit": "1g"},
        {"type": "container_auto", "network_policy": {"type": "disabled"}, "file_ids": [], "skills": None},
    ],
)
def test_what_is_served_is_taken(tmp_path: Path, environment: Any) -> None:
    with staged(tmp_path, ["Hi."]) as stage:
        tool: Any = {"type": "shell", "environment": environment}
        assert stage.client().responses.create(model="m", input="Go.", tools=[tool]).output_text == "Hi."


async def test_the_agents_sdk_uses_it(tmp_path: Path) -> None:
    with staged(tmp_path, calling(("shell", {"command": "echo out"}), answer="It says out.")) as stage:
        async with stage.async_client() as client:
            agent = agents.Agent(
                name="worker",
                model=agents.OpenAIResponsesModel("m", client),
                tools=[agents.ShellTool(environment={"type": "container_auto"})],
            )
            run = await agents.Runner.run(agent, "Go.", run_config=agents.RunConfig(tracing_disabled=True))
    assert run.final_output == "It says out."
    assert [item.type for item in run.new_items] == ["tool_call_item", "tool_call_output_item", "message_output_item"]


@pytest.mark.parametrize(
    ("settings", "limit", "told"),
    [
        ({}, "4g", "'1g' is the largest that can be had here"),
        ({"max_memory": 300 << 20}, "1g", "no value of it can be had here. Leave it out to have 314,572,800 bytes."),
    ],
)
def test_more_memory_than_the_operator_allows_is_refused(tmp_path: Path, settings: Any, limit: str, told: str) -> None:
    with staged(tmp_path, **settings) as stage:
        tool: Any = {"type": "shell", "environment": {"type": "container_auto", "memory_limit": limit}}
        with pytest.raises(BadRequestError, match=told) as refused:
            stage.client().responses.create(model="m", input="Go.", tools=[tool])
        assert refused.value.param == "tools[0].environment.memory_limit"
