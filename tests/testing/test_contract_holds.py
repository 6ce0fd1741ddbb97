"""Providers that are right pass the kit."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, ClassVar

import prometheus_client
from prometheus_client.registry import Collector
from typing_extensions import override

from antwort.functions import FunctionProvider
from antwort.provider import (
    Context,
    Counter,
    Field,
    FunctionSpec,
    NotFoundError,
    Provider,
    Request,
    Route,
    Settings,
    ToolCall,
    ToolResult,
    function,
    route,
)
from antwort.providers.basics import Basics
from antwort.testing import ProviderContract


class NotebookSettings(Settings):
    limit: int = 10


class Notebook(Provider[NotebookSettings]):
    """Notes by tenant: state, a lifespan, every kind of route."""

    written = Counter("written_total", "Notes written.", ["outcome"])

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        self.notes: dict[str, list[str]] = defaultdict(list)
        yield
        self.notes.clear()

    @function
    async def read_notes(self, ctx: Context) -> list[str]:
        """Return the notes written so far."""
        return self.notes[ctx.tenant]

    @function
    def write_note(self, ctx: Context, text: Annotated[str, Field(min_length=1)]) -> str:
        """Write a note."""
        self.notes[ctx.tenant].append(text)
        self.written.labels("ok").inc()
        return f"Written: {text}"

    @function(agents=["librarian"])
    async def forget_notes(self, ctx: Context) -> None:
        """Forget all notes."""
        self.notes[ctx.tenant].clear()

    @route("GET", "/v1/notes")
    async def all(self, ctx: Context) -> list[str]:
        """List the notes."""
        return self.notes[ctx.tenant]

    @route("GET", "/v1/notes/{index:int}")
    async def one(self, ctx: Context, index: int) -> str:
        """Read a note."""
        raise NotFoundError(f"There is no note {index}.")

    @route("DELETE", "/v1/notes/{name}")
    async def remove(self, name: str, request: Request) -> None:
        """Remove a note."""


class Manual:
    """A provider written by hand, which executes its functions itself."""

    def __init__(self) -> None:
        self.calls = prometheus_client.Counter("antwort_manual_calls", "Calls.", registry=None)

    @property
    def name(self) -> str:
        return "manual"

    def tools(self) -> Sequence[FunctionSpec]:
        return [FunctionSpec("shout", "Say a text loudly.", {"text": {"type": "string"}})]

    def can_execute(self, name: str) -> bool:
        return name == "shout"

    async def execute(self, ctx: Context, call: ToolCall) -> ToolResult:
        self.calls.inc()
        return ToolResult.of(call.arguments["text"].upper())

    def routes(self) -> Sequence[Route]:
        return ()

    def collectors(self) -> Sequence[Collector]:
        return [self.calls]

    async def close(self) -> None:
        """Nothing to give back."""


class TestNotebook(ProviderContract):
    provider = Notebook
    settings: ClassVar = {"limit": 3}
    calls: ClassVar = {"write_note": {"text": "remember {canary}"}}


class TestManual(ProviderContract):
    calls: ClassVar = {"shout": {"text": "{canary}"}}

    @override
    def make(self) -> FunctionProvider:
        return Manual()


class TestBasics(ProviderContract):
    provider = Basics
    calls: ClassVar = {"calculate": {"expression": "12 * 7"}}
