"""One contract for every runtime that this machine has: what a sandbox does is the same, whoever does it."""

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from tests.sandbox.stage import SECRET, Machine, machine
from tests.sandbox.test_orphans import descriptors, ends, running
from tests.sandbox.test_sandbox import names

from antwort import Antwort
from antwort.config import Choice, Config
from antwort.errors import ConfigError
from antwort.sandbox import BareHost, Sandbox, SandboxLimits, SandboxRuntime, sandbox_of
from antwort.testing import ScriptedBackend

OTHERS = [name if name == "runsc" else path for name in ("runsc", "runc") if (path := shutil.which(name))]
"""Those that are installed; the setup of development installs gVisor."""
CONFINED = ["bubblewrap", *OTHERS]


@pytest.fixture(params=[*CONFINED, "unsafe"])
def box(request: pytest.FixtureRequest) -> Sandbox:
    return sandbox_of(request.param, Sandbox())


@pytest.fixture(params=CONFINED)
def confined(request: pytest.FixtureRequest) -> Sandbox:
    return sandbox_of(request.param, Sandbox())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    return own


def owner(path: Path) -> int:
    return path.stat().st_uid


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for what is needed for a while, which everybody can enter."""
    with tempfile.TemporaryDirectory() as own:
        Path(own).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", own)
        yield Path(own)


def test_gvisor_is_among_those_that_are_tried() -> None:
    assert "runsc" in OTHERS


def test_settings_take_names_and_paths_and_nothing_else() -> None:
    setting: TypeAdapter[Choice] = TypeAdapter(SandboxRuntime)
    for runtime in ("bubblewrap", "runsc", "unsafe", "/usr/bin/crun"):
        assert setting.validate_python(runtime) == runtime
    for runtime in ("docker", "", "bin/crun"):
        with pytest.raises(ValidationError):
            setting.validate_python(runtime)
    own = Sandbox()
    assert sandbox_of("bubblewrap", own) is own
    assert isinstance(sandbox_of("unsafe", own), BareHost)


async def test_a_runtime_that_is_not_installed_is_told() -> None:
    with pytest.raises(ConfigError, match="needs '/nowhere/crun', which is not installed"):
        await sandbox_of("/nowhere/crun", Sandbox()).prepare()


async def test_a_runtime_that_starts_nothing_is_told(tmp_path: Path) -> None:
    program = tmp_path / "broken"
    program.write_text("#!/bin/sh\necho 'no such machine' >&2\nexit 1\n")
    program.chmod(0o755)
    for folder in list(program.parents)[:-2]:  # whoever runs it is somebody else
        folder.chmod(0o755)
    with pytest.raises(ConfigError, match=r"starts no sandbox here: .*no such machine"):
        await sandbox_of(str(program), Sandbox()).prepare()


async def test_a_command_has_input_output_errors_and_an_exit_code(box: Sandbox, folder: Path) -> None:
    await box.prepare()
    done = await box.run(["sh", "-c", "cat; echo err >&2; exit 7"], folder, stdin=b"in" * 50_000)
    assert (done.ending, done.exit_code, done.stdout, done.stderr) == ("exit", 7, b"in" * 50_000, b"err\n")


async def test_a_command_that_a_signal_ends_or_that_is_not_there_says_so(box: Sandbox, folder: Path) -> None:
    done = await box.run(["bash", "-c", "sh -c 'kill -TERM $$'"], folder)
    assert (done.ending, done.exit_code) == ("exit", 128 + 15)
    done = await box.run(["bash", "-c", "no-such-program"], folder)
    assert (done.exit_code, b"no-such-program" in done.stderr) == (127, True)


async def test_files_stay_in_the_folder_and_belong_to_whom_it_belongs(box: Sandbox, folder: Path) -> None:
    await asyncio.to_thread(box.adopt, folder)
    done = await box.run(["sh", "-c", 'echo tea > tea; pwd; echo "$MODE"'], folder, environment={"MODE": "test"})
    assert done.stdout.decode().split() == [str(folder) if isinstance(box, BareHost) else "/workspace", "test"]
    done = await box.run(["cat", "tea"], folder)
    assert done.stdout == b"tea\n"
    assert owner(folder / "tea") == owner(folder)


async def test_limits_end_a_command_and_keep_what_it_wrote(box: Sandbox, folder: Path) -> None:
    done = await box.run(["sh", "-c", "echo begun; sleep 600"], folder, limits=SandboxLimits(seconds=3.0))
    assert (done.ending, done.exit_code, done.stdout, done.stderr) == ("time", None, b"begun\n", b"")
    done = await box.run(["yes"], folder, limits=SandboxLimits(output_bytes=100_000))
    assert (done.ending, len(done.stdout)) == ("output", 100_000)
    script = "for i in 1 2 3 4 5 6 7 8; do head -c 1M /dev/zero > $i; done; sleep 600"
    done = await box.run(["bash", "-c", script], folder, limits=SandboxLimits(disk_bytes=2 << 20))
    assert done.ending == "disk"
    done = await box.run(["sh", "-c", "head -c 9000000 /dev/zero > x"], folder, limits=SandboxLimits(file_bytes=4096))
    assert (folder / "x").stat().st_size <= 4096


async def test_memory_is_limited(box: Sandbox, folder: Path) -> None:
    program = "kept = []\nwhile True: kept.append(bytearray(10**7))"
    script = f"python3 -c '{program}'; exit 1"
    done = await box.run(["bash", "-c", script], folder, limits=SandboxLimits(memory=128 << 20, seconds=60))
    assert done.ending == "memory" or (done.ending == "exit" and b"MemoryError" in done.stderr)


async def test_processes_are_limited(confined: Sandbox, folder: Path) -> None:
    program = """
import os, time
try:
    for _ in range(40):
        if os.fork() == 0:
            time.sleep(600)
except OSError:
    print("contained")
"""
    done = await confined.run(["python3", "-c", program], folder, limits=SandboxLimits(processes=16))
    assert (done.ending, done.stdout) == ("exit", b"contained\n")


async def test_nothing_of_the_machine_is_in_reach(confined: Sandbox, folder: Path) -> None:
    (folder.parent / "secret").write_text(SECRET)
    program = f"""
import os, socket
def attempt(what, act):
    try:
        act()
    except OSError:
        print(what, "contained")
    else:
        print(what, "ESCAPED")
attempt("read", lambda: open("{folder.parent}/secret").read())
attempt("shadow", lambda: open("/etc/shadow").read())
attempt("write", lambda: open("/usr/evil", "w"))
attempt("root", lambda: open("/evil", "w"))
attempt("connect", lambda: socket.create_connection(("192.0.2.1", 80), timeout=1))
attempt("see", lambda: os.stat("/proc/{os.getpid()}/environ"))
attempt("kill", lambda: os.kill({os.getpid()}, 0))
print(open("/proc/self/status").read().count("CapEff:\\t0000000000000000"))
"""
    done = await confined.run(["python3", "-c", program], folder)
    told = done.stdout.decode().splitlines()
    assert [line for line in told if not line.endswith("contained")] == ["1"], (told, done.stderr)
    assert len(told) == 8


async def test_a_process_is_talked_to_interrupted_paused_and_resumed(box: Sandbox, folder: Path) -> None:
    program = """
while True:
    try:
        line = input()
        open("count", "a").write("x")
        print("heard", line, flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
    async with asyncio.timeout(120), box.open(["python3", "-c", program], folder) as process:
        await process.write(b"one\n")
        assert await process.stdout.readline() == b"heard one\n"
        process.interrupt()
        assert await process.stdout.readline() == b"interrupted\n"
        await process.pause()
        assert process.ending is None
        await process.write(b"two\n")
        await asyncio.sleep(0.2)  # nothing can happen that could be waited for
        assert (folder / "count").read_text() == "x"
        await process.resume()
        assert await process.stdout.readline() == b"heard two\n"
    assert process.ending == "killed"


async def test_nothing_is_left_of_commands_that_ended_or_that_nobody_wants_any_more(
    confined: Sandbox, folder: Path, temporary: Path
) -> None:
    mark = f"600.{secrets.randbelow(10**9):09}"
    await confined.run(["true"], folder)
    before = descriptors()
    await confined.run(["bash", "-c", f"setsid sleep {mark} & (sleep {mark} &) ; sleep 0.1"], folder)
    assert running(mark) == []
    for seconds in (0.0, 0.01, 0.05, 0.2, 1.0):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(confined.run(["sleep", mark], folder), seconds)
        await ends(mark)
    assert descriptors() <= before
    assert names(temporary) == []


@pytest.fixture(scope="module", params=[f"ordinary {runtime}" for runtime in OTHERS])
def outside(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with machine(request.param) as one:
        yield one


def test_a_server_that_is_not_root_has_it_too(outside: Machine) -> None:
    done = outside.run(["sh", "-c", "cat @database@ @key@; echo tea > tea; cat tea; exit 3"])
    assert (done.ending, done.exit_code, done.stdout) == ("exit", 3, b"tea\n")
    assert SECRET.encode() not in done.stderr
    outside.check_unharmed()


@pytest.mark.parametrize("runtime", OTHERS)
async def test_a_workspace_has_the_runtime_that_is_chosen(runtime: str, tmp_path: Path) -> None:
    providers = {"workspace": {"enabled": True, "sandbox": runtime}}
    config = Config.model_validate({"data_dir": tmp_path, "providers": providers})
    with ScriptedBackend([]) as model:
        async with Antwort(config, backend=model) as app:
            await app.registry.execute("shell", {"command": "id -u > who; echo tea >> who"})
            told = await app.registry.execute("shell", {"command": "cat who"})
    assert r"'0\ntea\n'" in str(told)  # it is root of its own namespace, which bubblewrap's is not


SERVER = """
import asyncio, sys
from antwort.sandbox import Sandbox, sandbox_of
from antwort.sandbox.control_groups import ControlGroups

async def main():
    box = sandbox_of(sys.argv[1], Sandbox())
    await box.prepare()
    box._groups = ControlGroups({})  # the next server would end what is left in them
    async with box.open(["sh", "-c", "echo begun; sleep 600"]) as process:
        sys.stdout.buffer.write(await process.stdout.readline())
        sys.stdout.flush()
        await process.wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("runtime", OTHERS)
async def test_a_runtime_ends_with_a_server_that_is_killed(runtime: str, temporary: Path) -> None:
    command, environment = [sys.executable, "-c", SERVER, runtime], {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as server:  # noqa: ASYNC220
        assert server.stdout is not None
        assert await asyncio.to_thread(server.stdout.readline) == b"begun\n"
        (bundle,) = map(str, temporary.iterdir())  # noqa: ASYNC240 - once
        assert running(bundle)
        server.kill()
    await ends(bundle)
