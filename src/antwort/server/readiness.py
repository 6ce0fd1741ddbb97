"""Where in its life the server is."""

import asyncio
import copy
from typing import Literal

from msgspec import Struct
from starlette.types import Receive, Scope, Send

from antwort.concurrency.single_flight import SingleFlight
from antwort.errors import ServiceUnavailableError
from antwort.storage.base import StoreFullError, StoreUnavailableError
from antwort.storage.sql.store import Store
from antwort.web.answers import error_response


class ServerState(Struct):
    """Shared between whoever starts and stops the app and the readiness probe."""

    phase: Literal["starting", "running", "stopping"] = "starting"
    model: str = ""
    """What answers requests, for everybody: names, never addresses."""

    @property
    def ready(self) -> bool:
        """Tell whether requests are taken."""
        return self.phase == "running"


async def refuse_unstarted(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer in place of an app that has not started: not every ASGI server, and no mounted app, is told to start."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1012, "reason": "The server has not started."})
        return
    message = "The app has not started. Serve it with ASGI's lifespan events, or within 'async with app'."
    await error_response(ServiceUnavailableError(message))(scope, receive, send)


LIMIT = 2.0
"""Seconds that the store has to answer."""
WRITE_EVERY = 1.0
"""Seconds between two writes that show that the store can be written."""
_FULL_CURE = (
    "Make room on it, or delete what is not needed, by the API or with 'antwort db prune'; "
    "the server goes on by itself then."
)


class ReadinessCheck:
    """Asks what every request needs: that the server is running, and that its store can be read and written.

    The store is asked once at a time, however many probes there are: they are public, and while it is away each
    question keeps one of its connections busy.
    """

    def __init__(self, state: ServerState, store: Store) -> None:
        self._state = state
        self._store = store
        self._question = SingleFlight(self._ask)
        self._write_due = 0.0
        self._unwritable: StoreUnavailableError | None = None
        """Why the last write failed; None if it did not."""

    async def check(self) -> None:
        """Raise a ServiceUnavailableError that names what is not ready."""
        if not self._state.ready:
            raise ServiceUnavailableError(f"The server is {self._state.phase}.")
        try:
            async with asyncio.timeout(LIMIT):
                await self._question.outcome()
        except StoreFullError as error:
            raise _without_store(f"{error.message} {_FULL_CURE}") from error
        except StoreUnavailableError as error:
            raise _without_store(error.message) from error
        except TimeoutError:
            raise _without_store(f"The database has not answered within {LIMIT:g} seconds.") from None

    async def _ask(self) -> None:
        await self._store.ping()
        now = asyncio.get_running_loop().time()
        if now >= self._write_due:
            self._write_due = now + WRITE_EVERY
            try:
                await self._store.try_write()
            except StoreUnavailableError as error:
                self._unwritable = error
            else:
                self._unwritable = None
        if self._unwritable is not None:
            raise copy.copy(self._unwritable)


def _without_store(why: str) -> ServiceUnavailableError:
    message = f"The server is not ready: its store cannot be used. {why}"
    return ServiceUnavailableError(message, code="store_unavailable")
