"""Short letters between the workers of a database, by LISTEN and NOTIFY.

They make quick what would come out anyway: one that is lost costs a moment, so nothing waits for them, and who cannot
send or hear them goes on without.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import psycopg
from psycopg import AsyncConnection

from antwort.concurrency.backoff import Backoff
from antwort.concurrency.contained_tasks import end_tasks
from antwort.storage.base import StoreUnavailableError
from antwort.storage.postgres.connection import PostgresAddress

logger = logging.getLogger(__name__)

_CHANNEL = "antwort"
_LARGEST = 7_000
"""Bytes of what is sent at once; the server takes 8,000."""
_MOST = 10_000
"""Letters that wait to be sent; more are thrown away."""
_QUIET = 15.0
"""Seconds without a letter after which the server is asked for a sign of life."""
_ANSWER = 5.0
"""Seconds that it has for that."""
_ATTEMPTS = Backoff(first=0.5, longest=5.0, random_share=0.5)
_LONGEST = 1_000
"""Characters of a letter. Longer ones are not sent."""
_COMPLAINTS = 60.0
"""Seconds between two lines in the log about letters that cannot be read."""
_CLOSE_TIMEOUT = 2.0

Send = Callable[[str, str], Awaitable[None]]
"""Sends a text on a channel."""


class PostgresLetters:
    """Letters to all other workers of the database, and from them."""

    def __init__(self, address: PostgresAddress, send: Send) -> None:
        self._address = address
        self._send = send
        self._self = secrets.token_hex(6)
        self._listeners: dict[str, Callable[[str], None]] = {}
        self._waiting: dict[tuple[str, str], None] = {}
        """Letters to be sent, each once, in their order."""
        self._something = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._complained: float | None = None

    def hear(self, kind: str, listener: Callable[[str], None]) -> None:
        """Have letters of a kind read by somebody."""
        self._listeners[kind] = listener

    def tell(self, kind: str, text: str) -> None:
        """Send a letter to all others."""
        if self._tasks and len(self._waiting) < _MOST and len(text) <= _LONGEST:
            self._waiting[kind, text] = None
            self._something.set()

    def open(self) -> None:
        """Begin to send and to hear, on the running loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._hear(), name="letters of other workers"),
            loop.create_task(self._post(), name="letters to other workers"),
        ]

    async def close(self) -> None:
        """Stop; letters that wait are thrown away."""
        tasks, self._tasks = self._tasks, []
        for name in await end_tasks(tasks, _CLOSE_TIMEOUT):
            logger.warning("%s do not end; they are left behind", name)

    async def _post(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            while self._waiting:
                letters = ", ".join(self._next())
                try:
                    await self._send(_CHANNEL, f'["{self._self}", [{letters}]]')
                except StoreUnavailableError as error:
                    logger.info("letters to other workers are not sent: %s", error.message)
                except Exception:  # the others come to know it later
                    logger.exception("letters to other workers could not be sent")

    def _next(self) -> Iterator[str]:
        """Give letters that are to be sent together, as they are sent: signs in them may take more room there."""
        size = len(self._self)
        for number, letter in enumerate(list(self._waiting)):
            written = json.dumps(letter, ensure_ascii=False)
            size += len(written.encode(errors="replace")) + 2
            if number and size > _LARGEST:
                return
            del self._waiting[letter]
            yield written

    async def _hear(self) -> None:
        tries = 0
        while True:
            try:
                connection = await AsyncConnection.connect(
                    **{"application_name": "antwort", "connect_timeout": 5, **self._address.options},
                    autocommit=True,
                )
                async with connection:
                    async with asyncio.timeout(_ANSWER):
                        await connection.execute(f"LISTEN {_CHANNEL}")
                    tries = 0
                    await self._read(connection)
            except (psycopg.Error, OSError, TimeoutError) as error:
                logger.info("letters of other workers are not heard now: %s", type(error).__name__)
            await asyncio.sleep(_ATTEMPTS.pause(tries))
            tries += 1

    async def _read(self, connection: AsyncConnection) -> None:
        """Read letters until the connection is lost."""
        while True:
            async for notice in connection.notifies(timeout=_QUIET):
                self._take(notice.payload)
            async with asyncio.timeout(_ANSWER):
                await connection.execute("SELECT 1")

    def _take(self, payload: str) -> None:
        try:
            sender, letters = json.loads(payload)
            if sender == self._self:
                return
            for kind, text in letters:
                if isinstance(text, str) and kind in self._listeners:
                    self._listeners[kind](text)
        except (ValueError, TypeError, RecursionError, msgspec.DecodeError):
            self._complain()
        except Exception:  # whoever reads it must not be the end of all letters
            logger.exception("a letter of another worker was not understood")

    def _complain(self) -> None:
        """Log that a letter cannot be read, once in a while: whoever may connect to the database can send some."""
        now = time.monotonic()
        if self._complained is None or now - self._complained >= _COMPLAINTS:
            self._complained = now
            logger.warning("a letter cannot be read: is another version at work on the database, or somebody else?")
