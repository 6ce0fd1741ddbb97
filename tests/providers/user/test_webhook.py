"""A new question is told to a URL, signed so that the official SDK can tell who has sent it."""

import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.http.sdk import done
from tests.providers.user.stage import answer, asked, begun, patience, served_user
from typing_extensions import override

from antwort.errors import ConfigError
from antwort.testing import call, turn
from antwort.types import JSON

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
QUESTION = turn(calls=[call("ask_user", question="Which one?")])


class Listener:
    """What is told to a webhook, which answers with each of these in turn, then with 200, while its gate is open."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.default = 200
        self.gate = threading.Event()
        self.gate.set()
        self.heard: list[tuple[bytes, JSON]] = []
        self.url = ""

    def wait(self, number: int) -> list[tuple[bytes, JSON]]:
        for _ in patience():
            if len(self.heard) >= number:
                break
        return list(self.heard)


@contextlib.contextmanager
def listening(*answers: int) -> Iterator[Listener]:
    listener = Listener(*answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            listener.heard.append((body, dict(self.headers.items())))
            assert listener.gate.wait(60)
            self.send_response(listener.answers.pop(0) if listener.answers else listener.default)
            self.send_header("content-length", "0")
            self.end_headers()

        @override
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.url = f"http://127.0.0.1:{server.server_port}/questions"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield listener
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def settings(listener: Listener, **others: str) -> JSON:
    return {"settings": {"webhook": {"url": listener.url, "secret": SECRET, "retry": "1s", **others}}}


def test_the_sdk_verifies_what_is_told(tmp_path: Path) -> None:
    with listening() as listener, served_user(tmp_path, [QUESTION, "Well."], user=settings(listener)) as stage:
        response_id = begun(stage)
        [question] = asked(stage)
        [(body, headers)] = listener.wait(1)
        event: Any = stage.client(strict=False).webhooks.unwrap(body, headers, secret=SECRET)
        assert event.type == "question.created"
        told = json.loads(body)["data"]
        assert (told["id"], told["response_id"], told["body"]) == (question["id"], response_id, question["body"])
        assert headers["webhook-id"] == question["id"]
        with pytest.raises(openai.InvalidWebhookSignatureError):
            stage.client().webhooks.verify_signature(body + b" ", headers, secret=SECRET)
        answer(stage, question, answer="Blue.")
        assert done(stage, response_id)["status"] == "completed"


def test_what_was_not_taken_is_told_again_and_then_no_more(tmp_path: Path) -> None:
    with listening(500) as listener, served_user(tmp_path, [QUESTION], user=settings(listener)) as stage:
        begun(stage)
        (_, first), (_, second) = listener.wait(2)
        assert first["webhook-id"] == second["webhook-id"]
    with listening() as later, served_user(tmp_path, [], user=settings(later)) as stage:
        assert len(asked(stage)) == 1
    assert later.heard == []


def test_what_was_not_taken_before_a_restart_is_told_after_it(tmp_path: Path) -> None:
    with listening(*[503] * 100) as listener, served_user(tmp_path, [QUESTION], user=settings(listener)) as stage:
        begun(stage)
        listener.wait(1)
    with listening() as listener, served_user(tmp_path, [], user=settings(listener)) as stage:
        [(body, _)] = listener.wait(1)
        assert json.loads(body)["data"]["id"] == asked(stage)[0]["id"]


@pytest.mark.parametrize(
    "webhook", [{"url": "ftp://x", "secret": SECRET}, {"url": "http://x", "secret": "whsec_====!!!!!!!!!!!"}]
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, webhook: JSON) -> None:
    with pytest.raises(ConfigError), served_user(tmp_path, [], user={"settings": {"webhook": webhook}}):
        pass
