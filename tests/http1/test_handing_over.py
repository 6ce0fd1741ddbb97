"""What arrives is handed over at once, without a change of tasks; what is out of the ordinary is left to the reader."""

import asyncio
import contextvars
import gzip
import weakref
from collections.abc import Awaitable, Callable

import pytest
from tests.http1.test_client import REQUEST, Server, one_request, serving

from antwort.http1.client import AT_ONCE, ClosedError, Http1Client, Http1Connection

GUARD = 30
PLENTY = 1024**2
Handler = Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_WHO = contextvars.ContextVar("who", default="nobody")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Pieces:
    """A server that sends a piece when it is told to, and a reader that tells it after each."""

    def __init__(self, *pieces: bytes, head: bytes = b"", last: bytes = chunk(b"")) -> None:
        self._pieces = [*pieces, last]
        self._head = b"HTTP/1.1 200 OK\r\n%btransfer-encoding: chunked\r\n\r\n" % head
        self._next = asyncio.Event()
        self.taken: list[bytes] = []
        self.tasks: set[object] = set()
        self.context = ""

    async def answer(self, state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await one_request(state, reader)
        writer.write(self._head)
        for piece in self._pieces:
            await self._next.wait()
            self._next.clear()
            writer.write(piece)
            await writer.drain()
        await reader.read()

    def ask(self) -> None:
        self._next.set()

    def take(self, data: bytes) -> bool:
        self.taken.append(data)
        self.tasks.add(asyncio.current_task())
        self.context = _WHO.get()
        self.ask()
        return data != b"enough"


async def begun(client: Http1Client) -> Http1Connection:
    return await client.exchange(REQUEST, connect_timeout=60, silence=GUARD)


async def test_pieces_are_taken_by_the_event_loop_itself_in_the_context_of_whoever_waits() -> None:
    server = Pieces(chunk(b"one"), chunk(b"two"), b"3\r\nth", b"r\r\n", chunk(b"enough"), chunk(b"more"))
    async with asyncio.timeout(GUARD), serving(server.answer) as (client, _):
        reply = await begun(client)
        _WHO.set("the reader")
        server.ask()
        # An unfinished chunk is content as far as it is there.
        assert await reply.hand_over(server.take, PLENTY) == len(b"onetwothrenough")
        assert server.taken == [b"one", b"two", b"th", b"r", b"enough"]
        assert server.tasks == {None}, "no task was woken for them"
        assert server.context == "the reader"
        assert await reply.chunk() == b"more", "who wants no more reads as ever"
        server.ask()
        assert await reply.chunk() == b""
        reply.abort()
        assert client.idle == [reply]


@pytest.mark.parametrize(
    ("piece", "room", "head", "read"),
    [
        (chunk(b"x" * (AT_ONCE + 1)), PLENTY, b"", b"x" * (AT_ONCE + 1)),
        (chunk(b"more than there is room for"), 10, b"", b"more than there is room for"),
        (chunk(gzip.compress(b"packed")), PLENTY, b"content-encoding: gzip\r\n", b"packed"),
        (chunk(b""), PLENTY, b"", b""),
    ],
    ids=["much at once", "too much in all", "packed", "the end"],
)
async def test_what_is_out_of_the_ordinary_is_left_to_the_reader(
    piece: bytes, room: int, head: bytes, read: bytes
) -> None:
    server = Pieces(piece, head=head)
    async with asyncio.timeout(GUARD), serving(server.answer) as (client, _):
        reply = await begun(client)
        server.ask()
        assert await reply.hand_over(server.take, room) == 0
        found = b""
        while len(found) < len(read):
            found += await reply.chunk()
        assert (found, server.taken) == (read, [])
        if not read:
            assert await reply.chunk() == b""
        reply.abort()


async def test_what_is_there_already_is_read_before_anything_is_handed_over() -> None:
    server = Pieces(chunk(b"early"))
    async with asyncio.timeout(GUARD), serving(server.answer) as (client, _):
        reply = await begun(client)
        server.ask()
        await reply.news()
        assert await reply.hand_over(server.take, PLENTY) == 0
        assert (await reply.chunk(), server.taken) == (b"early", [])
        reply.abort()


async def test_what_the_taker_raises_is_raised_where_it_is_waited_for() -> None:
    def refuse(data: bytes) -> bool:
        raise LookupError(data.decode())

    server = Pieces(chunk(b"odd"))
    async with asyncio.timeout(GUARD), serving(server.answer) as (client, _):
        reply = await begun(client)
        server.ask()
        with pytest.raises(LookupError, match="odd"):
            await reply.hand_over(refuse, PLENTY)
        reply.abort()
        assert not client.idle, "what was not read to its end is not kept"


async def test_a_server_that_leaves_is_an_error_for_the_reader() -> None:
    server = Pieces(chunk(b"one"), last=b"")

    async def leave(state: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering = asyncio.ensure_future(server.answer(state, reader, writer))
        await server_has_answered.wait()
        answering.cancel()

    server_has_answered = asyncio.Event()

    def take(_: bytes) -> bool:
        server_has_answered.set()
        return True

    async with asyncio.timeout(GUARD), serving(leave) as (client, _):
        reply = await begun(client)
        server.ask()
        assert await reply.hand_over(take, PLENTY) == len(b"one")
        with pytest.raises(ClosedError):
            await reply.chunk()
        reply.abort()


async def test_who_is_cancelled_gets_nothing_more_and_nothing_of_it_is_kept() -> None:
    class Taker:
        def __call__(self, _: bytes) -> bool:
            raise AssertionError("nobody waits for it")

    server = Pieces(chunk(b"late"))
    async with asyncio.timeout(GUARD), serving(server.answer) as (client, _):
        reply = await begun(client)
        taker = Taker()
        kept = weakref.ref(taker)
        waiting = asyncio.ensure_future(reply.hand_over(taker, PLENTY))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        del waiting, taker
        assert kept() is None
        server.ask()
        assert await reply.chunk() == b"late"
        reply.abort()
