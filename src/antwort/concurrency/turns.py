"""Taking turns: a loop over what strangers give lets others run, however quickly it goes on."""

import asyncio
import time

SLICE = 0.005
"""Seconds that a loop may go on before somebody else gets to run."""


class Turns:
    """Tells a loop on the event loop when it has had its turn."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends = time.monotonic() + SLICE

    async def give(self) -> None:
        """Let others run, if it is their turn; call it once for each thing that comes."""
        if time.monotonic() > self._ends:
            await asyncio.sleep(0)
            self._ends = time.monotonic() + SLICE
