"""What providers can do with the sandbox: run a command, talk to a process, and learn how it ended."""

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from antwort.errors import ConfigError, FunctionUnavailableError
from antwort.sandbox import BareHost, Sandbox, SandboxLimits, bubblewrap, sandbox
from antwort.sandbox.control_groups import ControlGroups
from antwort.sandbox.limits import LEAST, NICENESS
from antwort.sandbox.mounts import SYSTEM_PATH
from antwort.sandbox.usage import descendants
from antwort.sandbox.users import has_others, own_user


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    return own


async def appears(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.01)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def groups_of(process: int) -> list[str]:
    """Return the control groups of ours that a process is in."""
    return [line for line in Path(f"/proc/{process}/cgroup").read_text().splitlines() if "/antwort-" in line]


def groups_left(box: Sandbox) -> list[Path]:
    """Return the control groups of this process that there still are."""
    groups = box._groups or ControlGroups({})
    return [path for parent in groups._parents.values() for path in parent.glob(f"antwort-{os.getpid()}-*")]


async def test_a_command_has_its_output_its_errors_and_its_exit_code(folder: Path) -> None:
    done = await Sandbox().run(["sh", "-c", "echo out; echo err >&2; exit 7"], folder)
    assert (done.ending, done.exit_code, done.stdout, done.stderr) == ("exit", 7, b"out\n", b"err\n")


async def test_a_command_that_a_signal_ends_has_128_and_the_signal(folder: Path) -> None:
    done = await Sandbox().run(["sh", "-c", "kill -TERM $$"], folder)
    assert (done.ending, done.exit_code) == ("exit", 128 + 15)


async def test_a_command_that_is_not_there_is_no_failure_of_the_sandbox(folder: Path) -> None:
    done = await Sandbox().run(["no-such-program"], folder)
    assert done.exit_code == 127
    assert b"no-such-program" in done.stderr


@pytest.mark.parametrize("kind", [Sandbox, BareHost])
async def test_a_command_and_what_it_starts_stand_back_behind_the_server(kind: type[Sandbox], folder: Path) -> None:
    async with kind().open(["sh", "-c", "nice; sleep 0.2; sh -c nice"], folder) as process:
        niceness = b"%d" % min(19, os.getpriority(os.PRIO_PROCESS, 0) + process._niceness)
        assert (await process.stdout.read()).split() == [niceness, niceness]


@pytest.mark.parametrize("limits", [SandboxLimits(), SandboxLimits(niceness=NICENESS + 2)])
@pytest.mark.parametrize("kind", [Sandbox, BareHost])
async def test_a_command_that_goes_on_computing_stands_back_further(
    kind: type[Sandbox], limits: SandboxLimits, folder: Path
) -> None:
    least = min(19, os.getpriority(os.PRIO_PROCESS, 0) + limits.niceness)
    waiting = f'while [ "$(nice)" -lt {least} ]; do :; done; nice'
    done = await kind().run(["sh", "-c", waiting], folder, limits=limits)
    assert (done.ending, done.stdout) == ("exit", b"%d\n" % least)


@pytest.mark.parametrize("has_groups", [True, False])
async def test_the_first_process_which_ends_all_others_does_not_stand_back(folder: Path, has_groups: bool) -> None:
    box = Sandbox()
    await box.prepare()
    if not has_groups:
        box._groups = ControlGroups({})
    own = os.getpriority(os.PRIO_PROCESS, 0)
    async with box.open(["sh", "-c", "echo begun; sleep 600"], folder) as running:
        assert await running.stdout.readline() == b"begun\n"
        first, *others = (os.getpriority(os.PRIO_PROCESS, one) for one in descendants(running._first or 0))
        assert first == own
        assert others
        assert all(other > own for other in others)


def test_a_server_that_may_open_few_files_has_a_sandbox_that_may_open_as_few() -> None:
    program = (
        "import asyncio, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); "
        "from antwort.sandbox import Sandbox; print(asyncio.run(Sandbox().run(['sh', '-c', 'ulimit -n'])).stdout)"
    )
    unprivileged = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"] if os.geteuid() == 0 else []
    done = subprocess.run([*unprivileged, sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("b'100\\n'\n", "")


async def test_input_is_read(folder: Path) -> None:
    done = await Sandbox().run(["wc", "-l"], folder, stdin=b"line\n" * 100_000)
    assert done.stdout.strip() == b"100000"


async def test_input_that_nobody_reads_holds_nobody_up(folder: Path) -> None:
    done = await Sandbox().run(["true"], folder, stdin=b"x" * 1_000_000)
    assert done.exit_code == 0


async def test_files_stay_in_the_folder(folder: Path) -> None:
    box = Sandbox()
    assert box.paths_of(folder) == ("/workspace", "/mnt/data")
    await box.run(["sh", "-c", "pwd > where; echo $HOME >> where"], folder)
    assert (folder / "where").read_text() == "/workspace\n/workspace\n"
    done = await box.run(["cat", "where"], folder)
    assert done.stdout == b"/workspace\n/workspace\n"


async def test_the_folder_has_another_path_unless_the_operator_needs_that(folder: Path) -> None:
    (folder / "file").write_text("here")
    assert (await Sandbox().run(["cat", "/mnt/data/file"], folder)).stdout == b"here"
    assert (await Sandbox().run(["cat", "/workspace/file"], folder, readonly=[Path("/mnt")])).stdout == b"here"


async def test_a_folder_may_be_given_by_a_relative_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for box in (Sandbox(), BareHost()):
        done = await box.run(["sh", "-c", "echo here > file; cat file"], Path("own"))
        assert done.stdout == b"here\n"


async def test_without_a_folder_nothing_can_be_kept() -> None:
    done = await Sandbox().run(["sh", "-c", "touch x || touch /tmp/x && echo fine"])
    assert done.stdout == b"fine\n"


async def test_variables_of_the_environment_are_given(folder: Path) -> None:
    done = await Sandbox().run(["env"], folder, environment={"LANG": "C", "MODE": "test"})
    told = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    assert told["MODE"] == "test"
    assert told["LANG"] == "C"
    assert set(told) == {"PATH", "HOME", "LANG", "TMPDIR", "USER", "MODE", "PWD"}


async def test_further_folders_can_be_read_but_not_changed(folder: Path) -> None:
    given = Path("/usr/share")
    done = await Sandbox().run(["sh", "-c", f"ls {given} >/dev/null && touch {given}/x"], folder, readonly=[given])
    assert b"Read-only" in done.stderr


async def test_output_up_to_the_limit_is_kept(folder: Path) -> None:
    limits = SandboxLimits(output_bytes=10)
    done = await Sandbox().run(["printf", "0123456789"], folder, limits=limits)
    assert (done.ending, done.stdout) == ("exit", b"0123456789")
    done = await Sandbox().run(["printf", "0123456789a"], folder, limits=limits)
    assert done.stdout == b"0123456789"


async def test_output_and_errors_have_one_limit_together(folder: Path) -> None:
    script = "yes | head -c 6000; yes n | head -c 6000 >&2; sleep 60"
    done = await Sandbox().run(["sh", "-c", script], folder, limits=SandboxLimits(output_bytes=10_000))
    assert (done.ending, len(done.stdout) + len(done.stderr)) == ("output", 10_000)


async def test_what_was_written_before_the_time_was_over_is_told(folder: Path) -> None:
    done = await Sandbox().run(["sh", "-c", "echo begun; sleep 60"], folder, limits=SandboxLimits(seconds=1.0))
    assert (done.ending, done.exit_code, done.stdout) == ("time", None, b"begun\n")


async def test_a_folder_that_is_too_full_can_be_cleaned_up(folder: Path) -> None:
    for number in range(30):
        (folder / f"old{number}").write_bytes(bytes(100_000))
    limits = SandboxLimits(disk_bytes=2_000_000)
    done = await Sandbox().run(["sh", "-c", "sleep 0.3; rm old*; echo cleaned"], folder, limits=limits)
    assert (done.ending, done.stdout) == ("exit", b"cleaned\n")


async def test_many_commands_at_once_do_not_mix(folder: Path) -> None:
    box = Sandbox()
    done = await asyncio.gather(*(box.run(["echo", str(number)], folder) for number in range(8)))
    assert [one.stdout for one in done] == [f"{number}\n".encode() for number in range(8)]


async def test_a_process_is_talked_to(folder: Path) -> None:
    async with Sandbox().open(["python3", "-u", "-c", "while True: print(int(input()) + 1)"], folder) as process:
        for number in range(3):
            await process.write(f"{number}\n".encode())
            assert await process.stdout.readline() == f"{number + 1}\n".encode()
        assert process.ending is None
    assert process.ending == "killed"


async def test_a_process_that_is_interrupted_goes_on(folder: Path) -> None:
    program = """
import time
while True:
    try:
        print("waiting")
        time.sleep(600)
    except KeyboardInterrupt:
        print("interrupted")
"""
    async with Sandbox().open(["python3", "-u", "-c", program], folder) as process:
        assert await process.stdout.readline() == b"waiting\n"
        process.interrupt()
        assert await process.stdout.readline() == b"interrupted\n"
        assert await process.stdout.readline() == b"waiting\n"


async def test_a_process_that_is_paused_stands_still_with_all_that_it_has_started(folder: Path) -> None:
    program = "(while :; do echo x >> ticks; done) & while read line; do echo $line; done"
    async with Sandbox().open(["bash", "-c", program], folder) as process:
        await process.write(b"one\n")
        assert await process.stdout.readline() == b"one\n"
        await process.pause()
        ticks = folder / "ticks"
        before = ticks.stat().st_size if ticks.exists() else 0
        await process.write(b"two\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await process.stdout.readline()
        assert before == (ticks.stat().st_size if ticks.exists() else 0)
        await process.resume()
        assert await process.stdout.readline() == b"two\n"


async def test_a_process_that_ends_by_itself_says_how(folder: Path) -> None:
    async with Sandbox().open(["sh", "-c", "read line; exit 3"], folder) as process:
        await process.write(b"go\n")
        assert await process.wait() == "exit"
        assert process.exit_code == 3
        await process.write(b"more\n")  # nobody reads it


async def test_a_process_that_takes_too_much_is_ended_while_nobody_looks(folder: Path) -> None:
    limits = SandboxLimits(disk_bytes=1_000_000)
    script = "head -c 9000000 /dev/zero > x; sleep 600"
    async with Sandbox().open(["sh", "-c", script], folder, limits=limits) as process:
        assert await process.wait() == "disk"


async def test_a_writer_whom_nobody_reads_is_held_back_and_ends(folder: Path) -> None:
    script = "while true; do echo $((n=n+1)) >> count; yes | head -c 50000; done"
    async with Sandbox().open(["bash", "-c", script], folder):
        await appears(folder / "count")
    assert len((folder / "count").read_text().splitlines()) < 30


async def test_a_process_that_is_ended_has_its_share_of_the_processors_again_to_end(folder: Path) -> None:
    async with Sandbox().open(["sleep", "60"], folder) as process:
        group = process._group
        place = None if group is None else group._folders.get("cpu")
        if group is None or place is None:  # where there are no groups there is nothing to give back
            return
        await asyncio.to_thread(group.stand_back, LEAST)
        name = "cpu.shares" if (place / "cpu.shares").exists() else "cpu.weight.nice"
        before = (place / name).read_text()
        process.kill("time")
        assert (place / name).read_text() != before
        assert await process.check() is None
        assert (place / name).read_text() != before


async def test_the_share_of_a_session_that_is_ended_is_not_lowered_any_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Sandbox()
    await box.prepare()
    box._groups = ControlGroups({})
    # As for a user like any other, whose turn it is not.
    monkeypatch.setattr("antwort.sandbox.process._set_shares", lambda _processes, _niceness: False)
    async with box.open(["sleep", "60"], folder) as process:
        first = process._first or 0
        assert not process._set_own_shares(first)
        process.kill("time")
        assert process._set_own_shares(first)  # there is nothing to try again


async def test_whoever_is_cancelled_leaves_no_process_behind(folder: Path) -> None:
    script = "touch begun; while true; do date > $(mktemp -p .); sleep 0.01; done"
    running = asyncio.create_task(Sandbox().run(["sh", "-c", script], folder))
    await appears(folder / "begun")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    before = names(folder)
    await asyncio.sleep(0.1)  # nothing can happen that could be waited for
    assert names(folder) == before


async def test_control_groups_are_given_back(folder: Path) -> None:
    box = Sandbox()
    await box.run(["true"], folder)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(box.run(["sleep", "60"], folder), 0.2)
    assert groups_left(box) == []


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("turns", [1, 2, 4, 8, 16])
async def test_whoever_is_cancelled_twice_leaves_nothing_behind_either(folder: Path, begun: bool, turns: int) -> None:
    """Whoever waits for a call may be cancelled, and then all that still runs, because the server ends."""
    box = Sandbox()
    await box.run(["true"], folder)
    await asyncio.sleep(0)  # transports close in the next turn
    gc.collect()  # what belongs to sandboxes of other tests is closed with them
    before = names(Path("/proc/self/fd"))
    running = asyncio.create_task(box.run(["sh", "-c", "touch begun; sleep 600"], folder))
    await (appears(folder / "begun") if begun else asyncio.sleep(0.001 * turns))
    while not running.done():
        running.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
    assert running.cancelled()
    await asyncio.sleep(0)  # transports close in the next turn
    assert (groups_left(box), names(Path("/proc/self/fd"))) == ([], before)


async def test_a_command_begins_in_its_control_groups(folder: Path) -> None:
    box = Sandbox()
    await box.prepare()
    groups = box._groups or ControlGroups({})
    async with box.open(["sh", "-c", "echo begun; sleep 600"], folder) as running:
        assert await running.stdout.readline() == b"begun\n"
        inside = list(descendants(running._first or 0))
        assert len(inside) > 1
        assert {len(groups_of(one)) for one in inside} == {len(set(groups._parents.values()))}


async def test_what_starts_a_command_has_no_rights_of_the_server(folder: Path) -> None:
    async with Sandbox().open(["sleep", "600"], folder) as running:
        lines = (await asyncio.to_thread(Path(f"/proc/{running._process.pid}/status").read_text)).splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    user = str(own_user(folder) if has_others() else os.geteuid())
    assert status["Uid"] == [user] * 4
    assert [status[name] for name in ("CapPrm", "CapEff", "CapAmb", "NoNewPrivs")] == [["0" * 16]] * 3 + [["1"]]
    assert not has_others() or (status["Gid"], status["Groups"]) == ([user] * 4, [])


async def test_a_command_that_nobody_lets_begin_never_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may end while a command waits for its limits."""
    box = Sandbox()
    await box.prepare()
    monkeypatch.setattr("antwort.sandbox.process.GO", b"")
    async with box.open(["touch", "begun"], folder) as waiting:
        waiting.stdin.close()
        await waiting.wait()
    assert names(folder) == []


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Folders that everybody can enter, where root shows things; each has another one in it."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        found = [Path(place, name) for name in ("first", "second", "third", "fourth", "fifth")]
        for stage in found:
            (stage / "shown").mkdir(parents=True)
            (stage / "shown" / "file").write_text(stage.name)
        (found[2] / "own").mkdir()
        (found[2] / "link").symlink_to(found[1] / "shown")
        monkeypatch.setattr(bubblewrap, "_STAGES", tuple(map(str, found)))
        yield found


async def test_further_folders_can_be_where_root_shows_things_to_others(stages: list[Path]) -> None:
    shown = [stages[0] / "shown", stages[2] / "link"]
    done = await Sandbox().run(["cat", *(str(path / "file") for path in shown)], stages[2] / "own", readonly=shown)
    assert done.stdout == b"firstsecond"


async def test_a_command_has_as_many_processors_as_it_may_where_groups_hold_its_memory_only(folder: Path) -> None:
    box = Sandbox()
    await box.prepare()
    assert box._groups is not None
    box._groups = ControlGroups({name: place for name, place in box._groups._parents.items() if name != "cpu"})
    choosing = (
        "import os; print(len(os.sched_getaffinity(0)), flush=True); os.sched_setaffinity(0, range(os.cpu_count()))"
    )
    done = await box.run(["python3", "-c", f"{choosing}; print('more')"], folder, limits=SandboxLimits(cpus=1.0))
    assert done.stdout == (b"1\n" if (os.cpu_count() or 1) > 1 else b"1\nmore\n")


async def test_a_machine_without_bubblewrap_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="apt-get install bubblewrap util-linux"):
        await Sandbox().prepare()


async def test_a_machine_that_forbids_it_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nsenter").write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    (tmp_path / "nsenter").chmod(0o755)
    (tmp_path / "bwrap").symlink_to("nsenter")
    monkeypatch.setattr(sandbox, "SYSTEM_PATH", f"{tmp_path}:{SYSTEM_PATH}")
    with pytest.raises(ConfigError, match=r"cannot be started here: .*No permissions to create new namespace"):
        await Sandbox().prepare()


async def test_a_machine_whose_first_process_is_open_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "_UNREADABLE", "0555")  # as if the kernel let others look at what cannot be read
    with pytest.raises(ConfigError, match=r"take over: .* sysctl fs\.suid_dumpable=0"):
        await Sandbox().prepare()


async def test_the_first_process_can_be_any_shell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "_SHELL", Path("/bin/bash"))
    box = Sandbox()
    await box.prepare()
    done = await box.run(["sh", "-c", "kill -INT 1; cat; echo err >&2; kill -TERM $$"], folder, stdin=b"in")
    assert (done.exit_code, done.stdout, done.stderr) == (128 + 15, b"in", b"err\n")


async def test_a_folder_that_is_gone_is_no_crash(tmp_path: Path) -> None:
    with pytest.raises(FunctionUnavailableError, match="cannot be started: No such file") as caught:
        await Sandbox().run(["true"], tmp_path / "gone")
    assert str(tmp_path) not in str(caught.value)


async def test_why_it_cannot_be_started_says_nothing_about_this_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nsenter", "bwrap"):
        (folder.parent / name).write_text(f"#!/bin/sh\necho 'no source path {folder}' >&2\nexit 1\n")
        (folder.parent / name).chmod(0o755)
    box = Sandbox()
    box._groups = ControlGroups({})
    monkeypatch.setattr(sandbox, "SYSTEM_PATH", f"{folder.parent}:{SYSTEM_PATH}")
    with pytest.raises(FunctionUnavailableError, match="cannot be started: no source path /workspace"):
        await box.run(["true"], folder)


async def test_the_bare_host_is_no_sandbox_but_has_limits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTWORT_TEST_SECRET", "secret")
    host = BareHost()
    await host.prepare()
    assert host.paths_of(folder) == (str(folder),)
    done = await host.run(["sh", "-c", "pwd; env; exit 4"], folder)
    assert done.exit_code == 4
    assert done.stdout.startswith(f"{folder}\n".encode())
    assert b"secret" not in done.stdout
    program = "import time; time.sleep(60)"
    done = await host.run([sys.executable, "-c", program], folder, limits=SandboxLimits(seconds=0.3))
    assert done.ending == "time"
    await host.run(["sh", "-c", "head -c 9000000 /dev/zero > x"], folder, limits=SandboxLimits(file_bytes=1000))
    assert (folder / "x").stat().st_size == 1000
