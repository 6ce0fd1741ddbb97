"""Batches of messages: many requests at once, made in the background, and what came of each."""

import asyncio
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types.beta.messages import BetaMessageBatch, BetaMessageBatchIndividualResponse
from anthropic.types.messages import DeletedMessageBatch, MessageBatch, MessageBatchIndividualResponse
from tests.http.messages import ASK, client, send, strict
from tests.http.sdk import Served, served
from tests.support.postgres import on_one_store

from antwort.auth import Chain
from antwort.server import batches as work_on_batches
from antwort.testing import Gate, Turn, call, fail, matching, turn
from antwort.types import JSON

FILES: JSON = {"files": {"enabled": True}}


def asking(number: int, **params: Any) -> Any:
    said = [{"role": "user", "content": f"number {number}"}]
    return {"custom_id": f"line-{number}", "params": {**ASK, "messages": said, **params}}


def numbers(count: int) -> list[Turn | str]:
    return [turn(f"It is {number}.", by=matching(last=f"number {number}")) for number in range(count)]


def ended(sdk: anthropic.Anthropic, batch_id: str) -> MessageBatch:
    until = time.monotonic() + 120
    while (batch := sdk.messages.batches.retrieve(batch_id)).processing_status != "ended":
        assert time.monotonic() < until, batch
        time.sleep(0.02)
    strict(MessageBatch, batch.to_dict())
    return batch


def results(sdk: anthropic.Anthropic, batch_id: str) -> dict[str, Any]:
    found = {each.custom_id: each for each in sdk.messages.batches.results(batch_id)}
    for each in found.values():
        strict(MessageBatchIndividualResponse, each.to_dict())
    return {name: each.result for name, each in found.items()}


def until_asked(stage: Served, number: int) -> None:
    until = time.monotonic() + 60
    while len(stage.requests) < number:
        assert time.monotonic() < until
        time.sleep(0.01)


def counts(batch: MessageBatch) -> dict[str, int]:
    return {name: count for name, count in batch.request_counts.to_dict().items() if count}  # type: ignore[misc]


def test_each_request_has_its_result(tmp_path: Path) -> None:
    with served(tmp_path, numbers(12), section=FILES) as stage:
        sdk = client(stage)
        begun = sdk.messages.batches.create(requests=[asking(number) for number in range(12)])
        strict(MessageBatch, begun.to_dict())
        assert begun.id.startswith("msgbatch_")
        assert (begun.processing_status, counts(begun), begun.results_url) == ("in_progress", {"processing": 12}, None)
        assert (begun.expires_at - begun.created_at).days == 1
        done = ended(sdk, begun.id)
        assert counts(done) == {"succeeded": 12}
        assert isinstance(done.ended_at, datetime)
        assert (done.archived_at, done.cancel_initiated_at) == (None, None)
        found = results(sdk, begun.id)
        assert {name: each.message.content[0].text for name, each in found.items()} == {
            f"line-{number}": f"It is {number}." for number in range(12)
        }
        assert found["line-0"].message.stop_reason == "end_turn"
        kept = stage.client().responses.retrieve(found["line-1"].message.id.replace("msg_", "resp_"))
        assert kept.output_text == "It is 1."
        assert list(stage.client().files.list()) == []  # they are the batch's own
        assert list(stage.client().batches.list()) == []


async def test_the_asynchronous_client_and_that_of_the_beta_do_the_same(tmp_path: Path) -> None:
    with served(tmp_path, numbers(2)) as stage:
        async with anthropic.AsyncAnthropic(base_url=stage.server.url, api_key="none", max_retries=0) as sdk:
            asked = [asking(0, new_field=1), asking(1)]  # those of a beta may have fields that nobody knows
            begun = await sdk.beta.messages.batches.create(requests=asked, betas=["new-field-2026-11-01"])
            strict(BetaMessageBatch, begun.to_dict())
            await asyncio.to_thread(ended, client(stage), begun.id)
            strict(BetaMessageBatch, (await sdk.beta.messages.batches.retrieve(begun.id)).to_dict())
            found = {each.custom_id: each async for each in await sdk.beta.messages.batches.results(begun.id)}
            for each in found.values():
                strict(BetaMessageBatchIndividualResponse, each.to_dict())
            assert {name: each.result.type for name, each in found.items()} == {
                "line-0": "succeeded",
                "line-1": "succeeded",
            }
            listed = [each.id async for each in sdk.beta.messages.batches.list()]
            again = await sdk.messages.batches.retrieve(begun.id)
            plain = [each.custom_id async for each in await sdk.messages.batches.results(begun.id)]
            gone = await sdk.beta.messages.batches.delete(begun.id)
    assert listed == [begun.id]
    assert (again.id, sorted(plain)) == (begun.id, ["line-0", "line-1"])
    assert (gone.id, gone.type) == (begun.id, "message_batch_deleted")


def test_what_is_wrong_with_params_is_in_the_result_and_tools_of_the_client_are_answers(tmp_path: Path) -> None:
    tool: Any = {"name": "get_weather", "input_schema": {"type": "object"}}
    steps = [turn(calls=[call("get_weather", city="Bonn")], by=matching(last="number 0"))]
    with served(tmp_path, steps) as stage:
        sdk = client(stage)
        wrong = [
            {"custom_id": "empty", "params": {}},
            asking(1, max_tokens=0),
            asking(2, top_p=7),
            asking(3, messages="Hi"),
            asking(4, sky="blue"),
            asking(5, stream="yes"),
        ]
        done = ended(sdk, sdk.messages.batches.create(requests=[asking(0, tools=[tool]), *wrong]).id)
        found = results(sdk, done.id)
    assert counts(done) == {"succeeded": 1, "errored": 6}
    assert found.pop("line-0").message.stop_reason == "tool_use"
    told = {name: (each.type, each.error.type, each.error.error.type) for name, each in found.items()}
    assert set(told) == {"empty", *(f"line-{number}" for number in range(1, 6))}
    assert set(told.values()) == {("errored", "error", "invalid_request_error")}
    assert "max_tokens" in found["line-1"].error.error.message
    assert found["line-2"].error.request_id.startswith("req_")


LONG = 4 << 20


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{", "JSON"),
        ({}, "'requests'"),
        ({"requests": []}, "'requests'"),
        ({"requests": {}}, "'requests'"),
        ({"requests": [asking(0)], "metadata": {}}, "'metadata'"),
        ({"requests": [asking(0), "x"]}, "'requests[1]'"),
        ({"requests": [asking(0), {"params": {}}]}, "'requests[1].custom_id'"),
        ({"requests": [asking(0), {"custom_id": 7, "params": {}}]}, "'requests[1].custom_id'"),
        ({"requests": [asking(0), {"custom_id": "", "params": {}}]}, "'requests[1].custom_id'"),
        ({"requests": [asking(0), {"custom_id": "a b", "params": {}}]}, "'requests[1].custom_id'"),
        ({"requests": [asking(0), {"custom_id": "x" * 65, "params": {}}]}, "'requests[1].custom_id'"),
        ({"requests": [asking(0), {"custom_id": "a\n", "params": {}}]}, "'requests[1].custom_id'"),
        ({"requests": [asking(0), {"custom_id": "a"}]}, "'requests[1].params'"),
        ({"requests": [asking(0), {"custom_id": "a", "params": []}]}, "'requests[1].params'"),
        ({"requests": [asking(0), {"custom_id": "a", "params": None}]}, "'requests[1].params'"),
        ({"requests": [asking(0), {"custom_id": "a", "params": {}, "method": "POST"}]}, "'requests[1].method'"),
        ({"requests": [asking(0), asking(1), asking(0)]}, "'line-0' names requests[0], too"),
        ({"requests": [asking(0), asking(1, stream=True)]}, "'requests[1].params.stream'"),
        ({"requests": [asking(0), {"custom_id": "a", "params": {"x": "y" * LONG}}]}, "'requests[1].params'"),
        ({"requests": [asking(0), {"custom_id": "a", "params": {"x": [1] * 200_000}}]}, "server.max_values"),
    ],
)
@on_one_store()
def test_what_is_wrong_around_the_params_is_told_at_once(tmp_path: Path, body: JSON | str, said: str) -> None:
    with served(tmp_path, []) as stage:
        text = body if isinstance(body, str) else json.dumps(body)
        sent = {"content": text, "headers": {"content-type": "application/json"}}
        found = stage.request("POST", "/messages/batches", **sent)
        assert found.status_code == 400, found.text
        error = found.json()
        assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
        assert said in error["error"]["message"]
        assert list(client(stage).messages.batches.list()) == []


@on_one_store()
def test_params_are_passed_on_as_they_came(tmp_path: Path) -> None:
    deep = "[" * 600 + "]" * 600
    params = [
        b'{\n  "model": "scripted",\r\n "max_tokens": 5,\n "messages": [{"role": "user", "content": "number 0"}]\n}',
        b'{"messages": "\xff"}',
        b'{"messages": %s}' % deep.encode(),
    ]
    requests = b",".join(b'{"custom_id": "line-%d", "params": %s}' % (n, each) for n, each in enumerate(params))
    with served(tmp_path, numbers(1)) as stage:
        sent = {"content": b'{"requests": [%s]}' % requests, "headers": {"content-type": "application/json"}}
        begun = stage.request("POST", "/messages/batches", **sent).json()
        sdk = client(stage)
        done = ended(sdk, begun["id"])
        assert counts(done) == {"succeeded": 1, "errored": 2}
        assert results(sdk, begun["id"])["line-0"].message.content[0].text == "It is 0."


@on_one_store()
def test_a_large_batch_is_read_on_a_thread(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        sdk = client(stage)
        many = [asking(number, max_tokens=0, system="x" * 2000) for number in range(300)]
        begun = sdk.messages.batches.create(requests=many)
        assert counts(begun) == {"processing": 300}
        assert counts(ended(sdk, begun.id)) == {"errored": 300}
        twice = {"requests": [*many, many[7]]}
        refused = send(stage, twice, "/batches").json()["error"]["message"]
        assert "'requests[300].custom_id': 'line-7' names requests[7], too" in refused
        odd = {"requests": [*many, {**many[7], "custom_id": None}]}
        assert "'requests[300].custom_id'" in send(stage, odd, "/batches").json()["error"]["message"]


def test_a_canceled_batch_has_what_was_answered_before(tmp_path: Path) -> None:
    gate = Gate()
    steps: list[Turn | str] = [turn(f"It is {number}.", wait_for=gate) for number in range(4)]
    with served(tmp_path, steps) as stage:
        sdk = client(stage)
        begun = sdk.messages.batches.create(requests=[asking(number) for number in range(7)])
        until_asked(stage, 4)
        for refused in (sdk.messages.batches.delete, sdk.messages.batches.results):
            with pytest.raises((anthropic.BadRequestError, anthropic.AnthropicError)):
                refused(begun.id)
        early = stage.request("GET", f"/messages/batches/{begun.id}/results")
        assert (early.status_code, early.json()["error"]["type"]) == (400, "invalid_request_error")
        for _ in range(2):  # once more is fine
            canceled = sdk.messages.batches.cancel(begun.id)
            assert (canceled.processing_status, counts(canceled)) == ("canceling", {"processing": 7})
            assert canceled.cancel_initiated_at is not None
        gate.open()
        done = ended(sdk, begun.id)
        assert counts(done) == {"succeeded": 4, "canceled": 3}
        assert sorted(each.type for each in results(sdk, begun.id).values()) == ["canceled"] * 3 + ["succeeded"] * 4
        with pytest.raises(anthropic.BadRequestError, match="has ended: there is nothing to cancel"):
            sdk.messages.batches.cancel(begun.id)


def test_requests_for_which_there_was_no_time_have_expired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antwort.server.messages.batches._DAY", 0)
    with served(tmp_path, []) as stage:
        sdk = client(stage)
        done = ended(sdk, sdk.messages.batches.create(requests=[asking(0)]).id)
        assert counts(done) == {"expired": 1}
        assert results(sdk, done.id)["line-0"].type == "expired"


def test_a_request_is_made_again_while_the_model_server_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_on_batches, "_TRIES", 2)
    steps = [turn(error=fail(503, "Later.")), turn("It is 0.")]
    with served(tmp_path, steps) as stage:
        sdk = client(stage)
        done = ended(sdk, sdk.messages.batches.create(requests=[asking(0)]).id)
        assert results(sdk, done.id)["line-0"].message.content[0].text == "It is 0."


def test_batches_are_listed_newest_first_in_pages_and_deleted_when_they_have_ended(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        sdk = client(stage)
        made = [
            sdk.messages.batches.create(requests=[{"custom_id": "a", "params": {}}]).id  # type: ignore[typeddict-item]
            for _ in range(5)
        ][::-1]
        assert [each.id for each in sdk.messages.batches.list(limit=2)] == made
        page = sdk.messages.batches.list(limit=2, after_id=made[0])
        assert ([each.id for each in page.data], page.has_more) == (made[1:3], True)
        assert (page.first_id, page.last_id) == (made[1], made[2])
        before = sdk.messages.batches.list(limit=2, before_id=made[3])
        assert ([each.id for each in before.data], before.has_more) == (made[1:3], True)
        for wrong in ({"limit": 0}, {"limit": 1001}, {"after_id": "msgbatch_no"}, {"before_id": "batch_no"}):
            with pytest.raises(anthropic.BadRequestError, match=f"'{next(iter(wrong))}'"):
                sdk.messages.batches.list(**wrong)
        for batch_id in made[:2]:
            ended(sdk, batch_id)
            gone = sdk.messages.batches.delete(batch_id)
            strict(DeletedMessageBatch, gone.to_dict())
            for ask in (sdk.messages.batches.retrieve, sdk.messages.batches.delete, sdk.messages.batches.cancel):
                with pytest.raises(anthropic.NotFoundError, match="No batch found with id"):
                    ask(batch_id)
        assert [each.id for each in sdk.messages.batches.list()] == made[2:]


@on_one_store()
def test_results_are_where_the_client_has_reached_the_server(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        sdk = client(stage)
        done = ended(sdk, sdk.messages.batches.create(requests=[{"custom_id": "a", "params": {}}]).id)  # type: ignore[typeddict-item]
        path = f"/v1/messages/batches/{done.id}"
        assert done.results_url == f"{stage.server.url}{path}/results"
        told = {"host": "agents.example", "x-forwarded-proto": "https"}
        found = httpx.get(f"{stage.server.url}{path}", headers=told)
        assert found.json()["results_url"] == f"https://agents.example{path}/results"
        assert httpx.get(done.results_url).headers["content-type"] == "application/x-jsonl"


@on_one_store()
def test_requests_of_a_key_that_is_revoked_have_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def holder(_chain: Chain, _tenant: str, _key_id: str) -> None:
        return None

    monkeypatch.setattr(Chain, "holder", holder)
    key: JSON = {"id": "ada", "key": "a" * 32, "tenant": "acme"}
    with served(tmp_path, [], auth={"api_keys": [key]}) as stage:
        sdk = client(stage, "a" * 32)
        done = ended(sdk, sdk.messages.batches.create(requests=[asking(0)]).id)
        assert counts(done) == {"errored": 1}
        assert done.cancel_initiated_at is not None
        error = results(sdk, done.id)["line-0"].error.error
        assert error.type == "authentication_error"
        assert "The API key 'ada', with which the batch was made, was revoked" in error.message


@on_one_store()
def test_requests_have_the_tenant_and_the_scopes_of_whoever_made_the_batch(tmp_path: Path) -> None:
    def key(name: str, *scopes: str) -> JSON:
        return {"id": name, "key": f"{name:0<32}", "tenant": name, "scopes": list(scopes)}

    keys = [key("ada", "*"), key("bob", "*"), key("eve", "batches:*"), key("max", "responses:*")]
    with served(tmp_path, numbers(1), auth={"api_keys": keys}) as stage:
        ada, bob, eve, other = (client(stage, each["key"]) for each in keys)
        done = ended(ada, ada.messages.batches.create(requests=[asking(0)]).id)
        for ask in (bob.messages.batches.retrieve, bob.messages.batches.cancel, bob.messages.batches.delete):
            with pytest.raises(anthropic.NotFoundError, match="No batch found with id"):
                ask(done.id)
        assert list(bob.messages.batches.list()) == []
        refused = results(eve, ended(eve, eve.messages.batches.create(requests=[asking(0)]).id).id)["line-0"]
        assert (refused.type, refused.error.error.type) == ("errored", "permission_error")
        assert "messages:write" in refused.error.error.message
        with pytest.raises(anthropic.PermissionDeniedError, match="batches:write"):
            other.messages.batches.create(requests=[asking(0)])
        made = (
            stage.client(keys[0]["key"])
            .batches.create(input_file_id="file-1", endpoint="/v1/responses", completion_window="24h")
            .id
        )
        for path in (f"/batches/{done.id}", f"/messages/batches/{made}"):
            found = stage.request("GET", path, headers={"authorization": f"Bearer {keys[0]['key']}"})
            assert found.status_code == 404
