"""Questions to a server, over HTTP."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
from click.testing import Result
from pydantic import SecretStr
from typing_extensions import override

from antwort.app import Antwort
from antwort.config import ApiKeyConfig, AuthConfig, Config
from antwort.testing import ScriptedBackend, call, running, turn

Cli = Callable[..., Result]
Refused = Callable[..., str]


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the demo model."""
    with running(Antwort(Config(data_dir=tmp_path_factory.mktemp("data")))) as served:
        yield served.url


def served_with(backend: ScriptedBackend, folder: Path) -> Antwort:
    return Antwort(Config(data_dir=folder), backend=backend)


def test_the_server_answers(cli: Cli, url: str) -> None:
    result = cli("run", "What is 12*7?", "--function", "calculate", "--url", url)
    assert (result.exit_code, result.stdout) == (0, "The result for 12*7 is 84.\n")
    assert result.stderr == '→ calculate {"expression": "12*7"}\n'
    assert list(Path().iterdir()) == []


def test_the_url_may_be_the_one_that_other_clients_take(cli: Cli, url: str) -> None:
    assert "84" in cli("run", "What is 12*7?", "--function", "calculate", "--url", f"{url}/v1/").stdout


def test_the_configuration_of_this_folder_does_not_matter(cli: Cli, url: str) -> None:
    Path("antwort.yaml").write_text("nonsense: true\n", encoding="utf-8")
    assert cli("run", "hi", "--url", url).exit_code == 0


def test_the_server_keeps_the_response_unless_told_otherwise(cli: Cli, url: str) -> None:
    kept, dropped = (
        json.loads(cli("run", "hi", "--json", "--url", url, *options).stdout) for options in ((), ("--no-store",))
    )
    assert (kept["store"], dropped["store"]) == (True, False)
    assert cli("run", "And?", "--previous", kept["id"], "--url", url).exit_code == 0
    lost = cli("run", "And?", "--previous", dropped["id"], "--url", url)
    assert (lost.exit_code, lost.stdout) == (2, "")
    assert dropped["id"] in lost.stderr


def test_events_come_as_the_server_sends_them(cli: Cli, url: str) -> None:
    events = [json.loads(line) for line in cli("run", "hi", "--events", "--url", url).stdout.splitlines()]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"


def test_an_agent_that_the_server_does_not_have_is_told_in_its_words(refused: Refused, url: str) -> None:
    assert refused("run", "hi", "--agent", "nobody", "--url", url) == "There is no agent 'nobody'."


def test_a_function_that_the_server_does_not_have_is_left_to_nobody(cli: Cli, tmp_path: Path) -> None:
    backend = ScriptedBackend([turn(calls=[call("price", item="tea")])])
    with running(served_with(backend, tmp_path / "data")) as served:
        result = cli("run", "hi", "--function", "price", "--url", served.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "antwort: the model calls price, which the server does not have\n"


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_the_key_is_sent(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    auth = AuthConfig(api_keys=[ApiKeyConfig(id="one", key=SecretStr("sk-one"))])
    with running(Antwort(Config(data_dir=tmp_path / "data", auth=auth))) as served:
        if by == "environment":
            monkeypatch.setenv("OPENAI_API_KEY", "sk-one")
        options = ["--api-key", "sk-one"] if by == "flag" else []
        assert cli("run", "hi", "--url", served.url, *options).exit_code == 0
        wrong = cli("run", "hi", "--url", served.url, "--api-key", "sk-two")
    assert (wrong.exit_code, wrong.stdout, len(wrong.stderr.splitlines())) == (2, "", 1)
    assert "sk-two" not in wrong.stderr


def test_a_server_that_is_not_there_is_one_line(cli: Cli) -> None:
    result = cli("run", "hi", "--url", "http://me:hunter22@127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.endswith(
        "cannot be reached: connection refused. Start the server ('antwort serve'), or say where it is with --url."
    )
    assert "hunter22" not in line


def test_an_address_that_is_none_is_a_mistake(refused: Refused) -> None:
    assert refused("run", "hi", "--url", "localhost:8080") == "--url must begin with http:// or https://"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1/responses", "http://[::1"])
def test_the_address_of_requests_is_not_that_of_a_server(refused: Refused, url: str) -> None:
    assert refused("run", "hi", "--url", url).startswith("--url must be the base URL of a server, such as http://127.")


@pytest.mark.parametrize("option", [("--backend", "http://127.0.0.1:2"), ("--backend-api", "anthropic")])
def test_a_backend_makes_no_sense_there(refused: Refused, option: tuple[str, str]) -> None:
    line = refused("run", "hi", "--url", "http://127.0.0.1:1", *option)
    assert line.startswith("--url asks a server, which has a model")


class Answering(socketserver.TCPServer):
    """A server that says the same to everybody, and closes."""

    allow_reuse_address = True

    def __init__(self, answer: bytes) -> None:
        class Handler(socketserver.StreamRequestHandler):
            @override
            def handle(self) -> None:
                length = 0
                while (line := self.rfile.readline()) != b"\r\n":
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                self.rfile.read(length)
                self.wfile.write(answer)

        super().__init__(("127.0.0.1", 0), Handler)

    @override
    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    @override
    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "code", "line"),
    [
        (EVENTS + b'data: {"type":"response.output_text.delta","delta":"Hel"}\n\n', 1, "broke off before its end"),
        (EVENTS + b'data: {"type":"error","message":"too busy"}\n\n', 1, "too busy"),
        (EVENTS + b'data: {"type":"error","error":{"message":"too busy"}}\n\n', 1, "too busy"),
        (EVENTS + b"data: what?\n\n", 1, "sent something that is no event: what?"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno", 2, "the server answered 404: no"),
        (b"HTTP/1.1 429 Slow\r\ncontent-length: 2\r\n\r\n{}", 1, "the server answered 429: {}"),
        (b"HTTP/1.1 500 Oops\r\ncontent-length: 33\r\n\r\n" + b'{"error":{"message":"it is over"}}'[:33], 1, "500"),
        (b'HTTP/1.1 500 Oops\r\ncontent-length: 34\r\n\r\n{"error":{"message":"it is over"}}', 1, "it is over"),
    ],
)
def test_whatever_a_server_answers_is_one_line(cli: Cli, answer: bytes, code: int, line: str) -> None:
    with Answering(answer) as server:
        result = cli("run", "hi", "--url", server.url)
    assert (result.exit_code, result.stdout) == (code, "")
    (told,) = result.stderr.splitlines()
    assert line in told
