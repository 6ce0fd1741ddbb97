"""The credentials of a model server in what it says went wrong."""

import json
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from tests.backends.conftest import Connect, ModelServer, Notes, a_request, event, reply, stream

from antwort.backends.errors import reply_error
from antwort.backends.http.transport import SentSecrets, sent_secrets
from antwort.errors import APIError, BadGatewayError, BadRequestError

KEY = 'Zq9-"key"/of+77'
PLAIN = urlsplit("http://localhost/v1")


def masked(text: str, *secrets: str) -> str:
    error = BadRequestError(text)
    SentSecrets(secrets or [KEY]).mask(error)
    assert str(error) == error.message
    return error.message


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"bad key {KEY}!", "bad key ***!"),
        (f"{{'Authorization': 'Bearer {KEY}'}}", "{'Authorization': 'Bearer ***'}"),
        (json.dumps({"x": KEY}), '{"x": "***"}'),
        (f"/v1?key={quote(KEY, safe='')}&n=1", "/v1?key=***&n=1"),
        (f"wrapped {KEY[:5]} {KEY[5:]}", "wrapped ***"),
        (f"cut {KEY[:10]}… (check its url)", "cut ***… (check its url)"),
        (f"cut {KEY[:3]}…", f"cut {KEY[:3]}…"),
        ("nothing … of it", "nothing … of it"),
    ],
)
def test_a_secret_is_masked_however_it_is_written(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_the_longest_of_several_secrets_is_masked_and_short_ones_are_words() -> None:
    assert masked("secret-one secret-one-two none", "secret-one", "secret-one-two", "none", "") == "*** *** none"


def test_blanks_are_no_secret_and_none_around_one_is_part_of_it() -> None:
    assert masked("a b", " " * 10) == "a b"
    assert masked("the secret-one", "  secret-one ") == "the ***"


def test_code_and_param_of_a_server_are_masked_and_our_own_codes_are_not() -> None:
    refused = BadRequestError("no", param=KEY, code=f"bad-{KEY}")
    SentSecrets([KEY]).mask(refused)
    assert (refused.param, refused.code) == ("***", "bad-***")
    failed = BadGatewayError("no", code="backend_error")
    SentSecrets(["backend"]).mask(failed)
    assert failed.code == "backend_error"


def test_what_is_secret_is_found_in_headers_and_url() -> None:
    headers = {
        "user-agent": "antwort/1",
        "authorization": "Bearer of-the-header",
        "x-api-key": "of-another-header",
        "x-team": "no-secret",
    }
    parts = urlsplit("http://user:pass%20word@localhost/v1?api_key=of-the-query&version=no-secret")
    found = sent_secrets("local", headers, parts)
    for text in ("of-the-header", "of-another-header", "pass word", "pass%20word", "of-the-query"):
        assert found.are_in(text), text
    for text in ("no-secret", "antwort/1", "Bearer token"):
        assert not found.are_in(text), text
    assert not sent_secrets("local", {}, PLAIN).are_in("anything")


def test_a_name_that_is_given_as_a_key_is_none() -> None:
    assert not sent_secrets("ollama", {"authorization": "Bearer ollama"}, PLAIN).are_in("The backend 'ollama' failed")


def test_half_a_secret_at_the_end_of_a_long_report_is_masked() -> None:
    error = reply_error("local", "m", 500, {}, b"x" * 490 + KEY.encode())
    SentSecrets([KEY]).mask(error)
    assert error.message.endswith("xx***…")


@pytest.mark.parametrize(
    "script",
    [
        reply({"error": {"message": f"headers: {{'Authorization': 'Bearer {KEY}'}}"}}, 500),
        reply({"error": {"message": "no", "param": KEY, "code": KEY}}, 400),
        reply(f"key {KEY}".encode(), 503),
        reply({"error": {"message": KEY}}),
        reply(f"<title>{KEY}</title>".encode()),
        stream(event({"error": {"message": KEY}})),
        stream(f"data: {KEY}\n\n".encode()),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_key_that_a_server_repeats_is_in_no_error(
    server: ModelServer, connect: Connect, notes: Notes, script: Any, streamed: bool
) -> None:
    server.scripts.append(script)
    with pytest.raises(APIError) as caught:
        await connect(api_key=KEY, retries=0).run(a_request(stream=streamed), notes)
    assert "***" in str(caught.value.envelope())
    assert "Zq9" not in str(caught.value.envelope())


async def test_nor_is_it_in_what_comes_of_a_list_of_models(server: ModelServer, connect: Connect) -> None:
    server.scripts.append(reply(f"no list for {KEY}".encode(), 404))
    with pytest.raises(BadGatewayError, match=r"no list for \*\*\*"):
        await connect(api_key=KEY).models()
