"""Ends of pipes on both event loops: what comes through, who waits, and that nothing of others is ever closed."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from antwort.concurrency.child_processes import ChildProcess
from antwort.concurrency.pipes import reader_of, writer_of

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on a loop of each kind."""

    def run(coro: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(coro)

    return run


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_much_comes_through_and_whoever_writes_waits_for_whoever_reads(run: Run) -> None:
    async def main() -> None:
        inlet, outlet = os.pipe()
        writer = writer_of(outlet)
        for number in range(100):
            writer.write(bytes([number]) * 10_000)
        draining = asyncio.create_task(writer.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        assert 0 < writer.transport.get_write_buffer_size() < 1_000_000
        writer.close()
        reader, end = reader_of(inlet)
        assert await reader.read() == b"".join(bytes([number]) * 10_000 for number in range(100))
        await draining
        await writer.wait_closed()
        assert end.is_closing()
        assert not is_open(inlet)
        assert not is_open(outlet)

    run(main())


def test_whoever_does_not_read_holds_back_whoever_writes(run: Run) -> None:
    async def main() -> None:
        inlet, outlet = os.pipe()
        os.set_blocking(outlet, False)
        reader, end = reader_of(inlet)
        written = 0
        while end.is_reading():
            with contextlib.suppress(BlockingIOError):
                written += os.write(outlet, bytes(10_000))
            await asyncio.sleep(0)
        taken = len(await reader.read(1_000_000))
        assert end.is_reading()
        os.close(outlet)
        assert taken + len(await reader.read()) == written

    run(main())


def test_nothing_is_written_to_whom_nobody_reads(run: Run) -> None:
    async def main() -> None:
        inlet, outlet = os.pipe()
        writer = writer_of(outlet)
        os.close(inlet)
        writer.write(b"hello")
        assert writer.is_closing()
        assert not is_open(outlet)
        with pytest.raises(ConnectionError):
            await writer.drain()
        writer.write(b"again")
        with pytest.raises(ConnectionError):
            await writer.wait_closed()

    run(main())


def test_whoever_stops_to_read_while_much_waits_is_noticed(run: Run) -> None:
    async def main() -> None:
        inlet, outlet = os.pipe()
        writer = writer_of(outlet)
        writer.write(bytes(1_000_000))
        draining = asyncio.create_task(writer.drain())
        await asyncio.sleep(0)
        os.close(inlet)
        with pytest.raises(ConnectionError):
            await draining
        assert not is_open(outlet)

    run(main())


def test_an_end_is_closed_once_however_often_it_is_told(run: Run) -> None:
    """The number is another's by then."""

    async def main() -> None:
        inlet, outlet = os.pipe()
        reader, end = reader_of(inlet)
        writer = writer_of(outlet)
        end.close()
        writer.transport.abort()
        others = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
        assert set(others) == {inlet, outlet}
        for _ in range(3):
            end.close()
            writer.close()
            writer.transport.abort()
            await asyncio.sleep(0)
        assert await reader.read() == b""
        assert all(map(is_open, others))
        for one in others:
            os.close(one)

    run(main())


def test_programs_that_come_and_go_close_no_file_of_another_thread(run: Run) -> None:
    over, opened, stolen = threading.Event(), 0, 0

    def open_files() -> None:
        nonlocal opened, stolen
        while not over.is_set():
            file = os.open("/dev/null", os.O_RDONLY)
            found = os.fstat(file)
            for _ in range(5):
                try:
                    stolen += not os.path.samestat(os.fstat(file), found)
                except OSError:
                    stolen += 1
                    break
            else:
                os.close(file)
            opened += 1

    async def talk() -> None:
        child = await ChildProcess.start(["/bin/cat"])
        child.stdin.write(b"hello")
        child.stdin.close()
        assert await child.stdout.read() == b"hello"
        assert await child.wait() == 0
        child.close()

    async def main() -> None:
        for _ in range(1000 if FULL else 100):
            await asyncio.gather(*(talk() for _ in range(4)))

    thread = threading.Thread(target=open_files)
    thread.start()
    try:
        run(main())
    finally:
        over.set()
        thread.join()
    assert opened > 1000
    assert stolen == 0
