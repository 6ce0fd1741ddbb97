"""Commands beside a server: they find it by its data folder."""

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from click.testing import Result

from antwort.cli.running_server import announced, callable_url, running_server
from antwort.config import Config

Cli = Callable[..., Result]
Write = Callable[[str], Path]
Plugin = Callable[[str, str], None]
Listening = Callable[..., tuple[subprocess.Popen[str], list[str]]]


def url_in(banner: list[str]) -> str:
    return banner[-1].removeprefix("Listening on ")


def test_a_question_goes_to_the_server_of_the_folder_and_is_answered_here_once_that_is_gone(
    cli: Cli, listening: Listening
) -> None:
    server, banner = listening()
    url = url_in(banner)
    asked = cli("run", "What is 12*7?")
    assert (asked.exit_code, asked.stdout) == (0, "The result for 12*7 is 84.\n")
    told, called = asked.stderr.splitlines()
    assert told == f"antwort: asking {url}, the server of this folder"
    assert called == '→ calculate {"expression": "12*7"}'
    assert [one["model"] for one in httpx.get(f"{url}/v1/responses").json()["data"]] == ["antwort-demo"]
    here = cli("run", "What is 12*7?", "--backend", "demo", "--quiet")
    assert (here.stdout, here.stderr) == (asked.stdout, "")
    assert "asking" not in cli("run", "What is 12*7?", "--no-store").stderr
    server.send_signal(signal.SIGKILL)
    server.wait(timeout=60)
    assert Path(".antwort", "server.url").exists(), "it had no time to remove it"
    left = cli("run", "What is 12*7?")
    assert (left.exit_code, left.stdout, "asking" in left.stderr) == (0, asked.stdout, False)


def test_without_a_configuration_three_commands_lead_from_a_folder_to_a_cited_answer(
    cli: Cli, listening: Listening, tmp_path: Path
) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "tea.md").write_text("# Tea\n\nGreen tea is brewed at eighty degrees.\n", encoding="utf-8")
    server, banner = listening()
    assert any(line.endswith("; file_search when it is used") for line in banner)
    brought = cli("ingest", str(folder), "--store", "docs")
    assert (brought.exit_code, brought.stdout) == (0, "1 completed\n"), brought.output
    answer = cli("run", "What do my files say about green tea?")
    assert answer.exit_code == 0, answer.output
    assert "eighty degrees" in answer.stdout
    assert re.search(r"\[1\] tea\.md \(file-\w+\)", answer.stdout)
    assert "→ file_search" in answer.stderr
    server.send_signal(signal.SIGTERM)
    server.wait(timeout=60)
    assert not Path(".antwort", "server.url").exists()


def test_a_server_that_wants_a_key_is_asked_by_whoever_has_one(cli: Cli, config: Write, listening: Listening) -> None:
    config("auth:\n  api_keys:\n    - id: one\n      key: sk-one\nbackends:\n  one:\n    url: demo\n")
    _, banner = listening()
    without, having = cli("run", "What is 12*7?"), cli("run", "What is 12*7?", "--api-key", "sk-one")
    assert (without.stdout, having.stdout) == ("The result for 12*7 is 84.\n",) * 2
    assert ("asking" in without.stderr, "asking" in having.stderr) == (False, True)
    config("auth:\n  api_keys:\n    - id: one\n      key: sk-one\n")
    rules = cli("run", "What is 12*7?").stderr
    assert f"{url_in(banner)}, the server of this folder, wants a key (--api-key), and no model" in rules


def test_a_server_is_found_as_long_as_it_runs(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data")
    assert running_server(config) is None
    with announced(config.data_dir, "http://127.0.0.1:1"):
        assert running_server(config) == "http://127.0.0.1:1"
        with announced(config.data_dir, "http://127.0.0.1:2"):  # on PostgreSQL, several may use one folder
            assert running_server(config) == "http://127.0.0.1:1"
        assert running_server(config) == "http://127.0.0.1:1"
    assert running_server(config) is None
    assert list(config.data_dir.iterdir()) == []


def test_a_server_that_cannot_write_it_down_serves_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    with announced(tmp_path / "data", "http://127.0.0.1:1"):
        assert running_server(Config(data_dir=tmp_path / "data")) is None


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("fe80::1", "http://[fe80::1]:80"),
        ("example.org", "http://example.org:80"),
    ],
)
def test_an_address_that_nobody_can_call_is_called_on_this_machine(host: str, url: str) -> None:
    assert callable_url(host, 80) == url


def test_what_a_server_that_was_killed_has_left_is_of_no_consequence(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path)
    (tmp_path / "server.url").write_text("http://127.0.0.1:9\n")  # a server that was killed has left it
    assert running_server(config) is None
    with announced(tmp_path, "http://127.0.0.1:1"):
        assert running_server(config) == "http://127.0.0.1:1"
