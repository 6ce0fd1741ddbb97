"""The runs and the inbox of the console."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import expect
from tests.console.desk import KEY, KEYS, Desk, console
from tests.console.hostile import HOSTILE
from tests.console.test_hostile import check

from antwort.errors import FunctionError
from antwort.testing import Gate, RunningApp, Turn, call, fail, turn

FULL = "ANTWORT_TEST_FULL" in os.environ
MANY, FAR_DOWN = (5_000, 4_000) if FULL else (600, 500)
Open = Callable[..., Desk]
ASK: Any = [{"type": "function", "name": "ask_user"}]
APPROVED: Any = {"user": {"enabled": True}, "basics": {"enabled": True, "offer": "always", "approval": "always"}}


async def split(a: int) -> int:
    """Split a number."""
    raise FunctionError(f"{a} cannot be split.")


async def speak(texts: list[str]) -> str:
    """Fail, and say much."""
    raise FunctionError("\n".join(texts))


def begin(server: RunningApp, **fields: Any) -> str:
    """Begin a run."""
    answer = httpx.post(f"{server.url}/v1/responses", json={"input": "Go!", "background": True, **fields}, timeout=60)
    return str(answer.json()["id"])


def test_runs_are_listed_by_status_and_tried_again(tmp_path: Path, desk: Open) -> None:
    with console(tmp_path, "One.", turn(error=fail(400, "Not that.")), "Again.") as (server, _):
        tab = desk(server.url, "#/runs")
        tab.sees("Nothing has been done yet.")
        begin(server)
        expect(tab.page.locator("tbody .state")).to_have_text(["completed"])
        begin(server)
        expect(tab.page.locator("tbody .state")).to_have_text(["failed", "completed"])
        tab.press("failed")
        expect(tab.page.locator("tbody .state")).to_have_text(["failed"])
        tab.page.locator("tbody a").click()
        expect(tab.page.get_by_role("alert")).to_contain_text("Not that.")
        expect(tab.page.locator(".failures li")).to_have_text(["root, turn 1Backend 'scripted': Not that."])
        failed = tab.page.url
        tab.press("Try again")
        expect(tab.page.get_by_role("link", name="The try before")).to_be_visible()
        assert tab.page.url != failed
        tab.page.get_by_role("link", name="What was said").click()
        tab.sees("Again.")


def test_a_function_that_fails_is_found_from_the_list_in_two_clicks(tmp_path: Path, desk: Open) -> None:
    steps: list[Turn | str] = [turn(calls=[call("split", a=7)], usage=(30, 4)), "It does not work.", "Fine."]
    with console(tmp_path, *steps, offered=[split]) as (server, _):
        begin(server)
        tab = desk(server.url, "#/runs")
        expect(tab.page.locator("tbody .state")).to_have_text(["completed"])
        begin(server)
        expect(tab.page.locator("tbody tr")).to_have_count(2)
        expect(tab.page.locator(".flaw")).to_have_text(["1 failed call"])
        tab.page.get_by_label("Something did not work").check()
        expect(tab.page.locator("tbody tr")).to_have_count(1)
        tab.page.locator("tbody a").click()
        failure = tab.page.locator(".failures li")
        expect(failure).to_contain_text("root, turn 1, split")
        expect(failure).to_contain_text("7 cannot be split.")
        failure.get_by_role("link").click()
        expect(tab.page.get_by_label("Arguments")).to_have_text('{\n  "a": 7\n}')
        expect(tab.page.get_by_label("Why it failed")).to_contain_text("7 cannot be split.")
        expect(tab.page.locator(".step.of-call > summary")).to_be_focused()
        expect(tab.page.locator(".step.of-call .bar rect")).to_have_class("failed")
        tab.sees("30 tokens in, 4 out")
        tab.page.reload()  # the address leads there as well
        expect(tab.page.get_by_label("Why it failed")).to_be_visible()
        tab.page.get_by_role("link", name="Runs").click()
        tab.page.get_by_label("Of function").fill("join")
        tab.sees("No run is like that.")
        tab.page.get_by_label("Of function").fill("split")
        expect(tab.page.locator("tbody tr")).to_have_count(1)
        tab.page.get_by_label("Of agent").fill("nobody")
        tab.sees("No run is like that.")


def test_a_key_that_may_not_read_traces_sees_the_shape_of_a_run(tmp_path: Path, desk: Open) -> None:
    keys = [{**KEYS["api_keys"][0], "scopes": ["runs:read", "responses:write"]}]
    steps: list[Turn | str] = [turn(calls=[call("split", a=7)]), "It does not work."]
    with console(tmp_path, *steps, offered=[split], auth={"api_keys": keys}) as (server, _):
        headers = {"authorization": f"Bearer {KEY}"}
        answer = httpx.post(f"{server.url}/v1/responses", json={"input": "Go!"}, headers=headers, timeout=60)
        tab = desk(server.url, f"#/runs/{answer.json()['id']}", key=KEY)
        tab.sees("keys with the scope traces:read")
        expect(tab.page.locator(".calls li")).to_contain_text(["split"])
        expect(tab.page.locator(".calls .state")).to_have_class("state failed")
        expect(tab.page.locator(".failures")).to_have_count(0)


def test_whatever_is_told_in_a_trace_is_text(tmp_path: Path, desk: Open) -> None:
    everything = "\n\n".join(HOSTILE)
    calls = [call("speak", texts=list(HOSTILE)), call("speak", texts=[text for text in HOSTILE if "\0" not in text])]
    names = [call(name, a=1) for name in ("<img src=x onerror=window.pwned=1>", "a\u202eb")]
    steps: list[Turn | str] = [turn(calls=[*calls, *names], reasoning=everything), turn(error=fail(400, everything))]
    with console(tmp_path, *steps, offered=[speak]) as (server, _):
        name = begin(server, input=everything, instructions=everything)
        tab = desk(server.url, f"#/runs/{name}")
        expect(tab.page.locator(".head .state")).to_have_text("failed")
        expect(tab.page.locator(".failures li")).not_to_have_count(0)
        check(tab)
        for line in tab.page.locator("details > summary").all():
            line.click()
        for line in tab.page.locator(".thoughts > summary").all():
            line.click()
        more = tab.page.get_by_role("button", name="Show all")
        while more.count():
            more.first.click()
        text = check(tab)
        for written in ("<script>window.pwned=1</script>", "<img src=x onerror=window.pwned=1>", "U+202E", "U+001B"):
            assert text.count(written) >= 4, written
        tab.go(f"#/runs/compare/{name}/{name}")
        tab.sees("differ, 0 only in the first")
        for line in tab.page.locator(".pair > summary").all():
            line.click()
        check(tab)
        tab.go("#/functions/speak")
        expect(tab.page.locator(".past li")).not_to_have_count(0)
        check(tab)


def test_a_run_is_cancelled(tmp_path: Path, desk: Open) -> None:
    gate = Gate()
    with console(tmp_path, turn(["Well", gate])) as (server, _):
        name = begin(server)
        gate.wait_reached()
        tab = desk(server.url, f"#/runs/{name}")
        tab.press("Cancel")
        expect(tab.page.locator(".head .state")).to_have_text("cancelled")
        gate.open()


def test_the_tree_of_fifty_agents_is_shown(tmp_path: Path, desk: Open) -> None:
    prompts = [f"Part {number}" for number in range(49)]
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_many", configs=[{"prompt": prompt} for prompt in prompts])]),
        *["Done."] * 49,
        "All done.",
    ]
    providers = {"sub_agents": {"enabled": True, "offer": "always"}}
    with console(tmp_path, *steps, providers=providers) as (server, _):
        name = begin(server, tools=[{"type": "function", "name": "spawn_many"}])
        tab = desk(server.url, f"#/runs/{name}")
        expect(tab.page.get_by_role("heading", name="50 agents")).to_be_visible()
        expect(tab.page.locator(".head .state")).to_have_text("completed")
        expect(tab.page.locator(".step.of-agent")).to_have_count(50)
        expect(tab.page.locator(".step.of-call + .tree > li > .of-agent")).to_have_count(49)


def test_another_tenants_run_is_not_shown(tmp_path: Path, desk: Open) -> None:
    keys = {"api_keys": [*KEYS["api_keys"], {"id": "other", "key": "sk-of-another", "tenant": "other"}]}
    with console(tmp_path, "Secret.", auth=keys) as (server, _):
        headers = {"authorization": f"Bearer {KEY}"}
        body = {"input": "Go!", "background": True}
        name = httpx.post(f"{server.url}/v1/responses", json=body, headers=headers, timeout=60).json()["id"]
        tab = desk(server.url, f"#/runs/{name}", key=KEY)
        expect(tab.page.locator(".head .state")).to_have_text("completed")
        other = desk(server.url, f"#/runs/{name}", key="sk-of-another")
        other.sees("There is no such run, or it is not yours.")


def test_questions_are_answered_and_approvals_refused_in_the_inbox(tmp_path: Path, desk: Open) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("ask_user", question="Which colour?")]),
        "Blue it is.",
        turn(calls=[call("calculate", expression="6*7")]),
        "Then not.",
    ]
    with console(tmp_path, *steps, providers=APPROVED) as (server, model):
        tab = desk(server.url, "#/inbox")
        tab.sees("Nobody waits for you.")
        begin(server, tools=ASK)
        tab.page.get_by_label("Which colour?").fill("blue")
        expect(tab.page.locator("nav .count:visible")).to_have_text("1")
        tab.press("Answer")
        tab.sees("Nobody waits for you.")
        expect(tab.page.locator("tbody tr").first).to_contain_text("blue")
        name = begin(server)
        tab.sees("basics.calculate")
        tab.page.get_by_label("Why not").fill("Too dear.")
        tab.press("Refuse")
        expect(tab.page.locator("tbody tr").first).to_contain_text("refused: Too dear.")
        tab.go(f"#/runs/{name}")
        expect(tab.page.locator(".head .state")).to_have_text("completed")
        tab.sees("May calculate be called? refused: Too dear.")
        assert "Too dear." in str(model.script.requests[-1].items)


def test_what_a_question_says_is_text(tmp_path: Path, desk: Open) -> None:
    calls = [call("ask_user", question=text) for text in HOSTILE[:20]]
    calls.append(call("ask_user", question="?", choices=list(HOSTILE[20:])))
    with console(tmp_path, turn(calls=calls)) as (server, _):
        name = begin(server, tools=ASK)
        tab = desk(server.url, "#/inbox")
        expect(tab.page.locator(".question")).to_have_count(len(calls))
        check(tab)
        tab.go(f"#/runs/{name}")
        expect(tab.page.locator(".question")).to_have_count(len(calls))
        check(tab)
        assert json.loads(httpx.get(f"{server.url}/v1/runs/{name}").text)["waiting"]


async def look_up(word: str) -> str:
    """Look a word up."""
    return "a drink\nof leaves" if word == "tea" else "a drink\nof beans"


def test_two_runs_are_compared_and_what_differs_is_marked(tmp_path: Path, desk: Open) -> None:
    steps: list[Turn | str] = [
        *(turn(calls=[call("look_up", word="tea")], usage=(30, 4)), "A drink."),
        *(turn(calls=[call("look_up", word="coffee")], usage=(30, 4)), turn(calls=[call("split", a=1)]), "A drink."),
    ]
    with console(tmp_path, *steps, offered=[look_up, split]) as (server, _):
        tab = desk(server.url, "#/runs")
        for number in (1, 2):
            begin(server)
            expect(tab.page.locator("tbody .state")).to_have_text(["completed"] * number)
        boxes = tab.page.locator("tbody input")
        boxes.nth(1).check()
        tab.sees("Mark another run to compare it with.")
        boxes.nth(0).check()
        tab.page.get_by_role("link", name="Compare the two").click()
        tab.sees("2 the same, 2 differ, 0 only in the first, 2 only in the second")
        differs = tab.page.locator(".pair.differs")
        expect(differs.locator(".difference")).to_have_text(
            ["arguments, result", "what was said", "only in the second", "only in the second"]
        )
        expect(tab.page.locator(".facts-table .differs th")).to_contain_text(["Tokens", "Calls", "Failed calls"])
        differs.first.locator("summary").click()
        results = differs.first.get_by_label("Result")
        expect(results.locator("mark")).to_have_text(["of leaves", "of beans"])
        expect(tab.page.locator(".pair:visible")).to_have_count(6)
        tab.page.get_by_label("Only what differs").check()
        expect(tab.page.locator(".pair:visible")).to_have_count(4)
        first, second = tab.page.url.rsplit("/", 2)[1:]
        differs.last.locator("summary").click()
        differs.last.get_by_role("link", name="In its run").click()
        expect(tab.page.locator(".failures")).to_be_visible()
        assert f"/runs/{second}/" in tab.page.url
        tab.go(f"#/runs/compare/{first}/resp_nothing")
        tab.sees("There is no such run, or it is not yours.")


def test_very_many_runs_are_listed_filtered_and_left_alone(tmp_path: Path, desk: Open) -> None:
    with console(tmp_path, "Done.", turn(error=fail(400, "Not that.")), "New.") as (server, _):
        for name in (begin(server), begin(server)):
            httpx.get(f"{server.url}/v1/responses/{name}", params={"stream": True}, timeout=60)
        many(tmp_path / "data" / "antwort.db", MANY - 2)
        tab = desk(server.url, "#/runs")
        rows, more = tab.page.locator("tbody tr"), tab.button("Show more")
        for number in (50, 250, 500, *((1_000, 2_000, 3_000, 4_000) if FULL else ())):
            expect(rows).to_have_count(number)
            more.click()
        expect(rows).to_have_count(MANY)
        expect(more).to_have_count(0)
        expect(rows.last.locator(".state")).to_have_text("completed")
        tab.page.evaluate(WATCH)
        rows.nth(FAR_DOWN).get_by_role("link").focus()
        asked = len(tab.asked)
        for _again in range(2):
            with tab.page.expect_response("**/v1/runs?*"):
                pass
        begin(server)
        expect(rows).to_have_count(MANY + 1)
        assert tab.page.evaluate("changes") <= 3  # its row, and what becomes of it: the others are left alone
        assert len(tab.asked) - asked < 30
        expect(rows.nth(FAR_DOWN + 1).get_by_role("link")).to_be_focused()
        tab.press("failed")
        expect(rows).to_have_count(1)
        expect(rows.locator(".state")).to_have_text("failed")


WATCH = """() => {
  window.changes = 0;
  const take = (records) => {
    for (const { addedNodes } of records) {
      window.changes += [...addedNodes].filter(({ localName }) => localName === "tr").length;
    }
  };
  new MutationObserver(take).observe(document.querySelector("tbody"), { childList: true });
}"""
"""Count the rows that are put into the list."""


def many(database: Path, number: int) -> None:
    """Have a database keep a response as often as that."""
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        columns = [str(row[1]) for row in connection.execute("PRAGMA table_info(responses)")]
        row = dict(zip(columns, connection.execute("SELECT * FROM responses ORDER BY number").fetchone(), strict=True))
        first, length = row["number"], len(row["id"])
        for nth in range(number):
            row["number"], row["created_at"] = first - nth - 1, row["created_at"] - 1
            name = f"resp_{nth:0{length - 5}x}"
            copied = {**row, "id": name, "body": row["body"].replace(row["id"], name)}
            marks = ", ".join("?" * len(columns))
            connection.execute(f"INSERT INTO responses VALUES ({marks})", list(copied.values()))


async def much() -> str:
    """Say a megabyte."""
    return "word " * 200_000


def test_a_megabyte_in_a_run_is_cut_there_and_seen_in_full_in_its_chat(tmp_path: Path, desk: Open) -> None:
    limits: Any = {"max_output": 2_000_000, "spill": 2_000_000}
    steps: list[Turn | str] = [turn(calls=[call("much")]), "Much."]
    with console(tmp_path, *steps, offered=[much], functions=limits) as (server, _):
        tab = desk(server.url, f"#/runs/{begin(server)}")
        expect(tab.page.locator(".head .state")).to_have_text("completed")
        tab.page.locator(".step.of-call > summary").click()
        assert len(tab.page.get_by_label("Result").inner_text()) < 10_000
        tab.page.get_by_role("link", name="What was said").click()
        tab.page.locator("details.call summary").click()
        tab.page.get_by_role("button", name="Show all").click()
        assert tab.page.get_by_label("Result", exact=True).evaluate("result => result.textContent.length") == 1_000_000


def test_what_clients_trace_of_themselves_is_shown_with_the_responses_of_the_server(tmp_path: Path, desk: Open) -> None:
    steps: list[Turn | str] = [turn(calls=[call("split", a=7)]), "It does not work."]
    with console(tmp_path, *steps, offered=[split]) as (server, _):
        tab = desk(server.url, "#/runs/traces")
        tab.sees("None has come.")
        answer = httpx.post(f"{server.url}/v1/responses", json={"input": "Go!"}, timeout=60).json()
        spans = [
            span("agent", {"type": "agent", "name": "Clerk"}),
            span("turn", {"type": "response", "response_id": answer["id"]}, parent="agent"),
            span("call", {"type": "function", "name": HOSTILE[0]}, parent="agent", error={"message": HOSTILE[1]}),
        ]
        trace = {"object": "trace", "id": "t1", "workflow_name": "The books", "group_id": None, "metadata": None}
        sent = httpx.post(f"{server.url}/v1/traces/ingest", json={"data": [trace, *spans]}, timeout=60)
        sent.raise_for_status()
        tab.go("#/runs")
        tab.page.get_by_role("link", name="Traces of clients").click()
        expect(tab.page.locator(".flaw")).to_have_text("1 failed")
        tab.page.get_by_role("link", name="1").first.click()
        tab.sees("Clerk")
        expect(tab.page.locator(".failures li")).to_contain_text(["7 cannot be split.", HOSTILE[1]])
        expect(tab.page.locator(".step.of-call")).to_have_count(1)
        tab.page.locator(".step.of-call > summary").click()
        expect(tab.page.get_by_label("Why it failed")).to_contain_text("7 cannot be split.")
        check(tab)
        tab.go("#/runs/traces/nothing")
        tab.sees("There is no such run, or it is not yours.")


def span(name: str, data: Any, *, parent: str | None = None, error: Any = None) -> Any:
    """Something that an agent elsewhere has done, within a second."""
    begun, ended = (f"2026-11-19T12:00:0{second}.000000+00:00" for second in (0, 1))
    times = {"started_at": begun, "ended_at": ended}
    whole = {"object": "trace.span", "id": name, "trace_id": "t1", "parent_id": parent, **times}
    return {**whole, "span_data": data, "error": error}
