"""Workers for which the system gives no process, in a process of its own: it sets what is for signals."""

import subprocess
import sys

import pytest

SCRIPT = """
import errno, logging, os, socket, subprocess, sys
from antwort.workers import supervisor

logging.basicConfig(format="%(message)s", stream=sys.stdout)
supervisor._FIRST_PAUSE = 0.001
refusals = iter(range(int(sys.argv[1])))

def fork():
    for _ in refusals:
        raise BlockingIOError(errno.EAGAIN, "no more processes")
    return subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]).pid

os.fork = fork
sys.exit(supervisor.Supervisor([socket.socket()], print).run())
"""
AGAIN = "worker 0 could not be started: no more processes; it is started again"


@pytest.mark.parametrize(
    ("refusals", "code", "lines"),
    [
        (2, 7, [f"{AGAIN} at once", f"{AGAIN} in 0.001 s"]),
        (
            100,
            1,
            [
                f"{AGAIN} at once",
                *(f"{AGAIN} in {pause} s" for pause in (0.001, 0.002, 0.004)),
                f"the server ends: {AGAIN.partition(';')[0]}, as often before, and no other is left",
            ],
        ),
    ],
)
def test_a_process_that_the_system_does_not_give_is_asked_for_again_but_not_for_ever(
    refusals: int, code: int, lines: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(refusals)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (code, lines, "")
