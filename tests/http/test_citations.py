"""The official SDK: what a response cites that goes on from others, whoever remembers them."""

from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response
from tests.http.sdk import create, done, served
from tests.http.sockets import socket

from antwort.provider import Context, Source
from antwort.testing import Turn, call, matching, turn

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
