"""The official SDK: what a response cites that goes on from others, whoever remembers them."""

from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response
from tests.http.sdk import create, done, served
from tests.http.sockets import socket
from tests.support.postgres import on_one_store

from antwort.provider import Context, Source
from antwort.testing import Turn, call, matching, turn

pytestmark = on_one_store()


BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


async def find(ctx: Context, name: str) -> str:
    """Find a document."""
    return f"[{ctx.sources.add(Source(f'{name}.md', file_id=f'file-{name}'))}] All about {name}."


def finding(name: str, answer: str) -> list[Turn]:
    """Return the script of a model that finds a document and answers."""
    return [turn(calls=[call("find", name=name)]), turn(answer, expect=matching(last=f"All about {name}."))]


STEPS = [*finding("tea", "Tea [1]."), *finding("coffee", "Tea [1], coffee [2]."), turn("As said [2], [1].")]
"""Three responses; the last one finds nothing itself."""


def cited(response: Response | dict[str, Any]) -> list[str]:
    """Return the names of the files that a response cites, in order."""
    body = response.to_dict() if isinstance(response, Response) else response
    output: Any = body["output"]
    return [annotation["filename"] for annotation in output[-1]["content"][0]["annotations"]]


@BOTH_WAYS
def test_a_response_cites_what_those_before_it_found(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, STEPS, functions=[find]) as stage:
        first = create(stage, stream, input="Tea?")
        second = create(stage, stream, input="Coffee?", previous_response_id=first.id)
        third = create(stage, stream, input="Sure?", previous_response_id=second.id)
        assert stage.client().responses.retrieve(third.id) == third
    assert cited(first) == ["tea.md"]
    assert cited(second) == ["tea.md", "coffee.md"]
    assert cited(third) == ["coffee.md", "tea.md"]
    outputs = [item["output"] for item in stage.requests[-1].items if item["type"] == "function_call_output"]
    assert outputs == ["[1] All about tea.", "[2] All about coffee."]


def test_a_chain_outlives_the_server(tmp_path: Path) -> None:
    with served(tmp_path, STEPS[:2], functions=[find]) as stage:
        first = create(stage, False, input="Tea?")
    with served(tmp_path, STEPS[2:], functions=[find]) as stage:
        second = create(stage, False, input="Coffee?", previous_response_id=first.id)
        third = create(stage, False, input="Sure?", previous_response_id=second.id)
    assert (cited(second), cited(third)) == (["tea.md", "coffee.md"], ["coffee.md", "tea.md"])


@BOTH_WAYS
@pytest.mark.parametrize("store", [True, False])
def test_a_response_cites_what_was_found_in_its_conversation(tmp_path: Path, stream: bool, store: bool) -> None:
    with served(tmp_path, STEPS, functions=[find]) as stage:
        name = stage.client().conversations.create().id
        asked = [create(stage, stream, input="?", conversation=name, store=store) for _ in range(3)]
    assert [cited(response) for response in asked] == [["tea.md"], ["tea.md", "coffee.md"], ["coffee.md", "tea.md"]]


def test_a_connection_remembers_what_was_found(tmp_path: Path) -> None:
    with served(tmp_path, STEPS, functions=[find]) as stage, socket(stage) as connection:
        first = connection.ask("Tea?", store=False).response
        second = connection.ask("Coffee?", store=False, previous_response_id=first["id"]).response
        third = connection.ask("Sure?", store=False, previous_response_id=second["id"]).response
    assert [cited(response) for response in (first, second, third)] == [
        ["tea.md"],
        ["tea.md", "coffee.md"],
        ["coffee.md", "tea.md"],
    ]


def test_what_a_connection_remembers_goes_along_into_the_store(tmp_path: Path) -> None:
    with served(tmp_path, STEPS, functions=[find]) as stage:
        with socket(stage) as connection:
            first = connection.ask("Tea?", store=False).response
            second = connection.ask("Coffee?", previous_response_id=first["id"]).response
        third = create(stage, False, input="Sure?", previous_response_id=second["id"])
    assert (cited(second), cited(third)) == (["tea.md", "coffee.md"], ["coffee.md", "tea.md"])


def test_background_responses_cite_what_those_before_them_found(tmp_path: Path) -> None:
    with served(tmp_path, STEPS, functions=[find]) as stage:
        first = done(stage, create(stage, False, input="?", background=True).id)
        second = done(stage, create(stage, False, input="?", background=True, previous_response_id=first["id"]).id)
        third = done(stage, create(stage, False, input="?", background=True, previous_response_id=second["id"]).id)
    assert [cited(response) for response in (first, second, third)] == [
        ["tea.md"],
        ["tea.md", "coffee.md"],
        ["coffee.md", "tea.md"],
    ]


def test_items_that_are_named_bring_what_they_found(tmp_path: Path) -> None:
    with served(tmp_path, STEPS, functions=[find], engine={"show_calls": True}) as stage:
        first = stage.request("POST", "/responses", json={"input": "Tea?"}).json()
        named = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
        question = {"role": "user", "content": "Coffee?"}
        second = stage.request("POST", "/responses", json={"input": [*named, question]}).json()
        named += [{"type": "item_reference", "id": item["id"]} for item in second["output"]]
        third = stage.request("POST", "/responses", json={"input": [*named, question]}).json()
    assert (cited(second), cited(third)) == (["tea.md", "coffee.md"], ["coffee.md", "tea.md"])


def named(*responses: dict[str, Any]) -> list[dict[str, Any]]:
    """Return references to all that responses have said."""
    return [{"type": "item_reference", "id": item["id"]} for response in responses for item in response["output"]]


SHOWN = {"show_calls": True}
QUESTION = {"role": "user", "content": "?"}


@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_what_was_named_is_known_to_those_who_continue(tmp_path: Path, background: bool) -> None:
    """The second response names a call and finds nothing itself, the third one goes on from there."""
    steps = [*finding("tea", "Tea [1]."), turn("Fine [1]."), *finding("coffee", "Tea [1], coffee [2].")]
    with served(tmp_path, steps, functions=[find], engine=SHOWN) as stage:
        first = stage.request("POST", "/responses", json={"input": "Tea?"}).json()
        body = {"input": [*named(first), QUESTION], "background": background}
        second = stage.request("POST", "/responses", json=body).json()
        if background:
            second = done(stage, second["id"])
        body = {"input": "Coffee?", "previous_response_id": second["id"]}
        third = stage.request("POST", "/responses", json=body).json()
    assert (cited(second), cited(third)) == (["tea.md"], ["tea.md", "coffee.md"])
    outputs = [item["output"] for item in stage.requests[-1].items if item["type"] == "function_call_output"]
    assert outputs == ["[1] All about tea.", "[2] All about coffee."]


def test_what_was_named_can_be_named_again_as_it_is_listed(tmp_path: Path) -> None:
    steps = [*finding("tea", "Tea [1]."), turn("Fine [1]."), *finding("coffee", "Tea [1], coffee [2].")]
    with served(tmp_path, steps, functions=[find], engine=SHOWN) as stage:
        first = stage.request("POST", "/responses", json={"input": "Tea?"}).json()
        second = stage.request("POST", "/responses", json={"input": [*named(first), QUESTION]}).json()
        listed = stage.request("GET", f"/responses/{second['id']}/input_items?order=asc").json()["data"]
        again = named({"output": listed})
        third = stage.request("POST", "/responses", json={"input": again}).json()
    call_item, output, message, question = listed
    assert set(call_item) == {"id", "type", "call_id", "name", "arguments"}
    assert set(output) == {"id", "type", "call_id", "output"}
    assert (message, question["role"]) == (first["output"][-1], "user")
    assert cited(third) == ["tea.md", "coffee.md"]


def test_a_number_of_the_history_does_not_change_with_what_is_named(tmp_path: Path) -> None:
    """Tea and coffee are both the first of their responses. Coffee has no number until it is found again."""
    steps = [
        *finding("coffee", "Coffee [1]."),
        *finding("tea", "Tea [1]."),
        turn("[1], [2]."),
        *finding("coffee", "Tea [1], coffee [2]."),
        turn("[1], [2]."),
    ]
    with served(tmp_path, steps, functions=[find], engine=SHOWN) as stage:
        other = stage.request("POST", "/responses", json={"input": "Coffee?"}).json()
        before = stage.request("POST", "/responses", json={"input": "Tea?"}).json()
        answers = [before]
        for question in ([*named(other), QUESTION], [QUESTION], [QUESTION]):
            body = {"input": question, "previous_response_id": answers[-1]["id"]}
            answers.append(stage.request("POST", "/responses", json=body).json())
    assert [cited(answer) for answer in answers] == [
        ["tea.md"],
        ["tea.md"],
        ["tea.md", "coffee.md"],
        ["tea.md", "coffee.md"],
    ]


@pytest.mark.parametrize("store", [True, False])
def test_a_conversation_keeps_what_was_named_in_it(tmp_path: Path, store: bool) -> None:
    steps = [*finding("tea", "Tea [1]."), turn("Fine."), *finding("coffee", "Tea [1], coffee [2].")]
    with served(tmp_path, steps, functions=[find], engine=SHOWN) as stage:
        first = stage.request("POST", "/responses", json={"input": "Tea?"}).json()
        name = stage.client().conversations.create().id
        body: dict[str, Any] = {"conversation": name, "store": store}
        stage.request("POST", "/responses", json={**body, "input": [*named(first), QUESTION]})
        last = stage.request("POST", "/responses", json={**body, "input": "Coffee?"}).json()
    assert cited(last) == ["tea.md", "coffee.md"]


def test_items_that_are_added_to_a_conversation_by_name_bring_what_they_found(tmp_path: Path) -> None:
    steps = [*finding("tea", "Tea [1]."), *finding("coffee", "Tea [1], coffee [2].")]
    with served(tmp_path, steps, functions=[find], engine=SHOWN) as stage:
        first = stage.request("POST", "/responses", json={"input": "Tea?"}).json()
        name = stage.client().conversations.create().id
        added = stage.request("POST", f"/conversations/{name}/items", json={"items": named(first)}).json()["data"]
        last = stage.request("POST", "/responses", json={"input": "Coffee?", "conversation": name}).json()
    assert [item["type"] for item in added] == ["function_call", "function_call_output", "message"]
    assert cited(last) == ["tea.md", "coffee.md"]


def test_a_connection_remembers_what_was_named(tmp_path: Path) -> None:
    steps = [*finding("tea", "Tea [1]."), turn("Fine."), *finding("coffee", "Tea [1], coffee [2]."), turn("[2], [1]")]
    with served(tmp_path, steps, functions=[find], engine=SHOWN) as stage:
        first = stage.request("POST", "/responses", json={"input": "Tea?"}).json()
        with socket(stage) as connection:
            second = connection.ask([*named(first), QUESTION], store=False).response
            third = connection.ask("Coffee?", previous_response_id=second["id"]).response
        fourth = create(stage, False, input="Sure?", previous_response_id=third["id"])
    assert (cited(third), cited(fourth)) == (["tea.md", "coffee.md"], ["coffee.md", "tea.md"])
