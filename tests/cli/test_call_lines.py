"""What `antwort run` tells of the calls that a model makes."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from antwort.app import Antwort
from antwort.cli.call_lines import call_line
from antwort.config import Config
from antwort.testing import Gate, ScriptedBackend, ScriptServer, call, running, turn

Cli = Callable[..., Result]
Plugin = Callable[[str, str], None]
Process = Callable[..., subprocess.Popen[str]]

SHOP = """
@function
def price(item: str) -> str:
    '''Tell a price.'''
    if item == 'gold':
        raise ValueError('not for sale')
    return item + ': 3'
"""

OFFERED = ("--function", "run_program")


@pytest.mark.parametrize("where", ["here", "server"])
def test_calls_and_failures_are_a_line_each_on_standard_error(
    cli: Cli, plugin: Plugin, tmp_path: Path, where: str
) -> None:
    plugin("shop", SHOP)
    script = [turn(calls=[call("price", item="tea"), call("price", item="gold")]), turn("Tea is 3.")]
    if where == "here":
        with ScriptServer(script) as model:
            result = cli("run", "What is tea?", "--plugins-dir", "plugins", "--backend", model.url)
    else:
        config = Config(data_dir=tmp_path / "data", plugins_dir=Path("plugins"))
        with running(Antwort(config, backend=ScriptedBackend(script))) as served:
            result = cli("run", "What is tea?", "--url", served.url)
    assert (result.exit_code, result.stdout) == (0, "Tea is 3.\n")
    calls, failed = result.stderr.splitlines()[:2], result.stderr.splitlines()[2:]
    assert sorted(calls) == ['→ price {"item": "gold"}', '→ price {"item": "tea"}']
    assert len(failed) == {"here": 1, "server": 2}[where]
    assert where == "here" or "; 'antwort runs trace resp_" in failed[1]
    assert failed[0].startswith("✗ price: ")
    assert "not for sale" in failed[0]


@pytest.mark.parametrize("where", ["here", "server"])
def test_a_program_and_what_it_calls_are_a_line_each(cli: Cli, plugin: Plugin, tmp_path: Path, where: str) -> None:
    plugin("shop", SHOP)
    program = call("run_program", code="print(await price(item='tea'))")
    script = [turn(calls=[program]), turn(calls=[call("run_program", code="1/0")]), turn("Tea is 3.")]
    if where == "here":
        with ScriptServer(script) as model:
            result = cli("run", "What is tea?", *OFFERED, "--plugins-dir", "plugins", "--backend", model.url)
    else:
        config = Config(data_dir=tmp_path / "data", plugins_dir=Path("plugins"))
        with running(Antwort(config, backend=ScriptedBackend(script))) as served:
            result = cli("run", "What is tea?", *OFFERED, "--url", served.url)
    assert (result.exit_code, result.stdout) == (0, "Tea is 3.\n")
    lines = [line for line in result.stderr.splitlines() if not line.startswith("antwort: resp_")]
    told = [line.partition(" ")[0] + line.split()[1] for line in lines]
    assert told == ["→program", "→price", "→program", "✗program:"]


@pytest.mark.parametrize("option", ["--quiet", "--json", "--events"])
def test_they_are_not_told_to_whoever_wants_quiet_or_a_machine_to_read_it(
    cli: Cli, plugin: Plugin, option: str
) -> None:
    plugin("shop", SHOP)
    with ScriptServer([turn(calls=[call("price", item="tea")]), turn("Tea is 3.")]) as model:
        result = cli("run", "What is tea?", "--plugins-dir", "plugins", "--backend", model.url, option)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "antwort:function_call" not in result.stdout


def test_they_are_told_as_they_happen(process: Process, plugin: Plugin) -> None:
    plugin("shop", SHOP)
    gate = Gate()
    with ScriptServer([turn(calls=[call("price", item="tea")]), turn([gate, "Tea is 3."])]) as model:
        asked = process("run", "What is tea?", "--plugins-dir", "plugins", "--backend", model.url)
        assert asked.stderr is not None
        assert asked.stderr.readline() == '→ price {"item": "tea"}\n'
        gate.open()
        assert asked.communicate(timeout=60) == ("Tea is 3.\n", "")


def test_an_approval_that_is_needed_is_told(cli: Cli, plugin: Plugin) -> None:
    plugin("shop", SHOP.replace("@function", "@function(approval='always')"))
    with ScriptServer([turn(calls=[call("price", item="tea")])]) as model:
        result = cli("run", "What is tea?", "--plugins-dir", "plugins", "--backend", model.url, "--store")
    assert result.exit_code == 3
    assert result.stderr.splitlines()[0] == '? price {"item": "tea"} needs an approval'


def test_in_a_terminal_a_line_stands_by_itself(plugin: Plugin) -> None:
    plugin("shop", SHOP)
    script = [turn("One moment.", calls=[call("price", item="tea")]), turn("Tea is 3.")]
    with ScriptServer(script) as model:
        command = ["run", "What is tea?", "--plugins-dir", "plugins", "--backend", model.url]
        master, slave = pty.openpty()
        asked = subprocess.Popen(
            [sys.executable, "-m", "antwort", *command], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
        )
        os.close(slave)
        shown = b""
        try:
            while piece := os.read(master, 4096):
                shown += piece
        except OSError:  # how Linux says that nobody writes any more
            pass
        finally:
            os.close(master)
            assert asked.wait(timeout=60) == 0
    assert shown.decode().splitlines() == ["One moment.", '→ price {"item": "tea"}', "", "Tea is 3."]


@pytest.mark.parametrize(
    ("item", "line"),
    [
        ({"type": "web_search_call", "action": {"query": "tea"}}, '→ web_search {"action": {"query": "tea"}}'),
        ({"type": "file_search_call", "queries": ["tea"], "results": None}, '→ file_search {"queries": ["tea"]}'),
        ({"type": "antwort:function_call", "name": "now", "arguments": "{}"}, "→ now"),
        ({"type": "antwort:function_call", "name": "a\x1b[2J", "arguments": "{\n}"}, "→ a\\x1b[2J { }"),
        ({"type": "antwort:function_call", "name": "a", "arguments": "x" * 500}, f"→ a {'x' * 155}…"),
        ({"type": "program", "code": "total = 0\nprint(total)"}, "→ program total = 0 print(total)"),
        ({"type": "program_output", "result": "0", "status": "completed"}, None),
        ({"type": "function_call", "name": "book", "arguments": "{}"}, None),
        ({"type": "message", "content": []}, None),
        (None, None),
    ],
)
def test_every_kind_of_call_is_one_short_line(item: Any, line: str | None) -> None:
    assert call_line({"type": "response.output_item.added", "item": item}) == line


def test_a_hosted_tool_that_fails_is_told_without_a_reason_that_it_does_not_give() -> None:
    item = {"type": "web_search_call", "status": "failed"}
    assert call_line({"type": "response.output_item.done", "item": item}) == "✗ web_search has failed"
    assert call_line({"type": "response.output_item.done", "item": {**item, "status": "completed"}}) is None
