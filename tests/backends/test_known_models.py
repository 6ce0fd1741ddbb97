"""Lists of models, and what they say about context windows."""

import asyncio

import pytest
from tests.backends.conftest import Connect, ModelServer, reply

from antwort.backends import ModelInfo, build_router
from antwort.backends.models import REFRESH, RETRY, KnownModels, read_models
from antwort.config import Config
from antwort.errors import ServiceUnavailableError
from antwort.types import JSON


@pytest.mark.parametrize(
    ("entry", "window"),
    [
        ({"max_model_len": 4096}, 4096),
        ({"meta": {"n_ctx": 4096, "n_ctx_train": 131072}}, 4096),
        ({"meta": {"n_ctx_train": 131072}}, 131072),
        ({"context_length": 4096}, 4096),
        ({"context_window": 4096}, 4096),
        ({"max_context_length": 131072, "loaded_context_length": 4096}, 4096),
        ({"max_context_length": 4096}, 4096),
        ({"max_input_tokens": 4096}, 4096),
        ({"model_info": {"max_input_tokens": 4096, "max_tokens": 100}}, 4096),
        ({"model_info": {"max_tokens": 4096}}, 4096),
        ({"model_info": {"max_input_tokens": None}}, None),
        ({"max_model_len": "many", "meta": None}, None),
        ({"max_model_len": 0}, None),
        ({}, None),
    ],
)
def test_lists_tell_windows_in_many_ways(entry: JSON, window: int | None) -> None:
    assert [info.context_window for info in read_models({"data": [{"id": "m", **entry}]}, "local")] == [window]


async def test_the_configured_window_counts_and_nobody_is_asked(server: ModelServer, connect: Connect) -> None:
    assert await connect(context_window=8192).context_window("m") == 8192
    assert server.exchanges == []


async def test_windows_come_from_one_list_however_many_ask(server: ModelServer, connect: Connect) -> None:
    models = [{"id": "big", "max_model_len": 8192}, {"id": "small", "max_model_len": 1024}, {"id": "odd"}]
    server.scripts.append(reply({"data": models}))
    backend = connect()
    names = ("big", "small", "odd", "unknown")
    found = await asyncio.gather(*(backend.context_window(name) for name in names))
    assert found == [8192, 1024, None, None]
    assert len(server.exchanges) == 1


async def test_a_list_that_was_fetched_anyway_is_enough(server: ModelServer, connect: Connect) -> None:
    server.scripts.append(reply({"data": [{"id": "m", "max_model_len": 8192}]}))
    backend = connect()
    await backend.models()
    assert await backend.context_window("m") == 8192
    assert len(server.exchanges) == 1


async def test_a_server_with_one_model_takes_any_name_for_it(server: ModelServer, connect: Connect) -> None:
    server.scripts.append(reply({"data": [{"id": "/models/a.gguf", "meta": {"n_ctx": 4096}}]}))
    assert await connect().context_window("whatever") == 4096


async def test_a_server_that_gives_no_list_has_no_known_window(server: ModelServer, connect: Connect) -> None:
    server.scripts.append(reply({"error": "no"}, 500))
    backend = connect()
    assert [await backend.context_window("m") for _ in range(2)] == [None, None]
    assert len(server.exchanges) == 1


async def test_a_router_finds_the_window_of_an_alias_behind_all_wrappers(server: ModelServer) -> None:
    models = [{"id": "llama", "max_model_len": 4096}, {"id": "other", "max_model_len": 1}]
    server.scripts.append(reply({"data": models}))
    entry = {"url": server.url, "models": ["llama"], "aliases": {"fast": "llama"}}
    router = build_router(Config.model_validate({"backends": {"main": entry}}))
    assert await router.context_window("fast") == 4096
    assert await router.context_window("main/llama") == 4096
    await router.close()


async def test_a_list_is_fetched_again_while_the_one_before_is_in_use() -> None:
    now = 100.0
    fetched = asyncio.Event()
    windows = [1024, 2048]

    async def fetch() -> list[ModelInfo]:
        fetched.set()
        return [ModelInfo("m", "them", context_window=windows.pop(0))]

    listing = KnownModels("local", fetch, lambda: now)
    await listing.update()
    assert listing.context_window("m") == 1024
    now += REFRESH
    fetched.clear()
    await listing.update()
    assert listing.context_window("m") == 1024
    await fetched.wait()
    assert listing.context_window("m") == 2048


async def test_what_was_known_stays_when_a_list_fails() -> None:
    now = 100.0
    failing = False
    failed = asyncio.Event()

    async def fetch() -> list[ModelInfo]:
        if failing:
            failed.set()
            raise ServiceUnavailableError("The backend 'local' is down.")
        return [ModelInfo("m", "them", context_window=1024)]

    listing = KnownModels("local", fetch, lambda: now)
    await listing.update()
    failing = True
    now += REFRESH
    await listing.update()
    await failed.wait()
    assert listing.failed
    assert listing.context_window("m") == 1024
    assert not listing.is_due()
    now += RETRY
    assert listing.is_due()
