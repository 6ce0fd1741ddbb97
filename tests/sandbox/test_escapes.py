"""Nobody gets out of the sandbox, whoever runs it: a table of attempts, each of which is contained."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.attempts import ATTEMPTS, BOMBS, LATE, Attempt
from tests.sandbox.evasions import EVASIONS
from tests.sandbox.stage import KINDS, SECRET, Machine, machine
from tests.sandbox.tries import TRIES, trying


@pytest.fixture(scope="module", params=KINDS)
def outside(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with machine(request.param) as one:
        yield one


@pytest.fixture(scope="module", params=["plain"] if os.geteuid() == 0 else ["ordinary"])
def outside_without_groups(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with machine(request.param) as one:
        yield one


def check_contained(outside: Machine, attempt: Attempt) -> None:
    done = outside.run(attempt.command, **attempt.limits)
    told = done.stdout.decode(errors="replace")
    assert "ESCAPED" not in told
    assert SECRET not in told
    assert SECRET.encode() not in done.stderr
    assert attempt.says in told, (done.ending, told[-500:], done.stderr[-500:])
    assert done.ending == attempt.ending, (told[-500:], done.stderr[-500:])
    outside.check_unharmed()


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_an_attempt_is_contained(outside: Machine, attempt: Attempt) -> None:
    check_contained(outside, attempt)


@pytest.mark.parametrize("attempt", BOMBS, ids=lambda attempt: attempt.name)
def test_limits_hold_without_control_groups(outside_without_groups: Machine, attempt: Attempt) -> None:
    check_contained(outside_without_groups, attempt)


def check_tries(outside: Machine) -> None:
    done = outside.run(trying())
    told = done.stdout.decode()
    assert (done.ending, done.exit_code) == ("exit", 0), done
    assert [line for line in told.splitlines() if not line.startswith("contained: ")] == []
    assert [name for name in TRIES if f"contained: {name}\n" not in told] == []
    assert SECRET not in told + done.stderr.decode()
    outside.check_unharmed()


def test_what_one_process_tries_one_after_the_other_is_contained(outside: Machine) -> None:
    check_tries(outside)


def test_what_one_process_tries_is_contained_without_control_groups(outside_without_groups: Machine) -> None:
    check_tries(outside_without_groups)


def test_there_are_many_attempts() -> None:
    names = [attempt.name for attempt in ATTEMPTS] + [*TRIES, *EVASIONS]
    assert len(set(names)) == len(names) >= 300


def test_nothing_lives_on_after_the_end_of_a_command(outside: Machine) -> None:
    folders = {name: f"late{number}" for number, (name, _) in enumerate(LATE)}
    for name, script in LATE:
        done = outside.run(["bash", "-c", script], folders[name], seconds=20.0)
        assert done.ending == "exit", name
        assert done.stdout == b"left\n", name
    time.sleep(2.5)  # nothing can happen that could be waited for
    left = [name for name, folder in folders.items() if (outside.folder / folder / "late").exists()]
    assert left == []
    assert list(_processes_with(outside.places["mark"])) == []


def _processes_with(mark: str) -> Iterator[str]:
    """Yield the processes that have something in their command line."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and mark.encode() in (process / "cmdline").read_bytes():
                yield process.name


def test_files_are_nobody_s_outside(outside: Machine) -> None:
    outside.run(["bash", "-c", "touch file; chmod 4777 file; ln -s /etc/shadow link"], "owned")
    for path in (outside.folder / "owned").iterdir():
        assert path.lstat().st_uid != 0
