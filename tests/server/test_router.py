"""Which handlers the API takes."""

import pytest

from antwort.errors import DefinitionError
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
