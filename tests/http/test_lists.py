"""Lists: what they cost, that they say the same as their members, and cursors that were deleted."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.http.sdk import Served, served
from tests.support.statements import Questions

from antwort.testing import call, turn
from antwort.types import JSON
from antwort.wire.answers import ItemList

COUNT = 12


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def page(stage: Served, **query: Any) -> JSON:
    found = stage.request("GET", "/responses", params=query)
    assert found.status_code == 200, found.text
    body: JSON = found.json()
    members = [stage.request("GET", f"/responses/{one['id']}").json() for one in body["data"]]
    assert found.content == msgspec.json.encode(ItemList.of(members, has_more=body["has_more"]))
    return body


def test_a_list_takes_as_many_statements_however_long_it_is(tmp_path: Path) -> None:
    steps = [f"Answer {number}." for number in range(COUNT)]
    with served(tmp_path, steps) as stage:
        client = stage.client()
        questions = Questions.of(stage.server.app.engine.store)
        taken = []
        for number in range(COUNT):
            client.responses.create(model="scripted", input="Hi")
            questions.calls, questions.statements = 0, []
            found = stage.request("GET", "/responses", params={"limit": 100}).json()
            assert len(found["data"]) == number + 1
            taken.append((questions.calls, len(questions.statements)))
    assert taken == [(1, 4)] * COUNT  # BEGIN, the responses, their output, COMMIT


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_list_has_the_very_objects_that_its_members_are(tmp_path: Path, order: str) -> None:
    steps = [
        turn("Let me see.", calls=[call("add", a=1, b=2)]),
        turn("It is 3.", reasoning="Easy."),
        turn("Two."),
        turn(calls=[call("get_weather", city="Ulm")]),
        turn("Fünf 😀."),
    ]
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
    with served(tmp_path, steps, functions=[add]) as stage:
        client = stage.client()
        made: list[JSON] = [
            {"input": "1 + 2?"},
            {"input": "Two?", "metadata": {"a": "b"}},
            {"input": "Weather?", "tools": [tool]},
            {"input": "Five?", "instructions": "Be brief.", "temperature": 0.5},
        ]
        ids = [client.responses.create(model="scripted", **fields).id for fields in made]
        expected = ids if order == "asc" else ids[::-1]
        first = page(stage, order=order, limit=2)
        rest = page(stage, order=order, after=first["last_id"])
        back = page(stage, order=order, before=rest["first_id"])
        between = page(stage, order=order, after=expected[0], before=expected[3], limit=1)
    assert [one["id"] for one in first["data"] + rest["data"]] == expected
    assert back["data"] == first["data"]
    assert ([one["id"] for one in between["data"]], between["has_more"]) == ([expected[1]], True)


@pytest.mark.parametrize("cursor", ["after", "before"])
def test_a_cursor_that_was_deleted_says_how_to_go_on(tmp_path: Path, cursor: str) -> None:
    with served(tmp_path, ["One.", "Two."]) as stage:
        client = stage.client()
        kept, gone = (client.responses.create(model="scripted", input="Hi").id for _ in range(2))
        client.responses.delete(gone)
        refused = stage.request("GET", "/responses", params={cursor: gone})
        again = page(stage)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (400, cursor, "invalid_value")
    assert error["message"] == (
        f"There is no response '{gone}' to list from; if it was deleted, list again without '{cursor}'."
    )
    assert [one["id"] for one in again["data"]] == [kept]


def test_a_conversation_is_emptied_by_its_first_page_and_a_deleted_item_says_so(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        client = stage.client()
        texts: Any = [{"role": "user", "content": text} for text in "abcd"]
        conversation = client.conversations.create(items=texts).id
        path = f"/conversations/{conversation}/items"
        seen: list[JSON] = []
        while data := stage.request("GET", path, params={"limit": 2, "order": "asc"}).json()["data"]:
            for item in data:
                seen.append(item)
                client.conversations.items.delete(item["id"], conversation_id=conversation)
        gone = seen[-1]["id"]
        refused = stage.request("GET", path, params={"after": gone})
    assert [item["content"][0]["text"] for item in seen] == list("abcd")
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (404, "after", None)
    assert error["message"] == f"No item found with id '{gone}'; if it was deleted, list again without 'after'."
