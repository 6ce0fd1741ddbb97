"""What the model asks is asked in the terminal, and printed where there is none."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import Result
from tests.cli.terminals import Terminal

from antwort.testing import ScriptServer, call, turn

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
