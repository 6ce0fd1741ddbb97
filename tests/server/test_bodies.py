"""Reading bodies, and refusing what does not claim to be JSON."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect

from antwort import Antwort
from antwort.config import Config
from antwort.errors import UnsupportedMediaTypeError
from antwort.server.bodies import read_body, require_json
from antwort.testing import ScriptedBackend, running


def receiving(*messages: Any) -> Any:
    left: Iterator[Any] = iter(messages)

    async def receive() -> Any:
        return next(left)

    return receive


def piece(body: bytes, *, more: bool) -> Any:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_is_read_in_one_piece_or_in_many() -> None:
    assert await read_body(receiving(piece(b"abc", more=False))) == b"abc"
    assert await read_body(receiving({"type": "http.request"})) == b""
    pieces = [piece(b"a", more=True), piece(b"", more=True), piece(b"c", more=False)]
    assert await read_body(receiving(*pieces)) == b"ac"


@pytest.mark.parametrize("before", [[], [piece(b"a", more=True)]])
async def test_a_client_that_leaves_has_no_body(before: list[Any]) -> None:
    with pytest.raises(ClientDisconnect):
        await read_body(receiving(*before, {"type": "http.disconnect"}))


@pytest.mark.parametrize("value", [b"application/json", b"Application/JSON; charset=utf-8", b"text/json", b"a/b+json"])
def test_what_claims_to_be_json_is_taken(value: bytes) -> None:
    require_json({"headers": [(b"content-type", value)]})
    require_json({"headers": []})


@pytest.mark.parametrize("value", [b"text/plain", b"application/x-www-form-urlencoded", b"", b"application/jsonp"])
def test_what_claims_to_be_something_else_is_refused(value: bytes) -> None:
    with pytest.raises(UnsupportedMediaTypeError, match="application/json"):
        require_json({"headers": [(b"host", b"x"), (b"content-type", value)]})


@pytest.mark.parametrize("origin", [b"https://evil.example", b"null"])
def test_what_claims_nothing_is_not_taken_from_web_pages(origin: bytes) -> None:
    with pytest.raises(UnsupportedMediaTypeError, match="application/json"):
        require_json({"headers": [(b"origin", origin)]})
    for headers in ([(b"origin", origin)], []):
        require_json({"headers": [*headers, (b"content-type", b"application/json")]})
        require_json({"headers": [(b"content-type", b"application/json"), *headers]})


@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses",
        "/v1/responses/compact",
        "/v1/responses/input_tokens",
        "/v1/conversations",
        "/v1/chat/completions",
        "/v1/embeddings",
    ],
)
def test_a_page_of_another_site_cannot_send_what_browsers_let_it_send_without_asking(tmp_path: Path, path: str) -> None:
    body = b'{"model": "scripted", "input": "Hi", "messages": []}'
    kinds = ["text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data", None]
    model = ScriptedBackend([])
    with running(Antwort(Config(data_dir=tmp_path), backend=model)) as server:
        for kind in kinds:
            headers = {"origin": "https://evil.example"} | ({} if kind is None else {"content-type": kind})
            found = httpx.post(f"{server.url}{path}", content=body, headers=headers)
            assert (found.status_code, found.json()["error"]["code"]) == (415, "unsupported_media_type"), kind
        asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        preflight = httpx.options(
            f"{server.url}{path}", headers={**asked, "access-control-request-headers": "content-type"}
        )
        assert "access-control-allow-origin" not in preflight.headers
    assert model.script.requests == []
