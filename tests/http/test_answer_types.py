"""What the API's own handlers return is the type that `/openapi.json` describes, and what is sent is that type."""

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from pydantic import SecretStr
from starlette.requests import Request
from tests.http.sdk import Served, served

from antwort.concurrency.threads import WorkerThreads
from antwort.config import ApiKeyConfig, AuthConfig
from antwort.context import Context
from antwort.server.batches import BatchRunner
from antwort.testing import Turn, fail, turn
from antwort.types import JSON
from antwort.web.routes import Route
from antwort.wire.answers import InputTokens
from antwort.wire.chat.stored import StoredCompletion, StoredCompletionList, StoredMessageList
from antwort.wire.decisions import Decision
from antwort.wire.messages.answers import MessageAnswer, MessageTokens
from antwort.wire.messages.batches import MessageBatch
from antwort.wire.responses import CompactedResponse, ResponseObject

RAW_TYPES = (ResponseObject, CompactedResponse, InputTokens, MessageAnswer, MessageTokens, MessageBatch, Decision)
RAW = {kind.__name__: kind for kind in RAW_TYPES}
"""What the endpoints in plain ASGI answer with."""
PREDICATE = {"type": "predicate", "instructions": "It rains."}
KEY = ApiKeyConfig(id="one", key=SecretStr("sk-of-the-test"))
PASSED_ON = {
    f"POST /v1/{end}" for end in ("chat/completions", "completions", "embeddings", "moderations", "images/generations")
}
UNTYPED = {"GET /metrics", "GET /openapi.json", "GET /v1/conversations/{conversation_id}/items/{item_id}", *PASSED_ON}
UNTYPED |= {"POST /mcp", "GET /v1/messages/batches/{message_batch_id}/results"}
"""Texts, lines, this description, items of any type, what another protocol describes, and what is passed on."""
CHATS = {
    "GET /v1/chat/completions": StoredCompletionList,
    "GET /v1/chat/completions/{completion_id}": StoredCompletion,
    "GET /v1/chat/completions/{completion_id}/messages": StoredMessageList,
    "POST /v1/chat/completions/{completion_id}": StoredCompletion,
}
"""What model servers and clients have written, with fields of their own beside those that are described."""


class Session:
    """One request to every endpoint, with the answer of each."""

    works = False
    """Whether batches are worked on: one that is over cannot be cancelled, and one that is not cannot be deleted."""

    def __init__(self, stage: Served, key: str = "") -> None:
        self._stage = stage
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self.answers: dict[str, httpx.Response] = {}

    def ask(self, operation: str, body: JSON | None = None, **values: str) -> JSON:
        """Send a request, and return what the answer says."""
        method, path = operation.split()
        url = f"{self._stage.server.url}{path.format(**values)}"
        found = httpx.request(method, url, json=body, headers=self._headers, timeout=60)
        assert found.status_code == 200, found.text
        self.answers[operation] = found
        read: JSON = found.json() if found.headers["content-type"].startswith("application/json") else {}
        return read

    def ask_all(self) -> None:
        """Ask every endpoint once."""
        question = {"role": "user", "content": "Hi"}
        for path in ("/", "/v1", "/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/functions", "/v1/providers"):
            self.ask(f"GET {path}")
        self.ask("GET /v1/config")
        for state in ("disable", "enable"):
            self.ask(f"POST /v1/functions/{{function_name}}/{state}", function_name="double")
            self.ask(f"POST /v1/providers/{{provider_name}}/{state}", provider_name="custom")
        self.ask("POST /mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        model = self.ask("GET /v1/models")["data"][0]["id"]
        self.ask("GET /v1/models/{model}", model=model)
        kept = self.ask("POST /v1/responses", {"input": "Hi", "metadata": {"a": "b"}})["id"]
        self.ask("GET /v1/responses")
        self.ask("GET /v1/responses/{response_id}", response_id=kept)
        self.ask("GET /v1/responses/{response_id}/input_items", response_id=kept)
        self.ask("GET /v1/responses/{response_id}/agents", response_id=kept)
        self.ask("GET /v1/responses/{response_id}/trace", response_id=kept)
        self.ask("POST /v1/responses/input_tokens", {"input": "Hi"})
        self.ask("POST /v1/responses/compact", {"model": model, "previous_response_id": kept})
        self.ask("POST /v1/messages", {"max_tokens": 100, "messages": [question]})
        self.ask("POST /v1/messages/count_tokens", {"messages": [question]})
        self.ask("POST /v1/decisions", {"input": "Hi", "questions": [PREDICATE]})
        run = self.ask("POST /v1/responses", {"input": "Hi", "background": True})["id"]
        while self.ask("GET /v1/responses/{response_id}", response_id=run)["status"] != "completed":
            pass  # each time is a round trip
        self.ask("POST /v1/responses/{response_id}/cancel", response_id=run)
        self.ask("GET /v1/runs")
        self.ask("GET /v1/runs/{run_id}", run_id=run)
        broken = self.ask("POST /v1/responses", {"input": "Hi", "background": True})["id"]
        while self.ask("GET /v1/runs/{run_id}", run_id=broken)["status"] != "failed":
            pass
        again = self.ask("POST /v1/runs/{run_id}/retry", run_id=broken)["id"]
        while self.ask("GET /v1/runs/{run_id}", run_id=again)["status"] != "completed":
            pass
        answered = {"type": "response", "response_id": kept}
        span = {"object": "trace.span", "id": "span_1", "trace_id": "trace_1", "span_data": answered}
        self.ask("POST /v1/traces/ingest", {"data": [{"object": "trace", "id": "trace_1"}, span]})
        self.ask("GET /v1/traces")
        self.ask("GET /v1/traces/{trace_id}", trace_id="trace_1")
        self.ask("DELETE /v1/traces/{trace_id}", trace_id="trace_1")
        self.ask("DELETE /v1/responses/{response_id}", response_id=kept)
        self.ask_conversations(question)
        self.ask_prompts()
        self.ask_batches()
        self.ask_chats()

    def ask_conversations(self, question: JSON) -> None:
        one = {"conversation_id": self.ask("POST /v1/conversations", {"metadata": {"a": "b"}})["id"]}
        self.ask("GET /v1/conversations")
        self.ask("GET /v1/conversations/{conversation_id}", **one)
        self.ask("POST /v1/conversations/{conversation_id}", {"metadata": {}}, **one)
        added = self.ask("POST /v1/conversations/{conversation_id}/items", {"items": [question]}, **one)
        item = {**one, "item_id": added["data"][0]["id"]}
        self.ask("GET /v1/conversations/{conversation_id}/items", **one)
        self.ask("GET /v1/conversations/{conversation_id}/items/{item_id}", **item)
        self.ask("DELETE /v1/conversations/{conversation_id}/items/{item_id}", **item)
        self.ask("DELETE /v1/conversations/{conversation_id}", **one)

    def ask_batches(self) -> None:
        asked = {"input_file_id": "file-no", "endpoint": "/v1/responses", "completion_window": "24h"}
        batch = self.ask("POST /v1/batches", asked)["id"]
        self.ask("GET /v1/batches")
        self.ask("POST /v1/batches/{batch_id}/cancel", batch_id=batch)
        self.ask("GET /v1/batches/{batch_id}", batch_id=batch)
        every, one = "/v1/messages/batches", "/v1/messages/batches/{message_batch_id}"
        named = {"message_batch_id": self.ask(f"POST {every}", {"requests": [{"custom_id": "a", "params": {}}]})["id"]}
        self.ask(f"GET {every}")
        self.ask(f"POST {one}/cancel", **named)
        self.works = True
        while self.ask(f"GET {one}", **named)["processing_status"] != "ended":
            pass
        self.ask(f"GET {one}/results", **named)
        self.ask(f"DELETE {one}", **named)

    def ask_chats(self) -> None:
        every, one = "/v1/chat/completions", "/v1/chat/completions/{completion_id}"
        asked = {"messages": [{"role": "user", "content": "Hi"}], "store": True}
        kept_as = {"completion_id": self.ask(f"POST {every}", asked)["id"]}
        self.ask(f"GET {every}")
        self.ask(f"GET {one}", **kept_as)
        self.ask(f"GET {one}/messages", **kept_as)
        self.ask(f"POST {one}", {"metadata": {"a": "b"}}, **kept_as)
        self.ask(f"DELETE {one}", **kept_as)

    def ask_prompts(self) -> None:
        prompt, one_prompt = {"template": "Be {{manner}}."}, "/v1/prompts/{prompt_id}"
        kept_as = {"prompt_id": self.ask("POST /v1/prompts", prompt)["id"]}
        self.ask("GET /v1/prompts")
        self.ask(f"PUT {one_prompt}", {**prompt, "version": 1}, **kept_as)
        self.ask(f"PUT {one_prompt}/set-default-version", {"version": 1}, **kept_as)
        self.ask(f"POST {one_prompt}/default_version", {"version": 2}, **kept_as)
        self.ask(f"GET {one_prompt}/versions", **kept_as)
        self.ask(f"GET {one_prompt}", **kept_as)
        self.ask(f"DELETE {one_prompt}", **kept_as)

    def ask_for_keys(self) -> None:
        """Ask the endpoints that are there for those who have one."""
        made = self.ask("POST /v1/keys", {"label": "A note"})["id"]
        self.ask("GET /v1/keys")
        self.ask("DELETE /v1/keys/{key_id}", key_id=made)


def described_answers(document: JSON) -> dict[str, str]:
    """Return the names of the types that answers are said to be, by operation; none of those that have no name."""
    found = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            schema = next(iter(operation["responses"]["200"]["content"].values()))["schema"]
            found[f"{method.upper()} {path}"] = schema.get("$ref", "").rpartition("/")[2]
    return found


async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def test_every_answer_is_the_type_that_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    returned: dict[str, Any] = {}
    call = Route.call

    async def recorded(self: Route, ctx: Context | None, request: Request, threads: WorkerThreads | None = None) -> Any:
        result = await call(self, ctx, request, threads)
        returned[str(self).replace(":path", "")] = result
        return result

    monkeypatch.setattr(Route, "call", recorded)
    look = BatchRunner._look_at
    coded = turn(['{"q1": "', "yes", '"}'], logprobs=True)
    steps: list[Turn | str] = [*["Hello."] * 3, coded, "Hello.", turn(error=fail(400, "No.")), "Hello.", "Hello."]
    with served(tmp_path, steps, over_http=True, functions=[double]) as stage:
        session = Session(stage)
        monkeypatch.setattr(BatchRunner, "_look_at", lambda *given: look(*given) if session.works else None)
        session.ask_all()
    with served(tmp_path / "keys", [], auth=AuthConfig(api_keys=[KEY])) as stage:
        keys = Session(stage, "sk-of-the-test")
        keys.ask_for_keys()
        session.answers |= keys.answers
    described = described_answers(session.answers["GET /openapi.json"].json())
    assert described.keys() - PASSED_ON == session.answers.keys() - PASSED_ON
    for operation, described_kind in CHATS.items():
        assert described_kind.__name__ == described[operation]
        msgspec.json.decode(session.answers[operation].content, type=described_kind)
    for operation in described.keys() - UNTYPED - CHATS.keys():
        result = returned.get(operation)
        kind = RAW[described[operation]] if result is None else type(result)
        assert issubclass(kind, msgspec.Struct), operation
        assert kind.__name__ == described[operation], operation
        body = session.answers[operation].content
        assert msgspec.json.encode(msgspec.json.decode(body, type=kind)) == body, operation
