"""Those who wait until something happens: `asyncio.Event` without the 0.9 KiB that each open connection would have."""

import asyncio

from msgspec import Struct


class Waiters(Struct, eq=False):
    """Tasks that wait for the same thing. Whoever waits looks again afterwards whether it is there."""

    _futures: tuple[asyncio.Future[None], ...] = ()

    def join(self) -> asyncio.Future[None]:
        """Return what is done with the next `wake`; no coroutine, as one would cost as much again."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures = (*(other for other in self._futures if not other.done()), future)
        return future

    def wake(self) -> None:
        """Let all go on who wait now."""
        if not self._futures:
            return
        futures, self._futures = self._futures, ()
        for future in futures:
            if not future.done():
                future.set_result(None)
