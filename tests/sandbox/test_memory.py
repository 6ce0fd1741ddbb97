"""Memory where no control group counts it: of one process the kernel holds it, of several it is counted in time."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.stage import KINDS, Machine, machine

from antwort.sandbox import BareHost, SandboxLimits

MB = 1 << 20
LIMIT = 256
"""MB that a command may have."""


@pytest.fixture(scope="module", params=["plain", "ordinary"] if "root" in KINDS else KINDS)
def outside(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with machine(request.param) as one:
        yield one


PROLOGUE = """
import ctypes, mmap, os, socket, sys, time
MB = 1 << 20
def took(size=1):
    os.write(1, b"x" * size)
"""
WAYS = {
    "one process": """
kept = []
try:
    while True:
        kept.append(b"x" * MB)
        took()
except MemoryError:
    time.sleep(60)
""",
    "one process in large parts": """
kept = []
size = 64
while size:
    try:
        kept.append(b"x" * (size * MB))
        took(size)
    except MemoryError:
        size //= 2
time.sleep(60)
""",
    "many processes": """
for _ in range(7):
    if os.fork() == 0:
        break
kept = []
while True:
    kept.append(b"x" * MB)
    took()
""",
    "memory that is shared and not shown": """
while True:
    kept = mmap.mmap(-1, MB)
    kept.write(b"x" * MB)
    kept.madvise(mmap.MADV_DONTNEED)
    globals()[str(time.monotonic_ns())] = kept
    took()
""",
    "sockets": """
kept, sent = [], 0
for _ in range(40):
    if os.fork() == 0:
        break
while True:
    try:
        one, other = socket.socketpair()
    except OSError:
        time.sleep(60)
    kept += [one, other]
    for end in (one, other):
        end.setblocking(False)
        try:
            while True:
                sent += end.send(b"x" * 4096)
        except BlockingIOError:
            took(sent // MB)
            sent %= MB
""",
    "connections that nobody takes": """
listener = socket.socket(socket.AF_UNIX)
listener.bind("own")
listener.listen(4096)
sent = 0
while True:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("own")
        one.setblocking(False)
        try:
            while True:
                sent += one.send(b"x" * 4096)
        except BlockingIOError:
            took(sent // MB)
            sent %= MB
""",
    "files in memory": """
import itertools
kept = []
for place in ("/tmp", "/dev/shm"):
    try:
        with open(place + "/x", "wb", 0) as file:
            while file.write(b"x" * MB) == MB:
                took()
    except OSError:
        pass
try:
    while True:
        kept.append(b"x" * MB)
        took()
except MemoryError:
    time.sleep(60)
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_more_memory_is_taken_than_is_allowed(outside: Machine, way: str) -> None:
    done = outside.run(["python3", "-c", PROLOGUE + WAYS[way]], seconds=40.0, memory=LIMIT * MB)
    assert done.ending == "memory", (done.stdout, done.stderr[-500:])
    held_by_the_kernel = way.startswith("one process")  # what is counted may go on for a moment
    assert 0.3 * LIMIT < len(done.stdout) < (1.1 if held_by_the_kernel else 1.5) * LIMIT


def test_files_that_are_empty_take_memory_too(outside: Machine) -> None:
    script = "import os\nn = 0\nwhile True:\n    os.mknod(f'/tmp/{n}')\n    n += 1"
    done = outside.run(["python3", "-c", script], seconds=40.0, memory=48 * MB)
    assert done.ending == "memory", done.stderr[-500:]


def test_one_process_is_told_that_there_is_no_more(outside: Machine) -> None:
    script = f"try:\n    x = b'x' * {2 * LIMIT * MB}\nexcept MemoryError:\n    print('too much')"
    done = outside.run(["python3", "-c", script], memory=LIMIT * MB)
    assert (done.ending, done.stdout) == ("exit", b"too much\n")


def test_what_belongs_to_the_host_is_not_counted() -> None:
    counting = "from antwort.sandbox.memory import memory_usage"
    script = f"import os; {counting}; print(memory_usage(os.getpid()), flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        used = int(process.stdout.readline())
        held = int(Path(f"/proc/{process.pid}/status").read_text().split("RssAnon:")[1].split()[0]) << 10
        process.communicate(b"\n")
    assert 0.5 * held < used < held + 100 * MB


async def test_one_process_without_a_sandbox_is_held_to_its_limit_too() -> None:
    script = f"try:\n    x = b'x' * {2 * LIMIT * MB}\nexcept MemoryError:\n    print('too much')"
    done = await BareHost().run(["python3", "-c", script], limits=SandboxLimits(memory=LIMIT * MB))
    assert (done.ending, done.stdout) == ("exit", b"too much\n")
