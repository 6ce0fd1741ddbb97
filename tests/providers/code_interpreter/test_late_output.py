"""What is written after the end of a call: by what it has left running, when it was stopped and when it was not."""

import random
import re
from pathlib import Path

import pytest
from tests.providers.code_interpreter.stage import executed

from antwort.providers.code_interpreter.session import Written

STUBBORN = """
import subprocess, time
writing = "import signal, time\\nsignal.signal(2, signal.SIG_IGN)\\nwhile True:\\n    print('late', flush=True)\\n"
child = subprocess.Popen(["python3", "-c", writing], start_new_session=True)
"""
THREAD = """
import logging, threading, time
def write():
    while True:
        print("late"); sys.stderr.write("late"); logging.warning("late")
        time.sleep(0.001)
import sys
logging.basicConfig(stream=sys.stdout)
threading.Thread(target=write, daemon=True).start()
"""
BUSY = "\nwhile True: time.sleep(0.01)"


def without_notes(told: str) -> list[str]:
    """Return what a call itself has written."""
    return [line for line in told.splitlines() if not re.fullmatch(r"\[.*\]", line)]


def test_a_child_that_survives_an_interrupt_is_ended_and_not_heard_in_later_calls(tmp_path: Path) -> None:
    stopped, after, later = executed(
        tmp_path, STUBBORN + BUSY, "print('own')", "child.poll()", max_time="4s", max_output=50_000_000
    )
    assert "late" in stopped
    assert without_notes(after) == ["own"]
    assert "[The call that was stopped has left processes, which were ended: 1.]" in after
    assert later == "-9"


def test_a_thread_that_survives_an_interrupt_is_not_heard_in_later_calls(tmp_path: Path) -> None:
    stopped, after, later = executed(
        tmp_path,
        THREAD + BUSY,
        "time.sleep(0.2)\nprint('own')",
        "time.sleep(0.2)\nlogging.warning('own')",
        max_time="4s",
    )
    assert "late" in stopped
    assert without_notes(after) == ["own"]
    assert "[The call that was stopped has left threads, of which nothing is shown any more: 1.]" in after
    assert later == "WARNING:root:own"


def test_output_without_an_end_leaves_nothing_for_the_next_call(tmp_path: Path) -> None:
    stopped, after = executed(tmp_path, STUBBORN + "child.wait()", "print('own')", max_output=20_000)
    assert "[Stopped: it printed more than 20,000 bytes" in stopped
    assert without_notes(after) == ["own"]


def test_what_a_call_has_left_running_that_was_not_stopped_is_heard_and_goes_on(tmp_path: Path) -> None:
    server = "import sys\nfor line in sys.stdin: print('heard', line.strip(), flush=True)"
    first, second, third = executed(
        tmp_path,
        "import subprocess, threading\n"
        f"p = subprocess.Popen(['python3', '-c', {server!r}], stdin=subprocess.PIPE, text=True)",
        "p.stdin.write('one\\n'); p.stdin.close(); p.wait()",
        "t = threading.Thread(target=print, args=('from a thread',)); t.start(); t.join()",
    )
    assert first == "[no output]"
    assert second == "heard one\n0"
    assert third == "from a thread"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_what_is_written_between_two_calls_does_not_run_into_the_next_one(size: int) -> None:
    mark = b"\0" + b"m" * 32 + b"\0"
    sent = b"late" + mark + b"own\n" + mark + b"later"
    for heard, text, left_out in ((True, "late\nown\n", 0), (False, "own\n", 4)):
        written, rest = Written(mark, 100, heard=heard), sent
        while not written.is_whole:
            piece, rest = rest[:size], rest[size:]
            written.add(piece)
        assert (written.end(), written.left_out) == (text, left_out)
        assert written.rest + rest == b"later"


@pytest.mark.parametrize("size", [1, 5, 64])
def test_what_is_written_is_read_as_text_piece_by_piece_whatever_it_is(size: int) -> None:
    mark = b"\0" + b"m" * 32 + b"\0"
    for own in ("tea ☕ käse".encode(), b"\xff\xe2\x98\0\x95\xc3", random.Random(1).randbytes(1000)):
        written, rest = Written(mark, 2000, heard=True), mark + own + mark
        while rest:
            written.add(rest[:size])
            rest = rest[size:]
        assert len("".join(written._texts)) >= len(own.decode(errors="ignore"))  # nothing waits to be read at once
        assert written.end() == own.decode(errors="replace").replace("\0", "�")
