"""`/v1/responses/compact` and `/v1/responses/input_tokens` as endpoints; what they do is tested with the engine."""

from pathlib import Path

import pytest
from openai import BadRequestError
from tests.http.sdk import CLIENT_TOOL, served


def test_the_tokens_of_a_request_are_counted_without_asking_the_model(tmp_path: Path) -> None:
    with served(tmp_path, ["One"]) as stage:
        client = stage.client()
        short = client.responses.input_tokens.count(model="scripted", input="Hi")
        assert short.object == "response.input_tokens"
        longer = client.responses.input_tokens.count(
            model="scripted", input="Hi " * 1000, instructions="Be brief", tools=[CLIENT_TOOL]
        )
        assert longer.input_tokens > short.input_tokens + 500
        assert not stage.requests
        response = client.responses.create(model="scripted", input="word " * 500)
        continued = client.responses.input_tokens.count(previous_response_id=response.id, input="Hi")
        assert continued.input_tokens > short.input_tokens + 200
        with pytest.raises(BadRequestError) as error:
            client.responses.input_tokens.count(previous_response_id="resp_unknown", input="Hi")
        assert error.value.code == "previous_response_not_found"


@pytest.mark.parametrize("path", ["/responses", "/responses/compact", "/responses/input_tokens"])
def test_bodies_that_are_no_json_are_refused(tmp_path: Path, path: str) -> None:
    with served(tmp_path, []) as stage:
        form = stage.request("POST", path, data={"input": "Hi"})
        assert (form.status_code, form.json()["error"]["code"]) == (415, "unsupported_media_type")
        for body in (b"{", b"[]", b"\xff", b""):
            wrong = stage.request("POST", path, content=body, headers={"content-type": "application/json"})
            assert (wrong.status_code, wrong.json()["error"]["type"]) == (400, "invalid_request_error"), body
        unknown = stage.request("POST", path, json={"input": "Hi", "inptu": "Hi"})
        assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "inptu")


def test_an_endpoint_that_is_no_response_can_only_be_posted_to(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        for name in ("compact", "input_tokens"):
            assert stage.request("GET", f"/responses/{name}").status_code == 404
            assert stage.request("PUT", f"/responses/{name}").status_code == 405
