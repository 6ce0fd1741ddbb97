"""Everything at once, for a moment: each kind of use is right for both tenants."""

import asyncio
import json

import httpx
import pytest

from benchmarks.crowd import KINDS, Crowd, Person
from benchmarks.everything import everything_rows


def test_every_kind_of_use_is_right_and_nothing_is_left_over() -> None:
    rows = {row.what: row for row in everything_rows(seconds=1, each=1)}
    for kind in KINDS:
        assert (rows[f"everything: {kind}, right"].value or 0) >= 2, kind
    for what in (
        "wrong, failed or lost",
        "keys that people made up in the database",
        "sandboxes that are left over",
        "signs of life that failed",
    ):
        assert rows[f"everything: {what}"].value == 0


def test_an_answer_that_is_somebody_elses_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        part = {"type": "output_text", "text": "blue-1"}
        return httpx.Response(200, json={"status": "completed", "output": [{"type": "message", "content": [part]}]})

    async def run() -> Crowd:
        crowd, person = Crowd(0), Person(0, "red", 0, {"blue": []})
        person.http = httpx.AsyncClient(base_url="http://localhost", transport=httpx.MockTransport(answer))
        await crowd._once("plain", person)
        await crowd._once("foreign", person)
        return crowd

    monkeypatch.setattr("benchmarks.crowd.PAUSE", 0)
    crowd = asyncio.run(run())
    assert json.loads(crowd.report())["wrong"] == {"plain": 1, "foreign": 1}
    assert crowd.problems[1] == "foreign: WrongAnswerError('GET /responses of red shows something of blue')"
