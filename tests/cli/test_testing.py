import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from antwort.cli.main import root

Process = Callable[..., subprocess.Popen[str]]


def script(text: str) -> str:
    Path("script.yaml").write_text(text, encoding="utf-8")
    return "script.yaml"


def serving(process: Process, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start the command; return it with its URL once it listens."""
    server = process("testing", "serve-model", *arguments)
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line.startswith("Listening on http://127.0.0.1:"), server.communicate(timeout=60)
    return server, line.removeprefix("Listening on ").strip()


def ask(url: str) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    return httpx.post(f"{url}/chat/completions", json=body, timeout=30)


def test_it_plays_the_script_and_ends_by_itself_with_once(process: Process) -> None:
    server, url = serving(process, script("- text: Hello\n- text: Bye\n"), "--once")
    assert url.endswith("/v1")
    said = [ask(url).json()["choices"][0]["message"]["content"] for _ in range(2)]
    stdout, stderr = server.communicate(timeout=60)
    assert said == ["Hello", "Bye"]
    assert (server.returncode, stdout) == (0, "")
    assert stderr.splitlines() == [
        "m json 1 messages 0 tools -> step 1: text 'Hello'",
        "m json 1 messages 0 tools -> step 2: text 'Bye'",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_0_when_all_went_as_written(process: Process, number: signal.Signals) -> None:
    server, url = serving(process, script("- text: Hello\n"))
    assert ask(url).status_code == 200
    server.send_signal(number)
    server.communicate(timeout=60)
    assert server.returncode == 0


def test_what_was_not_as_written_is_listed_and_the_exit_code_is_1(process: Process) -> None:
    server, url = serving(process, script("- text: Hello\n  expect: {model: other}\n- text: Bye\n  by: {model: x}\n"))
    assert [ask(url).status_code for _ in range(2)] == [500, 500]
    server.send_signal(signal.SIGTERM)
    _, stderr = server.communicate(timeout=60)
    assert server.returncode == 1
    told = [line for line in stderr.splitlines() if line.startswith("antwort: ")]
    assert told[0] == 'antwort: step 1 (text \'Hello\') expected another request: model: expected "other", got "m"'
    assert told[1].startswith(
        "antwort: call 2 is unexpected: it fits none of the steps left, 2; it asked for model 'm'"
    )
    assert told[2] == "antwort: step 2 (text 'Bye') was not played"


def test_a_mistake_in_the_script_is_one_line(process: Process) -> None:
    server = process("testing", "serve-model", script("- txt: Hello\n"))
    stdout, stderr = server.communicate(timeout=60)
    assert (server.returncode, stdout) == (2, "")
    assert stderr == "antwort: script.yaml: step 1: txt: unknown key; did you mean 'text'?\n"


def test_a_script_that_is_missing_is_an_error_of_the_operator() -> None:
    # By way of the root, as from a shell: a command keeps the help option it was given first.
    result = CliRunner().invoke(root, ["testing", "serve-model", "nowhere.yaml"])
    message = "antwort: nowhere.yaml: the script cannot be read: No such file or directory\n"
    assert (result.exit_code, result.stderr) == (2, message)
