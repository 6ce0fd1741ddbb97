"""Workers that do not come about, in a process of its own: it sets what is for signals."""

import signal
import subprocess
import sys

import pytest
from tests.cli.terminals import hangups

WITHOUT_PROCESSES = """
import errno, logging, os, socket, subprocess, sys
from antwort.concurrency.backoff import Backoff
from antwort.cli import supervisor

logging.basicConfig(format="%(message)s", stream=sys.stdout)
supervisor._RESTARTS = Backoff(0.001, 10.0)
refusals = iter(range(int(sys.argv[1])))

def fork():
    for _ in refusals:
        raise BlockingIOError(errno.EAGAIN, "no more processes")
    pid = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]).pid
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # its signal and the end of its pipe are there at the same time
    return pid

os.fork = fork
sys.exit(supervisor.Supervisor([socket.socket()], print).run())
"""
WITHOUT_EARS = """
import os, signal, socket, subprocess, sys
from antwort.concurrency.backoff import Backoff
from antwort.cli import supervisor

DEAF = '''
import signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
time.sleep(60)
'''

def fork():
    pid = subprocess.Popen([sys.executable, "-c", DEAF]).pid
    os.kill(os.getpid(), int(sys.argv[1]))
    return pid

os.fork = fork
sys.exit(supervisor.Supervisor([socket.socket()], print).run())
"""
AGAIN = "worker 0 could not be started: no more processes; it is started again"


@pytest.mark.parametrize(
    ("refusals", "code", "lines"),
    [
        (0, 7, []),
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
def test_a_process_that_the_system_does_not_give_is_asked_for_again_and_one_that_ends_at_once_is_the_end(
    refusals: int, code: int, lines: list[str]
) -> None:
    assert run(WITHOUT_PROCESSES, refusals) == (code, lines)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_worker_that_a_signal_ends_before_it_hears_any_has_ended_as_it_was_told(number: int) -> None:
    assert run(WITHOUT_EARS, number) == (0, [])


def run(script: str, argument: int) -> tuple[int, list[str]]:
    """Return the exit code and the lines of a script that has nothing to say on standard error."""
    with hangups(ignored=False):
        done = subprocess.run(
            [sys.executable, "-c", script, str(argument)], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()
