"""Those who wait until something happens: `asyncio.Event` without the 0.9 KiB that each open connection would have."""

import asyncio


class Waiters:
    """Tasks that wait for the same thing. Whoever waits looks again afterwards whether it is there."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: tuple[asyncio.Future[None], ...] = ()

    def join(self) -> asyncio.Future[None]:
        """Return what is done with the next `wake`; no coroutine, as one would cost as much again."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures = (*(other for other in self._futures if not other.done()), future)
        return future

    def wake(self) -> None:
        """Let all go on who wait now."""
        futures, self._futures = self._futures, ()
        for future in futures:
            if not future.done():
                future.set_result(None)
