"""Tools that clients execute and that have items of their own, on model servers that only know functions."""

from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError
from openai.types.responses import ResponseCustomToolCall, ResponseFunctionToolCall
from tests.http.sdk import create, served

from antwort.testing import call, turn
from antwort.wire.client_tools import ClientTool, client_definition
from antwort.wire.items import ApplyPatchCall

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
SHELL: Any = {"type": "shell", "environment": {"type": "local"}}
CRM: Any = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [
        {
            "type": "function",
            "name": "find",
            "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
        {"type": "custom", "name": "query"},
    ],
}


def exited(stdout: str, code: int = 0, stderr: str = "") -> dict[str, Any]:
    return {"stdout": stdout, "stderr": stderr, "outcome": {"type": "exit", "exit_code": code}}


CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any], Any]] = {
    "shell": (
        SHELL,
        {"commands": ["ls", "false"], "timeout_ms": 500},
        {
            "type": "shell_call",
            "action": {"commands": ["ls", "false"], "timeout_ms": 500, "max_output_length": None},
            "environment": {"type": "local"},
        },
        {"type": "shell_call_output", "output": [exited("a.txt\n"), exited("", 1, "no\n")]},
        "a.txt\n(exit code 0)\nstderr:\nno\n(exit code 1)",
    ),
    "local_shell": (
        {"type": "local_shell"},
        {"command": ["ls", "-l"], "working_directory": "/srv"},
        {
            "type": "local_shell_call",
            "action": {
                "type": "exec",
                "command": ["ls", "-l"],
                "env": {},
                "timeout_ms": None,
                "working_directory": "/srv",
            },
        },
        {"type": "local_shell_call_output", "output": "total 0"},
        "total 0",
    ),
    "apply_patch": (
        {"type": "apply_patch"},
        {"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b\n"},
        {"type": "apply_patch_call", "operation": {"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b\n"}},
        {"type": "apply_patch_call_output", "status": "failed", "output": "no such line"},
        "failed: no such line",
    ),
    "computer": (
        {"type": "computer"},
        {"actions": [{"type": "click", "x": 1, "y": 2, "button": "left"}]},
        {
            "type": "computer_call",
            "actions": [{"type": "click", "x": 1, "y": 2, "button": "left"}],
            "pending_safety_checks": [],
        },
        {
            "type": "computer_call_output",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"},
        },
        [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}],
    ),
    "computer_use_preview": (
        {"type": "computer_use_preview", "environment": "browser", "display_width": 10, "display_height": 10},
        {"type": "screenshot"},
        {"type": "computer_call", "action": {"type": "screenshot"}, "pending_safety_checks": []},
        {
            "type": "computer_call_output",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"},
        },
        [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}],
    ),
}


@BOTH_WAYS
@pytest.mark.parametrize("kind", CASES)
def test_a_call_is_returned_as_its_own_item_and_its_output_is_read(tmp_path: Path, kind: str, stream: bool) -> None:
    tool, arguments, expected, output, _read = CASES[kind]
    name = "computer" if kind.startswith("computer") else kind
    steps = [turn(calls=[call(name, call_id="call_1", **arguments)]), turn("Done.")]
    with served(tmp_path, steps) as stage:
        first = create(stage, stream, input="Go", tools=[tool], tool_choice="required")
        (item,) = first.output
        assert item.to_dict() == {**expected, "id": item.id, "call_id": "call_1", "status": "completed"}
        assert first.tools[0].type == kind
        answer: Any = {**output, "call_id": "call_1"}
        second = create(stage, stream, input=[answer], previous_response_id=first.id, tools=[tool])
        assert second.output_text == "Done."
    said, result = stage.requests[1].items[-2:]
    assert (said["type"], result["type"]) == (expected["type"], output["type"])


@pytest.mark.parametrize("kind", CASES)
def test_the_model_server_reads_calls_and_outputs_as_those_of_a_function(tmp_path: Path, kind: str) -> None:
    tool, arguments, expected, output, read = CASES[kind]
    history: Any = [
        {"role": "user", "content": "Go"},
        {**expected, "id": "x_1", "call_id": "call_1", "status": "completed"},
        {**output, "call_id": "call_1"},
    ]
    with served(tmp_path, ["Done."], over_http=True) as stage:
        create(stage, False, input=history, tools=[tool], store=False)
    _, said, result, *_attached = stage.bodies[0]["messages"]
    (called,) = said["tool_calls"]
    assert called["function"]["name"] == stage.bodies[0]["tools"][0]["function"]["name"]
    assert all(f'"{name}"' in called["function"]["arguments"] for name in arguments)
    assert result["tool_call_id"] == "call_1"
    if isinstance(read, str):
        assert result["content"] == read


def test_the_output_of_a_local_shell_may_name_its_call_by_its_id(tmp_path: Path) -> None:
    with served(tmp_path, [turn(calls=[call("local_shell", command=["ls"], call_id="call_1")]), "Done."]) as stage:
        first = create(stage, False, input="Go", tools=[{"type": "local_shell"}])
        answer: Any = {"type": "local_shell_call_output", "id": "call_1", "output": "a"}
        assert create(stage, False, input=[answer], previous_response_id=first.id).output_text == "Done."


def test_commands_are_told_one_by_one(tmp_path: Path) -> None:
    with served(tmp_path, [turn(calls=[call("shell", commands=["ls", "pwd"])])]) as stage:
        seen = stage.stream(input="Go", tools=[SHELL])
    told = [event for event in seen.events if "shell_call_command" in event["type"]]
    assert [(e["type"].rpartition(".")[2], e["command_index"]) for e in told] == [
        *(("added", 0), ("delta", 0), ("done", 0)),
        *(("added", 1), ("delta", 1), ("done", 1)),
    ]


@pytest.mark.parametrize("arguments", ["ls", '"ls"', '{"command": "ls"}', '{"commands": "ls"}'])
def test_a_model_that_writes_one_command_is_understood(tmp_path: Path, arguments: str) -> None:
    with served(tmp_path, [turn(calls=[call("shell", arguments)])]) as stage:
        (item,) = create(stage, False, input="Go", tools=[SHELL]).output
    assert item.type == "shell_call"
    assert item.action.commands == ["ls"]


def test_a_shell_of_the_server_is_not_the_clients(tmp_path: Path) -> None:
    hosted: Any = {"type": "shell", "environment": {"type": "container_auto"}}
    with served(tmp_path, []) as stage, pytest.raises(BadRequestError, match="type 'shell' are not available here"):
        create(stage, False, input="Go", tools=[hosted])


@BOTH_WAYS
def test_a_function_of_a_namespace_is_called_by_a_longer_name(tmp_path: Path, stream: bool) -> None:
    calls = [call("crm__find", name="Ada", call_id="call_1"), call("crm__query", input="all", call_id="call_2")]
    with served(tmp_path, [turn(calls=calls), turn("Done.")]) as stage:
        first = create(stage, stream, input="Go", tools=[CRM])
        found, asked = first.output
        assert isinstance(found, ResponseFunctionToolCall)
        assert isinstance(asked, ResponseCustomToolCall)
        assert (found.name, found.namespace, found.arguments) == ("find", "crm", '{"name": "Ada"}')
        assert (asked.name, asked.namespace, asked.input) == ("query", "crm", "all")
        assert first.tools[0].to_dict() == CRM
        answers: Any = [
            {"type": "function_call_output", "call_id": "call_1", "output": "Ada L."},
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "1"},
        ]
        second = create(stage, stream, input=answers, previous_response_id=first.id, tools=[CRM])
        assert second.output_text == "Done."
    assert [tool["name"] for tool in stage.requests[0].tools] == ["crm__find", "crm__query"]


def test_what_was_called_in_a_namespace_has_the_longer_name_in_the_history(tmp_path: Path) -> None:
    said: Any = {"type": "function_call", "call_id": "c", "name": "find", "namespace": "crm", "arguments": "{}"}
    history: Any = [said, {"type": "function_call_output", "call_id": "c", "output": "Ada L."}]
    with served(tmp_path, ["Done."], over_http=True) as stage:
        create(stage, False, input=history, tools=[CRM])
    assert stage.bodies[0]["messages"][0]["tool_calls"][0]["function"]["name"] == "crm__find"


def test_a_function_of_a_namespace_can_be_chosen(tmp_path: Path) -> None:
    choice: Any = {"type": "function", "name": "find", "namespace": "crm"}
    with served(tmp_path, [turn(calls=[call("crm__find", name="Ada")])]) as stage:
        response = create(stage, False, input="Go", tools=[CRM], tool_choice=choice)
    assert stage.requests[0].tool_choice == {"type": "function", "name": "crm__find"}
    assert response.output[0].type == "function_call"


def test_names_that_would_be_too_long_are_cut_and_stay_apart(tmp_path: Path) -> None:
    tools = [{"type": "function", "name": f"{'n' * 63}{end}", "parameters": {"type": "object"}} for end in "ab"]
    space: Any = {**CRM, "name": "s" * 40, "tools": tools}
    with served(tmp_path, ["Hi."]) as stage:
        create(stage, False, input="Go", tools=[space])
    names = [tool["name"] for tool in stage.requests[0].tools]
    assert len(set(names)) == 2
    assert {len(name) for name in names} == {64}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tools": []}, "tools[0].tools"),
        ({"tools": ["find"]}, "tools[0].tools[0]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].tools[0].type"),
        ({"tools": [{"type": "function", "name": "no name"}]}, "tools[0].tools[0].name"),
        ({"tools": CRM["tools"] + CRM["tools"][:1]}, "tools[0].tools[2].name"),
        ({"name": ""}, "tools[0].name"),
    ],
)
def test_what_is_wrong_in_a_namespace_is_named(tmp_path: Path, change: dict[str, Any], param: str) -> None:
    with served(tmp_path, []) as stage, pytest.raises(BadRequestError) as error:
        create(stage, False, input="Go", tools=[{**CRM, **change}])
    assert error.value.param == param


def test_client_metadata_is_taken(tmp_path: Path) -> None:
    with served(tmp_path, ["Hi."]) as stage:
        response = stage.client().responses.create(
            input="Go", model="scripted", extra_body={"client_metadata": {"a": "b"}}
        )
    assert response.output_text == "Hi."


def test_a_call_that_was_cut_off_can_be_sent_back(tmp_path: Path) -> None:
    cut: Any = {"type": "shell_call", "id": "sh_1", "call_id": "call_1", "status": "incomplete", "action": {}}
    with served(tmp_path, ["Hi."], over_http=True) as stage:
        create(stage, False, input=[{"role": "user", "content": "Go"}, cut], tools=[SHELL])
    assert [message["role"] for message in stage.bodies[0]["messages"]] == ["user"]


def test_a_patch_is_asked_for_with_a_diff_and_has_one() -> None:
    definition = client_definition({"type": "apply_patch"})
    assert definition is not None
    assert definition["parameters"]["required"] == ["type", "path", "diff"]
    made = ClientTool("apply_patch", "apply_patch").item("apc_1", "call_1", '{"type": "update_file", "path": "a"}')
    assert isinstance(made, ApplyPatchCall)
    assert made.operation == {"type": "update_file", "path": "a", "diff": ""}
