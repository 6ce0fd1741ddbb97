"""Calls that wait for somebody: the client asks, and what there is of the call is sealed in what it carries."""

from collections.abc import Iterator
from typing import Any

import mcp_types as types
import pytest
from mcp.client.session import ClientRequestContext
from tests.server.mcp.stage import STATELESS_META, Face, call, first_text, request, serving, texts

from antwort.provider import Context, function
from antwort.types import JSON

RAN: list[str] = []


@function(approval="always")
def forget(what: str) -> str:
    """Forget something."""
    RAN.append(what)
    return f"{what} is forgotten"


@function(effect="suspend", attach=True)
async def ask(ctx: Context, question: str, expires_in: float | None = None) -> str:
    """Ask the user."""
    ctx.suspend({"question": question, "choices": ["red", "blue"], "default": "blue"}, expires_in=expires_in)


ASKS: JSON = {**STATELESS_META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    with serving(tmp_path_factory.mktemp("data"), [forget, ask]) as face:
        yield face


def post(face: Face, name: str, key: str = "key-of-acme", fields: JSON | None = None, **arguments: Any) -> Any:
    body = request("tools/call", name=name, arguments=arguments, _meta=ASKS, **(fields or {}))
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": name}
    return face.post(body, key, **headers).json()


def answering(asked: JSON, **content: Any) -> JSON:
    said = {"action": "accept", "content": content} if content else {"action": "decline"}
    return {"requestState": asked["result"]["requestState"], "inputResponses": {"answer": said}}


async def test_the_official_client_asks_and_goes_on(face: Face) -> None:
    asked: list[str] = []

    async def answer(_: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        content: dict[str, Any] = {"approve": True} if "May" in params.message else {"answer": "red"}
        return types.ElicitResult(action="accept", content=content)

    RAN.clear()
    async with face.client("2026-07-28", elicitation_callback=answer) as client:
        told = await client.call_tool("ask", {"question": "Which colour?"})
        made = await client.call_tool("forget", {"what": "all"})

    assert asked == ["Which colour?", 'May forget be called? {"what":"all"}']
    assert (texts(told), texts(made)) == (["red"], ["all is forgotten"])
    assert RAN == ["all"]


def test_a_no_is_read_by_the_model_and_nothing_is_done(face: Face) -> None:
    RAN.clear()
    for answer in ({"approve": False}, {}):
        asked = post(face, "forget", what="all")
        refused = post(face, "forget", fields=answering(asked, **answer), what="all")
        assert refused["result"]["isError"] is True
        assert "does not want this call to be made" in refused["result"]["content"][0]["text"]
    withdrawn = post(face, "ask", fields=answering(post(face, "ask", question="Which?")), question="Which?")
    assert "withdrawn" in withdrawn["result"]["content"][0]["text"]
    assert RAN == []


def test_what_is_no_answer_is_asked_again(face: Face) -> None:
    asked = post(face, "ask", question="Which?")
    schema = asked["result"]["inputRequests"]["answer"]["params"]["requestedSchema"]
    assert schema["properties"]["answer"]["enum"] == ["red", "blue"]
    again = post(face, "ask", fields=answering(asked, answer="green"), question="Which?")
    assert again["result"]["resultType"] == "input_required"
    assert post(face, "ask", fields=answering(again, answer="blue"), question="Which?")["result"]["content"] == [
        {"type": "text", "text": "blue"}
    ]


@pytest.mark.parametrize("action", [["accept"], {}, 5])
def test_an_action_that_is_none_is_asked_again(face: Face, action: object) -> None:
    asked = post(face, "ask", question="Which?")
    said = {"requestState": asked["result"]["requestState"], "inputResponses": {"answer": {"action": action}}}
    assert post(face, "ask", fields=said, question="Which?")["result"]["resultType"] == "input_required"


def test_who_answers_too_late_has_the_default(face: Face) -> None:
    asked = post(face, "ask", question="Which?", expires_in=0)
    late = post(face, "ask", fields=answering(asked, answer="red"), question="Which?", expires_in=0)
    assert "Go on with the default: blue" in late["result"]["content"][0]["text"]


def test_a_state_is_good_for_the_call_and_the_caller_it_was_made_for(face: Face) -> None:
    RAN.clear()
    said = answering(post(face, "forget", what="little"), approve=True)
    others = [
        post(face, "forget", fields=said, what="all"),
        post(face, "forget", "key-of-caller", said, what="little"),
        post(face, "forget", "key-of-other", said, what="little"),
        post(face, "ask", fields=said, question="little"),
        post(face, "forget", fields={**said, "requestState": said["requestState"][:-4] + "AAAA"}, what="little"),
        post(face, "forget", fields={**said, "requestState": 7}, what="little"),
    ]
    assert [other["error"]["code"] for other in others] == [-32602] * 6
    assert RAN == []


def test_who_cannot_ask_is_told_so(face: Face) -> None:
    RAN.clear()
    assert "cannot ask for one" in first_text(face.post(call("forget", what="all")))
    assert "a call like this cannot" in first_text(face.post(call("ask", question="Which?")))
    for name, said in (("forget", {"what": "all"}), ("ask", {"question": "Which?"})):
        body = request("tools/call", name=name, arguments=said, _meta=STATELESS_META)
        headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": name}
        refused = face.post(body, **headers)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (400, -32021)
        assert error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
    assert RAN == []
