"""Whole apps before servers of Messages: the strict double of one, and another app, whose model is a script."""

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic import Anthropic

from antwort import Antwort
from antwort.backends.findings import Finding, ask
from antwort.config import Config
from antwort.config.engine import BackendConfig
from antwort.testing import (
    ScriptedBackend,
    ScriptServer,
    call,
    fail,
    lint_response,
    lint_stream,
    matching,
    running,
    turn,
)
from antwort.testing.script_server import point
from antwort.types import JSON
from antwort.wire.responses import InputTokensDetails, Usage

KEY = "sk-ant-0123456789"
PNG = base64.b64encode(point("tea")).decode()
SEEN: JSON = {
    "role": "user",
    "content": [
        {"type": "input_text", "text": "What is three squared?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
    ],
}
THOUGHTS: JSON = {"effort": "low", "summary": "auto"}
BOTH_WAYS = pytest.mark.parametrize("streamed", [False, True], ids=["json", "stream"])


async def square(number: int) -> str:
    """Square a number."""
    return str(number * number)


def app_before(url: str, folder: Path, **backend: Any) -> Antwort:
    """Return an app with a function, before a server of Messages."""
    backends: Any = {"claude": {"url": url, "api": "anthropic", "api_key": KEY, "retries": 0, **backend}}
    return Antwort(Config(data_dir=folder, backends=backends, providers={}), functions=[square])


def create(url: str, *, streamed: bool, **body: Any) -> JSON:
    """Make a response, which is linted."""
    answer = httpx.post(f"{url}/v1/responses", json={"model": "m", **body, "stream": streamed}, timeout=60)
    assert answer.status_code == 200, answer.text
    if streamed:
        return lint_stream(answer.content).response
    response: JSON = answer.json()
    lint_response(response)
    return response


def text_of(response: JSON) -> str:
    last: JSON = response["output"][-1]
    return str(last["content"][0]["text"])


@BOTH_WAYS
def test_an_agent_thinks_calls_and_remembers(tmp_path: Path, streamed: bool) -> None:
    """Thoughts go back as they came, within the loop and with the next response; images are seen, the cache is told."""
    used = Usage(100, InputTokensDetails(60, 30), 5, total_tokens=105)
    steps = [
        turn(["Let me ", "see."], reasoning=["Hm", "m."], opaque="s1", calls=[call("square", number=3)], usage=used),
        turn("It is 9.", opaque="hidden", expect=matching(last="9")),
        turn("Nine.", expect=matching(text="Hmm.")),
    ]
    with (
        ScriptServer(steps, models=["m"]) as server,
        running(app_before(server.url, tmp_path)) as app,
    ):
        first = create(app.url, streamed=streamed, input=[SEEN], reasoning=THOUGHTS, instructions="Be brief.")
        again = create(app.url, streamed=streamed, input="Again", previous_response_id=first["id"], reasoning=THOUGHTS)
        passed = httpx.post(f"{app.url}/v1/embeddings", json={"model": "m", "input": "x"}, timeout=60)
    assert (text_of(first), text_of(again)) == ("It is 9.", "Nine.")
    assert first["output"][0]["summary"] == [{"type": "summary_text", "text": "Hmm."}]
    assert first["usage"]["input_tokens_details"] == {"cached_tokens": 60, "cache_write_tokens": 30}
    assert first["usage"]["input_tokens"] == 110
    asked, answered = server.requests[2]["messages"][:2], server.requests[2]["messages"][3]
    assert asked[0]["content"][1]["source"]["data"] == PNG
    assert asked[1]["content"][0] == {"type": "thinking", "thinking": "Hmm.", "signature": "s1"}
    assert answered["content"][0] == {"type": "redacted_thinking", "data": "hidden"}
    assert passed.status_code == 400
    assert "no such endpoint" in passed.json()["error"]["message"]


@BOTH_WAYS
@pytest.mark.parametrize("after", [0, 1])
def test_an_overloaded_server_is_told_without_its_key(tmp_path: Path, streamed: bool, after: int) -> None:
    """Before the answer, and in the middle of one."""
    error = fail(529, f"Overloaded, {KEY}", after=after, headers={"retry-after": "3"})
    with (
        ScriptServer([turn("Hello", error=error)], models=["m"]) as server,
        running(app_before(server.url, tmp_path)) as app,
    ):
        found = httpx.post(
            f"{app.url}/v1/responses", json={"model": "m", "input": "Hi", "stream": streamed}, timeout=60
        )
    assert "Overloaded" in found.text
    assert KEY not in found.text
    assert found.status_code == 503 or (streamed and after)


@BOTH_WAYS
def test_one_server_before_another(tmp_path: Path, streamed: bool) -> None:
    """The first has the function, the second the model; what the model has thought is sealed by both."""
    model = ScriptedBackend(
        [
            turn("Let me see.", reasoning=["Hm", "m."], calls=[call("square", number=3)], usage=(10, 5)),
            turn(["It is ", "9."], expect=matching(tools=["square"], last="9", effort="low"), usage=(20, 5)),
            turn("Nine.", expect=lambda asked: asked.items[1]["content"][0]["text"] == "Hmm."),
            turn('{"n": 9}', expect=lambda asked: asked.text_format["schema"] == {"type": "object"}),
        ]
    )
    with (
        model,
        running(Antwort(Config(data_dir=tmp_path / "second", providers={}), backend=model)) as second,
        running(app_before(f"{second.url}/v1", tmp_path / "first", models=["m"])) as first,
    ):
        said = create(first.url, streamed=streamed, input=[SEEN], reasoning=THOUGHTS)
        again = create(first.url, streamed=streamed, input="Again", previous_response_id=said["id"])
        wanted = {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}
        assert text_of(create(first.url, streamed=streamed, input="JSON", text=wanted, tools=[])) == '{"n": 9}'
    assert (text_of(said), text_of(again)) == ("It is 9.", "Nine.")
    assert said["output"][0]["summary"][0]["text"] == "Hmm."
    assert (said["usage"]["input_tokens"], said["usage"]["output_tokens"]) == (30, 10)
    [seen] = [part for part in model.requests[0].items[0]["content"] if part["type"] == "input_image"]
    assert seen["image_url"].endswith(PNG)


async def test_a_server_behind_tells_which_models_it_has(tmp_path: Path) -> None:
    with (
        ScriptedBackend([]) as model,
        running(Antwort(Config(data_dir=tmp_path, providers={}), backend=model)) as second,
    ):
        found = await ask("claude", BackendConfig.model_validate({"url": f"{second.url}/v1", "api": "anthropic"}))
    assert found == Finding("claude", "ok", ("scripted",))


def test_a_client_of_messages_before_a_server_of_messages(tmp_path: Path) -> None:
    """Both ends speak Anthropic's API; the signature of thoughts is ours to the client, and Anthropic's behind."""
    steps = [turn("One.", reasoning="Hm.", opaque="s1"), turn("Two.", expect=matching(text="Hm."))]
    with (
        ScriptServer(steps, models=["m"]) as server,
        running(app_before(server.url, tmp_path)) as app,
        Anthropic(base_url=app.url, api_key="none", max_retries=0) as client,
    ):
        said: list[Any] = [{"role": "user", "content": "Hi"}]
        shown: Any = {"type": "adaptive", "display": "summarized"}
        first = client.messages.create(model="m", max_tokens=4000, messages=said, thinking=shown)
        said += [{"role": "assistant", "content": first.content}, {"role": "user", "content": "And?"}]
        second = client.messages.create(model="m", max_tokens=4000, messages=said, thinking=shown)
    assert [block.type for block in first.content] == ["thinking", "text"]
    assert getattr(first.content[0], "signature", "s1") != "s1"
    assert second.content[-1].type == "text"
