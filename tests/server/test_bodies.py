"""Reading bodies, and refusing what does not claim to be JSON."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from antwort.errors import UnsupportedMediaTypeError
from antwort.server.bodies import read_body, require_json


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
