"""`antwort runs`: the responses of a server, from beside it."""

import contextlib
import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import Result

from antwort.app import Antwort
from antwort.cli import runs as command
from antwort.config import Config
from antwort.errors import FunctionError
from antwort.testing import Gate, RunningApp, ScriptedBackend, ScriptServer, Turn, call, fail, running, turn
from antwort.types import JSON

Cli = Callable[..., Result]
Listening = Callable[..., tuple[subprocess.Popen[str], list[str]]]
Process = Callable[..., subprocess.Popen[str]]


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def split(a: int) -> int:
    """Split a number."""
    raise FunctionError(f"{a} cannot be split.")


@contextlib.contextmanager
def serving(folder: Path, *steps: Turn | str) -> Iterator[RunningApp]:
    settings = {"data_dir": folder, "providers": {"user": {"enabled": True}, "sub_agents": {"enabled": True}}}
    app = Antwort(Config.model_validate(settings), backend=ScriptedBackend(steps), functions=[add, split])
    with running(app) as served:
        yield served


def begun(url: str, **fields: object) -> str:
    """Begin a response in the background; return its id."""
    accepted = httpx.post(f"{url}/v1/responses", json={"input": "Go!", "background": True, **fields}, timeout=60)
    return str(accepted.json()["id"])


def until(url: str, name: str, *wanted: str) -> JSON:
    """Wait until a run has one of some states, or waits."""
    while True:
        run: JSON = httpx.get(f"{url}/v1/runs/{name}", timeout=60).json()
        if run["status"] in wanted or ("waiting" in wanted and run["waiting"]):
            return run


def named(*names: str) -> list[JSON]:
    return [{"type": "function", "name": name} for name in names]


def test_runs_are_listed_and_shown(cli: Cli, tmp_path: Path) -> None:
    spawning = turn(calls=[call("spawn_agent", prompt="Count!"), call("split", a=7)])
    steps: list[Turn | str] = [
        spawning,
        turn(calls=[call("add", a=1, b=2)]),
        "Three.",
        turn(error=fail(400, "The model is away.")),
    ]
    with serving(tmp_path, *steps) as served:
        at = ("--url", served.url)
        assert cli("runs", "list", *at).stdout == "There are no runs.\n"
        failed = begun(served.url, tools=named("spawn_agent", "add", "split"))
        until(served.url, failed, "failed")
        assert cli("runs", "list", "--status", "completed", *at).stdout == "No run is completed.\n"
        header, row = cli("runs", "list", *at).stdout.splitlines()
        assert header.split() == ["ID", "STATUS", "MODEL", "BEGAN", "TOOK", "TOKENS", "WHY"]
        assert all(text in row for text in (failed, "failed", "The model is away."))
        page = json.loads(cli("runs", "list", "--json", *at).stdout)
        assert [run["id"] for run in page["data"]] == [failed]
        shown = cli("runs", "show", failed, *at).stdout
        facts, tree, table = shown.rstrip().split("\n\n")
        assert f"run        {failed}" in facts
        assert "status     failed" in facts
        assert "The model is away." in facts
        assert [line.split()[:2] for line in tree.splitlines()] == [["└─", "✗"], ["└─", "✓"]]
        marks = [" ".join(line.split()) for line in table.splitlines()[1:]]
        assert [("✓ spawn_agent ended success" in marks[0]), ("✗ split ended error" in marks[1])] == [True, True]
        assert "✓ add ended success" in marks[2]
        told = json.loads(cli("runs", "show", failed, "--json", *at).stdout)
        assert [one["name"] for one in told["calls"]] == ["spawn_agent", "split", "add"]


def test_the_story_of_a_run_is_drawn(cli: Cli, tmp_path: Path) -> None:
    asking = turn(calls=[call("ask_user", question="Which?")])
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_agent", prompt="Count!"), call("split", a=7)]),
        turn(calls=[call("add", a=1, b=2)]),
        "Three.",
        "It cannot\nbe\u202e split.",
        asking,
        turn(error=fail(400, "The model is away.")),
    ]
    with serving(tmp_path, *steps) as served:
        at = ("--url", served.url)
        name = begun(served.url, tools=named("spawn_agent", "add", "split"))
        until(served.url, name, "completed")
        lines = cli("runs", "trace", name, *at).stdout.splitlines()
        drawn = [" ".join(re.sub(r"\d+\.\d+ s|\([^)]*\)|resp_\w+", "", line).split()) for line in lines]
        assert drawn == [
            "└─ ✓ root",
            "├─ turn 1 10 tokens in, 5 out",
            "│ ├─ ✓ spawn_agent",
            "│ │ └─ ✓ agent",
            "│ │ ├─ turn 1 10 tokens in, 5 out",
            "│ │ │ └─ ✓ add",
            "│ │ └─ turn 2 10 tokens in, 5 out",
            "│ │ └─ Three.",
            "│ └─ ✗ split 7 cannot be split.",
            "└─ turn 2 10 tokens in, 5 out",
            "└─ It cannot be\\u202e split.",
            "",
            "What did not work:",
            "root, turn 1, split: 7 cannot be split.",
        ]
        told = json.loads(cli("runs", "trace", name, "--json", "--max-length", "3", *at).stdout)
        assert told["failures"][0]["message"] == "7 c… (15 characters more)"
        [row] = cli("runs", "list", "--failed", "--function", "split", *at).stdout.splitlines()[1:]
        assert name in row
        assert row.endswith("1 failed call")
        assert cli("runs", "list", "--foreground", *at).stdout == "No run is like that.\n"
        waiting = begun(served.url, tools=named("ask_user"))
        [asked] = until(served.url, waiting, "waiting")["calls"]
        assert "? Which?: open" in cli("runs", "trace", waiting, *at).stdout
        httpx.post(f"{served.url}/v1/questions/{asked['question_id']}/answer", json={"answer": "blue"}, timeout=60)
        until(served.url, waiting, "failed")
        story = cli("runs", "trace", waiting, *at).stdout
        assert "? Which?: blue" in story
        assert story.count("The model is away.") == 4


def test_words_say_why_a_run_has_no_whole_answer(cli: Cli, tmp_path: Path) -> None:
    hangs = turn(calls=[call("spawn_agent", prompt="Wait!", timeout=0.2)])
    with serving(tmp_path, hangs, turn(wait_for=Gate()), "It has not answered.") as served:
        at = ("--url", served.url)
        name = begun(served.url, tools=named("spawn_agent"))
        until(served.url, name, "completed")
        story = cli("runs", "trace", name, *at).stdout
        assert "agent, turn 1: It was stopped before the model had answered." in story
        assert "agent: deadline: its time was over before it had answered" in story


def test_long_lists_go_on_after_an_id(cli: Cli, tmp_path: Path) -> None:
    with serving(tmp_path, "One.", "Two.") as served:
        names = [begun(served.url) for _ in range(2)]
        for name in names:
            until(served.url, name, "completed")
        first = cli("runs", "list", "--limit", "1", "--url", served.url)
        assert first.stderr == f"There are more: --after {names[1]}\n"
        second = cli("runs", "list", "--limit", "1", "--after", names[1], "--url", served.url)
        assert (names[0] in second.stdout, second.stderr) == (True, "")


def test_a_run_that_waits_is_shown_and_cancelled_and_tried_again(cli: Cli, tmp_path: Path) -> None:
    asking = turn(calls=[call("ask_user", question="Which?")])
    with serving(tmp_path, asking, "Blue it is.") as served:
        at = ("--url", served.url)
        name = begun(served.url, tools=named("ask_user"))
        [waiting] = until(served.url, name, "waiting")["calls"]
        shown = cli("runs", "show", name, *at).stdout
        assert "status     waiting" in shown
        assert "s so far" in shown
        assert waiting["question_id"] in shown
        assert cli("runs", "cancel", name, *at).stdout == f"Cancelled {name}.\n"
        assert cli("runs", "cancel", name, *at).stdout == f"Cancelled {name}.\n"
        retried = cli("runs", "retry", name, *at)
        again = retried.stdout.strip()
        assert f"It does what {name} was to do" in retried.stderr
        until(served.url, again, "completed")
        assert f"retries    {name}" in cli("runs", "show", again, *at).stdout
        assert cli("runs", "cancel", again, *at).stdout == f"{again} is completed already.\n"
        assert json.loads(cli("runs", "cancel", again, "--json", *at).stdout)["status"] == "completed"
        refused = cli("runs", "retry", again, *at)
        assert (refused.exit_code, refused.stderr) == (
            2,
            "antwort: The response is completed: there is nothing to retry.\n",
        )


@pytest.mark.parametrize("how", ["show", "trace", "cancel", "retry", "tail"])
def test_an_unknown_id_is_told_with_where_ids_are_found(cli: Cli, tmp_path: Path, how: str) -> None:
    with serving(tmp_path) as served:
        result = cli("runs", how, "resp_none/../x", "--url", served.url)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("antwort: ")
        assert result.stderr.endswith("; 'antwort runs list' shows those there are\n")


def test_without_a_server_it_is_told_how_to_start_one(cli: Cli) -> None:
    result = cli("runs", "list", "--url", "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert "Start the server ('antwort serve'), or say where it is with --url." in result.stderr


def test_a_run_is_followed_to_its_end(cli: Cli, tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(calls=[call("add", a=1, b=2)]), "It is three.", turn(error=fail(400, "No."))]
    with serving(tmp_path, *steps) as served:
        at = ("--url", served.url)
        name = begun(served.url, tools=named("add"))
        followed = cli("runs", "tail", name, *at)
        assert (followed.exit_code, followed.stdout) == (0, "It is three.\n"), followed.output
        events = [json.loads(line) for line in cli("runs", "tail", name, "--json", *at).stdout.splitlines()]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")
        rest = cli("runs", "tail", name, "--json", "--after", "3", *at).stdout.splitlines()
        assert [json.loads(line) for line in rest] == events[4:]
        failed = cli("runs", "tail", begun(served.url), *at)
        assert failed.exit_code == 1
        assert failed.stderr.rstrip().endswith("No.")


def test_the_end_of_a_run_that_is_cancelled_is_heard_too(process: Process, tmp_path: Path) -> None:
    gate = Gate()
    with serving(tmp_path, turn(["Hel", gate, "lo"])) as served:
        name = begun(served.url)
        gate.wait_reached()
        tail = process("runs", "tail", name, "--url", served.url)
        assert tail.stdout is not None
        assert tail.stdout.read(3) == "Hel"
        httpx.post(f"{served.url}/v1/responses/{name}/cancel", timeout=60)
        out, told = tail.communicate(timeout=60)
        assert (tail.returncode, out, told) == (1, "\n", "antwort: the answer is cancelled\n")


def test_a_run_is_followed_over_the_death_of_its_server(listening: Listening, process: Process) -> None:
    gate = Gate()
    with ScriptServer([turn(["Hel", gate, "lo"]), "Hello again."]) as model:
        server, banner = listening("--backend", model.url)
        url = banner[-1].removeprefix("Listening on ")
        name = begun(url)
        gate.wait_reached()
        tail = process("runs", "tail", name, "--json", "--url", url)
        assert tail.stdout is not None
        lines = [tail.stdout.readline()]
        while "delta" not in lines[-1]:
            lines.append(tail.stdout.readline())
        server.send_signal(signal.SIGKILL)
        server.wait(timeout=60)
        gate.open()
        again = process("serve", "--port", url.rpartition(":")[2], "--log-level", "error", "--backend", model.url)
        out, told = tail.communicate(timeout=60)
        events = [json.loads(line) for line in [*lines, *out.splitlines()]]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["type"] == "response.completed"
        assert told.count("Trying again, from event") >= 1
        assert tail.returncode == 0
        again.send_signal(signal.SIGTERM)
        again.wait(timeout=60)


def test_who_stays_away_is_given_up(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_PATIENCE", 0.0)
    result = cli("runs", "tail", "resp_1", "--url", "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert "cannot be reached" in result.stderr
