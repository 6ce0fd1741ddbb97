"""The database goes away while a background run works: the run goes on when it is back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http.sdk import create, done, served
from tests.support.postgres import PostgresServer

from antwort.testing import Gate, call, turn


@pytest.fixture
def storage(postgres_server: PostgresServer, postgres_template: str) -> Iterator[dict[str, object]]:
    url = postgres_server.create(postgres_template)
    yield {"url": url, "reconnect": 0.2}
    postgres_server.drop(url)


def test_a_run_outlives_a_database_that_is_away(
    tmp_path: Path, postgres_server: PostgresServer, storage: dict[str, object]
) -> None:
    gate = Gate()
    with served(tmp_path, [turn(["Hel", gate, "lo."]), turn("Hello again.")], storage=storage) as stage:
        response = create(stage, False, input="Hi", background=True)
        with stage.client().responses.retrieve(response.id, stream=True) as events:
            for event in events:
                if event.type == "response.output_text.delta":
                    break
        postgres_server.stop("immediate")
        gate.open()
        found = stage.request("GET", f"/responses/{response.id}")
        assert found.status_code == 503
        assert "The database cannot be used now" in found.json()["error"]["message"]
        postgres_server.start()
        body = done(stage, response.id)
        assert body["status"] == "completed"
        assert body["output"][-1]["content"][0]["text"] == "Hello again."
        stage.resume(response.id)


def test_a_reader_outlives_a_database_that_is_away(
    tmp_path: Path, postgres_server: PostgresServer, storage: dict[str, object]
) -> None:
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        postgres_server.stop("immediate")
        postgres_server.start()
        return a + b

    with served(tmp_path, [turn(calls=[call("add", a=1, b=2)]), turn("3")], functions=[add], storage=storage) as stage:
        seen = stage.stream(input="1+2?", background=True)
    assert seen.response["status"] == "completed"
    assert seen.response["output"][-1]["content"][0]["text"] == "3"


def test_a_run_that_could_not_be_accepted_does_not_run(
    tmp_path: Path, postgres_server: PostgresServer, storage: dict[str, object]
) -> None:
    with served(tmp_path, [turn("Fine.")], storage=storage) as stage:
        postgres_server.stop("fast")
        refused = stage.request("POST", "/responses", json={"input": "Hi", "background": True})
        assert refused.status_code == 503
        postgres_server.start()
        assert create(stage, False, input="Hi").output_text == "Fine."
        listed = stage.request("GET", "/responses").json()["data"]
        assert [one["status"] for one in listed] == ["completed"]


def test_a_stream_that_cannot_be_stored_ends_with_an_error(
    tmp_path: Path, postgres_server: PostgresServer, storage: dict[str, object]
) -> None:
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        postgres_server.stop("immediate")
        return a + b

    steps = [turn("Let me see.", calls=[call("add", a=1, b=2)])]
    try:
        with served(tmp_path, steps, functions=[add], storage=storage) as stage:
            seen = stage.stream(input="1+2?")
    finally:
        postgres_server.start()
    assert seen.types[-2:] == ["error", "response.failed"]
    assert "The database cannot be used now" in seen.response["error"]["message"]
