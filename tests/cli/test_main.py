import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

import antwort
from antwort.cli import functions
from antwort.cli.main import COMMANDS

Cli = Callable[..., Result]


def test_the_help_imports_no_command_and_nothing_heavy() -> None:
    script = """
import sys
from antwort.cli.main import main
sys.argv = ["antwort", "--help"]
try:
    main()
except SystemExit as end:
    print(sorted(sys.modules), file=sys.stderr)
    sys.exit(end.code)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = set(re.findall(r"[\w.]+", done.stderr))
    assert "antwort.cli.main" in modules
    assert not modules & {"uvicorn", "pydantic", "starlette", "prometheus_client", "asyncio", "antwort.cli.serve"}
    assert all(f"  {name}" in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_imported_and_its_line_in_the_list_is_its_own_summary(name: str) -> None:
    command = COMMANDS[name].load()
    assert isinstance(command, click.Command)
    assert command.name == name
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name].help


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    result = cli("--version")
    assert (result.exit_code, result.stdout) == (0, f"antwort {antwort.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("srve", "There is no command 'srve'; did you mean 'serve'?"),
        ("xyz", "There is no command 'xyz' (see 'antwort --help')"),
        ("config shwo", "There is no command 'shwo'; did you mean 'show'?"),
        ("--prot", "There is no option '--prot' (see 'antwort --help')"),
        ("--debgu serve", "There is no option '--debgu'; did you mean '--debug'?"),
        ("config --shwo", "There is no option '--shwo' (see 'antwort config --help')"),
        ("serve --prot 1", "There is no option '--prot'; did you mean '--port'?"),
        ("serve -x", "There is no option '-x' (see 'antwort serve --help')"),
        ("serve --port", "Option '--port' requires an argument."),
        ("functions show", "Missing argument 'NAME' (see 'antwort functions show --help')"),
        ("check now", "Got unexpected extra argument (now) (see 'antwort check --help')"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_one_line_with_a_cure(
    refused: Callable[..., str], arguments: str, line: str
) -> None:
    assert refused(*arguments.split()) == line


@pytest.mark.parametrize("arguments", [[], ["config"]])
def test_without_a_command_the_help_is_shown(cli: Cli, arguments: list[str]) -> None:
    result = cli(*arguments)
    assert result.exit_code == 2
    assert "Commands:" in result.output


def test_several_problems_are_one_line_that_tells_how_many_there_are(
    refused: Callable[..., str], config: Callable[[str], Path]
) -> None:
    config("server:\n  prot: 1\n  port: 70000\nhello: 1\n")
    line = refused("config", "show")
    assert line.startswith("antwort.yaml:2: server.prot: unknown key; did you mean 'port'?")
    assert line.endswith(" (and 2 more; run 'antwort check')")


def _broken(message: str) -> Callable[..., None]:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError(message)

    return broken


def test_an_unexpected_error_is_one_line_without_secrets(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "Antwort", _broken("what\na day, password=hunter22"))
    result = cli("functions", "list")
    assert result.exit_code == 1
    assert result.stderr == (
        "antwort: unexpected error: ZeroDivisionError: what a day, password=*** "
        "('antwort --debug …' shows the traceback)\n"
    )


def test_debug_shows_the_traceback_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "Antwort", _broken("what a day"))
    result = cli("--debug", "functions", "list")
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback")
    assert result.stderr.splitlines()[-1].startswith("antwort: unexpected error: ZeroDivisionError: what a day")


def test_debug_shows_where_a_plug_in_failed(cli: Cli, plugin: Callable[[str, str], None]) -> None:
    plugin("broken", "raise RuntimeError('not today')\n")
    result = cli("--debug", "functions", "list", "--plugins-dir", "plugins")
    assert result.exit_code == 2
    assert "broken.py" in result.stderr
    assert "RuntimeError: not today" in result.stderr.splitlines()[-1]


def test_an_interrupted_command_ends_with_130_and_without_traceback(
    process: Callable[..., subprocess.Popen[str]], plugin: Callable[[str, str], None]
) -> None:
    plugin(
        "slow",
        """
        import asyncio

        @function
        async def wait():
            '''Wait for ever.'''
            yield Progress("waiting", 0.25)
            await asyncio.Event().wait()
        """,
    )
    running = process("functions", "call", "wait", "--plugins-dir", "plugins")
    assert running.stderr is not None
    assert running.stderr.readline() == "waiting (25%)\n"
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    assert (running.returncode, stdout) == (130, "")
    assert "Traceback" not in stderr


def test_a_reader_that_goes_away_is_no_error_worth_words() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "antwort", "config", "show"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_stdout_that_cannot_show_a_character_gets_it_escaped(plugin: Callable[[str, str], None]) -> None:
    plugin("greeting", "@function\ndef greet() -> str:\n    '''Greet.'''\n    return 'grüß 5 €'\n")
    done = subprocess.run(
        [sys.executable, "-m", "antwort", "functions", "call", "greet", "--plugins-dir", "plugins"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert done.stdout == b"gr\xfc\xdf 5 \\u20ac\n"


def test_warnings_of_the_configuration_go_to_standard_error(cli: Cli, config: Callable[[str], Path]) -> None:
    config("builtins:\n  basics:\n    enabled: true\n")
    result = cli("functions", "list", "--json")
    assert result.exit_code == 0
    assert [function["provider"] for function in json.loads(result.stdout)] == ["basics", "basics"]
    assert result.stderr == (
        "antwort: warning: antwort.yaml:1: the section 'builtins' is deprecated; rename it to 'providers'\n"
    )
