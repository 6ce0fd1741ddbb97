"""Servers of the operator that say of their own accord that they have other tools: one stream for each is kept open."""

import asyncio
import logging
from time import monotonic

from antwort.provider import OutboundError
from antwort.providers.mcp.connection import McpConnection
from antwort.providers.mcp.errors import McpError

logger = logging.getLogger(__name__)

_MOST = 8
"""Streams at the same time; further servers are asked again when their lists are too old."""
_LASTS = 600.0
"""Seconds after which a stream is opened anew."""
_STEADY = 60.0
"""Seconds of a stream after which the next one is opened soon."""
_FIRST, _LONGEST = 2.0, 300.0
"""Seconds before the next stream: after the first that has ended, and after many."""
_MOST_DOUBLINGS = 8


class ChangeStreams:
    """The streams of the servers that are listened to, by server and credentials."""

    def __init__(self) -> None:
        self._streams: dict[bytes, tuple[McpConnection, asyncio.Task[None]]] = {}
        """Those that have turned out to have none stay here, and are not asked for one again."""
        self._tasks: set[asyncio.Task[None]] = set()
        """All that have not ended."""
        self._is_closed = False

    def follow(self, key: bytes, connection: McpConnection) -> None:
        """Listen to a server from now on, if it says something, and nobody does so already."""
        if self._is_closed or not connection.announces_changes or key in self._streams or len(self._tasks) >= _MOST:
            return
        task = asyncio.get_running_loop().create_task(_follow(connection))
        self._streams[key] = connection, task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def leave(self, connection: object) -> None:
        """Listen no more to a server by a connection that is closed."""
        for key, (known, task) in [*self._streams.items()]:
            if known is connection:
                task.cancel()
                del self._streams[key]

    async def close(self) -> None:
        """Listen to nobody any more."""
        self._is_closed = True
        self._streams.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _follow(connection: McpConnection) -> None:
    """Listen to a server until it turns out that it has no stream."""
    tries, is_first = 0, True
    while True:
        began = monotonic()
        try:
            if not await connection.hear_changes(_LASTS, again=not is_first):
                return
        except (McpError, OutboundError) as error:
            logger.debug("the stream of an MCP server has ended: %s", error)
        is_first = False
        tries = 0 if monotonic() - began >= _STEADY else min(tries + 1, _MOST_DOUBLINGS)
        await asyncio.sleep(min(_FIRST * 2**tries, _LONGEST))
