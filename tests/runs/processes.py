"""The real server as a process that can be killed, with functions that leave a trace of every execution."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from antwort.config import Config
from antwort.context import ANONYMOUS_TENANT
from antwort.storage import open_store
from antwort.types import JSON

_FUNCTIONS = '''
"""Functions that write down each execution before and after it."""

import asyncio
import math
import os

from antwort.provider import AgentTask, Context, function

LEDGER = {ledger!r}


def note(what: str, ctx: Context) -> None:
    descriptor = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{{what}} {{ctx.call_id}}\\n".encode())
    os.close(descriptor)


@function
async def charge(order: str, ctx: Context) -> str:
    """Charge an order. Twice would be expensive."""
    note("begin", ctx)
    await asyncio.sleep(0.02)
    note("end", ctx)
    return f"charged {{order}}"


@function
async def ship(order: str, ctx: Context) -> str:
    """Ship an order, which takes its time."""
    note("begin", ctx)
    await asyncio.sleep(2.5)
    note("end", ctx)
    return f"shipped {{order}}"


@function(idempotent=True)
async def look_up(key: str, ctx: Context) -> str:
    """Look something up."""
    note("begin", ctx)
    await asyncio.sleep(0.03)
    note("end", ctx)
    return f"found {{key}}"


@function(approval="always")
async def refund(order: str, ctx: Context) -> str:
    """Give money back, if somebody wants it so."""
    note("begin", ctx)
    await asyncio.sleep(0.02)
    note("end", ctx)
    return f"refunded {{order}}"


@function(scope="agent", attach=True, timeout=math.inf)
async def delegate(prompts: list[str], ctx: Context) -> str:
    """Let other agents work."""
    results = await ctx.run_agents([AgentTask(prompt) for prompt in prompts])
    return ", ".join(result.status for result in results)


@function(idempotent=True)
async def explode(ctx: Context) -> str:
    """End the process, as a bug in a library or too little memory does."""
    note("begin", ctx)
    os._exit(1)
'''


class ServerProcess:
    """`antwort serve` on one data folder, started as often as needed."""

    def __init__(
        self,
        folder: Path,
        model_url: str,
        *,
        providers: JSON | None = None,
        backend: JSON | None = None,
        sections: JSON | None = None,
        program: Sequence[str] = ("-m", "antwort"),
        environment: Mapping[str, str] | None = None,
        command: str = "serve",
        **settings: Any,
    ) -> None:
        self._command = command
        self.data_dir = folder / "data"
        self._ledger = folder / "ledger"
        self._errors = folder / "errors"
        plugins = folder / "plugins"
        plugins.mkdir()
        plugins.joinpath("shop.py").write_text(_FUNCTIONS.format(ledger=str(self._ledger)))
        self._program = program
        self._environment = environment or {}
        self._config = folder / "antwort.yaml"
        config = {
            "data_dir": str(self.data_dir),
            "plugins_dir": str(plugins),
            "providers": providers or {},
            "backends": {"steady": {"url": model_url, "models": ["steady"], **(backend or {})}},
            "server": {"port": 0, **settings},
            **(sections or {}),
        }
        self._config.write_text(json.dumps(config))
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self, *arguments: str) -> None:
        """Start it and wait until it listens."""
        assert self.try_to_start(*arguments), f"it did not listen: {self.errors}"

    def try_to_start(self, *arguments: str) -> bool:
        """Start it and wait until it listens; False if it ends before."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTWORT_")}
        environment |= self._environment
        command = [sys.executable, *self._program, self._command, "--config", str(self._config)]
        command += ["--log-level", "warning", *arguments]
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("Listening on "):
                self.url = line.removeprefix("Listening on ").strip()
                return True
        self.exit_code()
        return False

    def kill(self) -> None:
        """Kill it, as the kernel would: nothing of it runs any more afterwards."""
        if self._process is not None:
            self._process.kill()
            self.exit_code()

    def terminate(self) -> int:
        """Ask it to stop and wait; return its exit code."""
        self.ask_to_stop()
        return self.exit_code()

    def ask_to_stop(self, number: int = signal.SIGTERM) -> None:
        """Send it the signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def exit_code(self, patience: float = 60.0) -> int:
        """Wait for its end."""
        assert self._process is not None
        code = self._process.wait(patience)
        process, self._process = self._process, None
        if process.stdout is not None:
            process.stdout.close()
        return code

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    def children(self) -> list[int]:
        """Return the processes that it has started and that run."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()  # a child is that of a thread
        return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]

    @property
    def errors(self) -> str:
        """What it wrote to its log, all starts together."""
        return self._errors.read_text() if self._errors.exists() else ""

    def executions(self, what: str = "begin") -> Counter[str]:
        """Return how often each call began or ended."""
        lines = self._ledger.read_text().splitlines() if self._ledger.exists() else []
        return Counter(call for kind, call in map(str.split, lines) if kind == what)

    async def agents_below(self, response_id: str) -> int:
        """Return how many agents work below a response; only while the server does not run."""
        assert self._process is None
        store = open_store(Config(data_dir=self.data_dir))
        try:
            return len(await store.descendants(ANONYMOUS_TENANT, response_id))
        finally:
            await store.close()

    async def finished_calls(self) -> set[str]:
        """Return the calls of unfinished runs whose output is stored; only while the server does not run."""
        assert self._process is None
        store = open_store(Config(data_dir=self.data_dir))
        try:
            journals = [await store.journal(run.tenant, run.id) for run in await store.unfinished()]
        finally:
            await store.close()
        calls = [entry.call for journal in journals for entry in journal if entry.call is not None]
        return {call.call_id for call in calls if call.is_over}
