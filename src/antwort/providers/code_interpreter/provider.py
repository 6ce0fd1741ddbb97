"""The provider: Python code, in a session for each conversation or container."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from typing_extensions import override

from antwort.provider import (
    Context,
    Counter,
    Field,
    FolderInUse,
    FunctionError,
    FunctionUnavailableError,
    Gauge,
    Histogram,
    NotFoundError,
    Provider,
    SandboxLimits,
    SandboxPython,
    ToolResult,
    as_function_errors,
    function,
)
from antwort.providers.code_interpreter.containers import About, Container, Containers
from antwort.providers.code_interpreter.files import File
from antwort.providers.code_interpreter.given_files import GivenFiles
from antwort.providers.code_interpreter.routes import READ, WRITE, ContainerRoutes
from antwort.providers.code_interpreter.session import CodeOutcome, Session
from antwort.providers.code_interpreter.sessions import Sessions
from antwort.providers.code_interpreter.settings import CodeInterpreterSettings, check_memory, memory_bytes
from antwort.providers.code_interpreter.tool import (
    DELETED,
    CodeTool,
    asked_files,
    asked_memory,
    charts,
    earlier_container,
    earlier_containers,
    going_on,
    item_fields,
    named_container,
    report,
)

_ALONE = "default"
"""The conversation of calls that belong to no response."""
_Run = Callable[[Session], Awaitable[tuple[CodeOutcome, list[File]]]]
_LONGEST = 1_000_000
"""Characters of code."""


class CodeInterpreter(Provider[CodeInterpreterSettings]):
    """Execute Python that a model wrote, in a sandbox."""

    calls = Counter("calls_total", "Calls, by how they ended.", ["ending"])
    duration = Histogram("duration_seconds", "Seconds that a call took.")
    open_sessions = Gauge("sessions", "Sessions that are kept.")

    def __init__(self, settings: CodeInterpreterSettings | None = None) -> None:
        super().__init__(settings)
        self._management = ContainerRoutes(self.settings)
        self.parts = (self._management,)

    @property
    @override
    def one_process(self) -> str | None:
        return "sessions live in one process, and others could not go on with them; set server.workers to 1"

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        own, sandbox = self.settings, self.services.sandbox
        await sandbox.prepare()
        self._python = await SandboxPython.find(sandbox, own.python)
        place = await asyncio.to_thread(lambda: self.services.folder)
        self.containers = Containers(
            place,
            sandbox,
            keep=own.keep,
            most=own.max_containers,
            most_files=own.max_files,
            limits=own.limits(),
        )
        await self.containers.open()
        self.sessions = Sessions(
            self._start_session,
            idle=own.idle,
            most=own.max_sessions,
            max_wait=own.max_wait,
            slots=self.slots(own.concurrency),
        )
        self._given_files = GivenFiles(self.containers, self.services.files, own.limits())
        management = self._management
        management.containers, management.sessions = self.containers, self.sessions
        management.given_files = self._given_files
        self.open_sessions.set_function(lambda: self.sessions.count)
        sweeping = [
            asyncio.create_task(self.containers.sweep_regularly()),
            asyncio.create_task(self.sessions.sweep_regularly()),
        ]
        try:
            yield
        finally:
            for task in sweeping:
                task.cancel()
            await asyncio.wait(sweeping)
            await self.sessions.close_all()
            await self.containers.close()

    @override
    async def prepare_tool(
        self, name: str, tool: Mapping[str, Any], items: Iterable[Mapping[str, Any]], ctx: Context
    ) -> Mapping[str, Any]:
        check_memory(asked_memory(tool), self.settings.max_memory, "container.memory_limit")
        for file_id in asked_files(tool):
            await self._given_files.known(ctx, file_id, "container.file_ids")
        if (named := named_container(tool)) is not None:
            for scope in (READ, WRITE):
                ctx.require(scope, param="container", purpose="to use a container by its id")
            try:
                await asyncio.to_thread(self.containers.find, ctx.tenant, named)
            except NotFoundError as error:
                raise NotFoundError(error.message, param="container") from error
            return tool
        if not (ctx.grants(READ) and ctx.grants(WRITE)):  # a client may name any in what it sends back
            return tool
        for earlier in earlier_containers(items):
            with contextlib.suppress(NotFoundError):
                await asyncio.to_thread(self.containers.find, ctx.tenant, earlier)
                return going_on(tool, earlier)
        return tool

    @function(timeout=math.inf, hosted=CodeTool(), in_order=True)
    async def code_interpreter(
        self, ctx: Context, code: Annotated[str, Field(description="Python code.", max_length=_LONGEST)]
    ) -> ToolResult:
        """Execute Python; returns what it prints. Variables stay for later calls; the value of the last line is shown.

        Work with files in the current folder, /mnt/data; plots are saved there as pictures. No network. `await` and
        `!command` work.
        """
        try:
            return await self._result(ctx, code)
        except FunctionError as error:
            item = {"container_id": self._asked_id(ctx)}
            return ToolResult(str(error), is_error=True, status=error.status, item=item)

    async def _result(self, ctx: Context, code: str) -> ToolResult:
        try:
            code.encode()
        except UnicodeEncodeError:
            raise FunctionError("The code is no text that can be written in UTF-8.") from None
        async with self._container(ctx) as container:
            started = time.perf_counter()
            (outcome, made), is_new = await self.sessions.execute(container, self._work(ctx, container, code))
            self.duration.observe(time.perf_counter() - started)
        starved = "memory" if outcome.starved else None
        self.calls.labels(outcome.ending or starved or outcome.stopped or "success").inc()
        limits = self._limits(container)
        renewed = is_new and container.about.begun
        text = report(ctx, container.id, outcome, made, limits, renewed=renewed)
        item = item_fields(container.id, outcome, made, limits)
        seen = await asyncio.to_thread(charts, self.containers.files(container), made) if ctx.sees_images else ()
        return ToolResult(text, is_error=outcome.has_failed, status=_status(outcome), item=item, images=seen)

    @contextlib.asynccontextmanager
    async def _work(self, ctx: Context, container: Container, code: str) -> AsyncIterator[_Run]:
        """Reach the files of a container, and execute code there."""
        async with contextlib.AsyncExitStack() as stack:
            with as_function_errors():
                used = await stack.enter_async_context(self.containers.in_use(lambda: container.folder))
                await self._give_files(ctx, container)
            before = await asyncio.to_thread(self.containers.files(container).all)

            async def run(session: Session) -> tuple[CodeOutcome, list[File]]:
                own = self.settings
                outcome = await session.execute(code, seconds=own.max_time, most=own.max_output)
                return await asyncio.to_thread(self._concluded, used, container, before, outcome)

            try:
                yield run
            except FunctionUnavailableError as error:
                if await asyncio.to_thread(lambda: used.is_deleted):
                    raise FunctionError(DELETED) from error
                raise

    async def _start_session(self, container: Container) -> Session:
        limits = self._limits(container)
        return await Session.start(self.services.sandbox, self._python, container.folder, limits)

    def _limits(self, container: Container) -> SandboxLimits:
        return self.settings.limits(memory_bytes(container.about.memory_limit))

    @contextlib.asynccontextmanager
    async def _container(self, ctx: Context) -> AsyncIterator[Container]:
        """Keep the container that a call is for; its files are not reached yet."""
        async with contextlib.AsyncExitStack() as stack:
            with as_function_errors():
                asked: list[Container] = []

                def ask() -> Path:
                    asked.append(self._asked(ctx))
                    return asked[0].folder

                await stack.enter_async_context(self.containers.in_use(ask, written=None))
            yield asked[0]

    async def _give_files(self, ctx: Context, container: Container) -> None:
        """Put the files that the tool names into the container, each once: code may have changed them since."""
        for file_id in asked_files(ctx.options):
            if file_id not in container.about.given:
                known = await self._given_files.known(ctx, file_id, "file_ids")
                await self._given_files.put_known(container, known)
                await asyncio.to_thread(self.containers.change, container, partial(_note_given, file_id))

    def _asked(self, ctx: Context) -> Container:
        """Return the container that a call is for, which is made if it is that of a conversation."""
        if (named := named_container(ctx.options)) is not None:
            return self.containers.use(ctx.tenant, named)
        if (earlier := earlier_container(ctx.options)) is not None:
            with contextlib.suppress(NotFoundError):  # it has expired, or was deleted, since the request came
                return self.containers.use(ctx.tenant, earlier)
        return self.containers.of_conversation(ctx.tenant, _conversation(ctx), asked_memory(ctx.options))

    def _asked_id(self, ctx: Context) -> str:
        """Return the id of the container that a call is for, whether it is there or not."""
        named = named_container(ctx.options) or earlier_container(ctx.options)
        return named or self.containers.id_of_conversation(ctx.tenant, _conversation(ctx))

    def _concluded(
        self, used: FolderInUse, container: Container, before: Sequence[File], outcome: CodeOutcome
    ) -> tuple[CodeOutcome, list[File]]:
        """Return what came of a call, with the files that it has written, and note that its container was in use."""
        if used.is_deleted:
            return msgspec.structs.replace(outcome, ending="deleted"), []
        if not container.about.begun:
            self.containers.change(container, _begin)
        self.containers.touch(container.folder)
        files = self.containers.files(container)
        if outcome.ending == "disk":  # no session could begin where there is so much
            files.delete_all_but(before)
        known = set(before)
        outcome = msgspec.structs.replace(outcome, is_full=used.is_full)
        return outcome, [file for file in files.all() if file not in known]


def _conversation(ctx: Context) -> str:
    return ctx.conversation_id or ctx.run_id or _ALONE


def _status(outcome: CodeOutcome) -> str:
    if not outcome.has_failed:
        return "success"
    return "timeout" if "time" in {outcome.stopped, outcome.ending} else "error"


def _note_given(file_id: str, about: About) -> None:
    about.given.append(file_id)


def _begin(about: About) -> None:
    about.begun = True
