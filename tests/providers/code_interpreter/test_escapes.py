"""Ways out of a session, each code that says `ESCAPED` if it got out: all are contained, and the next call works."""

import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.support.function_machine import KINDS, SECRET, FunctionMachine, function_machine
from tests.support.inner_files import found

SETTINGS = {
    "max_time": "5s",
    "max_memory": 100 << 20,
    "max_bytes": 20 << 20,
    "max_files": 200,
    "max_output": 100_000,
    "max_processes": 20,
}


def execute(machine: FunctionMachine, code: str, conversation: str, tenant: str = "t") -> str:
    """Execute code; return what the model reads."""
    return machine.call("code_interpreter", conversation, tenant, code=code)[0]


@pytest.fixture(scope="module", params=KINDS)
def machine(request: pytest.FixtureRequest) -> Iterator[FunctionMachine]:
    own = {"enabled": True, "settings": SETTINGS}
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        function_machine(request.param, {"code_interpreter": own}) as found,
    ):
        found.names["port"] = str(listening.getsockname()[1])
        execute(found, f"open('theirs.txt', 'w').write('{SECRET}')", "theirs", "other")
        yield found


class Attempt(NamedTuple):
    """What somebody tries, and what the model has to read of it, if it matters."""

    name: str
    code: str
    told: str = ""
    or_told: str | None = None
    """What it may be instead, if one of two limits is met first."""


def tried(name: str, statement: str) -> Attempt:
    """Return an attempt that raises OSError unless it is an escape."""
    code = f"import os, socket\ntry:\n    {statement}\n    print('ESCAPED')\nexcept OSError: print('no')"
    return Attempt(name, code, "no")


ATTEMPTS = [
    tried("read a file of the host", "open('@outside@/secret.txt').read()"),
    tried("write a file of the host", "open('@outside@/evil', 'w')"),
    tried("read the server's data", "os.listdir('@data@')"),
    tried("read through a link", "os.symlink('@outside@/secret.txt', 'link'); open('link').read()"),
    tried("write to the system", "open('/usr/evil', 'w')"),
    tried("connect to this machine", "socket.create_connection(('127.0.0.1', @port@), 2)"),
    tried("connect to the world", "socket.create_connection(('192.0.2.1', 80), 2)"),
    tried("signal the server", "os.kill(@pid@, 0)"),
    tried("become root", "os.setuid(0)"),
    tried("give a file away", "open('f', 'w'); os.chown('f', 0, 0)"),
    tried("make a device", "os.mknod('disk', 0o60666, os.makedev(8, 0)); open('disk').read()"),
    Attempt(
        "find files of other containers",
        # What the kernel says about processes, and the machine's own programs, are large, and nobody's files.
        "import os, sys\nseen = set()\nfor place, folders, names in os.walk('/'):\n"
        "    seen |= {*names}\n    if place in {'/proc', '/sys', '/usr', sys.base_prefix}: folders.clear()\n"
        "print('ESCAPED' if 'theirs.txt' in seen else 'no')",
        "no",
    ),
    Attempt("read secrets of the environment", "import os\nprint(dict(os.environ), open('/proc/1/environ').read())"),
    Attempt(
        "see processes of others",
        "import os\nprint([open(f'/proc/{p}/cmdline').read() for p in os.listdir('/proc') if p.isdigit()])",
    ),
    Attempt(
        "fork bomb",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "5 seconds",
        or_told="bytes of memory",
    ),
    Attempt("memory bomb", "a = []\nwhile True: a.append(b'x' * (8 << 20))", "bytes of memory"),
    Attempt(
        "disk bomb",
        "n = 0\nwhile True:\n    n += 1\n    open(f'f{n}', 'wb').write(b'x' * (4 << 20))",
        "Files that this call has written were deleted",
        or_told="[No room: ",
    ),
    Attempt(
        "bomb of files",
        "n = 0\nwhile True:\n    n += 1\n    open(f'f{n}', 'wb').close()",
        "Files that this call has written were deleted",
        or_told="[No room: ",
    ),
    Attempt("endless output", "import sys\nwhile True: sys.stdout.write('x' * 10_000)", "printed more than"),
    Attempt("endless output of a child", "import os\n_ = os.system('yes')", "[Stopped: it printed more than"),
    Attempt(
        "time bomb that ignores signals", "import signal\nsignal.signal(2, lambda *a: 0)\nwhile True: pass", "5 sec"
    ),
    Attempt("forge the end of a call", "import os\nos.write(1, b'\\0' + b'0' * 32 + b'\\0')\nprint('after')", "after"),
    Attempt("close the pipes", "import os\nos.closerange(0, 100)", ""),
]


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=[one.name for one in ATTEMPTS])
def test_an_attempt_is_contained(machine: FunctionMachine, attempt: Attempt) -> None:
    machine.count += 1
    conversation = f"own{machine.count}"
    read = execute(machine, attempt.code, conversation)
    assert attempt.told in read or (attempt.or_told is not None and attempt.or_told in read), read
    assert "ESCAPED" not in read
    assert SECRET not in read
    assert len(read) < 200_000
    machine.check_unharmed()
    assert "42" in execute(machine, "6 * 7", conversation).splitlines()  # what was left running may say something, too


def test_a_time_bomb_does_not_go_off_after_the_end_of_its_call(machine: FunctionMachine) -> None:
    planted = (
        "import os, subprocess, threading, time\n"
        "def late():\n    while True: open('ticks', 'a').write('x')\n"
        "threading.Thread(target=late, daemon=True).start()\n"
        "if os.fork() == 0:\n    os.setsid()\n    late()\n"
        "while not os.path.exists('ticks'): time.sleep(0.01)"
    )
    execute(machine, planted, "late")
    *_, ticks = found(machine.folder, "data/providers/*/*/*/ticks", machine.runner.pid)
    execute(machine, "1", "first")  # what was being written when it was stopped is there now
    size = ticks.stat().st_size
    for number in range(3):  # the server does other things meanwhile
        execute(machine, "sum(range(1_000_000))", f"meanwhile{number}")
    assert ticks.stat().st_size == size
