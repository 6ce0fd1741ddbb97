"""Where control groups are found, and what is written there, on machines of both versions."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from antwort.sandbox import SandboxLimits
from antwort.sandbox.control_groups import ControlGroup, ControlGroups, _limit, _places
from antwort.sandbox.users import _range, unused_user

LIMITS = SandboxLimits(memory=1000, processes=10, cpus=0.5)


def folder_with(path: Path, **files: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def test_version_1_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    mounts = "".join(f"cgroup {tmp_path}/{name} cgroup rw,{name} 0 0\n" for name in ("memory", "pids", "freezer"))
    folder_with(tmp_path / "memory" / "service")
    own = "4:memory:/service\n8:pids:/elsewhere\n3:freezer:/\n0::/\n"
    assert dict(_places(mounts, own)) == {
        "memory": [tmp_path / "memory" / "service", tmp_path / "memory"],
        "pids": [tmp_path / "pids"],
    }


def test_version_2_has_one_folder_that_hands_down_the_most(tmp_path: Path) -> None:
    own = folder_with(tmp_path / "service" / "main", cgroup__controllers="", cgroup__subtree_control="")
    folder_with(own.parent, cgroup__controllers="memory pids", cgroup__subtree_control="memory pids")
    folder_with(tmp_path, cgroup__controllers="io", cgroup__subtree_control="io")
    found = dict(_places(f"cgroup2 {tmp_path} cgroup2 rw 0 0\n", "0::/service/main\n"))
    assert found.pop("freezer") in ([own.parent], [own, tmp_path])  # all groups have one
    assert all(places == [own.parent] for places in found.values())
    assert found.keys() <= {"memory", "pids"}


def test_limits_of_version_1(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    for controller in ("memory", "pids", "cpu"):
        _limit(controller, folder, LIMITS)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "memory.limit_in_bytes": "1000",
        "memory.memsw.limit_in_bytes": "1000",
        "pids.max": "14",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "50000",
    }


def test_limits_of_version_2(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, memory__max="max", cpu__max="max")
    for controller in ("memory", "pids", "cpu"):
        _limit(controller, folder, LIMITS)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "memory.max": "1000",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "14",
        "cpu.max": "50000 100000",
    }


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("memory.events", "low 0\noom 1\noom_kill 1\n", 1),
        ("memory.events", "low 0\noom 1\noom_kill 0\n", 0),
        ("memory.oom_control", "under_oom 0\noom_kill 2\n", 2),
        ("memory.stat", "", 0),
    ],
)
def test_a_group_tells_how_often_it_ran_out_of_memory(tmp_path: Path, name: str, text: str, expected: int) -> None:
    (tmp_path / name).write_text(text)
    assert ControlGroup({"memory": tmp_path}).memory_kills() == expected


def test_where_nothing_can_be_written_there_are_no_groups(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text(f"cgroup2 {tmp_path}/none cgroup2 rw 0 0\n")
    (tmp_path / "own").write_text("0::/\n")
    assert ControlGroups.find(tmp_path / "mounts", tmp_path / "own").controllers == frozenset()
    assert ControlGroups.find(tmp_path / "gone", tmp_path / "own").controllers == frozenset()


def test_a_server_that_starts_a_command_in_a_group_is_not_ended_with_it() -> None:
    """Where it makes no groups, or none of version 1, there is nothing to enter."""
    groups = ControlGroups.find()
    group = groups.make(SandboxLimits()) if groups.controllers else ControlGroup({})
    own = Path("/proc/thread-self/cgroup")

    def start() -> tuple[str, str, str]:
        before = own.read_text()
        with group.entered():
            within = own.read_text()
            group.kill()
        return before, within, own.read_text()

    try:
        with ThreadPoolExecutor(1) as thread:
            before, within, after = thread.submit(start).result()
        assert within.count(f"antwort-{os.getpid()}-") == len(groups._homes)
        assert after == before
    finally:
        group.remove()


WITHOUT_ITS_FIRST_THREAD = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended_is_ended_with_its_group() -> None:
    groups = ControlGroups.find()
    group = groups.make(SandboxLimits()) if groups.controllers else ControlGroup({})
    with subprocess.Popen([sys.executable, "-c", WITHOUT_ITS_FIRST_THREAD]) as process:
        try:
            group.add([process.pid])
            while "State:\tZ" not in Path(f"/proc/{process.pid}/status").read_text():
                assert process.poll() is None
            group.remove()
            assert not groups.controllers or process.wait(60) == -signal.SIGKILL
        finally:
            process.kill()
            group.remove()


HANDED = """
import asyncio, os, sys
from pathlib import Path
from antwort.sandbox import Sandbox

folders = [Path("/sys/fs/cgroup", name, sys.argv[1]) for name in ("memory", "cpu", "pids")]
if Path("/sys/fs/cgroup/memory/tasks").exists() and os.geteuid() == 0:
    for folder in folders:
        folder.mkdir(exist_ok=True)
        os.chown(folder, 65534, 65534)
        (folder / "cgroup.procs").write_text("0")
    if os.fork() != 0:
        code = os.waitstatus_to_exitcode(os.wait()[1])
        for folder in folders:
            (folder.parent / "cgroup.procs").write_text("0")
            folder.rmdir()
        sys.exit(code)
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
print(asyncio.run(Sandbox().run(["echo", "tea"])).stdout.decode())
"""
"""Starts a command as somebody who was handed folders of version 1, and not what is in them."""


def test_who_was_handed_a_folder_for_groups_and_nothing_in_it_starts_commands_there() -> None:
    command = [sys.executable, "-c", HANDED, f"handed-{os.getpid()}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("tea", 0), done.stderr


def test_users_are_those_of_nobody() -> None:
    assert unused_user() > 1000
    assert _range("0 0 4294967295\n").start == 1_879_048_192
    assert _range("0 100000 65536\n") == range(32_768, 65_520)
    assert len(_range("0 1000 1\n")) == 0
    assert len(_range("0 1000 1\n1000 0 5\n")) == 0
    assert _range("0 1000 1\n1 100000 65536\n") == range(32_769, 65_521)


def test_a_group_that_is_to_end_has_the_processors_before_others(tmp_path: Path) -> None:
    old, new = folder_with(tmp_path / "1"), folder_with(tmp_path / "2", cpu__weight="12", cpu__max="1 2")
    assert all(ControlGroup({"cpu": folder}).hurry() for folder in (old, new))
    assert not ControlGroup({}).hurry()
    assert ((old / "cpu.shares").read_text(), (old / "cpu.cfs_quota_us").read_text()) == ("262144", "-1")
    assert ((new / "cpu.weight").read_text(), (new / "cpu.max").read_text()) == ("10000", "max")


@pytest.mark.parametrize(("niceness", "shares"), [(0, "1024"), (10, "110"), (19, "15")])
def test_a_group_has_as_little_as_a_process_of_that_niceness(tmp_path: Path, niceness: int, shares: str) -> None:
    old, new = folder_with(tmp_path / "1"), folder_with(tmp_path / "2", cpu__weight__nice="0")
    for folder in (old, new):
        ControlGroup({"cpu": folder}).stand_back(niceness)
    ControlGroup({}).stand_back(niceness)
    assert (old / "cpu.shares").read_text() == shares
    assert [file.read_text() for file in new.iterdir()] == [str(niceness)]
