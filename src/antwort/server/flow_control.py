"""How fast a connection is read from and written to."""

import asyncio

from typing_extensions import override
from uvicorn.protocols.http.flow_control import FlowControl

from antwort.concurrency.waiters import Waiters


class LeanFlowControl(FlowControl):
    """uvicorn's, without an event for each connection, of which most never have to wait."""

    def __init__(self, transport: asyncio.Transport) -> None:
        # Not that of the base, which makes the event.
        self._transport = transport
        self.read_paused = False
        self.write_paused = False
        self._waiters = Waiters()

    @override
    async def drain(self) -> None:
        while self.write_paused:
            await self._waiters.join()

    @override
    def pause_writing(self) -> None:
        self.write_paused = True

    @override
    def resume_writing(self) -> None:
        self.write_paused = False
        self._waiters.wake()
