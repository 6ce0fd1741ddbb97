"""URLs of images and files, which the model server would fetch: public ones are passed on, no others."""

from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import Served, served
from tests.outbound.hostile import HOSTILE
from tests.support.postgres import on_one_store

from antwort.config import OutboundConfig
from antwort.outbound import Outbound
from antwort.provider import OutboundError

pytestmark = on_one_store()

FORBIDDEN = [
    "file:///etc/passwd",
    "ftp://example.org/a.png",
    "gopher://example.org/",
    "//169.254.169.254/latest",
    "/etc/passwd",
    "http://169.254.169.254/latest/meta-data/",
    "http://127.0.0.1:11434/a.png",
    "http://localhost/a.png",
    "http://[::1]/a.png",
    "http://[::ffff:10.0.0.1]/a.png",
    "http://2130706433/a.png",
    "http://10.0.0.1/a.png",
    "http://user:password@93.184.216.34/a.png",
    "http://93.184.216.34\\@127.0.0.1/a.png",
    "http://93.184.216.34:22/a.png",
]
PASSED = ["http://93.184.216.34/a.png", "https://93.184.216.34:8443/a.png", "data:image/png;base64,AAAA", "DATA:,x"]


def image(url: str) -> Any:
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def message(*parts: Any) -> Any:
    return {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, *parts]}


def refused(stage: Served, path: str, body: Any, param: str) -> None:
    answer = stage.request("POST", path, json=body)
    assert answer.status_code == 400, (body, answer.text)
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, "invalid_url"), (body, error)


def test_a_url_that_no_stranger_may_name_reaches_no_model(tmp_path: Path) -> None:
    with served(tmp_path, [], over_http=True) as stage:
        for url in FORBIDDEN:
            place = "input[1].content[1].image_url"
            refused(stage, "/responses", {"input": [message(), message(image(url))]}, place)
            refused(stage, "/responses/input_tokens", {"input": [message(), message(image(url))]}, place)
            file = {"type": "input_file", "filename": "a.pdf", "file_url": url}
            refused(stage, "/responses", {"input": [message(file)]}, "input[0].content[1].file_url")
            call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
            output = {"type": "function_call_output", "call_id": "c", "output": [image(url)]}
            refused(stage, "/responses", {"input": [call, output]}, "input[1].output[0].image_url")
            refused(stage, "/conversations", {"items": [message(image(url))]}, "items[0].content[1].image_url")
            part = {"type": "image_url", "image_url": {"url": url}}
            chat = {"model": "scripted", "messages": [{"role": "user", "content": [part]}]}
            refused(stage, "/chat/completions", chat, "messages[0].content[0].image_url")
        assert stage.requests == []


def test_names_written_with_escapes_are_read_as_well(tmp_path: Path) -> None:
    body = (
        b'{"model": "scripted", "messages": [{"role": "user", "content": '
        b'[{"type": "image\\u005furl", "image\\u005furl": "file:///etc/passwd"}]}]}'
    )
    with served(tmp_path, [], over_http=True) as stage:
        headers = {"content-type": "application/json"}
        answer = stage.request("POST", "/chat/completions", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_url")


@pytest.mark.parametrize("url", PASSED)
def test_public_urls_and_data_reach_the_model_as_they_are(tmp_path: Path, url: str) -> None:
    with served(tmp_path, ["A cat."], over_http=True) as stage:
        stage.client().responses.create(input=[message(image(url))])
        [asked] = stage.bodies
    assert asked["messages"][-1]["content"][-1]["image_url"]["url"] == url


def test_what_was_stored_while_it_was_allowed_is_checked_again(tmp_path: Path) -> None:
    allowed: Any = {"allow": ["pictures.example"]}
    picture = message(image("http://pictures.example/a.png"))
    with served(tmp_path, ["A cat."], over_http=True, outbound=allowed) as stage:
        first = stage.client().responses.create(input=[picture])
        talk = stage.request("POST", "/conversations", json={"items": [picture]}).json()
    with served(tmp_path, [], over_http=True, outbound={"model_urls": "none"}) as stage:
        refused(stage, "/responses", {"input": "And?", "previous_response_id": first.id}, "previous_response_id")
        refused(stage, "/responses", {"input": "And?", "conversation": talk["id"]}, "conversation")


def test_so_many_urls_and_no_more_are_looked_up(tmp_path: Path) -> None:
    with served(tmp_path, [], over_http=True) as stage:
        many = [image(f"http://93.184.216.34/{number}.png") for number in range(201)]
        answer = stage.request("POST", "/responses", json={"input": [message(*many)]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_urls")


async def test_an_operator_can_allow_more_or_less() -> None:
    for settings, url, passes in (
        ({"model_urls": "any"}, "http://10.0.0.1/a.png", True),
        ({"model_urls": "any"}, "file:///etc/passwd", False),
        ({"model_urls": "none"}, "http://93.184.216.34/a.png", False),
        ({"allow": ["10.0.0.0/8"]}, "http://10.0.0.1/a.png", True),
        ({"allow": ["pictures.example"]}, "http://pictures.example/a.png", True),
    ):
        client = Outbound(OutboundConfig.model_validate(settings))
        try:
            await client.check(url)
            assert passes
        except OutboundError:
            assert not passes
        await client.close()


async def test_names_behind_a_proxy_are_not_resolved_and_what_is_near_is_refused_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return []

    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    client = Outbound(resolve=resolve)
    await client.check("https://pictures.example/a.png")
    assert asked == []
    for url in (*HOSTILE, "https://intranet/a.png", "https://wiki.internal/a.png", "https://inside.example/a.png"):
        with pytest.raises(OutboundError):
            await client.check(url)
    assert asked == ["inside.example"]
    await client.close()


async def test_a_name_is_judged_by_all_its_addresses() -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return ["93.184.216.34", "169.254.169.254"]

    client = Outbound(resolve=resolve)
    with pytest.raises(OutboundError, match="it is not public"):
        await client.check("https://pictures.example/a.png")
    await client.close()
