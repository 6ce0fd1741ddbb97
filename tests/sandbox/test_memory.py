"""Memory where no control group counts it: of one process the kernel holds it, of several it is counted in time."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.sandbox.stage import KINDS, Machine, machine

from antwort.sandbox import BareHost, Sandbox, SandboxLimits
from antwort.sandbox.memory import memory_usage

MB = 1 << 20
LIMIT = 256
"""MB that a command may have."""


@pytest.fixture(scope="module", params=["plain", "ordinary"] if "root" in KINDS else KINDS)
def outside(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with machine(request.param) as one:
        yield one


PROLOGUE = """
import ctypes, fcntl, mmap, os, resource, select, signal, socket, struct, sys, time
MB = 1 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
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
    "memory that is shared, of which a page is shown": """
for _ in range(3 * 256):
    place = libc.mmap(None, MB, 3, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, 0)
    ctypes.memset(place, 1, MB)
    libc.munmap(place + 4096, MB - 4096)
    took()
time.sleep(60)
""",
    "shared memory of a process that wants to be closed": """
libc.prctl(4, 0, 0, 0, 0)
for _ in range(3 * 256):
    place = libc.mmap(None, MB, 3, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, 0)
    ctypes.memset(place, 1, MB)
    libc.munmap(place + 4096, MB - 4096)
    took()
time.sleep(60)
""",
    "very many processes": """
for _ in range(50):
    if os.fork() == 0:
        break
kept = []
while True:
    kept.append(b"x" * MB)
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
    # Processes side by side are counted by a look; on a busy machine it may come late.
    most = 1.5 if "processes" in way else 1.1
    assert 0.1 * LIMIT < len(done.stdout) < most * LIMIT


def test_files_in_memory_leave_less_for_each_process_which_the_kernel_holds(outside: Machine) -> None:
    code = """
before = resource.getrlimit(resource.RLIMIT_DATA)[0]
def wait_for(most):
    while not most - MB < resource.getrlimit(resource.RLIMIT_DATA)[0] <= most:
        time.sleep(0.01)
with open("/tmp/x", "wb") as file:
    file.write(bytes(32 * MB))
wait_for(before - 32 * MB)
os.unlink("/tmp/x")
wait_for(before)
print("as before")
"""
    done = outside.run(["python3", "-c", PROLOGUE + code], seconds=60.0, memory=LIMIT * MB)
    assert (done.ending, done.stdout) == ("exit", b"as before\n"), done.stderr[-500:]


class Kept(NamedTuple):
    """How to let the kernel keep something, by several processes; each `x` that they write is a thousand bytes."""

    script: str
    processes: int
    memory: int
    """MB that they may have."""


IN_THE_KERNEL = {
    "parts of memory": Kept(
        """
place = libc.mmap(None, 60_000 * 4096, 0, 0x22, -1, 0)
for number in range(0, 60_000, 2):
    libc.mprotect(place + number * 4096, 4096, 1)
    if number % 40 == 0:
        took(10)  # of 250 bytes each
""",
        processes=8,
        memory=96,
    ),
    "files that are waited for": Kept(
        """
events = [os.eventfd(0) for _ in range(40)]
queues = [select.epoll() for _ in range(12)]
for number in range(100, 125):  # whatever a file was called when it was waited for
    for event in events:
        os.dup2(event, number)
        for queue in queues:
            queue.register(number, 0)
        os.close(number)
        took(10)  # of 200 bytes each
""",
        processes=8,
        memory=96,
    ),
    "locks of files": Kept(
        """
# To set a lock takes the longer the more there are on a file.
files = [os.open(f"{os.getpid()} {number}", os.O_RDWR | os.O_CREAT) for number in range(100)]
for number in range(0, 1000, 2):
    for file in files:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, number)
    took(20)  # of 200 bytes each
""",
        processes=3,
        memory=48,
    ),
    "terminals": Kept(
        """
for _ in range(100):
    globals()[f"terminal {_}"] = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    took(42)
""",
        processes=16,
        memory=96,
    ),
}
_TOGETHER = """
others = []
for _ in range(PROCESSES - 1):
    others.append(os.fork())
    if others[-1] == 0:
        others = None
        break
SCRIPT
if others is None:
    signal.pause()
print("has it all")
"""


@pytest.mark.parametrize("kept", IN_THE_KERNEL)
def test_what_the_kernel_keeps_for_processes_counts(outside: Machine, kept: str) -> None:
    script, processes, memory = IN_THE_KERNEL[kept]
    code = PROLOGUE + _TOGETHER.replace("PROCESSES", str(processes)).replace("SCRIPT", script)
    done = outside.run(["python3", "-c", code + "time.sleep(180)"], seconds=180.0, memory=memory * MB)
    assert done.ending == "memory", (len(done.stdout), done.stderr[-500:])
    assert len(done.stdout) * 1000 < 1.1 * memory * MB


@pytest.mark.parametrize("kept", ["locks of files", "terminals"])
def test_what_no_control_group_counts_is_counted(kept: str) -> None:
    script, processes, _ = IN_THE_KERNEL[kept]
    code = PROLOGUE + _TOGETHER.replace("PROCESSES", str(processes)).replace("SCRIPT", script)
    with machine(KINDS[0]) as outside:
        done = outside.run(["python3", "-c", code + "time.sleep(180)"], seconds=180.0, memory=LIMIT * MB)
    assert done.ending == "memory", (len(done.stdout), done.stderr[-500:])


REFUSED = {
    "shared memory of a device": ("os.open('/dev/zero', os.O_RDWR)", "mmap.mmap(FILE, MB)"),
    "large shared memory": ("-1", "mmap.mmap(FILE, 3 * MB)"),
    "huge shared memory": ("-1", "mmap.mmap(FILE, 1 << 32)"),
    "parts of a file in a pipe": ("os.open(sys.executable, os.O_RDONLY)", "os.splice(FILE, os.pipe()[1], 1)"),
    "parts of a file in a socket": (
        "socket.socketpair(), os.open(sys.executable, os.O_RDONLY)",
        "os.sendfile(FILE[0][0].fileno(), FILE[1], 0, 1)",
    ),
    "more processors": ("os.cpu_count()", "os.sched_setaffinity(0, range(FILE))"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_memory_of_which_nobody_sees_how_much_it_is_cannot_be_had(outside: Machine, what: str) -> None:
    file, taking = REFUSED[what]
    code = f"file = {file}\ntry:\n    {taking.replace('FILE', 'file')}\nexcept OSError:\n    print('refused')"
    done = outside.run(["python3", "-c", PROLOGUE + code], seconds=40.0)
    assert done.stdout == b"refused\n", done.stderr[-500:]


def test_who_executes_what_cannot_be_read_hides_nothing(outside: Machine) -> None:
    code = PROLOGUE + WAYS["memory that is shared, of which a page is shown"]
    script = 'cp "$(readlink -f "$(command -v python3)")" own; chmod 111 own; ./own -c "$1"; echo ended'
    done = outside.run(["bash", "-c", script, "bash", code], seconds=40.0, memory=LIMIT * MB)
    assert done.ending == "memory", done.stderr[-500:]
    assert len(done.stdout) < 1.1 * LIMIT


def test_processes_that_end_while_somebody_looks_hide_nothing(outside: Machine) -> None:
    done = outside.run(["bash", "-c", "for i in {1..500}; do /bin/true; done; echo done"], seconds=60.0, memory=16 * MB)
    assert (done.ending, done.stdout) == ("exit", b"done\n"), done.stderr[-500:]


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


_HANDED_ON = """
for _ in range(8):
    if os.fork() == 0:
        break
else:
    time.sleep(60)
kept = libc.mmap(None, 16 * MB, 3, 0x22, -1, 0)
ctypes.memset(kept, 1, 16 * MB)
took()
while True:
    while (child := libc.fork()) < 0:
        os.sched_yield()
    if child:
        libc._exit(0)
"""


async def test_who_hands_on_what_he_has_and_ends_is_not_missed() -> None:
    sandbox = Sandbox()
    await sandbox.prepare()
    limits = SandboxLimits(memory=2048 * MB, seconds=60.0)
    async with sandbox.open(["python3", "-c", PROLOGUE + _HANDED_ON], limits=limits) as process:
        await process.stdout.readexactly(8)
        assert process._first is not None
        counted = [memory_usage(process._first, closed=True) for _ in range(12)]
    assert min(counted) > 8 * 16 * MB, sorted(counted)[:20]
