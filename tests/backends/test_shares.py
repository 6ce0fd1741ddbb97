"""Connections to a model server, shared by tenants."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from antwort.backends.errors import BUSY
from antwort.backends.http.transport import Reply, Transport
from antwort.concurrency.slots import Queues
from antwort.config import BackendConfig
from antwort.errors import ServiceUnavailableError

PATIENCE = 60.0
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@contextlib.asynccontextmanager
async def holding_server() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Give a server that answers at once, but to requests that are to be held, which wait for an event."""
    let_go = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                if b"hold" in await reader.readexactly(length):
                    await let_go.wait()
                writer.write(ANSWER)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", let_go
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ask(transport: Transport, tenant: str, body: bytes) -> int:
    reply: Reply = await transport.post("/chat/completions", body, tenant=tenant)
    try:
        await reply.read()
        return reply.status
    finally:
        reply.abort()


async def test_a_request_does_not_wait_for_those_of_another_tenant() -> None:
    queue = Queues(several=True).named("backend main")
    async with holding_server() as (url, let_go), asyncio.timeout(PATIENCE):
        transport = Transport("main", BackendConfig(url=url, max_connections=4, connection_wait=PATIENCE), queue)
        attack = [asyncio.create_task(ask(transport, "a", b"hold")) for _ in range(10)]
        while transport.in_use < 3:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        assert (transport.in_use, transport.waiting, queue.waiting) == (3, 7, 7)
        for _ in range(3):
            assert await ask(transport, "b", b"quick") == 200
        assert not any(one.done() for one in attack)
        let_go.set()
        assert await asyncio.gather(*attack) == [200] * 10
        assert (transport.in_use, transport.waiting) == (0, 0)
        await transport.close()


async def test_a_tenant_with_too_many_requests_that_wait_is_told_to_come_again() -> None:
    queue = Queues(several=True, most_waiting=2).named("backend main")
    async with holding_server() as (url, let_go), asyncio.timeout(PATIENCE):
        transport = Transport("main", BackendConfig(url=url, max_connections=2, connection_wait=PATIENCE), queue)
        attack = [asyncio.create_task(ask(transport, "a", b"hold")) for _ in range(3)]
        while transport.waiting < 2:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        with pytest.raises(ServiceUnavailableError, match="queue 'backend main'") as refused:
            await ask(transport, "a", b"hold")
        assert (refused.value.code, refused.value.headers) == (BUSY, {"retry-after": "1"})
        assert await ask(transport, "b", b"quick") == 200
        let_go.set()
        await asyncio.gather(*attack)
        await transport.close()
