"""Responses of every landed revision are served by the app of today, whatever their bodies were like."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import Served, served
from tests.storage.test_landed_revisions import DATABASES, EARLY_DATABASES, load, rows

from antwort.testing import Gate, lint_response, matching, turn
from antwort.types import JSON


def cut_off(path: Path, response_id: str) -> str:
    """Keep a copy of a background response as a server leaves it that dies as it has taken the request."""
    found = rows(path)
    (record,) = (row for row in found["responses"] if row["background"] and row["status"] == "completed")
    body = json.loads(record["body"])
    body |= {"id": response_id, "status": "queued", "completed_at": None, "usage": None}
    del record["number"]
    said = [row for row in found["entries"] if row["response_id"] == record["id"] and row["direction"] == "input"]
    with closing(sqlite3.connect(path)) as database:
        record |= {"id": response_id, "status": "queued", "body": json.dumps(body)}
        record |= {"run_id": response_id} if record.get("run_id") else {}
        insert(database, "responses", record)
        for row in said:
            item = json.loads(row["item"]) | {"id": f"msg_of_{response_id}"}
            changed = {"response_id": response_id, "item_id": item["id"], "item": json.dumps(item)}
            insert(database, "entries", row | changed)
        database.commit()
    return response_id


def insert(database: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join("?" for _ in row)
    database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def ask(stage: Served, method: str, path: str, **options: Any) -> JSON:
    answer = stage.request(method, path, **options)
    assert answer.status_code == 200, answer.text
    found: JSON = answer.json()
    return found


@pytest.mark.parametrize("dump", [*DATABASES, *EARLY_DATABASES], ids=lambda dump: dump.name.split(".")[0])
def test_responses_of_every_landed_revision_are_read_continued_cancelled_and_deleted(
    tmp_path: Path, dump: Path
) -> None:
    path = tmp_path / "antwort.db"
    load(path, dump)
    kept = [row["id"] for row in rows(path)["responses"]]
    unfinished = cut_off(path, "resp_to_be_cancelled")
    storage = {"url": f"sqlite:///{path}"}
    gate = Gate()
    with served(tmp_path, [turn("Never.", wait_for=gate)], storage=storage) as stage:
        gate.wait_reached()  # it was taken up
        assert ask(stage, "POST", f"/responses/{unfinished}/cancel")["status"] == "cancelled"
    taken_up = cut_off(path, "resp_to_be_taken_up")
    steps = [turn("Here I am.", expect=matching(last="And now?")), *(turn("On and on.") for _ in kept)]
    with served(tmp_path, steps, storage=storage) as stage:
        stream = stage.resume(taken_up)
        assert (stream.types[-1], stream.text) == ("response.completed", "Here I am.")
        listed = ask(stage, "GET", "/responses", params={"order": "asc"})["data"]
        assert [one["id"] for one in listed] == [*kept, unfinished, taken_up]
        for shown in listed:
            lint_response(shown)
            assert ask(stage, "GET", f"/responses/{shown['id']}") == shown
            assert shown["reasoning"] == {"effort": None, "summary": None}
        for shown in listed[1 : len(kept)]:  # of the first, which was made in the background, some events are kept
            assert stage.resume(shown["id"]).response == shown
        for response_id in kept:
            on = {"model": "scripted", "input": "Go on.", "previous_response_id": response_id}
            assert ask(stage, "POST", "/responses", json=on)["status"] == "completed"
        for response_id in [*kept, unfinished, taken_up]:
            assert ask(stage, "DELETE", f"/responses/{response_id}")["deleted"]
