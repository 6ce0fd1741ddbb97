"""Gateways under measurement: started on a core of their own, and waited for until they answer."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from benchmarks.gateway import PATH, QUESTION, QUIET, Target
from benchmarks.measure import BenchmarkError
from benchmarks.peers.gateways import Gateway, Site
from benchmarks.processes import Server, at_fixed_addresses, child, running

PATIENCE = 120.0
"""Seconds that a gateway may take to start."""
FIRST: Mapping[str, Any] = {"model": "json", "input": QUESTION, "store": False}


@dataclass(frozen=True, slots=True)
class Running:
    """A gateway that answers."""

    gateway: Gateway
    server: Server
    site: Site
    seconds: float
    """From the command to the first answer."""

    @property
    def target(self) -> Target:
        return Target(self.gateway.name, ())


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


@contextlib.contextmanager
def started(gateway: Gateway, programs: Path, site: Site, *, core: int) -> Iterator[Running]:
    """Start a gateway, give it once it has answered a request, and end it on the way out.

    It lies at the same addresses at each start, where that can be had, as the servers of the bench do.
    """
    command = gateway.command(site, programs)
    begun = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if gateway.tells_port:
            server = stack.enter_context(running(command, core=core, cwd=site.folder))
            _wait(server, lambda: "")
        else:
            log = stack.enter_context(TemporaryFile())
            process = stack.enter_context(
                child(
                    [*at_fixed_addresses(), *command],
                    cwd=site.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(process.pid, {core})
            server = Server(process.pid, site.port)
            _wait(server, lambda: "" if process.poll() is None else f"it ended: {_end_of(log)}")
        yield Running(gateway, server, site, time.perf_counter() - begun)


def _wait(server: Server, ended: Callable[[], str]) -> None:
    """Ask until there is an answer, every hundredth of a second."""
    deadline = time.monotonic() + PATIENCE
    problem = "it does not listen"
    while time.monotonic() < deadline:
        if reason := ended():
            raise BenchmarkError(reason)
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, answer = ask(server.port, "POST", PATH, FIRST)
            if status == 200:
                return
            problem = f"it answered {status}: {answer[:500]}"
        time.sleep(0.01)
    raise BenchmarkError(problem)


def ask(port: int, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, str]:
    """Send a request, and return the status and the body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection):
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")


def _end_of(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace").strip()[-120:]


def settle(server: Server) -> None:
    """Wait until a server has nothing to do: some go on working after they have answered, and that is counted too."""
    deadline = time.monotonic() + 5
    spent = server.cpu_seconds()
    while time.monotonic() < deadline:
        time.sleep(0.05)
        before, spent = spent, server.cpu_seconds()
        if spent - before < QUIET:
            return
