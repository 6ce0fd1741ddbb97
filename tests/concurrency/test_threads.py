"""Threads that have nothing to do end, and those that are needed stay."""

import asyncio
import threading
import time

from antwort.concurrency.threads import WorkerThreads

PATIENCE = 60.0


async def until_ended(threads: set[threading.Thread]) -> None:
    """Wait for threads to end, but not for ever."""
    end = time.monotonic() + PATIENCE
    while any(thread.is_alive() for thread in threads):
        assert time.monotonic() < end, "they go on"
        await asyncio.sleep(0.01)


async def test_threads_that_nobody_needs_end_and_come_back() -> None:
    pool = WorkerThreads(8, idle=0.05)
    together = threading.Barrier(8, timeout=PATIENCE)

    def meet() -> threading.Thread:
        together.wait()
        return threading.current_thread()

    for _ in range(2):  # the second time with threads that are made anew
        threads = set(await asyncio.gather(*(pool.run(meet) for _ in range(8))))
        assert len(threads) == 8
        await until_ended(threads)
    pool.close()


async def test_a_thread_that_is_busy_or_was_needed_just_now_stays() -> None:
    pool = WorkerThreads(2, idle=3600.0)
    busy = threading.Event()
    waiting = asyncio.ensure_future(pool.run(lambda: busy.wait(PATIENCE)))
    first = await pool.run(threading.current_thread)
    assert await pool.run(threading.current_thread) is first
    assert first.is_alive()
    busy.set()
    assert await waiting
    pool.close()
    await until_ended({first})
