"""Requests with the status, type, parameter and code that OpenAI answers, in tables by endpoint."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.server.truth import table_others, table_responses
from tests.server.truth.rows import Row
from tests.server.truth.stage import Stage, staged


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("data")) as found:
        yield found


def made(stage: Stage) -> dict[str, str]:
    """Make what the tables name in braces."""
    conversation = stage.make("/conversations", {"items": [{"role": "user", "content": "Hi"}]})["id"]
    items = stage.ask("GET", f"/conversations/{conversation}/items").body["data"]
    return {
        "{response}": stage.make("/responses", {"model": "scripted", "input": "Hi"})["id"],
        "{conversation}": conversation,
        "{item}": items[0]["id"],
        "{store}": stage.make("/vector_stores", {})["id"],
    }


def named(row: Row, names: dict[str, str]) -> Row:
    """Return a row with the ids of what there is."""
    path, body = row.path, row.body if isinstance(row.body, bytes) else json.dumps(row.body)
    for name, value in names.items():
        path = path.replace(name, value)
        body = body if isinstance(body, bytes) else body.replace(name, value)
    return replace(row, path=path, body=body if isinstance(body, bytes) else json.loads(body))


@pytest.mark.parametrize("table", [table_responses.TABLE, table_others.TABLE], ids=["responses", "others"])
def test_every_request_is_answered_as_openai_answers_it(stage: Stage, table: list[Row]) -> None:
    names, wrong = made(stage), []
    for row in table:
        sent = named(row, names)
        answer = stage.ask(sent.method, sent.path, sent.body)
        if (answer.status, *answer.error) != (row.status, row.type, row.param, row.code):
            wrong.append((f"{row.method} {row.path} {row.body!s:.300}", answer.status, answer.error, row))
    assert wrong == []


def test_the_tables_are_large_enough() -> None:
    assert len(table_responses.TABLE) + len(table_others.TABLE) >= 150
