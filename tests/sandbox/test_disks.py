"""Folders of tenants have file systems of their own: nothing that code does in one takes more than its limits."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.inner_files import found

from antwort.errors import ServiceUnavailableError
from antwort.sandbox import Sandbox, SandboxLimits, TenantFolders
from antwort.sandbox.images import image_size, make_image
from antwort.sandbox.rules import SandboxRules

MB = 1 << 20
LIMITS = SandboxLimits(disk_bytes=(512 if "ANTWORT_TEST_FULL" in os.environ else 48) * MB, disk_files=500, seconds=60.0)


class Things(TenantFolders):
    what = "thing"
    suffix = ".mark"

    def at(self, name: str, tenant: str = "t") -> Path:
        """Return a folder, which is made if it is not there."""
        folder = self._of(tenant) / name
        if not folder.is_dir():
            self._make(folder)
            self._mark(folder).touch()
        return folder


@contextlib.asynccontextmanager
async def opened(place: Path, limits: SandboxLimits = LIMITS, sandbox: Sandbox | None = None) -> AsyncIterator[Things]:
    things = Things(place, sandbox or Sandbox(), keep=3600.0, most=100, limits=limits)
    await things.open()
    try:
        yield things
    finally:
        await things.close()


async def executed(things: Things, code: str, name: str = "one", limits: SandboxLimits = LIMITS) -> str:
    """Run Python in a folder, and return what it says."""
    async with things.in_use(lambda: things.at(name)) as used:
        done = await things._sandbox.run(["python3", "-c", code], used.folder, limits=limits)
    assert done.ending == "exit", done
    return done.stdout.decode() + done.stderr.decode()


def devices(place: Path) -> list[str]:
    """Return the loop devices of images in a place."""
    told = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "BACK-FILE"], capture_output=True, check=True
    )
    return [line for line in told.stdout.decode().splitlines() if line.startswith(str(place))]


def names(place: Path, pattern: str = "*/*") -> list[str]:
    """Return what is in the folders of tenants."""
    return sorted(path.name for path in place.glob(pattern))


def check(place: Path) -> None:
    """No image has suffered."""
    for image in place.glob("*/*.disk"):
        checked = subprocess.run(["e2fsck", "-f", "-n", image], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout


def killed(program: str, place: Path) -> str:
    """Start a program, kill it when it has said something, and return that."""
    command, here = [sys.executable, "-c", program, str(place)], Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=here) as server:
        assert server.stdout is not None
        told = server.stdout.readline()
        server.kill()
    return told


def taken(place: Path) -> int:
    """Return how many bytes of the disk everything in a place takes."""
    return sum(path.lstat().st_blocks * 512 for path in place.rglob("*"))


GREEDY = {
    "files that are allocated": (
        "import os\n"
        "for n in range(60):\n"
        "    f = os.open(f'f{n}', os.O_CREAT | os.O_RDWR)\n"
        "    try: os.posix_fallocate(f, 0, LIMIT // 5)\n"
        "    except OSError as e: print(e.errno); break\n"
    ),
    "files that are written": (
        "import os\n"
        "for n in range(60):\n"
        "    try: open(f'f{n}', 'wb').write(bytes(LIMIT // 5))\n"
        "    except OSError as e: print(e.errno); break\n"
    ),
    "files without a name": (
        "import os\n"
        "held = []\n"
        "for n in range(60):\n"
        "    held.append(os.open('.', os.O_TMPFILE | os.O_RDWR))\n"
        "    try: os.posix_fallocate(held[-1], 0, LIMIT // 5)\n"
        "    except OSError as e: print(e.errno); break\n"
    ),
    "files that are mapped and deleted": (
        "import mmap, os\n"
        "held = []\n"
        "for n in range(60):\n"
        "    f = os.open('f', os.O_CREAT | os.O_RDWR)\n"
        "    try: os.posix_fallocate(f, 0, LIMIT // 5)\n"
        "    except OSError as e: print(e.errno); break\n"
        "    held.append(mmap.mmap(f, LIMIT // 5)); os.unlink('f'); os.close(f)\n"
    ),
    "files with holes": (
        "import os\n"
        "for n in range(60):\n"
        "    f = os.open(f'f{n}', os.O_CREAT | os.O_RDWR)\n"
        "    os.ftruncate(f, LIMIT)\n"
        "    try: os.pwrite(f, bytes(LIMIT // 5), LIMIT // 2)\n"
        "    except OSError as e: print(e.errno); break\n"
        "    if os.fstat(f).st_blocks * 512 < LIMIT // 5: print(28); break\n"
    ),
    "many files": (
        "for n in range(100_000):\n"
        "    try: open(f'f{n}', 'w').close()\n"
        "    except OSError as e: print(e.errno); break\n"
    ),
}


@pytest.mark.parametrize("code", GREEDY.values(), ids=GREEDY)
async def test_what_code_takes_of_the_disk_is_never_more_than_its_limit(tmp_path: Path, code: str) -> None:
    async with opened(tmp_path) as things:
        most = 0

        async def look() -> None:
            nonlocal most
            while True:
                most = max(most, await asyncio.to_thread(taken, tmp_path))

        looking = asyncio.create_task(look())
        async with things.in_use(lambda: things.at("one")) as used:
            limits = SandboxLimits(disk_bytes=LIMITS.disk_bytes, disk_files=LIMITS.disk_files, memory=2 << 30)
            run = ["python3", "-c", code.replace("LIMIT", str(LIMITS.disk_bytes))]
            done = await things._sandbox.run(run, used.folder, limits=limits)
            files = things._disks.files(used.folder)
        looking.cancel()
        assert done.ending == "disk" or done.stdout.split()[-1:] == [b"28"], done
        assert max(most, taken(tmp_path)) <= LIMITS.disk_bytes * 1.1
        assert files <= LIMITS.disk_files * 1.1


async def test_a_folder_has_room_for_what_its_limits_say(tmp_path: Path) -> None:
    async with opened(tmp_path) as things:
        code = f"import os; f = os.open('f', os.O_CREAT | os.O_RDWR); os.posix_fallocate(f, 0, {LIMITS.disk_bytes})"
        whole = SandboxLimits(disk_bytes=LIMITS.disk_bytes, file_bytes=2 * LIMITS.disk_bytes)
        assert await executed(things, code, limits=whole) == ""
        code = f"for n in range({LIMITS.disk_files - 1}): open(f'n{{n}}', 'w').close()"
        assert await executed(things, code) == ""


@pytest.mark.parametrize("size", [1, 20_000, MB, 48 * MB, 512 * MB, 3000 * MB])
@pytest.mark.parametrize("files", [1, 500, 20_000])
def test_an_image_holds_a_little_more_than_it_must(tmp_path: Path, size: int, files: int) -> None:
    image = tmp_path / "image"
    make_image(image, size, files, 0)
    assert image.stat().st_blocks * 512 <= MB
    assert size < image_size(size, files) <= size * 1.05 + 300 * files + MB


async def test_nothing_is_left_of_a_folder_that_is_deleted_or_of_a_server_that_has_ended(tmp_path: Path) -> None:
    async with opened(tmp_path) as things:
        await executed(things, "open('f', 'w').write('tea')")
        await executed(things, "open('f', 'w').write('milk')", "two")
        assert [path.read_text() for path in found(tmp_path, "*/*/f")] == ["tea", "milk"]
        things._delete(things.at("one"))
        assert names(tmp_path) == ["two", "two.disk", "two.mark"]
        assert len(devices(tmp_path)) == (1 if os.geteuid() == 0 else 0)
    assert devices(tmp_path) == []
    assert list(found(tmp_path, "*/*/f")) == []


async def test_files_stay_when_nobody_uses_a_folder_and_after_the_server(tmp_path: Path) -> None:
    async with opened(tmp_path) as things:
        await executed(things, "open('f', 'w').write('tea')")
        things._disks.release_idle(0.0)
        assert devices(tmp_path) == []
        assert await executed(things, "print(open('f').read())") == "tea\n"
    async with opened(tmp_path) as things:
        assert await executed(things, "print(open('f').read())") == "tea\n"


async def test_a_folder_from_before_goes_on_with_its_files(tmp_path: Path) -> None:
    sandbox = Sandbox()
    before = Things(tmp_path, sandbox, keep=3600.0, most=100)
    folder = before.at("one")
    code = (
        "import os; os.makedirs('a/b'); open('a/b/f', 'w').write('tea'); os.link('a/b/f', 'a/g')\n"
        "os.symlink('a', 'l')\n"
        "open('x', 'w').close(); os.chmod('x', 0o751)\n"
        "f = os.open('holes', os.O_CREAT | os.O_RDWR); os.ftruncate(f, 10**8); os.pwrite(f, b'z', 10**7)"
    )
    done = await sandbox.run(["python3", "-c", code], folder)
    assert done.exit_code == 0
    async with opened(tmp_path, sandbox=sandbox) as things:
        code = (
            "import os; print(open('l/b/f').read(), os.stat('a/g').st_nlink, oct(os.stat('x').st_mode), os.listdir())\n"
            "about = os.stat('holes'); print(about.st_size, about.st_blocks < 100)"
        )
        told = await executed(things, code)
        assert told.splitlines()[0].startswith("tea 2 0o100751 [")
        assert told.splitlines()[1] == "100000000 True"
        if things._disks.kind != "memory":
            assert list(folder.iterdir()) == []


async def test_two_processes_of_a_server_work_in_one_folder_at_the_same_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as one, opened(tmp_path) as two:
        rounds = 20
        code = "import os\nfor n in range(%d): open(f'%s{n}', 'w').write('x' * 10_000)"
        await asyncio.gather(executed(one, code % (rounds, "a")), executed(two, code % (rounds, "b")))
        for things in (one, two):
            assert await executed(things, "import os; print(len(os.listdir()))") == f"{2 * rounds}\n"
        assert len(devices(tmp_path)) <= 1
        one._delete(one.at("one"))
        assert await executed(two, "import os; print(os.listdir())") == "[]\n"
    await asyncio.to_thread(check, tmp_path)


SERVER = """
import asyncio, sys
from pathlib import Path
from tests.sandbox.test_disks import executed, opened

async def main():
    async with opened(Path(sys.argv[1])) as things:
        await executed(things, "open('f', 'w').write('tea')")
        async with things.in_use(lambda: things.at("one")) as used:
            async with things._sandbox.open(["sh", "-c", "echo milk > g; sleep 600"], used.folder):
                while not (things._disks.seen(used.folder) / "g").exists():
                    await asyncio.sleep(0.01)
                print("ready", flush=True)
                await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_server_that_is_killed_leaves_nothing_mounted_and_the_next_one_finds_the_files(tmp_path: Path) -> None:
    told = await asyncio.to_thread(killed, SERVER, tmp_path)
    assert told == "ready\n"
    async with opened(tmp_path) as things:
        assert await executed(things, "print(open('f').read())") == "tea\n"
        assert len(devices(tmp_path)) <= 1
    async with asyncio.timeout(60):
        while devices(tmp_path):  # noqa: ASYNC110 - the kernel takes it away
            await asyncio.sleep(0.01)


async def test_a_broken_image_is_a_clear_error_and_can_be_deleted(tmp_path: Path) -> None:
    async with opened(tmp_path) as things:
        await executed(things, "open('f', 'w').write('tea')")
        folder = things.at("one")
    folder.with_name("one.disk").write_bytes(bytes(10 * MB))
    async with opened(tmp_path) as things:
        with pytest.raises(ServiceUnavailableError, match="their file system cannot be mounted"):
            await executed(things, "print()")
        things._delete(folder)
        assert names(tmp_path) == []
        assert await executed(things, "print('fine')") == "fine\n"


async def test_a_call_begins_only_if_the_disk_has_room_for_all_that_it_may_write(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    free = disk.f_bavail * disk.f_frsize
    part = free // 10  # others use the disk, too
    sandbox = Sandbox(SandboxRules(disk_reserve=free - part * 5 // 2))
    async with opened(tmp_path, SandboxLimits(disk_bytes=part, disk_files=100), sandbox) as things:
        async with things.in_use(lambda: things.at("one")), things.in_use(lambda: things.at("one")):
            assert await executed(things, "print('fine')", "two") == "fine\n"
            async with things.in_use(lambda: things.at("two")):
                with pytest.raises(ServiceUnavailableError, match="The disk of the server is nearly full"):
                    await executed(things, "print('fine')", "three")
                async with things.in_use(lambda: things.at("three"), written=False):
                    pass
        assert await executed(things, "print('fine')", "three") == "fine\n"
