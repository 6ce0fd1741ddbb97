"""An app in this process, and what tests ask of its background runs."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from typing_extensions import override

from antwort.app import Antwort
from antwort.concurrency.peers import Peers
from antwort.config import Config
from antwort.context import ANONYMOUS_TENANT, Context
from antwort.engine.plan import Plan, Shown
from antwort.functions import FunctionSpec, Hosted
from antwort.server.http.sse import DONE, frame
from antwort.testing import LintedStream, ScriptedBackend, Turn, lint_response, lint_stream
from antwort.types import JSON
from antwort.wire.requests import decode_create

TENANT = ANONYMOUS_TENANT
SEARCH = Hosted(
    ("web_search",),
    "web_search_call",
    describe=lambda _: {"action": {"type": "search", "query": "it", "queries": ["it"]}},
    phases=("in_progress", "searching"),
)
"""The face of a hosted search."""


class Embedded:
    """A started app with a scripted model."""

    def __init__(self, app: Antwort, model: ScriptedBackend) -> None:
        self.app = app
        self.model = model
        self.runs = app.runs
        self.store = app.engine.store

    async def accept(self, text: str = "Hello?", *, show_calls: bool = False, **options: Any) -> str:
        """Accept a background run; return its id."""
        plan = await self.plan({"input": text, "background": True, **options}, show_calls=show_calls)
        accepted = msgspec.json.decode(await self.runs.accept(plan))
        assert accepted["status"] == "queued"
        return str(accepted["id"])

    async def plan(self, create: JSON, ctx: Context | None = None, *, show_calls: bool = False) -> Plan:
        """Read a request."""
        ctx = ctx or Context(TENANT, scopes=frozenset({"*"}))
        body = msgspec.json.encode(create)
        return await self.app.engine.plan(decode_create(body), ctx, shown=Shown(calls=show_calls))

    async def read(self, response_id: str, *, after: int = -1) -> bytes:
        """Read a run's stream to its end."""
        frames = [frame(e.type, e.data) async for e in self.runs.events(TENANT, response_id, after=after)]
        return b"".join([*frames, DONE])

    async def read_until(self, response_id: str, enough: Callable[[JSON], bool]) -> list[JSON]:
        """Read a run's stream until an event, and leave."""
        seen: list[JSON] = []
        async with contextlib.aclosing(self.runs.events(TENANT, response_id)) as events:
            async for event in events:
                seen.append(msgspec.json.decode(event.data))
                if enough(seen[-1]):
                    return seen
        raise AssertionError(f"the stream ended before that: {[event['type'] for event in seen]}")

    async def result(self, response_id: str, *, cancelled: bool = False) -> tuple[JSON, LintedStream]:
        """Wait for the end of a run; return the response and its stream, both checked, and both telling the same."""
        async with asyncio.timeout(60):
            stream = lint_stream(await self.read(response_id), cancelled=cancelled)
        response = lint_response(await self.retrieve(response_id))
        if cancelled:
            done = [event["item"] for event in stream.events if event["type"] == "response.output_item.done"]
            assert (response["status"], response["output"]) == ("cancelled", done)
        else:
            assert response == stream.response
        return response, stream

    async def at_rest(self) -> None:
        """Wait until no run is under way here, whoever has them now."""
        tasks = list(self.runs._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=60)
        await asyncio.sleep(0)  # whoever waited for them takes note

    async def retrieve(self, response_id: str) -> JSON:
        """Return a response as clients see it."""
        return await self.app.engine.retrieve(TENANT, response_id)

    def asked(self, number: int = -1) -> list[JSON]:
        """Return what the model read in one of its turns."""
        return list(self.model.requests[number].items)


@contextlib.asynccontextmanager
async def embedded(
    folder: Path,
    steps: Iterable[Turn | str],
    functions: Iterable[Callable[..., Any] | FunctionSpec] = (),
    peers: Peers | None = None,
    **config: Any,
) -> AsyncIterator[Embedded]:
    """Start an app on a data folder; the end of the block stops it and leaves its runs where they are."""
    model = ScriptedBackend(steps)
    settings = Config.model_validate({"data_dir": folder, "providers": {}, **config})
    async with asyncio.timeout(120), Antwort(settings, functions=functions, backend=model, peers=peers) as app:
        yield Embedded(app, model)
    assert app.runs.idle
    assert model.script.failures == []


def events_of(frames: bytes) -> list[JSON]:
    """Read the events in whole frames."""
    lines = [line for line in frames.split(b"\n") if line.startswith(b"data: {")]
    return [msgspec.json.decode(line.removeprefix(b"data: ")) for line in lines]


def text_of(item: JSON) -> str:
    """Return the text of a message or of a thought."""
    return "".join(part["text"] for part in item["content"])


def is_delta(event: JSON) -> bool:
    """Tell whether an event is a piece of text or of a thought."""
    return str(event["type"]).endswith(".delta")


@contextlib.contextmanager
def logged(text: str) -> Iterator[asyncio.Event]:
    """Give an event that is set when somebody who runs things has logged a text."""
    found, loop = asyncio.Event(), asyncio.get_running_loop()

    class Listener(logging.Handler):
        @override
        def emit(self, record: logging.LogRecord) -> None:
            if text in record.getMessage():
                loop.call_soon_threadsafe(found.set)

    listener, logger = Listener(), logging.getLogger("antwort.runs")
    logger.addHandler(listener)
    try:
        yield found
    finally:
        logger.removeHandler(listener)
