"""Batches: many requests in a file, answered in the background, each once."""

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, ConflictError, NotFoundError, OpenAI, PermissionDeniedError
from openai.types import Batch
from tests.http.sdk import Served, served
from tests.support.postgres import on_one_store
from typing_extensions import override

from antwort.auth import Chain, KeyFile
from antwort.context import Principal
from antwort.errors import ServiceUnavailableError
from antwort.server import batches
from antwort.testing import Gate, Turn, fail, matching, turn
from antwort.types import JSON

ENDPOINT: Any = "/v1/responses"
PROVIDERS: JSON = {"files": {"enabled": True}}
OVER = {"completed", "failed", "expired", "cancelled"}


def line(number: int, **body: Any) -> JSON:
    asked = {"model": "scripted", "input": f"number {number}", **body}
    return {"custom_id": f"line-{number}", "method": "POST", "url": ENDPOINT, "body": asked}


def uploaded(client: OpenAI, lines: Iterable[JSON | str | bytes]) -> str:
    texts = (each if isinstance(each, str | bytes) else json.dumps(each) for each in lines)
    content = b"\n".join(each.encode() if isinstance(each, str) else each for each in texts)
    return client.files.create(file=("lines.jsonl", content), purpose="batch").id


def made(client: OpenAI, lines: Iterable[JSON | str | bytes], **fields: Any) -> Batch:
    fields = {"endpoint": ENDPOINT, "completion_window": "24h", **fields}
    return client.batches.create(input_file_id=uploaded(client, lines), **fields)


def ended(client: OpenAI, batch_id: str) -> Batch:
    until = time.monotonic() + 120
    while (batch := client.batches.retrieve(batch_id)).status not in OVER:
        assert time.monotonic() < until, batch
        time.sleep(0.02)
    return batch


def answers(client: OpenAI, file_id: str | None) -> list[JSON]:
    return [] if file_id is None else [json.loads(each) for each in client.files.content(file_id).text.splitlines()]


def text_of(answer: JSON) -> str:
    return str(answer["response"]["body"]["output"][0]["content"][0]["text"])


def numbers(count: int) -> list[Turn | str]:
    return [turn(f"It is {number}.", by=matching(last=f"number {number}")) for number in range(count)]


def test_each_request_has_its_answer_in_the_file(tmp_path: Path) -> None:
    with served(tmp_path, numbers(30), section=PROVIDERS) as stage:
        client = stage.client()
        batch = made(client, [line(number) for number in range(30)], metadata={"night": "12"})
        assert (batch.status, batch.metadata, batch.endpoint) == ("validating", {"night": "12"}, ENDPOINT)
        done = ended(client, batch.id)
        assert done.status == "completed"
        assert done.request_counts is not None
        assert done.request_counts.to_dict() == {"total": 30, "completed": 30, "failed": 0}
        assert (done.error_file_id, done.errors) == (None, None)
        times = [done.created_at, done.in_progress_at, done.finalizing_at, done.completed_at]
        assert times == sorted(filter(None, times))
        found = {each["custom_id"]: each for each in answers(client, done.output_file_id)}
        assert {name: text_of(each) for name, each in found.items()} == {
            f"line-{number}": f"It is {number}." for number in range(30)
        }
        first = found["line-0"]
        assert (first["error"], first["response"]["status_code"]) == (None, 200)
        assert (first["id"][:10], first["response"]["request_id"][:4]) == ("batch_req_", "req_")
        assert [each.id for each in client.batches.list()] == [batch.id]
        file = client.files.retrieve(done.output_file_id or "")
        assert (file.purpose, file.filename) == ("batch_output", f"{batch.id}_output.jsonl")


def test_what_fails_is_in_a_file_of_its_own(tmp_path: Path) -> None:
    with served(tmp_path, numbers(1), section=PROVIDERS) as stage:
        client = stage.client()
        done = ended(client, made(client, [line(0), line(1, previous_response_id="resp_no")]).id)
        assert done.request_counts is not None
        assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 1, 1)
        [fine], [failed] = answers(client, done.output_file_id), answers(client, done.error_file_id)
        assert (fine["custom_id"], failed["custom_id"], failed["error"]) == ("line-0", "line-1", None)
        assert failed["response"]["status_code"] == 400
        assert failed["response"]["body"]["error"]["code"] == "previous_response_not_found"


@on_one_store()
@pytest.mark.parametrize(
    ("bad", "code", "param"),
    [
        ("{", "invalid_json_line", None),
        ("[1]", "invalid_json_line", None),
        ("[" * 10_000, "invalid_json_line", None),
        (b'{"custom_id": "\xff"}', "invalid_json_line", None),
        (f'{{"custom_id": {"9" * 5000}}}', "invalid_json_line", None),
        ({**line(1), "custom_id": None}, "missing_required_parameter", "custom_id"),
        ({**line(1), "method": 1}, "missing_required_parameter", "method"),
        ({key: value for key, value in line(1).items() if key != "url"}, "missing_required_parameter", "url"),
        ({**line(1), "body": []}, "missing_required_parameter", "body"),
        ({**line(1), "url": "/v1/embeddings"}, "invalid_url", "url"),
        ({**line(1), "method": "GET"}, "invalid_request", "method"),
        (line(1, stream=True), "streaming_unsupported", "body.stream"),
        (line(1, background=True), "invalid_request", "body.background"),
        (line(1, model="nobody"), "model_not_found", "body.model"),
        (line(0), "duplicate_custom_id", "custom_id"),
        ({**line(1), "custom_id": "x" * 513}, "invalid_request", "custom_id"),
    ],
)
def test_one_bad_line_fails_the_batch_before_anything_is_asked(
    tmp_path: Path, bad: JSON | str | bytes, code: str, param: str | None
) -> None:
    backend: JSON = {"models": ["scripted"]}
    with served(tmp_path, [], section=PROVIDERS, over_http=True, backend=backend) as stage:
        client = stage.client()
        done = ended(client, made(client, [line(0), "", bad]).id)
        assert (done.status, done.failed_at is not None) == ("failed", True)
        assert done.errors is not None
        [error] = done.errors.data or []
        assert (error.code, error.line, error.param) == (code, 3, param)
        assert stage.bodies == []


def test_a_file_that_is_not_there_fails_the_batch_and_not_its_creation(tmp_path: Path) -> None:
    with served(tmp_path, [], section=PROVIDERS) as stage:
        client = stage.client()
        for file_id, problem in (("file-no", "There is no file"), (uploaded(client, ["", " "]), "has no requests")):
            batch = client.batches.create(input_file_id=file_id, endpoint=ENDPOINT, completion_window="24h")
            done = ended(client, batch.id)
            assert done.errors is not None
            [error] = done.errors.data or []
            assert (done.status, error.param, problem in (error.message or "")) == ("failed", "input_file_id", True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"endpoint": "/v1/models"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"metadata": {"a": 1}}, "metadata.a"),
    ],
)
def test_a_batch_that_cannot_be_is_told_at_once(tmp_path: Path, fields: Any, param: str) -> None:
    with served(tmp_path, [], section=PROVIDERS) as stage, pytest.raises(BadRequestError) as caught:
        made(stage.client(), [line(0)], **fields)
    assert caught.value.param == param


def test_a_cancelled_batch_has_what_was_answered_before(tmp_path: Path) -> None:
    gate = Gate()
    steps: list[Turn | str] = [turn(f"It is {number}.", wait_for=gate) for number in range(4)]
    with served(tmp_path, steps, section=PROVIDERS) as stage:
        client = stage.client()
        batch = made(client, [line(number) for number in range(8)])
        until_asked(stage, 4)
        for _ in range(2):  # once more is fine
            assert client.batches.cancel(batch.id).status == "cancelling"
        gate.open()
        done = ended(client, batch.id)
        assert (done.status, done.completed_at, done.cancelled_at is not None) == ("cancelled", None, True)
        assert len(answers(client, done.output_file_id)) == 4
        codes = [each["error"]["code"] for each in answers(client, done.error_file_id)]
        assert codes == ["batch_cancelled"] * 4
        assert client.batches.cancel(batch.id).status == "cancelled"
        over = ended(client, made(client, ["{"]).id)
        with pytest.raises(ConflictError, match="The batch is failed: there is nothing to cancel"):
            client.batches.cancel(over.id)


def until_asked(stage: Served, number: int) -> None:
    until = time.monotonic() + 60
    while len(stage.requests) < number:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_request_is_tried_again_while_the_model_server_is_away(tmp_path: Path) -> None:
    steps = [turn(error=fail(503, "Later.")), turn("It is 0.")]
    with served(tmp_path, steps, section=PROVIDERS) as stage:
        client = stage.client()
        [answer] = answers(client, ended(client, made(client, [line(0)]).id).output_file_id)
        assert text_of(answer) == "It is 0."


def test_with_the_same_key_a_batch_is_made_once(tmp_path: Path) -> None:
    with served(tmp_path, numbers(1), section=PROVIDERS) as stage:
        client = stage.client()
        fields: Any = {"input_file_id": uploaded(client, [line(0)]), "endpoint": ENDPOINT, "completion_window": "24h"}
        key = {"idempotency_key": "tonight"}
        first = client.batches.create(**fields, extra_body=key)
        ended(client, first.id)
        assert client.batches.create(**fields, extra_body=key).id == first.id
        with pytest.raises(ConflictError) as caught:
            client.batches.create(**fields, metadata={"a": "b"}, extra_body=key)
        assert caught.value.param == "idempotency_key"
        assert len(list(client.batches.list())) == 1


def test_requests_have_the_tenant_and_the_scopes_of_whoever_made_the_batch(tmp_path: Path) -> None:
    def key(name: str, *scopes: str) -> JSON:
        return {"id": name, "key": f"{name:0<32}", "tenant": name, "scopes": list(scopes)}

    keys = [key("ada", "*"), key("bob", "*"), key("eve", "batches:*", "files:*"), key("max", "batches:*")]
    with served(tmp_path, numbers(1), section=PROVIDERS, auth={"api_keys": keys}) as stage:
        ada, bob, eve, other = (stage.client(each["key"]) for each in keys)
        done = ended(ada, made(ada, [line(0)]).id)
        [answer] = answers(ada, done.output_file_id)
        assert ada.responses.retrieve(answer["response"]["body"]["id"]).output_text == "It is 0."
        for ask in (bob.batches.retrieve, bob.batches.cancel):
            with pytest.raises(NotFoundError, match="No batch found with id"):
                ask(done.id)
        assert list(bob.batches.list()) == []
        [refused] = answers(eve, ended(eve, made(eve, [line(0)]).id).error_file_id)
        assert refused["response"]["status_code"] == 403
        assert refused["response"]["body"]["error"]["code"] == "insufficient_permissions"
        with pytest.raises(PermissionDeniedError, match="files:read"):
            other.batches.create(input_file_id="file-1", endpoint=ENDPOINT, completion_window="24h")


def test_no_tenant_has_all_places_and_what_waits_for_one_is_not_made_after_a_cancellation(tmp_path: Path) -> None:
    keys: list[JSON] = [{"id": name, "key": f"{name:0<32}", "tenant": name} for name in ("ada", "bob")]
    gate = Gate()
    steps: list[Turn | str] = [turn("Late.", by=matching(last="slow"), wait_for=gate) for _ in range(3)]
    steps.append(turn("It is 0.", by=matching(last="number 0")))
    with served(tmp_path, steps, section=PROVIDERS, auth={"api_keys": keys}) as stage:
        ada, bob = (stage.client(each["key"]) for each in keys)
        slow = made(ada, [{**line(number), "body": {"model": "scripted", "input": "slow"}} for number in range(8)])
        until_asked(stage, 3)
        assert ended(bob, made(bob, [line(0)]).id).status == "completed"
        ada.batches.cancel(slow.id)
        gate.open()
        done = ended(ada, slow.id)
        assert (done.status, len(answers(ada, done.output_file_id)), len(stage.requests)) == ("cancelled", 3, 4)


def test_the_batches_of_a_key_that_is_revoked_are_cancelled(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    made_with, secret = keys.new("default", scopes=["*"])
    _, other = keys.new("default", scopes=["*"])
    gate = Gate()
    steps: list[Turn | str] = [turn(f"It is {number}.", wait_for=gate) for number in range(4)]
    with served(tmp_path, steps, section=PROVIDERS, auth={"keys_file": str(keys.path)}) as stage:
        batch = made(stage.client(secret), [line(number) for number in range(7)])
        until_asked(stage, 4)
        keys.revoke(made_with.id)
        client = stage.client(other)
        until = time.monotonic() + 60
        while httpx.get(f"{stage.server.url}/v1/batches", headers=bearer(secret)).status_code != 401:
            assert time.monotonic() < until
        gate.open()
        done = ended(client, batch.id)
        assert (done.status, len(answers(client, done.output_file_id))) == ("cancelled", 4)
        assert done.errors is not None
        [why] = done.errors.data or []
        assert why.code == "key_revoked"
        assert f"The API key '{made_with.id}', with which the batch was made, was revoked" in (why.message or "")
        refused = [each["error"] for each in answers(client, done.error_file_id)]
        assert refused == [{"code": "key_revoked", "message": why.message}] * 3


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_requests_have_the_scopes_that_their_key_has_when_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now: list[Principal | None] = []

    async def holder(_chain: Chain, tenant: str, key_id: str) -> Principal | None:
        return now.pop(0) if now else Principal(tenant, "ada", frozenset({"batches:*"}), key_id=key_id)

    monkeypatch.setattr(Chain, "holder", holder)
    key: JSON = {"id": "ada", "key": "a" * 32, "tenant": "acme"}
    now += [Principal("acme", "ada", frozenset({"*"})), Principal("acme", "ada", frozenset({"batches:*"}))]
    now += [Principal("acme", "ada", frozenset({"responses:*"}))]
    engine: Any = {"parallel_batch_requests": 1}
    with served(tmp_path, numbers(1), section=PROVIDERS, auth={"api_keys": [key]}, engine=engine) as stage:
        client = stage.client("a" * 32)
        done = ended(client, made(client, [line(number) for number in range(4)]).id)
        assert (done.status, len(answers(client, done.output_file_id))) == ("cancelled", 1)
        denied, *unmade = answers(client, done.error_file_id)
        assert denied["response"]["body"]["error"]["code"] == "insufficient_permissions"
        assert [each["error"]["code"] for each in unmade] == ["key_revoked"] * 2


def test_what_was_answered_is_kept_though_the_file_of_requests_goes(tmp_path: Path) -> None:
    gate = Gate()
    steps: list[Turn | str] = [turn(f"It is {number}.", by=matching(last=f"number {number}")) for number in range(4)]
    steps += [turn("Never.", wait_for=gate) for _ in range(4)]
    with served(tmp_path, steps, section=PROVIDERS) as stage:
        client = stage.client()
        batch = made(client, [line(number) for number in range(12)])
        until_asked(stage, 8)
    with served(tmp_path, [], section=PROVIDERS, engine={"takeover_after": 0.5}) as stage:
        client = stage.client()
        client.files.delete(batch.input_file_id)
        done = ended(client, batch.id)
        assert done.errors is not None
        [why] = done.errors.data or []
        assert (done.status, why.param) == ("failed", "input_file_id")
        assert "8 of them were not made" in (why.message or "")
        assert sorted(map(text_of, answers(client, done.output_file_id))) == [f"It is {number}." for number in range(4)]
        assert done.request_counts is not None
        assert done.request_counts.to_dict() == {"total": 12, "completed": 4, "failed": 8}


def test_one_answer_that_is_no_json_fails_its_line_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_TRIES", 1)
    with odd_model(b"<html>\xff</html>") as url:
        odd: JSON = {"url": url, "models": ["odd"]}
        endpoint: Any = "/v1/embeddings"
        asked = [{**line(number), "url": endpoint, "body": {"model": "odd", "input": "x"}} for number in range(2)]
        with served(tmp_path, [], section=PROVIDERS, over_http=True, backend=odd) as stage:
            client = stage.client()
            done = ended(client, made(client, asked, endpoint=endpoint).id)
            assert (done.status, done.output_file_id) == ("completed", None)
            for refused in answers(client, done.error_file_id):
                assert refused["response"]["status_code"] == 502
                assert "is not valid JSON" in refused["response"]["body"]["error"]["message"]


@contextlib.contextmanager
def odd_model(answer: bytes) -> Iterator[str]:
    """Serve a model server that answers everything with the same bytes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        @override
        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_batch_waits_for_room_for_its_answers(tmp_path: Path) -> None:
    limits = {"per_tenant": {"max_files_bytes": 6000}}
    settings: Any = {"takeover_after": 0.5}
    with served(tmp_path, numbers(1), section=PROVIDERS, limits=limits, engine=settings) as stage:
        client = stage.client()
        other = client.files.create(file=("a.txt", b"x" * 5600), purpose="user_data")
        batch = made(client, [line(0)])
        until = time.monotonic() + 60
        while client.batches.retrieve(batch.id).status != "finalizing":
            assert time.monotonic() < until
            time.sleep(0.01)
        client.files.delete(batch.input_file_id)  # it is read no more
        client.files.delete(other.id)
        done = ended(client, batch.id)
        assert (done.status, len(answers(client, done.output_file_id))) == ("completed", 1)
        assert len(list(client.files.list())) == 1


def test_answers_that_can_never_be_kept_fail_the_batch(tmp_path: Path) -> None:
    limits = {"per_tenant": {"max_file_bytes": 600}}
    with served(tmp_path, numbers(1), section=PROVIDERS, limits=limits) as stage:
        client = stage.client()
        done = ended(client, made(client, [line(0)]).id)
        assert (done.status, done.errors is not None) == ("failed", True)
        assert "max_file_bytes" in str(done.errors)


def test_many_made_at_a_time_all_come_to_their_end(tmp_path: Path) -> None:
    with served(tmp_path, [], section=PROVIDERS) as stage, ThreadPoolExecutor(16) as several:
        client = stage.client()
        file_id = uploaded(client, [""])
        fields: Any = {"input_file_id": file_id, "endpoint": ENDPOINT, "completion_window": "24h"}
        found = list(several.map(lambda _: client.batches.create(**fields).id, range(64)))
        assert {ended(client, each).status for each in found} == {"failed"}


def test_whoever_comes_late_leaves_a_batch_as_another_server_has_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = batches.BatchWork._file
    late = threading.Event()

    async def frozen(work: batches.BatchWork, batch: Any, *, fine: bool) -> str | None:
        made = await written(work, batch, fine=fine)
        if not fine:  # both are written
            await work._batches.change(work.open.tenant, work.open.id, end)
            late.set()
        return made

    def end(batch: Any) -> None:
        batch.output_file_id, batch.status = "file-other", "completed"

    monkeypatch.setattr(batches.BatchWork, "_file", frozen)
    with served(tmp_path, numbers(1), section=PROVIDERS, engine={"takeover_after": 0.5}) as stage:
        client = stage.client()
        batch = made(client, [line(0)])
        assert late.wait(60)
        until_left(client, 1)
        assert client.batches.retrieve(batch.id).output_file_id == "file-other"


def test_files_that_a_server_has_left_go_when_another_ends_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = batches.BatchFiles.create
    left: list[str] = []

    async def cut_off(files: batches.BatchFiles, tenant: str, *args: Any, **options: Any) -> str:
        name = await create(files, tenant, *args, **options)
        if not left:
            left.append(name)
            raise ServiceUnavailableError("Killed.")
        return name

    monkeypatch.setattr(batches.BatchFiles, "create", cut_off)
    with served(tmp_path, numbers(1), section=PROVIDERS, engine={"takeover_after": 0.5}) as stage:
        client = stage.client()
        done = ended(client, made(client, [line(0)]).id)
        assert (done.status, len(answers(client, done.output_file_id))) == ("completed", 1)
        until_left(client, 2)
        assert left[0] not in {file.id for file in client.files.list()}


def until_left(client: OpenAI, number: int) -> None:
    until = time.monotonic() + 60
    while len(list(client.files.list())) != number:
        assert time.monotonic() < until
        time.sleep(0.01)
