"""OpenAI's `code_interpreter` tool, through the SDK and the Agents SDK, on any model."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openai import BadRequestError, NotFoundError
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from openai.types.responses.response_code_interpreter_tool_call import OutputImage, OutputLogs
from tests.http.sdk import served
from tests.providers.code_interpreter.stage import OUTPUTS, TOOL, calls, outputs, running_code, staged

from antwort.lazy_imports import imported_on_use
from antwort.testing import call, turn
from antwort.testing.script_server import point

if TYPE_CHECKING:
    import agents
else:
    agents = imported_on_use("agents")

PICTURE = "open('dot.svg', 'w').write('<svg xmlns=\"http://www.w3.org/2000/svg\"/>');"


def test_a_call_has_openai_s_item(tmp_path: Path) -> None:
    with staged(tmp_path, running_code("print(6 * 7)")) as stage:
        client = stage.client()
        answer = client.responses.create(model="m", input="Go.", tools=[TOOL], include=OUTPUTS)
        (item,) = calls(answer)
        assert (item.code, item.status) == ("print(6 * 7)", "completed")
        assert item.container_id.startswith("cntr_")
        assert item.id.startswith("ci_")
        assert item.outputs == [OutputLogs(type="logs", logs="42\n")]
        assert client.responses.retrieve(answer.id).output == answer.output
        assert answer.tools[0].type == "code_interpreter"
        assert client.containers.retrieve(item.container_id).status == "active"


def test_outputs_are_shown_only_to_who_asks(tmp_path: Path) -> None:
    with staged(tmp_path, running_code("print(6 * 7)")) as stage:
        client = stage.client()
        conversation = client.conversations.create()
        answer = client.responses.create(model="m", input="Go.", tools=[TOOL], conversation=conversation.id)
        assert [item.outputs for item in calls(answer)] == [None]
        assert calls(client.responses.retrieve(answer.id)) == calls(answer)
        asked = calls(client.responses.retrieve(answer.id, include=OUTPUTS))
        assert [item.outputs for item in asked] == [[OutputLogs(type="logs", logs="42\n")]]
        listed: list[Any] = list(client.conversations.items.list(conversation.id, include=OUTPUTS, order="asc"))
        assert listed[1].outputs == asked[0].outputs
        found: Any = client.conversations.items.retrieve(asked[0].id, conversation_id=conversation.id, include=OUTPUTS)
        assert found.outputs == asked[0].outputs


def test_a_stream_has_openai_s_events_in_order(tmp_path: Path) -> None:
    with staged(tmp_path, running_code("print(6 * 7)")) as stage:
        events = list(
            stage.client().responses.create(model="m", input="Go.", tools=[TOOL], include=OUTPUTS, stream=True)
        )
        told: list[Any] = [event for event in events if getattr(event, "output_index", None) == 0]
        call_events = "response.code_interpreter_call"
        assert [event.type for event in told] == [
            "response.output_item.added",
            f"{call_events}.in_progress",
            f"{call_events}_code.delta",
            f"{call_events}_code.done",
            f"{call_events}.interpreting",
            f"{call_events}.completed",
            "response.output_item.done",
        ]
        assert told[0].item.code == ""
        assert told[2].delta == told[3].code == told[6].item.code == "print(6 * 7)"
        assert told[6].item.outputs == [OutputLogs(type="logs", logs="42\n")]
        assert {event.item_id for event in told[1:6]} == {told[0].item.id}


def test_a_picture_is_a_file_an_output_and_can_be_cited(tmp_path: Path) -> None:
    answers = "Here: [1], or [the dot](sandbox:/mnt/data/dot.svg)."
    with staged(tmp_path, running_code(PICTURE, answer=answers)) as stage:
        client = stage.client()
        answer = client.responses.create(model="m", input="Draw.", tools=[TOOL], include=OUTPUTS)
        (item,) = calls(answer)
        (file,) = client.containers.files.list(item.container_id).data
        assert (file.path, file.source, file.object) == ("/mnt/data/dot.svg", "assistant", "container.file")
        path = f"/containers/{item.container_id}/files/{file.id}/content"
        assert item.outputs is not None
        assert item.outputs[-1] == OutputImage(type="image", url=f"/v1{path}")
        assert stage.request("GET", path).text.startswith("<svg")
        assert outputs(stage)[-1].endswith(f"[1] dot.svg ({file.bytes} bytes)")
        message = answer.output[-1]
        assert isinstance(message, ResponseOutputMessage)
        text = message.content[0]
        assert isinstance(text, ResponseOutputText)
        first, second = text.annotations
        assert first.type == second.type == "container_file_citation"
        assert (first.file_id, first.container_id, first.filename) == (file.id, item.container_id, "dot.svg")
        assert text.text[first.start_index : first.end_index] == "[1]"
        assert text.text[second.start_index : second.end_index] == "sandbox:/mnt/data/dot.svg"


def test_why_a_session_has_ended_is_in_the_logs(tmp_path: Path) -> None:
    code = "print('before', flush=True)\nimport os; os._exit(3)"
    with staged(tmp_path, running_code(code)) as stage:
        (item,) = calls(stage.client().responses.create(model="m", input="Go.", tools=[TOOL], include=OUTPUTS))
        (output,) = item.outputs or []
        assert isinstance(output, OutputLogs)
        assert output.logs.startswith("before\n[The session has ended: the interpreter has ended.")


def test_a_request_can_name_a_container(tmp_path: Path) -> None:
    with staged(tmp_path, [*running_code("x = len(open('data.csv').read())"), *running_code("x")]) as stage:
        client = stage.client()
        made = client.containers.create(name="mine")
        client.containers.files.create(made.id, file=("data.csv", b"a,b\n1,2\n"))
        tool: Any = {"type": "code_interpreter", "container": made.id}
        for _ in range(2):  # two conversations, and one session
            (item,) = calls(client.responses.create(model="m", input="Go.", tools=[tool]))
            assert item.container_id == made.id
        assert outputs(stage)[-1] == "8"


@pytest.mark.parametrize("container", ["cntr_" + 48 * "0", "cntr_nope", "", "../x", "x" * 5000])
@pytest.mark.parametrize("more", [{}, {"stream": True}, {"background": True}])
def test_a_container_that_there_is_not_is_refused(tmp_path: Path, container: str, more: Any) -> None:
    with staged(tmp_path) as stage:
        create: Any = {"model": "m", "input": "Go.", **more}
        tools: Any = [{"type": "code_interpreter", "container": container}]
        with pytest.raises(NotFoundError, match="There is no container with the id") as refused:
            stage.client().responses.create(**create, tools=tools)
        assert refused.value.param == "tools[0].container"
        assert stage.requests == []


def test_any_container_goes_on_in_the_one_of_an_earlier_call_that_is_sent_again(tmp_path: Path) -> None:
    steps = [*running_code("x = 41"), *running_code("x + 1"), *running_code("x")]
    with staged(tmp_path, steps) as stage:
        client = stage.client()
        create: Any = {"model": "m", "tools": [TOOL], "store": False}
        first = client.responses.create(input="Go.", **create)
        said: Any = [item.model_dump(exclude_none=True) for item in first.output]
        again: Any = [{"role": "user", "content": "Go."}, *said, {"role": "user", "content": "Go on."}]
        second = client.responses.create(input=again, **create)
        assert outputs(stage)[-1] == "42"
        assert calls(second)[0].container_id == calls(first)[0].container_id
        assert second.tools[0].model_dump(exclude_none=True) == TOOL
        client.containers.delete(calls(first)[0].container_id)
        third = client.responses.create(input=again, **create)
        assert "NameError" in outputs(stage)[-1]
        assert calls(third)[0].container_id != calls(first)[0].container_id


def test_nobody_goes_on_in_a_container_of_another_tenant(tmp_path: Path) -> None:
    keys = {name: f"key-of-{name}-0123456789" for name in "ab"}
    auth = {"api_keys": [{"id": name, "key": key, "tenant": name} for name, key in keys.items()]}
    with staged(
        tmp_path,
        [*running_code("x = 41"), *running_code("x")],
        sections={"auth": auth, "sandbox": {"unbounded": "allow"}},
    ) as stage:
        ours, theirs = (stage.client(key) for key in keys.values())
        first = theirs.responses.create(model="m", input="Go.", tools=[TOOL])
        said: Any = [item.model_dump(exclude_none=True) for item in first.output]
        second = ours.responses.create(model="m", input=[*said, {"role": "user", "content": "Go."}], tools=[TOOL])
        assert "NameError" in outputs(stage)[-1]
        assert calls(second)[0].container_id != calls(first)[0].container_id


@pytest.mark.parametrize(
    ("container", "param"),
    [
        (5, "container"),
        ({"type": "other"}, "container.type"),
        ({"type": "auto", "file_ids": ["file-1"]}, "container.file_ids"),
        ({"type": "auto", "file_ids": "file-1"}, "container.file_ids"),
        ({"type": "auto", "memory_limit": "3g"}, "container.memory_limit"),
        ({"type": "auto", "memory_limit": ["1g"]}, "container.memory_limit"),
        (
            {"type": "auto", "network_policy": {"type": "allowlist", "allowed_domains": ["a.org"]}},
            "container.network_policy",
        ),
    ],
)
def test_a_tool_that_cannot_be_served_is_refused(tmp_path: Path, container: Any, param: str) -> None:
    with staged(tmp_path) as stage, pytest.raises(BadRequestError) as refused:
        tool: Any = {"type": "code_interpreter", "container": container}
        stage.client().responses.create(model="m", input="Go.", tools=[tool])
    assert str(refused.value.param).endswith(param)


@pytest.mark.parametrize("tool", [{"type": "code_interpreter"}, {"type": "code_interpreter", "container": None}])
def test_a_tool_without_a_container_has_any(tmp_path: Path, tool: Any) -> None:
    with staged(tmp_path, running_code("x = 6", "print(x * 7)")) as stage:
        made = stage.client().responses.create(model="m", input="Go.", tools=[tool])
        assert outputs(stage)[-1] == "42"
        first, second = calls(made)
        assert first.container_id == second.container_id
        echo: Any = made.tools[0]
        assert echo.container.type == "auto"


async def test_the_agents_sdk_s_tool_works(tmp_path: Path) -> None:
    with staged(tmp_path, running_code("print(6 * 7)", answer="It is 42.")) as stage:
        async with stage.async_client() as client:
            tool = agents.CodeInterpreterTool(tool_config=TOOL)
            agent = agents.Agent(name="Analyst", model=agents.OpenAIResponsesModel("m", client), tools=[tool])
            result = await agents.Runner.run(
                agent, "What is six times seven?", run_config=agents.RunConfig(tracing_disabled=True)
            )
        assert result.final_output == "It is 42."
        assert outputs(stage) == ["42"]


def test_code_that_is_no_text_is_told_to_the_model(tmp_path: Path) -> None:
    with staged(tmp_path, [turn(calls=[call("code_interpreter", code=7)]), turn("Done.")]) as stage:
        answer = stage.client().responses.create(model="m", input="Go.", tools=[TOOL])
        assert [item.status for item in calls(answer)] == ["failed"]


@pytest.mark.parametrize("images", [True, None])
def test_a_plot_is_shown_to_models_that_see(tmp_path: Path, images: bool | None) -> None:
    picture = base64.b64encode(point("red")).decode()
    code = f"import base64; open('plot.png', 'wb').write(base64.b64decode('{picture}')); print('plotted')"
    section = {"code_interpreter": {"enabled": True}}
    steps = running_code(code)
    with served(tmp_path, steps, over_http=True, section=section, backend={"images": images}) as stage:
        stage.client().responses.create(model="scripted", input="Plot.", tools=[TOOL])
        last = stage.bodies[1]["messages"][-1]
    assert last["role"] == ("user" if images else "tool")
    if images:
        assert last["content"][1]["image_url"]["url"] == f"data:image/png;base64,{picture}"
