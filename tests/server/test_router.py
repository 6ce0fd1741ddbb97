"""Which handlers the API takes."""

import pytest
from starlette.types import Message

from antwort.errors import DefinitionError, NotFoundError
from antwort.functions.registry import FunctionRegistry
from antwort.server.router import Router
from antwort.web.routes import Route


async def test_a_handler_of_the_api_that_would_hold_up_the_event_loop_is_refused() -> None:
    def plain() -> str:
        return "hello"

    async def patient() -> str:
        return "hello"

    providers = FunctionRegistry().http_handler()
    assert Router([Route("GET", "/v1/hello", patient)], providers).pattern("GET", "/v1/hello") == "/v1/hello"
    with pytest.raises(
        DefinitionError, match="route GET /v1/hello: a handler of the API must be written as `async def`"
    ):
        Router([Route("GET", "/v1/hello", plain)], providers)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/hello", "; it is /v1/hello: end the base URL in /v1."),
        ("/v1/v1/hello", "; it is /v1/hello: leave one /v1 out of the base URL."),
        ("/v1/hello/", "; it is /v1/hello."),
        ("/v1/helo", "; did you mean '/v1/hello'?"),
        ("/v1/nothing", ". GET /openapi.json lists every endpoint."),
    ],
)
async def test_a_path_that_is_nearly_right_is_told_the_right_one(path: str, told: str) -> None:
    async def hello() -> str:
        return "hello"

    router = Router([Route("GET", "/v1/hello", hello)], FunctionRegistry().http_handler())
    with pytest.raises(NotFoundError) as caught:
        await router(
            {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}, _receive, _send
        )
    assert caught.value.message == f"There is no {path} here{told}"


async def _receive() -> Message:
    return {"type": "http.request"}


async def _send(message: Message) -> None:
    raise AssertionError(f"nothing is sent, but was {message}")
