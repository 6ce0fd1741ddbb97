"""The provider `programs`."""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any
from weakref import WeakValueDictionary

from typing_extensions import override

from antwort.provider import (
    Context,
    Counter,
    Field,
    Hosted,
    LargeWork,
    Provider,
    SuspendedError,
    ToolResult,
    function,
)
from antwort.providers.programs.interpreter import Interpreter
from antwort.providers.programs.program import Program
from antwort.providers.programs.settings import ProgramsSettings
from antwort.providers.programs.states import States
from antwort.providers.programs.variables import VariableCalls


def _describe(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    code = str(arguments.get("code", ""))
    return {"code": code, "fingerprint": hashlib.sha256(code.encode(errors="replace")).hexdigest()}


_FACE = Hosted(
    types=("programmatic_tool_calling",),
    item="program",
    describe=_describe,
    output_item="program_output",
    output_field="result",
    read_arguments=lambda item: {"code": item["code"]},
)


class Programs(Provider[ProgramsSettings]):
    """Programs that models write, in Python, with the functions of their agent."""

    name = "programs"
    ended_programs = Counter("ended_total", "Programs, by how they ended.", ["outcome"])
    made_calls = Counter("calls_total", "Calls that programs have made.")

    def __init__(self, settings: ProgramsSettings | None = None) -> None:
        super().__init__(settings)
        for outcome in ("completed", "failed", "waiting"):
            self.ended_programs.labels(outcome)
        self._interpreter = Interpreter(self.settings)
        self._work = LargeWork()
        self._turns: WeakValueDictionary[tuple[str, str | None], asyncio.Lock] = WeakValueDictionary()
        """Programs of one agent run one after the other, since they share names."""

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        """End the processes of the interpreter, if there are any, at the end."""
        self._interpreter.slots = self.slots(self.settings.processes)
        try:
            yield
        finally:
            await self._interpreter.close()
            self._work.close()

    @function(attach=True, in_order=True, timeout=math.inf, calls_functions=True, hosted=_FACE)
    async def run_program(
        self, ctx: Context, code: Annotated[str, Field(min_length=1, description="The program, in Python.")]
    ) -> ToolResult:
        """Run a Python program that calls functions. Use it for loops, and for many calls: only the end is read.

        Your functions are async functions of the same names: `r = await name(key=value)`, many at once with
        `await asyncio.gather(*[name(key=x) for x in xs])`. They return what they give as dicts, lists, numbers, or
        text; one that fails raises RuntimeError. A long result is a dict with "$ref": `v = await variable(it)`.
        Variables: `v = await variable("key")`, `v.size`, `await v.read(offset, limit)` (bytes, returns text),
        `await v.lines(first, count)`, `await v.grep(pattern)`, `await v.load()` if it is small;
        `await set_variable(key, value)`, `await variables()`. Pass a variable to a function as it is.
        You read what is printed, and the value of the last expression. Names stay for your next program.
        It is a subset of Python. There are no files, network, packages or environment; of the standard library
        asyncio, collections, csv, dataclasses, datetime, functools, itertools, json, math, random, re, string, time,
        typing. Not understood: yield, async comprehensions, async with, async for, del, create_task, TaskGroup,
        decorators such as staticmethod.
        """
        lock = self._turns.setdefault((ctx.tenant, ctx.agent_id), asyncio.Lock())
        async with lock:
            variables = VariableCalls(ctx, self._work, most=self.settings.max_part)
            program = Program(ctx, self._interpreter, States(self.services, ctx), variables, self.settings)
            try:
                outcome = await program.run(code)
            except SuspendedError:
                self.ended_programs.labels("waiting").inc()
                raise
            finally:
                self.made_calls.inc(program.calls)
        self.ended_programs.labels("failed" if outcome.failed else "completed").inc()
        return ToolResult.error(outcome.output) if outcome.failed else ToolResult(outcome.output)
