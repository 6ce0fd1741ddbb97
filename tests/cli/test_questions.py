"""What the model asks is asked in the terminal, and printed where there is none."""

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent

import httpx
import pytest
import yaml
from click.testing import Result
from tests.cli.terminals import Terminal

from antwort.app import Antwort
from antwort.config import Config
from antwort.testing import RunningApp, ScriptedBackend, ScriptServer, Turn, call, running, turn
from antwort.types import JSON

CONFIG = """
    providers:
      user: {enabled: true}
      basics: {enabled: true, approval: {calculate: always}}
"""
QUESTION = turn(calls=[call("ask_user", question="Which one?", choices=["blue", "red"])])
SUM = turn(calls=[call("calculate", expression="6 * 7")])


def outputs(model: ScriptServer) -> list[str]:
    return [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]


@pytest.mark.parametrize("how", [("run", "Buy it!"), ("run",)])
def test_a_question_is_asked_in_the_terminal(config: Callable[[str], Path], how: tuple[str, ...]) -> None:
    config(CONFIG)
    with ScriptServer([QUESTION, "Blue it is."]) as model, ExitStack() as closing:
        terminal = Terminal(*how, "--backend", model.url)
        closing.callback(terminal.close)
        if len(how) == 1:
            terminal.until("> ")
            terminal.type("Buy it!\n")
        terminal.until("Which one?")
        terminal.until("> (blue, red)")
        terminal.type("green\n")
        terminal.until("> (blue, red)")
        terminal.type("blue\n")
        terminal.until("Blue it is.")
        assert outputs(model) == ["blue"]


@pytest.mark.parametrize("approve", [True, False])
def test_a_call_is_approved_in_the_terminal(config: Callable[[str], Path], approve: bool) -> None:
    config(CONFIG)
    with ScriptServer([SUM, "Well."]) as model, ExitStack() as closing:
        terminal = Terminal("run", "What is it?", "--backend", model.url)
        closing.callback(terminal.close)
        terminal.until('The model wants to call calculate (basics) with {"expression": "6 * 7"}')
        terminal.until("Allow it?")
        terminal.type("y\n" if approve else "n\n")
        if not approve:
            terminal.until("Why not?")
            terminal.type("Too hard.\n")
        terminal.until("Well.")
        terminal.rest()
        assert terminal.process.returncode == 0
        [output] = outputs(model)
        assert output == "42" if approve else "Too hard." in output


def test_without_a_terminal_it_is_printed(cli: Callable[..., Result], config: Callable[[str], Path]) -> None:
    config(CONFIG)
    with ScriptServer([QUESTION]) as model:
        result = cli("run", "Buy it!", "--function", "ask_user", "--store", "--backend", model.url)
    assert (result.exit_code, result.stdout) == (3, "")
    asked, _, answer = result.stderr.strip().removesuffix(")").partition("POST /v1/responses ")
    assert asked == "antwort: the model asks: Which one? (answer in a terminal, or with "
    continued = json.loads(answer)
    assert continued["previous_response_id"].startswith("resp_")
    [output] = continued["input"]
    assert (output["type"], output["output"]) == ("function_call_output", "…")
    assert output["call_id"]


def test_without_a_terminal_a_call_to_approve_is_printed(
    cli: Callable[..., Result], config: Callable[[str], Path]
) -> None:
    config(CONFIG)
    with ScriptServer([SUM]) as model:
        result = cli("run", "Count!", "--function", "calculate", "--store", "--backend", model.url)
    assert (result.exit_code, result.stdout) == (3, "")
    [answer] = json.loads(result.stderr.strip().removesuffix(")").partition("POST /v1/responses ")[2])["input"]
    assert (answer["type"], answer["approve"]) == ("mcp_approval_response", True)
    assert answer["approval_request_id"].startswith("mcpr_")


# --- by their ids ----------------------------------------------------------------------------------------------------


def until(served: RunningApp, path: str, enough: Callable[[JSON], bool], key: str = "none") -> None:
    """Wait until the server answers as it should."""
    headers, end = {"Authorization": f"Bearer {key}"}, time.monotonic() + 60
    while not enough(found := httpx.get(f"{served.url}/v1{path}", headers=headers, timeout=60).json()):
        assert time.monotonic() < end, found


def begun(served: RunningApp, key: str = "none") -> str:
    """Begin a response in the background; return its id when it waits."""
    headers, body = {"Authorization": f"Bearer {key}"}, {"input": "Go!", "background": True}
    accepted = httpx.post(f"{served.url}/v1/responses", json=body, headers=headers, timeout=60)
    response_id = str(accepted.json()["id"])
    until(served, f"/questions?response_id={response_id}", lambda found: bool(found["data"]), key)
    return response_id


@contextlib.contextmanager
def serving(folder: Path, *steps: Turn | str, **sections: object) -> Iterator[RunningApp]:
    settings = {"data_dir": folder, "providers": yaml.safe_load(dedent(CONFIG))["providers"], **sections}
    with running(Antwort(Config.model_validate(settings), backend=ScriptedBackend(steps))) as served:
        yield served


def test_questions_of_a_server_are_listed_and_answered(cli: Callable[..., Result], tmp_path: Path) -> None:
    with serving(tmp_path / "data", QUESTION, "Blue it is.", SUM, "Well.") as served:
        at = ("--url", served.url)
        assert cli("questions", "list", *at).stdout == "No question is open.\n"
        first = begun(served)
        header, row = cli("questions", "list", *at).stdout.splitlines()
        assert header.split() == ["ID", "RESPONSE", "STATUS", "ASKED", "CHOICES", "EXPIRES"]
        assert all(text in row for text in (first, "open", "Which one?", "blue, red"))
        [question] = json.loads(cli("questions", "list", "--json", "--response", first, *at).stdout)
        assert (question["run_id"], question["kind"]) == (first, "question")
        result = cli("questions", "answer", question["id"], "blue", *at)
        assert (result.exit_code, result.stdout) == (0, f"Answered {question['id']}.\n")
        until(served, f"/responses/{first}", lambda found: found["status"] == "completed")
        second = begun(served)
        answered = json.loads(cli("questions", "answer", second, "no", "--reason", "Too hard.", "--json", *at).stdout)
        assert (answered["status"], answered["approve"], answered["reason"]) == ("answered", False, "Too hard.")
        assert cli("questions", "list", *at).stdout == "No question is open.\n"
        assert len(json.loads(cli("questions", "list", "--status", "all", "--json", *at).stdout)) == 2


def test_questions_are_asked_for_where_the_configuration_says_the_server_listens(
    cli: Callable[..., Result], config: Callable[[str], Path], tmp_path: Path
) -> None:
    with serving(tmp_path / "data", QUESTION) as served:
        begun(served)
        config(f"server: {{port: {served.url.rpartition(':')[2]}}}")
        assert "Which one?" in cli("questions", "list").stdout


@pytest.mark.parametrize("by", ["question", "response"])
def test_a_question_is_answered_by_its_id_and_what_follows_is_printed(
    cli: Callable[..., Result], tmp_path: Path, by: str
) -> None:
    with serving(tmp_path / "data", QUESTION, "Blue it is.") as served:
        name = begun(served)
        if by == "question":
            name = json.loads(cli("questions", "list", "--json", "--url", served.url).stdout)[0]["id"]
        result = cli("run", "--answer", name, "blue", "--url", served.url)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "Blue it is.\n", "")


def test_a_call_is_approved_by_its_id(cli: Callable[..., Result], tmp_path: Path) -> None:
    with serving(tmp_path / "data", SUM, "It is 42.") as served:
        name = begun(served)
        assert cli("run", "--answer", name, "yes", "--url", served.url).stdout == "It is 42.\n"


def test_what_the_model_asks_next_is_printed_with_its_id(cli: Callable[..., Result], tmp_path: Path) -> None:
    again = turn(calls=[call("ask_user", question="Sure?")])
    with serving(tmp_path / "data", QUESTION, again, "Blue it is.") as served:
        name = begun(served)
        result = cli("run", "--answer", name, "blue", "--url", served.url)
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr.startswith("antwort: the model asks: Sure? ('antwort run --answer question_")
        result = cli("run", "--answer", name, "yes", "--json", "--url", served.url)
        assert json.loads(result.stdout)["id"] == name


@pytest.mark.parametrize("remote", [True, False])
def test_a_question_in_the_foreground_is_answered_by_its_id(
    cli: Callable[..., Result], config: Callable[[str], Path], tmp_path: Path, *, remote: bool
) -> None:
    config(CONFIG)
    with ScriptServer([QUESTION, "Blue it is."]) as model, contextlib.ExitStack() as closing:
        where: tuple[str, ...] = ("--backend", model.url)
        if remote:
            backends = {"main": {"url": model.url}}
            settings = {"data_dir": tmp_path / "served", "backends": backends, "providers": {"user": {"enabled": True}}}
            where = ("--url", closing.enter_context(running(Antwort(Config.model_validate(settings)))).url)
        first = cli("run", "Buy it!", "--function", "ask_user", "--store", *where)
        assert first.exit_code == 3
        [name] = re.findall(r"resp_\w+", first.stderr)
        result = cli("run", "--answer", name, "blue", *where)
        assert (result.exit_code, result.stdout) == (0, "Blue it is.\n"), result.stderr
        assert outputs(model) == ["blue"]
        late = cli("run", "--answer", name, "blue", *where)
        assert (late.exit_code, late.stdout, len(late.stderr.splitlines())) == (2, "", 1)


def test_a_run_that_waits_in_this_folder_goes_on_here(
    cli: Callable[..., Result], config: Callable[[str], Path], tmp_path: Path
) -> None:
    config(CONFIG)
    with serving(tmp_path / "data", QUESTION) as served:
        name = begun(served)
    with ScriptServer(["Blue it is."]) as model:
        result = cli("run", "--answer", name, "blue", "--data-dir", str(tmp_path / "data"), "--backend", model.url)
        assert (result.exit_code, result.stdout) == (0, "Blue it is.\n"), result.stderr
        assert outputs(model) == ["blue"]


def test_the_key_says_whose_questions_they_are(cli: Callable[..., Result], tmp_path: Path) -> None:
    keys = [{"id": name, "key": f"sk-{name}", "tenant": name} for name in ("one", "two")]
    with serving(tmp_path / "data", QUESTION, "Blue it is.", auth={"api_keys": keys}) as served:
        mine, theirs = (("--url", served.url, "--api-key", f"sk-{name}") for name in ("one", "two"))
        name = begun(served, "sk-one")
        [question] = json.loads(cli("questions", "list", "--json", *mine).stdout)
        assert cli("questions", "list", *theirs).stdout == "No question is open.\n"
        for command in (("questions", "answer", question["id"], "blue"), ("run", "--answer", question["id"], "blue")):
            result = cli(*command, *theirs)
            assert (result.exit_code, result.stdout) == (2, "")
            assert result.stderr == (
                f"antwort: Question with id '{question['id']}' not found; 'antwort questions list' shows what is open\n"
            )
        assert cli("run", "--answer", name, "blue", *theirs).exit_code == 2
        assert cli("run", "--answer", name, "blue", *mine).stdout == "Blue it is.\n"


def test_a_slip_in_an_answer_is_one_line(
    cli: Callable[..., Result], refused: Callable[..., str], config: Callable[[str], Path], tmp_path: Path
) -> None:
    both = turn(calls=[*QUESTION.calls, *SUM.calls])
    with serving(tmp_path / "data", both) as served:
        at = ("--url", served.url)
        name = begun(served)
        while len(found := json.loads(cli("questions", "list", "--json", *at).stdout)) < 2:
            pass
        approval, question = (next(one for one in found if one["kind"] == kind) for kind in ("approval", "question"))
        assert "there are 2 questions; name one:" in refused("questions", "answer", name, "blue", *at)
        assert "there are 2 questions; name one:" in refused("run", "--answer", name, "blue", *at)
        assert "one of 'blue', 'red'" in refused("questions", "answer", question["id"], "green", *at)
        assert "one of 'blue', 'red'" in refused("run", "--answer", question["id"], "green", *at)
        assert "neither yes nor no" in refused("questions", "answer", approval["id"], "perhaps", *at)
        assert "--reason is for calls" in refused("questions", "answer", question["id"], "blue", "--reason", "x", *at)
        missing = refused("questions", "answer", "question_9", "blue", *at)
        assert missing.endswith("'question_9' not found; 'antwort questions list' shows what is open")
        assert "not found" in refused("questions", "answer", "a b?c", "blue", *at)
        assert "nothing is asked there" in refused("questions", "answer", "resp_9", "blue", *at)
        assert "leave out --file and --previous" in refused("run", "--answer", name, "a", "--previous", "resp_1", *at)
        assert "--answer takes a text" in refused("run", "--answer", name, *at)
        assert cli("questions", "answer", question["id"], "blue", *at).exit_code == 0
        assert "is answered already" in refused("questions", "answer", question["id"], "red", *at)
    config("")
    assert "nothing is kept here" in refused("run", "--answer", "resp_1", "blue")
    assert "--status" in refused("questions", "list", "--status", "lost")
    assert "--url must begin with" in refused("questions", "list", "--url", "localhost:80")
