"""Model servers behind a proxy: the same holds as for those that are asked directly."""

import asyncio

import pytest
from tests.backends.conftest import ANSWER, Connect, ModelServer, Notes, a_request, reply, silence

from antwort.backends.errors import BUSY, UNREACHABLE
from antwort.errors import ServiceUnavailableError

BEHIND = "http://models.internal/v1"


@pytest.fixture(autouse=True)
def proxy(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a proxy for everything: here, the model server itself, which answers whatever host it is asked for."""
    monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1"))
    monkeypatch.setenv("no_proxy", "")


async def test_a_proxy_is_taken_from_the_environment(server: ModelServer, connect: Connect, notes: Notes) -> None:
    server.scripts.append(reply(ANSWER))
    await connect(url=BEHIND).run(a_request(), notes)
    assert server.exchanges[0].path == f"{BEHIND}/chat/completions"


async def test_a_request_waits_for_a_connection_for_a_while_only(
    server: ModelServer, connect: Connect, notes: Notes
) -> None:
    asked = asyncio.Event()
    server.scripts.append(silence(asked))
    backend = connect(url=BEHIND, max_connections=1, connection_wait=0.05)
    first = asyncio.create_task(backend.run(a_request(), Notes()))
    await asked.wait()
    with pytest.raises(ServiceUnavailableError) as caught:
        await backend.run(a_request(), notes)
    assert caught.value.code == BUSY
    assert (backend.transport.in_use, backend.transport.waiting) == (1, 0)
    first.cancel()
    await asyncio.wait([first])
    assert backend.transport.in_use == 0


async def test_every_answer_gives_its_connection_back(server: ModelServer, connect: Connect, notes: Notes) -> None:
    backend = connect(url=BEHIND, max_connections=1, connection_wait=0.05)
    for _ in range(3):
        server.scripts.append(reply(ANSWER))
        await backend.run(a_request(), notes)
    assert backend.transport.in_use == 0


async def test_a_proxy_that_is_away_keeps_no_connection(
    connect: Connect, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    backend = connect(url=BEHIND, max_connections=1, connection_wait=0.05)
    for _ in range(2):
        with pytest.raises(ServiceUnavailableError) as caught:
            await backend.run(a_request(), notes)
        assert caught.value.code == UNREACHABLE
    assert backend.transport.in_use == 0
