"""Folders of tenants have file systems of their own: nothing that code does in one takes more than its limits."""

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.support.inner_files import found

from antwort.errors import ConfigError, ServiceUnavailableError
from antwort.sandbox import Sandbox, SandboxLimits, TenantFolders, claims, disk_kinds, disks
from antwort.sandbox.disk_kinds import FuseImages, Images, LoopImages, MemoryDisks, ProjectQuotas, image_of
from antwort.sandbox.images import image_size, make_image
from antwort.sandbox.mounts import MountSpace
from antwort.sandbox.project_quotas import project_of
from antwort.sandbox.rules import SandboxRules

MB = 1 << 20
LIMITS = SandboxLimits(disk_bytes=(512 if "ANTWORT_TEST_FULL" in os.environ else 48) * MB, disk_files=500, seconds=60.0)


def _has_quotas() -> bool:
    """Tell whether this kernel knows project quotas: not every one was built with them."""
    try:
        with tempfile.TemporaryDirectory() as folder, quota_disk(Path(folder, "disk")):
            return True
    except subprocess.CalledProcessError:
        return False


@contextlib.contextmanager
def quota_disk(place: Path) -> Iterator[None]:
    """Have a disk with project quotas mounted at a place."""
    image = place.with_name(f"{place.name}.quotas")
    place.mkdir(exist_ok=True)
    with image.open("wb") as file:
        file.truncate(4 * LIMITS.disk_bytes + (512 << 20))
    make = ["mkfs.ext4", "-q", "-F", "-O", "quota,project", "-E", "quotatype=prjquota", str(image)]
    for command in (make, ["mount", "-o", "loop,prjquota", str(image), str(place)]):
        subprocess.run(command, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True, capture_output=True)
        image.unlink()


KINDS = {kind.name: kind for kind in disk_kinds.KINDS if os.geteuid() == 0 or kind.name == "memory"}
if "quota" in KINDS and not _has_quotas():
    del KINDS["quota"]  # that it is not taken for one that works is tested all the same
IMAGES = [name for name, kind in KINDS.items() if issubclass(kind, Images)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Have file systems of one kind only, one after the other."""
    monkeypatch.setattr(disks, "KINDS", (KINDS[request.param],))
    with quota_disk(tmp_path) if request.param == "quota" else contextlib.nullcontext():
        yield str(request.param)


@pytest.fixture(params=IMAGES)
def images(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have images, of one kind after the other."""
    monkeypatch.setattr(disks, "KINDS", (KINDS[request.param],))
    return str(request.param)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have images that the kernel mounts."""
    monkeypatch.setattr(disks, "KINDS", (LoopImages,))


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that everybody can get to."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


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
    """Return what makes file systems of images in a place: loop devices and processes."""
    told = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "BACK-FILE"], capture_output=True, check=True
    )
    found = [line for line in told.stdout.decode().splitlines() if line.startswith(str(place))]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes().split(b"\0")
            if command[0] == b"fuse2fs" and command[-2].startswith(os.fsencode(place)):
                found.append(process.name)
    return found


async def gone(place: Path, left: int = 0) -> None:
    """Wait until all but so many devices are gone: it is the kernel that takes them away."""
    async with asyncio.timeout(60):
        while len(devices(place)) != left:  # noqa: ASYNC110 - nobody else tells
            await asyncio.sleep(0.01)


def names(place: Path, pattern: str = "*/*") -> list[str]:
    """Return what is in the folders of tenants."""
    return sorted(path.name for path in place.glob(pattern))


def check(place: Path) -> None:
    """No image has suffered, once the kernel has written all of it."""
    end = time.monotonic() + 60
    while devices(place):
        assert time.monotonic() < end, "they stay mounted"
        time.sleep(0.01)
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
        "    try: held.append(os.open('.', os.O_TMPFILE | os.O_RDWR))\n"
        "    except OSError: held.append(os.open('f', os.O_CREAT | os.O_RDWR)); os.unlink('f')\n"
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


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("code", GREEDY.values(), ids=GREEDY)
async def test_what_code_takes_of_the_disk_is_never_more_than_its_limit(tmp_path: Path, code: str) -> None:
    async with opened(tmp_path) as things:
        async with things.in_use(lambda: things.at("one")) as used:
            limits = SandboxLimits(disk_bytes=LIMITS.disk_bytes, disk_files=LIMITS.disk_files, memory=2 << 30)
            run = ["python3", "-c", code.replace("LIMIT", str(LIMITS.disk_bytes))]
            done = await things._sandbox.run(run, used.folder, limits=limits)
            files = things._disks.files(used.folder)
            whole = os.statvfs(things._disks.seen(used.folder))
        assert done.ending == "disk" or done.stdout.split()[-1:] in ([b"28"], [b"122"]), done
        room = (whole.f_blocks - whole.f_bfree + whole.f_bavail) * whole.f_frsize
        assert max(room, taken(tmp_path)) <= LIMITS.disk_bytes * 1.1
        assert files <= LIMITS.disk_files * 1.1


@pytest.mark.usefixtures("kind")
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
    make_image(image, image_size(size, files), files, 0, UUID(int=1))
    assert image.stat().st_blocks * 512 <= MB
    assert size < image_size(size, files) <= size * 1.05 + 300 * files + MB


async def test_nothing_is_left_of_a_folder_that_is_deleted_or_of_a_server_that_has_ended(
    tmp_path: Path, kind: str
) -> None:
    async with opened(tmp_path) as things:
        await executed(things, "open('f', 'w').write('tea')")
        await executed(things, "open('f', 'w').write('milk')", "two")
        assert {path.read_text() for path in found(tmp_path, "*/*/f")} == {"tea", "milk"}
        things._delete(things.at("one"))
        assert names(tmp_path) == ["two", *(["two.disk"] if kind in IMAGES else []), "two.mark"]
        await gone(tmp_path, 1 if kind in IMAGES else 0)
        things._delete(things.at("two"))
        assert names(tmp_path) == []
        await executed(things, "open('f', 'w').write('tea')", "three")
    await gone(tmp_path)
    assert len(list(found(tmp_path, "*/*/f"))) == (0 if kind in IMAGES else 1)


@pytest.mark.usefixtures("kind")
async def test_files_stay_when_nobody_uses_a_folder_and_after_the_server(tmp_path: Path) -> None:
    async with opened(tmp_path) as things:
        await executed(things, "open('f', 'w').write('tea')")
        things._disks.release_idle(0.0)
        await gone(tmp_path)
        assert await executed(things, "print(open('f').read())") == "tea\n"
    async with opened(tmp_path) as things:
        assert await executed(things, "print(open('f').read())") == "tea\n"


@pytest.mark.usefixtures("kind")
async def test_what_is_in_a_folder_never_makes_its_limit_larger(tmp_path: Path) -> None:
    fill = (
        "import itertools, os\n"
        "for n in range(150): os.makedirs(f'folders/{n}', exist_ok=True)\n"
        "for n in itertools.count(len(os.listdir())):\n"
        "    try:\n"
        "        with open(f'f{n}', 'wb', 0) as file: os.posix_fallocate(file.fileno(), 0, LIMIT // 40)\n"
        "    except OSError: break\n"
        "for n in range(100):\n"
        "    try: os.link('f1', f'f1 {n}')\n"
        "    except OSError: break\n"
        "about = {os.stat(name).st_ino: os.stat(name).st_blocks * 512 for name in os.listdir()}\n"
        "print(sum(about.values()))\n"
    ).replace("LIMIT", str(LIMITS.disk_bytes))
    async with opened(tmp_path) as things:
        for _ in range(4):
            assert 0.8 * LIMITS.disk_bytes < int(await executed(things, fill)) < 1.1 * LIMITS.disk_bytes
            things._disks.release_idle(0.0)


async def test_a_folder_from_before_goes_on_with_its_files(tmp_path: Path, kind: str) -> None:
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
        assert (names(folder, "*") == []) is (kind in IMAGES)


async def test_where_a_disk_has_no_quotas_the_next_kind_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "KINDS", (ProjectQuotas, MemoryDisks))
    async with opened(tmp_path) as things:
        assert things._disks.kind == "memory"
        assert [reason.split(":")[0] for reason in things._disks.reasons] == ["quota"]
        assert await executed(things, "print('fine')") == "fine\n"


EVASIONS = {
    "another project": "fcntl.ioctl(os.open('d', os.O_RDONLY), 0x401c5820, struct.pack('=5I8x', 0, 0, 0, 7, 0))",
    "no project for what is new": "fcntl.ioctl(os.open('d', os.O_RDONLY), 0x40086602, struct.pack('q', 0))",
    "a link to outside": "os.link('f', '/tmp/f')",
    "a link from outside": "open('/tmp/g', 'w').close(); os.link('/tmp/g', 'g')",
    "a move to outside": "os.rename('d', '/tmp/d')",
}


@pytest.mark.parametrize("evasion", EVASIONS.values(), ids=EVASIONS)
async def test_code_cannot_leave_the_project_of_its_folder(tmp_path: Path, kind: str, evasion: str) -> None:
    async with opened(tmp_path) as things:
        code = (
            f"import fcntl, os, struct\nos.makedirs('d', exist_ok=True); open('f', 'w').close()\n"
            f"try: {evasion}\nexcept OSError as e: print('refused')\n"
            "def fill(n):\n"
            "    f = os.open(f'd/{n}', os.O_CREAT | os.O_RDWR)\n"
            f"    os.posix_fallocate(f, 0, {LIMITS.disk_bytes // 5})\n"
            "try: [fill(n) for n in range(60)]\nexcept OSError as e: print('full')"
        )
        assert await executed(things, code) == "refused\nfull\n"
        assert taken(tmp_path) <= LIMITS.disk_bytes * 1.1
        if kind == "quota":
            folder = things.at("one")
            assert project_of(folder) is not None
            assert {project_of(path) for path in folder.rglob("*") if path.is_dir()} == {project_of(folder)}


@pytest.fixture(params=[False, True], ids=["alone", "together"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MountSpace | None]:
    """Have what the processes of a server share; no image suffers from that."""
    shared = MountSpace.for_processes(2) if request.param else None
    yield shared
    if shared is not None:
        shared.close()
    check(tmp_path)


async def test_two_processes_of_a_server_work_in_one_folder_at_the_same_time(
    tmp_path: Path, kind: str, space: MountSpace | None
) -> None:
    rules = SandboxRules(processes=2)
    async with (
        opened(tmp_path, sandbox=Sandbox(rules, space)) as one,
        opened(tmp_path, sandbox=Sandbox(rules, space)) as two,
    ):
        assert one._disks.kind == two._disks.kind == (kind if space is not None or KINDS[kind].is_shared else None)
        rounds = 20
        code = "import os\nfor n in range(%d): open(f'%s{n}', 'w').write('x' * 10_000)"
        await asyncio.gather(executed(one, code % (rounds, "a")), executed(two, code % (rounds, "b")))
        for things in (one, two):
            assert await executed(things, "import os; print(len(os.listdir()))") == f"{2 * rounds}\n"
        assert len(devices(tmp_path)) <= 1
        async with two.in_use(lambda: two.at("one")):
            await asyncio.to_thread(one._disks.release_idle, 0.0)  # it is not theirs alone
            await executed(one, "open('c', 'w').write('tea')")
            assert await executed(two, "print(open('c').read())") == "tea\n"
        one._delete(one.at("one"))
        assert await executed(two, "import os; print(os.listdir())") == "[]\n"


WORKERS = """
from antwort.sandbox import Sandbox, SandboxRules
from antwort.sandbox.mounts import MountSpace

space = MountSpace.for_processes(2)
rules = SandboxRules(processes=2)
WRITE = "open('f', 'a').write('NAME'); print(sorted(open('f').read()))"

async def work(name, ready, go):
    async with test_disks.opened(place, sandbox=Sandbox(rules, space)) as things:
        told = await test_disks.executed(things, WRITE.replace("NAME", name))
        os.write(ready, (things._disks.kind + " " + told).encode())
        await asyncio.to_thread(os.read, go, 1)
        os._exit(0)  # as one that is killed, with what it has mounted

told = []
for name in "abc":
    (reading, writing), (waiting, letting) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(work(name, writing, waiting))
        finally:
            os._exit(1)
    os.close(writing)
    told.append(os.read(reading, 1000).decode().strip())
    os.write(letting, b"x")
    os.waitpid(child, 0)
print(*told, flush=True)
"""


def test_the_workers_of_an_ordinary_user_share_their_folders_and_what_one_leaves_when_it_is_killed(
    open_path: Path,
) -> None:
    told = killed(ORDINARY.split("async def main", maxsplit=1)[0] + WORKERS, open_path)
    assert told == "memory ['a'] memory ['a', 'b'] memory ['a', 'b', 'c']\n"


async def test_what_is_deleted_or_linked_in_memory_is_so_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "KINDS", (MemoryDisks,))
    async with opened(tmp_path) as things:
        folder = things.at("one")
        await executed(things, "import os; os.makedirs('a/b'); open('a/b/f', 'w').write('tea'); os.mkfifo('pipe')")
        assert names(folder, "**/*") == ["a", "b", "f"]
        await executed(things, "import os; os.link('a/b/f', 'g'); os.symlink('/etc/passwd', 'l'); os.chmod('a', 0)")
        assert (folder / "g").stat().st_nlink == 2
        assert (folder / "l").is_symlink()
        await executed(things, "import os, shutil; os.chmod('a', 0o700); shutil.rmtree('a'); os.mkdir('g2')")
        assert names(folder, "**/*") == ["g", "g2", "l"]
        await executed(
            things, "import os; os.rmdir('g2'); open('g2', 'w').write('milk'); os.unlink('g'); os.mkdir('g')"
        )
        assert ((folder / "g2").read_text(), (folder / "g").is_dir()) == ("milk", True)


ORDINARY = """
import asyncio, concurrent.futures.thread, ctypes, os, sys
from pathlib import Path
from tests.sandbox import test_disks

place = Path(sys.argv[1])
if os.geteuid() == 0:
    os.chown(place, 65534, 65534)
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as it is for who was never somebody else

async def main():
    async with test_disks.opened(place) as things:
        told = [things._disks.kind]
        for number, code in enumerate(test_disks.GREEDY.values()):
            code = code.replace("LIMIT", str(test_disks.LIMITS.disk_bytes))
            async with things.in_use(lambda: things.at(f"n{number}")) as used:
                done = await things._sandbox.run(["python3", "-c", code], used.folder, limits=test_disks.LIMITS)
            told.append("28" if done.ending == "disk" else done.stdout.decode().strip() or done.stderr.decode())
            assert test_disks.taken(used.folder) <= test_disks.LIMITS.disk_bytes * 1.1
            things._delete(used.folder)
        print(*told, flush=True)

asyncio.run(main())
"""


def test_the_limits_hold_for_a_server_that_is_an_ordinary_user(open_path: Path) -> None:
    told = killed(ORDINARY, open_path)
    assert told.split() == ["memory", *["28"] * len(GREEDY)]


OPEN_FUSE = """
import ctypes, os

if os.geteuid() == 0:  # as it is on most machines: a namespace in which everybody can open the device
    libc, device = ctypes.CDLL(None), f"{sys.argv[1]}/device".encode()
    assert libc.unshare(0x20000) == 0
    assert libc.mount(None, b"/", None, 0x4000 | 0x40000, None) == 0
    os.mknod(device, 0o20666, os.stat("/dev/fuse").st_rdev)
    os.chmod(device, 0o666)
    assert libc.mount(device, b"/dev/fuse", None, 0x1000, None) == 0
"""


def test_the_limits_hold_for_an_ordinary_user_who_can_open_the_device_of_fuse(open_path: Path) -> None:
    told = killed("import sys" + OPEN_FUSE + ORDINARY, open_path)
    assert told.split() == ["fuse", *["28"] * len(GREEDY)]


SERVER = """
import asyncio, sys
from pathlib import Path
from antwort.sandbox import disk_kinds, disks
from tests.sandbox.test_disks import executed, opened

disks.KINDS = [kind for kind in disk_kinds.KINDS if kind.name == "the kind"]

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


async def test_a_server_that_is_killed_leaves_nothing_mounted_and_the_next_one_finds_the_files(
    tmp_path: Path, kind: str
) -> None:
    told = await asyncio.to_thread(killed, SERVER.replace("the kind", kind), tmp_path)
    assert told == "ready\n"
    async with opened(tmp_path) as things:
        assert await executed(things, "print(open('f').read())") == "tea\n"
        assert len(devices(tmp_path)) <= 1
    await asyncio.to_thread(check, tmp_path)


@pytest.mark.usefixtures("images")
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


async def test_a_call_begins_only_if_there_is_memory_for_all_that_it_and_others_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "KINDS", (MemoryDisks,))
    monkeypatch.setattr(claims, "free_memory", lambda: claims.RESERVE + 5 * LIMITS.disk_bytes // 2)
    sandbox = Sandbox()
    async with (
        opened(tmp_path / "a", sandbox=sandbox) as things,
        opened(tmp_path / "b", sandbox=sandbox) as others,
        things.in_use(lambda: things.at("one")),
        things.in_use(lambda: things.at("one")),
    ):
        async with others.in_use(lambda: others.at("two")):
            with pytest.raises(ServiceUnavailableError, match="The memory of the server is nearly full") as refused:
                await executed(things, "print('fine')", "three")
            assert refused.value.code == "memory_full"
            async with things.in_use(lambda: things.at("three"), written=False):
                pass
        assert await executed(things, "print('fine')", "three") == "fine\n"


async def test_a_folder_that_is_deleted_while_somebody_writes_to_it_keeps_nobody_else_from_writing(
    tmp_path: Path, kind: str
) -> None:
    async with opened(tmp_path) as things:
        assert things._disks.kind == kind
        async with things.in_use(lambda: things.at("one")) as used:
            await asyncio.to_thread(things._delete, used.folder)
            assert await executed(things, "print('fine')", "two") == "fine\n"
        assert await executed(things, "print('fine')", "one") == "fine\n"


async def test_without_any_file_systems_several_tenants_are_refused_unless_the_operator_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "KINDS", ())
    rules = SandboxRules(several_tenants=True)
    with pytest.raises(ConfigError, match=r"several tenants.*what it writes to the disk.*`sandbox.unbounded: allow`"):
        async with opened(tmp_path, sandbox=Sandbox(rules)):
            pass
    for tolerant in (SandboxRules(several_tenants=True, allows_unbounded=True), SandboxRules()):
        async with opened(tmp_path, sandbox=Sandbox(tolerant)) as things:
            assert things._disks.kind is None
            assert await executed(things, "print('fine')") == "fine\n"


async def test_in_a_folder_without_a_file_system_what_is_too_much_is_deleted_after_the_call(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "old").write_bytes(bytes(MB))
    code = GREEDY["files that are allocated"].replace("LIMIT", str(LIMITS.disk_bytes))
    done = await Sandbox().run(["python3", "-c", code], folder, limits=LIMITS)
    assert done.ending == "disk"
    assert taken(folder) <= LIMITS.disk_bytes
    assert (folder / "old").stat().st_size == MB


@pytest.mark.usefixtures("images")
async def test_a_folder_has_more_room_when_its_limit_is_raised(tmp_path: Path) -> None:
    async with opened(tmp_path, SandboxLimits(disk_bytes=4 * MB, disk_files=100)) as things:
        await executed(things, "open('f', 'wb').write(bytes(3 << 20))")
    async with opened(tmp_path, SandboxLimits(disk_bytes=40 * MB, disk_files=100)) as things:
        code = "import os; open('g', 'wb').write(bytes(35 << 20)); print(os.stat('f').st_size)"
        assert await executed(things, code) == f"{3 * MB}\n"
    await asyncio.to_thread(check, tmp_path)


@pytest.mark.usefixtures("loop")
async def test_an_image_grows_although_the_kernel_takes_its_time_to_unmount_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, SandboxLimits(disk_bytes=4 * MB, disk_files=100)) as things:
        await executed(things, "open('f', 'w').write('tea')")
        image = image_of(things.at("one"))
    await gone(tmp_path)
    find = ["losetup", "--find", "--show", str(image)]
    made = await asyncio.to_thread(subprocess.run, find, capture_output=True, check=True)
    device = made.stdout.decode().strip()
    is_mounted, answers = LoopImages._is_mounted, []

    def seen(self: LoopImages, image: Path) -> bool:
        answers.append(is_mounted(self, image))
        if len(answers) == 2:
            subprocess.run(["losetup", "--detach", device], check=True)
        return answers[-1]

    monkeypatch.setattr(LoopImages, "_is_mounted", seen)
    async with opened(tmp_path, SandboxLimits(disk_bytes=40 * MB, disk_files=100)) as things:
        code = "open('g', 'wb').write(bytes(35 << 20)); print(open('f').read())"
        assert await executed(things, code) == "tea\n"
    assert answers[:2] == [True, True]


async def test_a_program_that_serves_files_and_has_ended_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "KINDS", (FuseImages,))
    async with opened(tmp_path) as things:
        await executed(things, "import os; open('f', 'w').write('tea'); os.sync()")
        for process in devices(tmp_path):
            os.kill(int(process), signal.SIGKILL)
        await gone(tmp_path)
        assert await executed(things, "print(open('f').read())") == "tea\n"
    await asyncio.to_thread(check, tmp_path)


@pytest.mark.parametrize("swapped", ["missing", "a link", "another's", "that of another", "a pipe"])
async def test_an_image_that_is_missing_or_not_its_own_is_never_served_and_never_taken_for_an_empty_one(
    tmp_path: Path, images: str, swapped: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as things:
        await executed(things, "open('f', 'w').write('tea')")
        await executed(things, "open('f', 'w').write('milk')", "two")
        image, other = image_of(things.at("one")), image_of(things.at("two"))
    await gone(tmp_path)
    image.rename(kept := tmp_path / "kept")
    if swapped == "a link":
        image.symlink_to(kept)
    elif swapped == "another's":
        shutil.copyfile(kept, image)
        os.chown(image, 65534, 65534)
    elif swapped == "that of another":
        shutil.copyfile(other, image)
    elif swapped == "a pipe":
        os.mkfifo(image)
    for kinds in ((KINDS[images],), (MemoryDisks,), ()):
        monkeypatch.setattr(disks, "KINDS", kinds)
        async with opened(tmp_path) as things:
            with pytest.raises(ServiceUnavailableError, match="files are gone" if swapped == "missing" else "mounted"):
                await executed(things, "print()")
        assert str(image) in caplog.text
        caplog.clear()
    image.unlink(missing_ok=True)
    kept.rename(image)
    monkeypatch.setattr(disks, "KINDS", (KINDS[images],))
    async with opened(tmp_path) as things:
        assert await executed(things, "print(open('f').read())") == "tea\n"


@pytest.mark.usefixtures("images")
async def test_what_sets_up_a_sandbox_sees_no_file_system_but_that_of_its_folder(tmp_path: Path) -> None:
    async with opened(tmp_path) as things:
        await executed(things, "open('f', 'w').write('tea')", "two")
        async with (
            things.in_use(lambda: things.at("one")) as used,
            things._sandbox.open(["cat"], used.folder, limits=LIMITS) as process,
        ):
            mounted = await asyncio.to_thread(Path(f"/proc/{process._process.pid}/mountinfo").read_text)
            assert str(tmp_path) not in mounted
            await process.write(b"fine\n")
            assert await process.stdout.readline() == b"fine\n"


@pytest.mark.parametrize("swapped", ["missing", "a link"])
@pytest.mark.usefixtures("images")
async def test_nothing_is_written_to_an_image_that_was_taken_away_while_it_is_mounted(
    tmp_path: Path, swapped: str
) -> None:
    async with opened(tmp_path) as things:
        await executed(things, "open('f', 'w').write('tea')")
        image = image_of(things.at("one"))
        image.rename(kept := tmp_path / "kept")
        if swapped == "a link":
            image.symlink_to(kept)
        with pytest.raises(ServiceUnavailableError, match="files are gone" if swapped == "missing" else "mounted"):
            await executed(things, "open('g', 'w').write('milk')")
        assert await executed(things, "print('fine')", "two") == "fine\n"
        image.unlink(missing_ok=True)
        kept.rename(image)
        assert await executed(things, "import os; print(os.listdir())") == "['f']\n"


def zeroed(image: Path, other: Path) -> None:
    with image.open("r+b") as file:
        file.write(bytes(image.stat().st_size))


def copied_over(image: Path, other: Path) -> None:
    with image.open("r+b") as file:
        file.write(other.read_bytes())


def cut_off(image: Path, other: Path) -> None:
    os.truncate(image, image.stat().st_size // 2)


def emptied(image: Path, other: Path) -> None:
    os.truncate(image, 0)


def moved_over(image: Path, other: Path) -> None:
    shutil.copyfile(other, other.with_suffix(".copy"))
    other.with_suffix(".copy").rename(image)


def moved(image: Path, other: Path) -> None:
    other.rename(image)


@pytest.mark.parametrize("is_mounted", [True, False])
@pytest.mark.parametrize("attack", [zeroed, copied_over, cut_off, emptied, moved_over, moved])
@pytest.mark.usefixtures("images")
async def test_an_image_that_was_spoilt_is_a_clear_error_and_never_shows_what_belongs_to_others(
    tmp_path: Path, attack: Callable[[Path, Path], None], is_mounted: bool
) -> None:
    async with opened(tmp_path) as things:
        await executed(things, "open('f', 'w').write('tea')")
        await executed(things, "open('g', 'w').write('milk' * 9000)", "two")
        image, other = image_of(things.at("one")), image_of(things.at("two"))
        if is_mounted:
            await asyncio.to_thread(os.sync)
            await asyncio.to_thread(attack, image, other)
            with pytest.raises(ServiceUnavailableError, match="cannot be mounted"):
                await executed(things, "print(open('f').read())")
    await gone(tmp_path)
    if not is_mounted:
        attack(image, other)
    async with opened(tmp_path) as things:
        with pytest.raises(ServiceUnavailableError, match="cannot be mounted"):
            await executed(things, "print(open('f').read())")
        if attack is moved:
            with pytest.raises(ServiceUnavailableError, match="files are gone") as refused:
                await executed(things, "print()", "two")
            assert refused.value.code == "files_missing"
            image.rename(other)
        assert await executed(things, "print(len(open('g').read()))", "two") == "36000\n"
        things._delete(things.at("one"))
        assert await executed(things, "import os; print(os.listdir())") == "[]\n"


@pytest.mark.usefixtures("images")
async def test_an_image_that_only_had_a_second_name_for_a_while_is_served_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as things:
        await executed(things, "open('f', 'w').write('tea')")
        os.link(image := image_of(things.at("one")), kept := tmp_path / "kept")
        with pytest.raises(ServiceUnavailableError, match="cannot be mounted"):
            await executed(things, "print(open('f').read())")
        kept.unlink()
        assert stat.S_IMODE(image.stat().st_mode) == 0o600
        assert await executed(things, "print(open('f').read())") == "tea\n"


async def test_two_servers_that_want_one_image_see_the_same_or_the_second_is_told(tmp_path: Path, images: str) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        async with first.in_use(lambda: first.at("one")):
            await executed(first, "open('f', 'w').write('tea')")
            if images == "loop":
                assert await executed(second, "print(open('f').read())") == "tea\n"
            else:
                with pytest.raises(ServiceUnavailableError, match="cannot be mounted"):
                    await executed(second, "print()")
        first._disks.release_idle(0.0)
        assert await executed(second, "print(open('f').read())") == "tea\n"


async def test_the_event_loop_goes_on_while_others_ask_a_file_system_that_does_not_answer(tmp_path: Path) -> None:
    asking, went_on = threading.Event(), threading.Event()

    def ask() -> bool:
        with things._sandbox._claims._changing:
            asking.set()
            return went_on.wait(60)

    async with opened(tmp_path) as things:
        using = things.in_use(lambda: things.at("one"))
        await using.__aenter__()
        asked = asyncio.create_task(asyncio.to_thread(ask))
        await asyncio.to_thread(asking.wait)
        leaving = asyncio.create_task(using.__aexit__(None, None, None))
        for _ in range(3):
            await asyncio.sleep(0)
        went_on.set()
        assert await asked
        await leaving


@pytest.mark.usefixtures("images")
async def test_an_image_takes_no_more_of_the_disk_than_what_is_left_in_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as things:
        await executed(things, "open('f', 'wb').write(b'x' * (8 << 20))")
        await asyncio.to_thread(os.sync)
        assert taken(tmp_path) >= 8 * MB
        await executed(things, "import os; os.unlink('f')")
        things._disks.release_idle(0.0)
        assert taken(tmp_path) <= MB
        assert await executed(things, "import os; print(os.listdir())") == "[]\n"


@pytest.mark.usefixtures("kind")
async def test_few_file_systems_stay_mounted_that_nobody_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "_MOST_IDLE", 2)
    async with opened(tmp_path) as things:
        for number in range(6):
            await executed(things, f"open('f', 'w').write('{number}')", f"n{number}")
        assert things._disks._kind is not None
        assert sum(things._disks._kind.is_attached(things.at(f"n{number}")) for number in range(6)) <= 3
        assert await executed(things, "print(open('f').read())", "n0") == "0\n"
