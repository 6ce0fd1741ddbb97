"""The provider `programs`."""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Annotated, Any
from weakref import WeakValueDictionary

from typing_extensions import override

from antwort.provider import (
    JSON,
    Context,
    Counter,
    Field,
    HostedCall,
    HostedTool,
    ItemEnd,
    LargeWork,
    Provider,
    SandboxPython,
    SuspendedError,
    ToolResult,
    function,
)
from antwort.providers.programs.calls import ProgramCalls
from antwort.providers.programs.interpreter import ProgramInterpreter
from antwort.providers.programs.language import DESCRIPTIONS
from antwort.providers.programs.pythons import ALIVE, Pythons
from antwort.providers.programs.running import Running
from antwort.providers.programs.settings import ProgramsSettings
from antwort.providers.programs.states import MONTY, States
from antwort.providers.programs.variables import VariableCalls


class ProgramTool(HostedTool):
    """A program and what came of it are two items."""

    types = ("programmatic_tool_calling",)
    item = "program"
    output_items = ("program_output",)

    @override
    def begin(self, call: HostedCall) -> JSON:
        code = str(call.decoded.get("code", ""))
        return {"code": code, "fingerprint": hashlib.sha256(code.encode(errors="replace")).hexdigest()}

    @override
    def end(self, call: HostedCall, result: ToolResult) -> ItemEnd:
        status = "incomplete" if result.is_error else "completed"
        output = {"type": self.output_items[0], "status": status, "result": result.output}
        return ItemEnd(result.item, "completed", events=(), items=(output,))

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> JSON:
        return {"code": item["code"]}

    @override
    def read_output(self, item: Mapping[str, Any]) -> str | None:
        result = item.get("result")
        return result if isinstance(result, str) else None


class Programs(Provider[ProgramsSettings]):
    """Programs that models write, in Python, with the functions of their agent."""

    name = "programs"
    ended_programs = Counter("ended_total", "Programs, by how they ended.", ["outcome"])
    made_calls = Counter("calls_total", "Calls that programs have made.")

    def __init__(self, settings: ProgramsSettings | None = None) -> None:
        super().__init__(settings)
        for outcome in ("completed", "failed", "waiting"):
            self.ended_programs.labels(outcome)
        self._interpreter = ProgramInterpreter(self.settings)
        self._pythons: Pythons | None = None
        """Where programs run that the interpreter does not understand; None if they do not."""
        self._work = LargeWork()
        self._turns: WeakValueDictionary[tuple[str, str | None], asyncio.Lock] = WeakValueDictionary()
        """Programs of one agent run one after the other, since they share names."""

    @override
    def describes(self, name: str) -> str:
        return DESCRIPTIONS[self.settings.interpreter]

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        """Find the sandbox, if programs run there; at the end, end the processes of the interpreter."""
        own = self.settings
        slots = self._interpreter.slots = self.slots(own.processes)
        if own.interpreter != MONTY:
            sandbox = self.services.sandbox
            await sandbox.prepare()
            python = await SandboxPython.find(sandbox, own.python)
            waiting = self.slots(ALIVE * own.processes, f"{self.name}_alive")
            start = partial(Pythons, sandbox, python, own, slots=slots, alive=waiting, work=self._work)
            self._pythons = await asyncio.to_thread(start)
        try:
            yield
        finally:
            await self._interpreter.close()
            self._work.close()

    @function(attach=True, in_order=True, timeout=math.inf, calls_functions=True, hosted=ProgramTool())
    async def run_program(
        self, ctx: Context, code: Annotated[str, Field(min_length=1, description="The program, in Python.")]
    ) -> ToolResult:
        """Run a Python program that calls functions; what models read of it depends on the interpreter."""
        lock = self._turns.setdefault((ctx.tenant, ctx.agent_id), asyncio.Lock())
        async with lock:
            own = self.settings
            calls = ProgramCalls(ctx, VariableCalls(ctx, self._work, most=own.max_part), most=own.max_calls)
            running = Running(ctx, self._interpreter, self._pythons, States(self.services, ctx), calls)
            try:
                outcome = await running.run(code)
            except SuspendedError:
                self.ended_programs.labels("waiting").inc()
                raise
            finally:
                self.made_calls.inc(calls.made)
        self.ended_programs.labels("failed" if outcome.failed else "completed").inc()
        return ToolResult.error(outcome.output) if outcome.failed else ToolResult(outcome.output)
