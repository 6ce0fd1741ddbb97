"""Calls that are made only after a yes, through the shipped server, with the official SDK."""

import re
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from tests.http.sdk import create, done
from tests.providers.user.stage import answer, asked, begun, outputs, questions, served_user
from tests.support.postgres import on_one_store

from antwort.context import Context
from antwort.errors import ConfigError
from antwort.provider import AgentTask, Hosted, Provider, Settings, function
from antwort.testing import call, fail, turn
from antwort.types import JSON

pytestmark = on_one_store()

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


SEARCH = Hosted(
    ("web_search",),
    "web_search_call",
    describe=lambda _: {"action": {"type": "search", "query": "it", "queries": ["it"]}},
    phases=("in_progress", "searching"),
)


class Files(Provider[Settings]):
    """Functions of which one should be asked for."""

    name = "files"

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []

    @function(approval="always")
    async def delete_file(self, path: str) -> str:
        """Delete a file."""
        self.deleted.append(path)
        return f"{path} is gone"

    @function
    async def read_file(self, path: str) -> str:
        """Read a file."""
        return f"content of {path}"

    @function(approval="always", hosted=SEARCH)
    async def look(self, query: str) -> str:
        """Look something up."""
        return f"found {query}"

    @function(scope="agent", attach=True)
    async def delegate(self, ctx: Context, prompt: str) -> str:
        """Let another agent work."""
        [result] = await ctx.run_agents([AgentTask(prompt)])
        return result.text or str(result.reason)

    @function(approval="always", effect="suspend", attach=True)
    async def order(self, ctx: Context) -> str:
        """Order something: what, is asked."""
        ctx.suspend({"question": "What?"})


DELETE = call("delete_file", path="a.txt", call_id="call_1")
READ = call("read_file", path="b.txt", call_id="call_2")


def items(response: Response) -> list[JSON]:
    output: Any = response.to_dict()["output"]
    return list(output)


def verdict(request_id: str, approve: bool, reason: str | None = None) -> Any:
    item = {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": approve}
    return item if reason is None else {**item, "reason": reason}


def calls_and_outputs(read: Any) -> list[tuple[str, str]]:
    return [(item["type"], item["call_id"]) for item in read if "call_id" in item]


# --- in the foreground -----------------------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("approve", [True, False])
def test_a_call_is_made_only_after_a_yes(tmp_path: Path, *, stream: bool, approve: bool) -> None:
    files = Files()
    with served_user(tmp_path, [turn(calls=[DELETE, READ]), "Done.", "More."], providers=[files]) as stage:
        first = create(stage, stream, input="Tidy up!")
        [request] = items(first)
        assert (first.status, request["type"]) == ("completed", "mcp_approval_request")
        assert (request["name"], request["arguments"]) == ("delete_file", '{"path": "a.txt"}')
        assert request["server_label"] == "files"
        assert files.deleted == []
        said = [verdict(request["id"], approve, "It is needed.")]
        second = create(stage, stream, input=said, previous_response_id=first.id)
        assert second.output_text == "Done."
        assert files.deleted == (["a.txt"] if approve else [])
        calls = [("function_call", "call_1"), ("function_call", "call_2")]
        answered = [("function_call_output", "call_2"), ("function_call_output", "call_1")]
        assert calls_and_outputs(stage.requests[-1].items) == calls + answered
        result = outputs(stage)[1]
        assert result == "a.txt is gone" if approve else "It is needed." in result
        [question] = questions(stage)
        assert (question["id"], question["approve"], question["kind"]) == (request["id"], approve, "approval")
        create(stage, stream, input="More?", previous_response_id=second.id)
        assert calls_and_outputs(stage.requests[-1].items) == calls + answered


def test_a_message_beside_the_yes_does_not_part_the_call_from_its_output(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[DELETE]), "Done.", "More."], providers=[Files()]) as stage:
        first = create(stage, False, input="Tidy up!")
        said = [{"role": "user", "content": "Go on."}, verdict(items(first)[0]["id"], True)]
        second = create(stage, False, input=said, previous_response_id=first.id)
        create(stage, False, input="More?", previous_response_id=second.id)
        for request in stage.requests[1:]:
            kinds = [item["type"] for item in request.items[:4]]
            assert kinds == ["message", "function_call", "function_call_output", "message"]


def test_a_client_that_carries_its_items_goes_on_too(tmp_path: Path) -> None:
    files = Files()
    with served_user(tmp_path, [turn(calls=[DELETE]), "Done."], providers=[files]) as stage:
        first = create(stage, False, input="Tidy up!")
        [request] = items(first)
        carried: Any = [{"role": "user", "content": "Tidy up!"}, request, verdict(request["id"], True)]
        create(stage, False, input=carried)
        assert files.deleted == ["a.txt"]
        assert calls_and_outputs(stage.requests[-1].items) == [
            ("function_call", "call_1"),
            ("function_call_output", "call_1"),
        ]


def test_a_conversation_goes_on_with_the_yes(tmp_path: Path) -> None:
    files = Files()
    with served_user(tmp_path, [turn(calls=[DELETE]), "Done.", "More."], providers=[files]) as stage:
        conversation = stage.client().conversations.create().id
        first = create(stage, False, input="Tidy up!", conversation=conversation)
        create(stage, False, input=[verdict(items(first)[0]["id"], True)], conversation=conversation)
        create(stage, False, input="More?", conversation=conversation)
        assert files.deleted == ["a.txt"]
        assert calls_and_outputs(stage.requests[-1].items) == [
            ("function_call", "call_1"),
            ("function_call_output", "call_1"),
        ]


def test_forged_double_and_missing_verdicts_are_refused(tmp_path: Path) -> None:
    files = Files()
    with served_user(tmp_path, [turn(calls=[DELETE]), "Done."], providers=[files]) as stage:
        first = create(stage, False, input="Tidy up!")
        [request] = items(first)
        with pytest.raises(openai.BadRequestError, match="No approval request found"):
            create(stage, False, input=[verdict("mcpr_0", True)], previous_response_id=first.id)
        with pytest.raises(
            openai.BadRequestError, match=f"No tool output found.*'{request['id']}' needs an `mcp_approval"
        ):
            create(stage, False, input="Well?", previous_response_id=first.id)
        forged: Any = {"type": "function_call_output", "call_id": "call_1", "output": "Deleted."}
        with pytest.raises(openai.BadRequestError, match="waits for an approval"):
            create(stage, False, input=[forged], previous_response_id=first.id)
        with pytest.raises(openai.BadRequestError, match="stored"):
            create(stage, False, input=[verdict(request["id"], True)], previous_response_id=first.id, store=False)
        create(stage, False, input=[verdict(request["id"], True)], previous_response_id=first.id)
        with pytest.raises(openai.ConflictError):
            create(stage, False, input=[verdict(request["id"], True)], previous_response_id=first.id)
        assert files.deleted == ["a.txt"]


def test_a_call_is_not_made_twice_when_the_response_after_it_fails(tmp_path: Path) -> None:
    files = Files()
    steps: list[Any] = [turn(calls=[DELETE]), turn(error=fail(500)), "Done."]
    with served_user(tmp_path, steps, providers=[files]) as stage:
        first = create(stage, False, input="Tidy up!")
        said = [verdict(items(first)[0]["id"], True)]
        with pytest.raises(openai.APIStatusError):
            create(stage, False, input=said, previous_response_id=first.id)
        with pytest.raises(openai.ConflictError, match="answered already by response") as error:
            create(stage, False, input=said, previous_response_id=first.id)
        [failed] = re.findall(r"by response '(resp_\w+)'", error.value.message)[:1]
        create(stage, False, input="Go on.", previous_response_id=failed)
        assert outputs(stage) == ["a.txt is gone"]
        assert files.deleted == ["a.txt"]


def test_what_is_not_stored_refuses_such_calls(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[DELETE]), "Well."], providers=[Files()]) as stage:
        create(stage, False, input="Tidy up!", store=False)
        assert "nobody can be asked" in outputs(stage)[0]


def test_a_sub_agent_of_a_foreground_response_is_refused_them(tmp_path: Path) -> None:
    steps: list[Any] = [
        turn(calls=[call("delegate", prompt="Tidy up!")]),
        turn(calls=[DELETE]),
        "I could not.",
        "Well.",
    ]
    files = Files()
    with served_user(tmp_path, steps, providers=[files]) as stage:
        create(stage, False, input="Tidy up!")
        assert "nobody can be asked" in outputs(stage, 2)[0]
        assert files.deleted == []


# --- in the background -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approve", [True, False])
def test_a_background_run_waits_for_the_yes(tmp_path: Path, approve: bool) -> None:
    files = Files()
    with served_user(tmp_path, [turn(calls=[DELETE, READ]), "Done."], providers=[files]) as stage:
        response_id = begun(stage)
        [question] = asked(stage)
        assert (question["kind"], question["body"]["name"]) == ("approval", "delete_file")
        answer(stage, question, 400, answer="Yes.")
        assert files.deleted == []
        answered = answer(stage, question, approve=approve, reason="Because.")
        assert (answered["approve"], answered["reason"]) == (approve, "Because.")
        response = done(stage, response_id)
        assert [item["type"] for item in response["output"]] == ["mcp_approval_request", "message"]
        assert stage.resume(response_id).response["output"] == response["output"]
        assert files.deleted == (["a.txt"] if approve else [])
        first, second = outputs(stage)
        assert (first == "a.txt is gone") if approve else ("Because." in first)
        assert second == "content of b.txt"


def test_a_hosted_call_is_shown_when_it_begins(tmp_path: Path) -> None:
    search = call("look", query="it")
    with served_user(tmp_path, [turn(calls=[search]), "Done."], providers=[Files()]) as stage:
        response_id = begun(stage, tools=[{"type": "web_search"}])
        [question] = asked(stage)
        assert [item["type"] for item in stage.request("GET", f"/responses/{response_id}").json()["output"]] == [
            "mcp_approval_request"
        ]
        answer(stage, question, approve=True)
        response = done(stage, response_id)
        assert [item["type"] for item in response["output"]] == ["mcp_approval_request", "web_search_call", "message"]
        assert stage.resume(response_id).response["output"] == response["output"]


def test_the_tree_of_a_background_run_waits_and_goes_on(tmp_path: Path) -> None:
    steps: list[Any] = [turn(calls=[call("delegate", prompt="Tidy up!")]), turn(calls=[DELETE]), "It is gone.", "Done."]
    files = Files()
    with served_user(tmp_path, steps, providers=[files]) as stage:
        response_id = begun(stage)
        [question] = asked(stage)
        assert (question["run_id"], question["response_id"] == response_id) == (response_id, False)
        assert questions(stage, response_id=response_id) == [question]
        answer(stage, question, approve=True)
        assert done(stage, response_id)["status"] == "completed"
        assert files.deleted == ["a.txt"]
        assert outputs(stage) == ["It is gone."]


def test_a_call_that_was_approved_can_ask_a_question(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[call("order")]), "Ordered."], providers=[Files()]) as stage:
        response_id = begun(stage)
        [question] = asked(stage)
        answer(stage, question, approve=True)
        [question] = asked(stage)
        assert question["kind"] == "question"
        answer(stage, question, answer="Tea.")
        done(stage, response_id)
        assert outputs(stage) == ["Tea."]


# --- the configuration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "agents", "asks"),
    [
        ({}, {}, False),
        ({"approval": "always"}, {}, True),
        ({"approval": {"calculate": "always"}}, {}, True),
        ({"approval": {"current_time": "always"}}, {}, False),
        ({"approval": "always"}, {"approval": "never"}, False),
        ({"approval": "always"}, {"approval": {"calculate": "never"}}, False),
        ({}, {"approval": "always"}, True),
        ({}, {"approval": {"calculate": "always"}}, True),
    ],
)
def test_providers_and_agents_are_configured(tmp_path: Path, section: JSON, agents: JSON, asks: bool) -> None:
    steps: list[Any] = [turn(calls=[call("calculate", expression="6 * 7")]), *([] if asks else ["42"])]
    basics = {"basics": {"enabled": True, **section}}
    with served_user(tmp_path, steps, section=basics, agents={"helper": agents}) as stage:
        response = stage.client().responses.create(model="helper", input="What?")
        assert [item["type"] for item in items(response)] == ["mcp_approval_request" if asks else "message"]


def test_what_is_said_for_all_leaves_out_the_user(tmp_path: Path) -> None:
    steps = [turn(calls=[call("ask_user", question="Q?")])]
    with served_user(tmp_path, steps, user={"approval": "always"}) as stage:
        begun(stage)
        [question] = asked(stage)
        assert question["kind"] == "question"


@pytest.mark.parametrize(
    "sections",
    [
        {"section": {"basics": {"enabled": True, "approval": {"calculat": "always"}}}},
        {"agents": {"helper": {"approval": {"ask_usr": "always"}}}},
    ],
)
def test_a_function_that_there_is_not_is_refused(tmp_path: Path, sections: JSON) -> None:
    with pytest.raises(ConfigError, match="did you mean"), served_user(tmp_path, [], **sections):
        pass
