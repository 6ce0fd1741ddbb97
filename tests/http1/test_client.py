"""The small HTTP client of the hot path, against real sockets."""

import asyncio
import contextlib
import gc
import gzip
import random
import socket
import ssl
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from tests.support.certificates import certificates

from antwort.http1.client import (
    HIGH_WATER,
    ClosedError,
    ConnectTimeoutError,
    Http1Client,
    Http1Connection,
    ProtocolError,
)
from antwort.http1.shared_bytes import MOST_FILES, MemoryFiles, SharedBytes

REQUEST = b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{}"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    def __init__(self) -> None:
        self.connections = 0
        self.requests = 0


@contextlib.asynccontextmanager
async def serving(
    handler: Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], *, limit: int = 10
) -> AsyncIterator[tuple[Http1Client, Server]]:
    state = Server()

    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        state.connections += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await handler(state, reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    client = Http1Client("127.0.0.1", server.sockets[0].getsockname()[1], tls=False, limit=limit)
    try:
        yield client, state
    finally:
        await client.close()
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def one_request(state: Server, reader: asyncio.StreamReader) -> None:
    await reader.readexactly(len(REQUEST))
    state.requests += 1


async def read_all(reply: Http1Connection) -> bytes:
    body = bytearray()
    while part := await reply.chunk():
        body += part
    reply.abort()
    return bytes(body)


async def exchange(client: Http1Client, *, silence: float = 20) -> bytes:
    return await read_all(await client.exchange(REQUEST, connect_timeout=60, silence=silence))


def answering(*answers: bytes) -> Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def handler(state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await one_request(state, reader)
            writer.write(answer)
            await writer.drain()

    return handler


def answering_parts(size: int) -> Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Answer each request of so many bytes."""

    async def handler(_state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readexactly(size)
            writer.write(OK)

    return handler


async def test_a_connection_is_kept_and_used_again() -> None:
    async with serving(answering(OK, OK, OK)) as (client, state):
        assert [await exchange(client) for _ in range(3)] == [b"hello"] * 3
        assert (state.connections, state.requests) == (1, 3)


async def test_a_kept_connection_that_the_server_closed_is_replaced() -> None:
    async with serving(answering(OK)) as (client, state):
        assert await exchange(client) == b"hello"
        assert await exchange(client) == b"hello"
        assert state.connections == 2


@pytest.mark.parametrize(
    "unasked", [b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad", b"HTTP/1.1 2"], ids=["whole", "part"]
)
async def test_what_comes_unasked_on_a_kept_connection_is_no_answer(unasked: bytes) -> None:
    async with serving(answering(OK, OK)) as (client, state):
        connection = await client.exchange(REQUEST, connect_timeout=60, silence=20)
        await read_all(connection)
        connection.data_received(unasked)
        assert await exchange(client) == b"hello"
        assert state.connections == 2


@pytest.mark.parametrize(
    "unasked",
    [b"H", b"HTTP/1.1 200 OK\r\ncontent-le", b'HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"bad":'],
    ids=["letter", "head", "content"],
)
async def test_what_comes_unasked_with_an_answer_belongs_neither_to_it_nor_to_the_next(unasked: bytes) -> None:
    async with serving(answering(OK + unasked, OK)) as (client, state):
        assert await exchange(client) == b"hello"
        assert await exchange(client) == b"hello"
        assert state.connections == 2


async def test_what_comes_before_anything_was_asked_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answering(OK)) as (client, _):
        connect = client._connect

        async def connect_and_hear(seconds: float) -> Http1Connection:
            connection = await connect(seconds)
            connection.data_received(OK)
            return connection

        monkeypatch.setattr(client, "_connect", connect_and_hear)
        with pytest.raises(ProtocolError):
            await exchange(client)


async def test_what_stands_behind_the_content_is_no_header() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/plain\r\n\r\n"
    body = b"5\r\nhello\r\n0\r\ncontent-type: text/html\r\nx-sum: 1\r\n\r\n"
    async with serving(answering(head + body)) as (client, _):
        reply = await client.exchange(REQUEST, connect_timeout=60, silence=20)
        assert await read_all(reply) == b"hello"
        assert reply.headers == {"transfer-encoding": "chunked", "content-type": "text/plain"}


async def test_a_server_that_turns_to_another_protocol_does_not_answer() -> None:
    async with serving(answering(b"HTTP/1.1 101 Now\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")) as (client, _):
        with pytest.raises(ProtocolError):
            await exchange(client)


async def test_a_new_connection_that_is_closed_without_an_answer_is_an_error() -> None:
    async with serving(answering()) as (client, _):
        with pytest.raises(ClosedError):
            await exchange(client)


async def test_an_answer_that_is_cut_off_is_an_error() -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello")) as (client, _):
        reply = await client.exchange(REQUEST, connect_timeout=60, silence=20)
        assert await reply.chunk() == b"hello"
        with pytest.raises(ClosedError):
            await reply.chunk()
        reply.abort()


async def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello")) as (client, _):
        assert await exchange(client) == b"hello"


async def test_an_interim_answer_is_passed_over() -> None:
    async with serving(answering(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)) as (client, _):
        reply = await client.exchange(REQUEST, connect_timeout=60, silence=20)
        assert reply.status == 200
        assert await read_all(reply) == b"hello"


async def test_pieces_that_become_nothing_keep_nobody_waiting() -> None:
    packed = gzip.compress(b"") * 500 + gzip.compress(b"hello")
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    async with serving(answering(head + packed)) as (client, _):
        reply = await client.exchange(REQUEST, connect_timeout=60, silence=20)
        reading, turns = asyncio.ensure_future(read_all(reply)), 0
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
        assert reading.result() == b"hello"
        assert turns >= 500


@pytest.mark.parametrize("packed", [gzip.compress(b"hello"), gzip.compress(b"he") + gzip.compress(b"llo")], ids=len)
async def test_chunks_and_compression_are_undone(packed: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-encoding: gzip\r\n\r\n"
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in packed) + b"0\r\n\r\n"
    async with serving(answering(head + body)) as (client, _):
        assert await exchange(client) == b"hello"


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"])
async def test_what_is_not_http_is_said_to_be_so(answer: bytes) -> None:
    async with serving(answering(answer)) as (client, _):
        with pytest.raises((ProtocolError, ClosedError)):
            await exchange(client)


async def test_silence_is_limited_and_the_limit_can_be_changed() -> None:
    async def handler(state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await one_request(state, reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello")
        await reader.read()

    async with serving(handler) as (client, _):
        reply = await client.exchange(REQUEST, connect_timeout=60, silence=20)
        assert await reply.chunk() == b"hello"
        reply.limit_silence(0.01)
        with pytest.raises(TimeoutError):
            await reply.chunk()
        reply.abort()


async def test_a_server_that_never_answers_times_out() -> None:
    async def handler(state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(handler) as (client, _):
        with pytest.raises(TimeoutError):
            await exchange(client, silence=0.01)


async def test_a_connection_that_does_not_come_about_in_time_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*args: object, **kwargs: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    client = Http1Client("127.0.0.1", 1, tls=False, limit=1)
    with pytest.raises(ConnectTimeoutError):
        await client.exchange(REQUEST, connect_timeout=0.01, silence=20)


async def test_an_abandoned_answer_closes_its_connection() -> None:
    gone = asyncio.Event()

    async def handler(state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await one_request(state, reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        gone.set()

    async with serving(handler) as (client, _):
        reply = await client.exchange(REQUEST, connect_timeout=60, silence=20)
        await reply.chunk()
        reply.abort()
        reply.abort()
        await asyncio.wait_for(gone.wait(), 10)


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("cut_off", [False, True])
def test_a_connection_that_is_closed_is_gone_without_a_collection(
    factory: Callable[[], asyncio.AbstractEventLoop], cut_off: bool
) -> None:
    async def handler(state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await one_request(state, reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello")
        if not cut_off:
            await reader.read()

    async def closed() -> None:
        async with serving(handler) as (client, _):
            reply = await client.exchange(REQUEST, 5, None)
            assert await reply.chunk() == b"hello"
            if cut_off:
                with pytest.raises(ClosedError):
                    await reply.chunk()
            reply.abort()
            alive = weakref.ref(reply)
            del reply
            await asyncio.sleep(0.01)  # the loop tells it that it is closed
            assert alive() is None

    with asyncio.Runner(loop_factory=factory) as runner:
        gc.collect()
        gc.disable()
        try:
            runner.run(closed())
        finally:
            gc.enable()


async def test_a_reader_that_pauses_makes_the_server_pause() -> None:
    sent = 0
    stuck = asyncio.Event()

    async def handler(state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await one_request(state, reader)
        piece = b"x" * 65_536
        total = 400
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (total * len(piece)))
        for _ in range(total):
            writer.write(piece)
            try:
                await asyncio.wait_for(writer.drain(), 0.5)
            except TimeoutError:
                stuck.set()
                await writer.drain()
            sent += 1

    async with serving(handler) as (client, _):
        reply = await client.exchange(REQUEST, connect_timeout=60, silence=20)
        await asyncio.wait_for(stuck.wait(), 20)
        assert sent * 65_536 > HIGH_WATER
        assert sent < 400
        assert len(await read_all(reply)) == 400 * 65_536


async def test_no_more_connections_than_allowed() -> None:
    now = peak = 0

    async def handler(state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now, peak
        while True:
            await one_request(state, reader)
            now += 1
            peak = max(peak, now)
            await asyncio.sleep(0.001)
            now -= 1
            writer.write(OK)

    async with serving(handler, limit=3) as (client, state):
        assert await asyncio.gather(*(exchange(client) for _ in range(12))) == [b"hello"] * 12
        assert peak <= 3
        assert state.connections <= 3


LARGE = 40 * HIGH_WATER


def a_large_request() -> bytes:
    return b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % LARGE + b"0123456789abcdef" * (LARGE // 16)


async def test_a_large_request_arrives_whole_and_its_connection_is_kept() -> None:
    received: list[bytes] = []

    async def handler(_state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            received.append(await reader.readexactly(len(a_large_request())))
            writer.write(OK)

    async with serving(handler) as (client, state):
        for _ in range(2):
            reply = await client.exchange(a_large_request(), connect_timeout=60, silence=30)
            assert await reply.chunk() == b"hello"
            reply.abort()
    assert received == [a_large_request()] * 2
    assert state.connections == 1


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_server_that_leaves_while_a_large_request_is_sent_is_an_error(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def handler(_state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(10)
        writer.transport.abort()

    async def ask() -> None:
        async with serving(handler) as (client, _):
            for _ in range(20):
                with pytest.raises(ClosedError):
                    await client.exchange(a_large_request(), connect_timeout=60, silence=30)
            assert client.slots.taken == 0

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(ask())


async def test_who_is_cancelled_when_the_answer_comes_too_early_leaves_no_half_request_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def handler(_state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(10)
        writer.write(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n")
        await reader.read()

    async with serving(handler) as (client, _):
        asked = asyncio.ensure_future(client.exchange(a_large_request(), connect_timeout=60, silence=30))
        complete = Http1Connection.on_message_complete

        def complete_and_cancel(self: Http1Connection) -> None:
            complete(self)
            asked.cancel()

        monkeypatch.setattr(Http1Connection, "on_message_complete", complete_and_cancel)
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (client.idle, client.slots.taken) == ([], 0)


@pytest.mark.parametrize("size", [1, LARGE])
async def test_a_request_in_parts_arrives_whole(size: int) -> None:
    parts = [b"POST /x HTTP/1.1\r\nhost: h\r\n", b"content-length: %d\r\n\r\n" % (2 * size), b"a" * size]
    parts += [b"", b"b" * size]
    received: list[bytes] = []

    async def handler(_state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readexactly(sum(map(len, parts))))
        writer.write(OK)

    async with serving(handler) as (client, _):
        reply = await client.exchange([memoryview(part) for part in parts], connect_timeout=60, silence=30)
        assert await reply.chunk() == b"hello"
        reply.abort()
    assert received == [b"".join(parts)]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("size", [1, 300_000, LARGE])
@pytest.mark.parametrize("ahead", [1, 300_000])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_request_whose_end_is_kept_arrives_whole_each_time(
    size: int, ahead: int, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    kept = SharedBytes(random.Random(size).randbytes(size))
    parts = [b"POST /x HTTP/1.1\r\nhost: h\r\n", b"content-length: %d\r\n\r\n" % (ahead + size), b"a" * ahead, kept]
    received: list[bytes] = []

    async def handler(_state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            received.append(await reader.readexactly(sum(map(len, parts))))
            writer.write(OK)

    async def ask() -> None:
        async with serving(handler) as (client, state):
            for _ in range(4):
                reply = await client.exchange(parts, connect_timeout=60, silence=30)
                assert await reply.chunk() == b"hello"
                reply.abort()
            assert state.connections == 1

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(ask())
    assert received == [b"".join(parts)] * 4


async def test_a_request_whose_end_is_kept_is_encrypted_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = certificates(tmp_path, "localhost")
    monkeypatch.setattr(ssl, "create_default_context", lambda: theirs)
    kept, received = SharedBytes(b"secret" * 50_000), []
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            received.append(await reader.readexactly(1 + len(kept)))
            writer.write(OK)
        await reader.read()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        left.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=ours) as server:
        client = Http1Client("localhost", server.sockets[0].getsockname()[1], tls=True, limit=1)
        for _ in range(3):
            assert await read_all(await client.exchange([b"a", kept], connect_timeout=60, silence=30)) == b"hello"
        await client.close()
        await asyncio.wait_for(left.wait(), 30)
    assert received == [b"a" + kept] * 3


async def test_what_is_kept_is_in_a_file_from_its_second_use_on_and_until_it_is_forgotten() -> None:
    kept = SharedBytes(b"x" * 300_000)
    before, held = open_files(), []
    async with serving(answering_parts(len(kept) + 1)) as (client, _):
        for _ in range(3):
            reply = await client.exchange([b"a", kept], connect_timeout=60, silence=30)
            held.append(open_files())
            await read_all(reply)
    assert held[1:] == [held[0] + 1] * 2
    del kept
    await asyncio.sleep(0.05)  # the ends of the connection are closed
    assert open_files() <= before


async def test_what_is_kept_is_in_a_few_files_only_however_much_there_is() -> None:
    many = [SharedBytes(b"%d" % number * 300_000) for number in range(2 * MOST_FILES)]
    files, others = MemoryFiles(), MemoryFiles()
    with socket.socket() as closed:
        before = open_files()

        def send_all(files: MemoryFiles) -> int:
            assert {kept.send(closed.fileno(), after=b"a", most=1, files=files) for kept in many} == {0}
            return open_files() - before

        assert [send_all(files) for _ in range(3)] == [0, MOST_FILES, MOST_FILES]
        assert send_all(others) == 2 * MOST_FILES  # another client has files of its own, and uses those there are
        many.clear()
        assert open_files() == before


async def test_a_server_that_does_not_read_gets_a_kept_end_as_fast_as_it_reads() -> None:
    kept, go_on = SharedBytes(b"0123456789abcdef" * (LARGE // 16)), asyncio.Event()
    received: list[bytes] = []

    async def handler(_state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await go_on.wait()
            received.append(await reader.readexactly(1 + len(kept)))
            writer.write(OK)

    async with serving(handler) as (client, _):
        for _ in range(2):
            go_on.clear()
            asked = asyncio.ensure_future(client.exchange([b"a", kept], connect_timeout=60, silence=30))
            await asyncio.sleep(0.05)
            go_on.set()
            await read_all(await asked)
    assert received == [b"a" + kept] * 2


async def test_a_server_that_leaves_is_an_error_for_a_kept_end_too() -> None:
    kept = SharedBytes(b"x" * 300_000)

    async def handler(state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if state.connections == 1:
            await reader.readexactly(1 + len(kept))
            writer.write(OK)
            await writer.drain()
        await reader.readexactly(10)

    async with serving(handler) as (client, state):
        await read_all(await client.exchange([b"a", kept], connect_timeout=60, silence=30))
        with pytest.raises(ClosedError):
            await client.exchange([b"a", kept], connect_timeout=60, silence=30)
        assert (state.connections, client.slots.taken) == (2, 0)  # a kept connection is replaced once


async def test_a_server_that_answers_before_it_has_read_all_is_heard_and_its_connection_closed() -> None:
    async def handler(_state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1000)
        writer.write(OK)
        await reader.read()  # until the client closes it

    async with serving(handler) as (client, state):
        for _ in range(2):
            reply = await client.exchange(a_large_request(), connect_timeout=60, silence=30)
            assert await reply.chunk() == b"hello"
            reply.abort()
    assert state.connections == 2


async def test_a_server_that_reads_nothing_of_a_large_request_is_silent() -> None:
    async def handler(_state: Server, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with serving(handler) as (client, _):
        with pytest.raises(TimeoutError):
            await client.exchange(a_large_request(), connect_timeout=60, silence=0.2)


async def test_a_server_that_leaves_during_a_large_request_is_an_error() -> None:
    async def handler(_state: Server, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1000)

    async with serving(handler) as (client, _):
        with pytest.raises(ClosedError):
            await client.exchange(a_large_request(), connect_timeout=60, silence=30)


async def test_connections_that_nobody_needs_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antwort.http1.client.MAX_IDLE", 0.05)
    left = []

    async def handler(state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                await one_request(state, reader)
            except asyncio.IncompleteReadError:
                left.append(1)
                raise
            writer.write(OK)

    async def ask(client: Http1Client) -> bytes:
        return await read_all(await client.exchange(REQUEST, 30, None))

    async with serving(handler) as (client, state):
        assert await asyncio.gather(*(ask(client) for _ in range(5))) == [b"hello"] * 5
        end = time.monotonic() + 60
        while (client.idle or len(left) < state.connections) and time.monotonic() < end:
            await asyncio.to_thread(time.sleep, 0.01)
        assert (client.idle, len(left)) == ([], state.connections)
        assert await ask(client) == b"hello"


def socket_of(connection: Http1Connection) -> socket.socket:
    """Return what a connection has from the system."""
    opened: socket.socket = connection.transport.get_extra_info("socket")
    assert opened.fileno() >= 0
    return opened


async def test_a_connection_whose_exchange_ends_after_the_client_was_closed_is_closed() -> None:
    async def handler(state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await one_request(state, reader)
        writer.write(OK)
        await reader.read()

    async with serving(handler) as (client, _):
        reply = await client.exchange(REQUEST, 30, None)
        opened = socket_of(reply)
        await client.close()
        assert await read_all(reply) == b"hello", "what is under way comes to its end"
        await asyncio.sleep(0)
        assert (client.idle, opened.fileno(), client.slots.taken) == ([], -1, 0)


async def test_who_closes_does_not_wait_for_a_server_that_does_not_take_its_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = certificates(tmp_path, "localhost")
    monkeypatch.setattr(ssl, "create_default_context", lambda: theirs)
    answered: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(REQUEST))
        writer.write(OK)
        writer.transport.pause_reading()  # type: ignore[attr-defined] # nobody hears what else is said
        answered.put_nowait(writer)

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=ours) as server:
        client = Http1Client("localhost", server.sockets[0].getsockname()[1], tls=True, limit=1)
        reply = await client.exchange(REQUEST, connect_timeout=30, silence=30)
        opened = socket_of(reply)
        assert await read_all(reply) == b"hello"
        await client.close()
        assert opened.fileno() == -1
        (await answered.get()).transport.abort()


async def test_a_connection_that_cannot_be_watched_over_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    left = asyncio.Event()

    async def handler(_state: Server, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()
        left.set()

    monkeypatch.setattr("antwort.http1.client.KEEP_ALIVE", {"TCP_KEEPIDLE": -1})
    async with serving(handler) as (client, _), asyncio.timeout(30):
        with pytest.raises(OSError, match="Invalid argument"):
            await client.exchange(REQUEST, 30, None)
        await left.wait()
        assert client.slots.taken == 0
