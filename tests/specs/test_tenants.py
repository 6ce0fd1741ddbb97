"""What one tenant asked is never told to another, whatever goes wrong: every error path of a model server is walked."""

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from tests.support.telltale import KINDS, TelltaleServer, telltale

from antwort import Antwort
from antwort.config import Config
from antwort.server import batches
from antwort.testing import running
from antwort.types import JSON

SECRET = "the-plans-for-the-merger"
PATIENCE = 60.0
ENDED = {"completed", "failed", "incomplete", "cancelled"}
PATHS = (
    *("/v1/models", "/healthz", "/readyz", "/v1/responses", "/v1/conversations"),
    *("/v1/chat/completions", "/v1/batches", "/v1/messages/batches", "/v1/files", "/v1/runs"),
)
FEW = (
    "status-400",
    "text-500",
    "garbage",
    "error-object",
    "too-long",
    "cut",
    "stream-error",
    "call-without-name",
    "answer",
)
"""Some of what may happen to a request."""


@dataclass
class Tenant:
    """A client with a key of its own, and everything it was ever told."""

    client: httpx.Client
    prompt: str
    heard: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    things: list[str] = field(default_factory=list)
    """Paths of whatever else was made."""

    def send(self, method: str, path: str, body: JSON | None = None) -> httpx.Response:
        answer = self.client.request(method, path, json=body)
        self.heard += [answer.text, *answer.headers.values()]
        return answer

    def try_everything(self, model: str) -> None:
        """Ask a model in each way there is."""
        messages = [{"role": "user", "content": self.prompt}]
        for stream in (False, True):
            self.send("POST", "/v1/responses", {"model": model, "input": self.prompt, "stream": stream})
            self.send("POST", "/v1/chat/completions", {"model": model, "messages": messages, "stream": stream})
        self.send("POST", "/v1/completions", {"model": model, "prompt": self.prompt})
        self.send("POST", "/v1/embeddings", {"model": model, "input": self.prompt})
        self.send("POST", "/v1/responses/input_tokens", {"model": model, "input": self.prompt})
        self.send("POST", "/v1/responses/compact", {"model": model, "input": messages})
        self.send("POST", "/v1/responses", {"model": model, "input": self.prompt, "truncation": "auto"})
        for stream in (False, True):
            body = {"model": model, "input": self.prompt, "background": True, "stream": stream}
            self.made.append(self._id_of(self.send("POST", "/v1/responses", body), stream=stream))

    def try_others(self, *models: str) -> None:
        """Ask models in the ways in which nothing is kept, or something else than a response."""
        question = {"type": "predicate", "instructions": self.prompt}
        for model in models:
            body = {"model": model, "messages": [{"role": "user", "content": self.prompt}]}
            kept = {"store": True, "metadata": {"topic": self.prompt}}
            for stream in (False, True):
                self.send("POST", "/v1/messages", {**body, "max_tokens": 9, "stream": stream})
                self.send("POST", "/v1/chat/completions", {**body, **kept, "stream": stream})
            self.send("POST", "/v1/messages/count_tokens", body)
            self.send("POST", "/v1/decisions", {"model": model, "input": self.prompt, "questions": [question]})
        for chat in self.send("GET", "/v1/chat/completions").json()["data"]:
            self.things += [f"/v1/chat/completions/{chat['id']}", f"/v1/chat/completions/{chat['id']}/messages"]
        self._try_batches(models)

    def _try_batches(self, models: Iterable[str]) -> None:
        """Have models asked in batches of both kinds, and wait for their ends."""
        asked = [
            {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": self.prompt}]}
            for model in models
        ]
        wanted: JSON = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
        lines = [{"custom_id": f"{n}", "method": "POST", "url": wanted["endpoint"], "body": body}
                 for n, body in enumerate(asked)]  # fmt: skip
        content = "\n".join(map(json.dumps, lines))
        sent = self.client.post("/v1/files", files={"file": ("a.jsonl", content)}, data={"purpose": "batch"}).json()
        batch = self.send("POST", "/v1/batches", {**wanted, "input_file_id": sent["id"]}).json()
        requests = [{"custom_id": f"{n}", "params": body} for n, body in enumerate(asked)]
        of_messages = self.send("POST", "/v1/messages/batches", {"requests": requests}).json()
        paths = [f"/v1/batches/{batch['id']}", f"/v1/messages/batches/{of_messages['id']}"]
        ended = [self._ended(path) for path in paths]
        files = filter(None, (sent["id"], ended[0]["output_file_id"], ended[0]["error_file_id"]))
        self.things += [*paths, f"{paths[1]}/results", *(f"/v1/files/{name}/content" for name in files)]

    def _ended(self, path: str) -> JSON:
        limit = time.monotonic() + PATIENCE
        while True:
            found: JSON = self.send("GET", path).json()
            if {found.get("status"), found.get("processing_status")} & {"completed", "failed", "ended"}:
                return found
            assert time.monotonic() < limit, found
            time.sleep(0.01)

    def look_around(self) -> None:
        """Fetch everything there is to see."""
        for path in PATHS:
            self.send("GET", path)
        for response_id in self.made:
            self.fetch(response_id)
            self.send("GET", f"/v1/responses/{response_id}/input_items")

    def fetch(self, response_id: str) -> JSON:
        found: JSON = self.send("GET", f"/v1/responses/{response_id}").json()
        return found

    def wait_for_all(self) -> None:
        """Wait until every response made in the background has ended."""
        limit = time.monotonic() + PATIENCE
        for response_id in self.made:
            while self.fetch(response_id)["status"] not in ENDED:
                assert time.monotonic() < limit, response_id
                time.sleep(0.01)

    @property
    def was_told_the_secret(self) -> bool:
        return any(SECRET in text for text in self.heard)

    def _id_of(self, answer: httpx.Response, *, stream: bool) -> str:
        if not stream:
            return str(answer.json()["id"])
        first = next(line for line in answer.text.splitlines() if line.startswith("data: "))
        return str(json.loads(first.removeprefix("data: "))["response"]["id"])


@dataclass
class Stage:
    """A server for two tenants, before a model server that repeats everything."""

    model: TelltaleServer
    mallory: Tenant
    bob: Tenant


def client(url: str, name: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"authorization": f"Bearer secret-{name}"}, timeout=PATIENCE)


@contextlib.contextmanager
def stage(tmp_path: Path, deadline: float = 0.5) -> Iterator[Stage]:
    with telltale() as model:
        limits = {"retries": 0, "first_byte_timeout": 0.2, "chunk_timeout": 0.2}
        backend = {"url": model.url, **limits}
        config = Config.model_validate(
            {
                "data_dir": tmp_path,
                "auth": {"api_keys": [{"id": n, "key": f"secret-{n}", "tenant": n} for n in ("mallory", "bob")]},
                "engine": {"deadline": deadline, "outage_patience": 0},
                "backends": {
                    "main": backend,
                    "nowhere": {**backend, "url": "http://127.0.0.1:1/v1"},
                    "covered": {**backend, "fallback": "main"},
                },
            }
        )
        with running(Antwort(config)) as app, client(app.url, "mallory") as one, client(app.url, "bob") as other:
            yield Stage(model, Tenant(one, f"Rate {SECRET}!"), Tenant(other, "What is new?"))


def walk(walked: Stage, *models: str) -> None:
    """Let one tenant meet failures in every way, then the other, and look at what the other got to see."""
    for model in models:
        walked.mallory.try_everything(model)
    walked.bob.look_around()
    for model in models:
        walked.bob.try_everything(model)
    walked.bob.wait_for_all()
    walked.bob.look_around()
    assert not walked.bob.was_told_the_secret, next(text for text in walked.bob.heard if SECRET in text)


@pytest.mark.parametrize("group", range(4))
def test_nothing_of_a_failed_request_is_told_to_another_tenant(tmp_path: Path, group: int) -> None:
    with stage(tmp_path) as walked:
        walk(walked, *(f"main/{kind}" for kind in KINDS[group::4]))
        assert walked.mallory.was_told_the_secret  # it is told to whom it belongs


def test_nothing_of_batches_chats_messages_and_decisions_is_told_to_another_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_TRIES", 1)
    models = [f"main/{kind}" for kind in FEW]
    with stage(tmp_path) as walked:
        walked.mallory.try_others(*models)
        walked.bob.try_others(*models)
        walked.bob.look_around()
        for path in walked.bob.things:
            assert walked.bob.send("GET", path).status_code == 200, path
        for path in walked.mallory.things:
            assert walked.bob.send("GET", path).status_code == 404, path
        assert not walked.bob.was_told_the_secret, next(text for text in walked.bob.heard if SECRET in text)
        assert {path.split("/")[2] for path in walked.mallory.things} == {"batches", "chat", "files", "messages"}
        for path in walked.mallory.things:
            assert walked.mallory.send("GET", path).status_code == 200, path
        assert walked.mallory.was_told_the_secret


def test_nothing_is_told_of_a_server_that_is_not_there_nor_by_its_fallback(tmp_path: Path) -> None:
    with stage(tmp_path) as walked:
        walk(walked, "nowhere/any", *(f"covered/{kind}" for kind in ("status-500", "status-503", "garbage", "cut")))


def test_nothing_is_told_by_a_breaker_that_is_open(tmp_path: Path) -> None:
    with stage(tmp_path) as walked:
        walked.model.away = True
        body = {"model": "main/any", "input": walked.mallory.prompt}
        while "cannot be reached at the moment" not in walked.mallory.send("POST", "/v1/responses", body).text:
            pass
        walk(walked, "main/any")
        assert "cannot be reached at the moment" in "".join(walked.bob.heard)


def test_requests_of_one_tenant_that_fail_leave_the_server_to_the_others(tmp_path: Path) -> None:
    with stage(tmp_path, deadline=PATIENCE) as walked:
        for kind in ("status-500", "status-503", "hang-up", "stream-overloaded"):
            for _ in range(6):
                body = {"model": f"main/{kind}", "input": walked.mallory.prompt}
                assert walked.mallory.send("POST", "/v1/responses", body).status_code >= 500
            found = walked.bob.send("POST", "/v1/responses", {"model": "main/answer", "input": "What is new?"})
            assert (found.status_code, found.json()["status"]) == (200, "completed")


def test_a_request_without_a_model_is_not_told_what_the_list_of_models_said(tmp_path: Path) -> None:
    with stage(tmp_path) as walked:
        walked.mallory.send("POST", "/v1/responses", {"model": "main/status-500", "input": walked.mallory.prompt})
        found = walked.bob.send("POST", "/v1/responses", {"input": "What is new?"})
        assert (found.status_code, found.json()["error"]["code"]) == (503, "backend_unavailable")
        assert any(line == "GET /v1/models" for line in walked.model.asked)
        walked.bob.look_around()
        assert not walked.bob.was_told_the_secret
