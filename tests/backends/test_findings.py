"""What model servers say about themselves, as operators read it."""

from collections.abc import Callable

import pytest
from tests.backends.conftest import ModelServer, reply

from antwort.backends.findings import Finding, ask, counted_models, with_cure
from antwort.config import BackendConfig

Script = Callable[..., None]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (({"data": [{"id": "small"}]}, 200), Finding("local", "ok", ("small",))),
        (
            ({"data": []}, 200),
            Finding("local", "no_models", problem="The backend 'local' answers, but has no models; load one there."),
        ),
        (
            ({"error": {"message": "Incorrect key sk-word"}}, 401),
            Finding(
                "local",
                "unauthorized",
                problem="The backend 'local' does not let this server in (401); check its api_key.",
            ),
        ),
        (
            ({"error": "boom"}, 500),
            Finding("local", "failing", problem="The backend 'local' failed: boom"),
        ),
    ],
)
async def test_an_answer_is_told_in_one_line(
    server: ModelServer, answer: tuple[dict[str, object], int], expected: Finding
) -> None:
    server.scripts.append(reply(*answer))
    assert await ask("local", BackendConfig(url=server.url)) == expected


async def test_a_server_is_asked_in_what_it_speaks(server: ModelServer) -> None:
    server.scripts.append(reply({"data": [{"type": "model", "id": "claude"}]}))
    config = BackendConfig.model_validate({"url": server.url.removesuffix("/v1"), "api": "anthropic", "api_key": "k"})
    assert await ask("local", config) == Finding("local", "ok", ("claude",))
    [asked] = server.exchanges
    assert (asked.path, asked.headers["x-api-key"]) == ("/v1/models", "k")


async def test_a_server_that_is_away_is_unreachable() -> None:
    found = await ask("local", BackendConfig(url="http://127.0.0.1:1/v1"))
    assert (found.state, found.text) == ("unreachable", "The backend 'local' cannot be reached: connection refused.")


async def test_a_path_that_lacks_its_end_is_told_with_the_right_one(server: ModelServer) -> None:
    config = BackendConfig(url=server.url.removesuffix("/v1").replace("://", "://me:word@"))
    server.scripts += [reply({"error": "no /models here"}, 404), reply({"data": [{"id": "small"}]})]
    found = await with_cure(await ask("local", config), config)
    assert found.state == "wrong_path"
    assert found.text.endswith(f"(404: no /models here); check its url. It answers at {server.url}: use that.")
    assert [exchange.path for exchange in server.exchanges] == ["/models", "/v1/models"]


@pytest.mark.parametrize("path", ["", "/v1"])
async def test_a_path_with_nothing_behind_it_stays_a_wrong_one(server: ModelServer, path: str) -> None:
    config = BackendConfig(url=server.url.removesuffix("/v1") + path)
    server.scripts += [reply({"error": "no such page"}, 404)] * 2
    found = await with_cure(await ask("local", config), config)
    assert found.text.endswith("check its url.")


def test_many_models_are_counted_and_the_first_named() -> None:
    assert counted_models(()) == "no models"
    assert counted_models(("a",)) == "1 model: a"
    assert counted_models(tuple("abcdefg")) == "7 models: a, b, c, d, e and 2 more"
