"""What of the machine is seen in the sandbox: nothing of the server's, wherever that lies."""

import asyncio
import errno
import json
import os
import subprocess
import sys
import tempfile
import venv
from base64 import b64decode
from pathlib import Path

import pytest
from tests.sandbox.stage import KINDS, SECRET

from antwort import Antwort
from antwort.config import Config, LoadedConfig, SandboxConfig
from antwort.errors import ConfigError
from antwort.sandbox import Sandbox, SandboxPython, SandboxRules
from antwort.sandbox.places import python_places, system_places

ROOT = [] if os.geteuid() == 0 else ["--map-root-user"]
BELOW = """
mount --bind "$1" "$2" && shift && exec "$PYTHON" "$RUNNER" "$KIND" "$1"
"""
"""In a namespace of mounts of its own: a folder appears somewhere else, and the runner works there."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["/usr/src", "/usr/local/src"])
def test_a_server_that_lies_below_a_folder_of_the_system_is_not_seen(kind: str, place: str) -> None:
    with tempfile.TemporaryDirectory(prefix="antwort-sandbox-") as folder:
        data = Path(folder, "data")
        (data / "w0").mkdir(parents=True)
        for path in (data, data / "w0", Path(folder)):
            path.chmod(0o755)
        names = ("keys.json", "antwort.yaml", "w0/notes.txt")
        for name in names:
            (data / name).write_text(SECRET)
        only = [f"--include={Path(name).name}" for name in names]  # of a system that may have gigabytes
        command = ["grep", "-rs", *only, SECRET, place, "/usr/local"]
        asked = {"command": command, "folder": "w1", "limits": {}, "pause": False}
        done = subprocess.run(
            ["unshare", "--mount", *ROOT, "sh", "-c", BELOW, "sh", str(data), place],
            input=json.dumps(asked) + "\n",
            capture_output=True,
            text=True,
            check=True,
            env={
                **os.environ,
                "KIND": kind,
                "PYTHON": sys.executable,
                "RUNNER": str(Path(__file__).with_name("runner.py")),
            },
        )
        told = json.loads(done.stdout.splitlines()[-1])
        assert (told["ending"], told["exit_code"]) == ("exit", 2)  # there is no such folder
        assert SECRET not in b64decode(told["stdout"]).decode()


SPOIL = """
import ctypes, os, socket
calls = ctypes.CDLL(None, use_errno=True)
def attempt(name, act, *args):
    try:
        if act(*args) != -1:
            print(name, *args)
    except OSError:
        pass
for place in ("/", "/etc", "/dev", "/mnt", "/usr", "/dev/pts"):
    attempt("mkdir", os.mkdir, place + "/spoilt")
    attempt("chmod", os.chmod, place, 0o777)
    attempt("utime", os.utime, place)
    attempt("remount", calls.mount, b"none", place.encode(), None, 0x1020, None)
    attempt("unmount", calls.umount2, place.encode(), 2)
    attempt("mount", calls.mount, b"none", place.encode(), b"tmpfs", 0, None)
for place in ("/init", "/etc/passwd", "/etc/hosts", "/etc/ld.so.cache", "/usr/bin/env", "/bin", "/dev/null"):
    attempt("unlink", os.unlink, place)
    attempt("rename", os.rename, place, place + "-spoilt")
    attempt("link", os.link, place, "/tmp/spoilt")
    attempt("chmod", os.chmod, place, 0o777)
    attempt("xattr", os.setxattr, place, "user.spoilt", b"1")
    if not place.startswith(("/bin", "/dev")):
        attempt("write", os.open, place, os.O_WRONLY)
        attempt("truncate", os.truncate, place, 0)
"""
"""Tries to change what other commands see, too, and prints what it could."""
LEAVE = "touch /tmp/left /dev/shm/left; exec 3<>/dev/ptmx; echo begun; sleep 600"
LOOK = "ls -la --time-style=+ / /etc /dev | grep -v proc; cat /etc/passwd; ls -A /tmp /dev/shm /dev/pts"


async def test_what_commands_see_together_cannot_be_changed_by_any_of_them(tmp_path: Path) -> None:
    box = Sandbox()
    folders = [tmp_path / name for name in ("mine", "others")]
    for folder in folders:
        folder.mkdir()
    before = await box.run(["sh", "-c", LOOK], folders[1])
    spoilt = await box.run(["python3", "-c", SPOIL], folders[0])
    assert (spoilt.exit_code, spoilt.stdout.decode(), spoilt.stderr.decode()) == (0, "", "")
    async with box.open(["sh", "-c", LEAVE], folders[0]) as running:
        assert await running.stdout.readline() == b"begun\n"
        after = await box.run(["sh", "-c", LOOK], folders[1])
    assert (after.stdout, after.stderr) == (before.stdout, before.stderr)
    assert b"sandbox:x:1000" in after.stdout


def test_a_folder_that_was_made_anew_is_seen_as_it_is() -> None:
    with tempfile.TemporaryDirectory(dir="/var") as place:
        Path(place).chmod(0o755)
        further, box, held = Path(place, "further"), Sandbox(), []
        for number in ("1", "2"):
            further.mkdir()
            (further / "file").write_text(number)
            done = asyncio.run(box.run(["cat", str(further / "file")], readonly=[further]))
            assert done.stdout.decode() == number
            further.rename(Path(place, f"old{number}"))
            held.append(sum("/mnt:[" in str(file.resolve()) for file in Path("/proc/self/fd").iterdir()))
        assert held[0] == held[1]  # what is there no more is not kept in use


LATER = """
import asyncio, ctypes, os, subprocess, sys
from pathlib import Path
from antwort.sandbox import Sandbox, SandboxRules

async def main(place):
    box = Sandbox(SandboxRules(visible=[place]))
    await box.run(["true"])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=777", "later", place / "sub"], check=True)
    (place / "sub" / "file").write_text("new")
    done = await box.run(["sh", "-c", 'cd "$1"; cat file; findmnt -no OPTIONS -T .', "sh", place / "sub"])
    print(done.stdout.decode())

asyncio.run(main(Path(sys.argv[1])))
"""
"""Mounts something below a visible folder after a command has seen that, and prints what the next one can do there."""
SHARED = 'mount --bind "$1" "$1" && mount --make-shared "$1" && exec "$PYTHON" -c "$LATER" "$1"'


def test_what_is_mounted_below_a_visible_folder_later_is_seen_and_cannot_be_written_to_either() -> None:
    with tempfile.TemporaryDirectory(dir="/var") as place:
        Path(place).chmod(0o755)
        Path(place, "sub").mkdir()
        done = subprocess.run(
            ["unshare", "--mount", *ROOT, "sh", "-c", SHARED, "sh", place],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHON": sys.executable, "LATER": LATER},
        )
    assert done.stdout.startswith("newro,nosuid,nodev,"), done.stderr


async def test_a_command_sees_the_same_whatever_the_server_lets_others_do_with_its_files() -> None:
    look = ["sh", "-c", "ls -la --time-style=+ / /etc /dev | grep -v proc; cat /etc/passwd"]
    usual = await Sandbox().run(look)
    mask = os.umask(0o077)
    try:
        strict = await Sandbox().run(look)
    finally:
        os.umask(mask)
    assert (strict.stdout, strict.stderr) == (usual.stdout, usual.stderr)


@pytest.mark.parametrize("answer", [errno.ENOSYS, errno.EPERM])
async def test_a_system_that_restricts_no_mounts_shows_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    def refuse(copy: int, attributes: int) -> None:
        raise OSError(answer, os.strerror(answer))

    look = ["sh", "-c", "cd /; ls -a / /etc /dev; cat /etc/passwd; touch /etc/x /dev/x; ls -a /workspace /mnt/data"]
    usual = await Sandbox().run(look, tmp_path)
    monkeypatch.setattr("antwort.sandbox.thread_roots.restrict", refuse)
    old = await Sandbox().run(look, tmp_path)
    assert (old.stdout, old.stderr) == (usual.stdout, usual.stderr)


TRY = """
import asyncio
from antwort.sandbox import Sandbox
print(asyncio.run(Sandbox().run(["echo", "tea"])).stdout.decode())
"""


def test_a_server_that_may_not_change_its_root_starts_commands_all_the_same() -> None:
    fewer = ["setpriv", "--bounding-set=-sys_chroot"] if os.geteuid() == 0 else []
    done = subprocess.run([*fewer, sys.executable, "-c", TRY], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("tea", "")


CHROOT = """
mount --rbind / "$1" && for place in /mnt /media /srv /opt /home /run; do mount -t tmpfs none "$place"; done
chroot "$1" "$PYTHON" -c "$TRY"
ls /mnt /media /srv /opt /home /run | grep -v :
"""
"""The places where root could show things are empty, and elsewhere for who is in the chroot."""


def test_a_server_in_a_chroot_changes_nothing_outside_of_it() -> None:
    with tempfile.TemporaryDirectory(dir="/var") as place:
        done = subprocess.run(
            ["unshare", "--mount", *ROOT, "sh", "-c", CHROOT, "sh", place],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHON": sys.executable, "TRY": TRY},
        )
    assert "ConfigError: code needs a sandbox, which cannot be started here" in done.stderr
    assert done.stdout.split() == []


def test_everybody_sees_what_programs_need_and_nothing_beside_it() -> None:
    seen = set(map(str, system_places()))
    assert {"/usr/bin", "/usr/lib", "/usr/share", "/etc/ssl/certs"} <= seen
    assert not seen & {"/usr", "/usr/local", "/usr/src", "/etc", "/var", "/opt", "/srv", "/home", "/root"}


@pytest.mark.parametrize("name", ["data_dir", "the configuration"])
async def test_private_things_in_a_folder_of_the_system_stop_the_start(name: str) -> None:
    sandbox = Sandbox(SandboxRules(private={name: Path("/usr/share/antwort/own")}))
    with pytest.raises(ConfigError, match=f"{name} is /usr/share/antwort/own, and code .* read /usr/share: move one"):
        await sandbox.prepare()


async def test_private_things_in_a_place_that_is_shown_are_refused_through_links_too(tmp_path: Path) -> None:
    shown, elsewhere = tmp_path / "env", tmp_path / "elsewhere"
    (shown / "data").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "link").symlink_to(shown / "data")
    for private in (shown, shown / "data" / "keys.json", elsewhere / "link" / "keys.json"):
        sandbox = Sandbox(SandboxRules(private={"auth.keys_file": private}))
        with pytest.raises(ConfigError, match=r"auth.keys_file is .* can read .*/env: move"):
            await sandbox.run(["true"], readonly=[shown])
    beside = Sandbox(SandboxRules(private={"data_dir": elsewhere, "a folder around": tmp_path}))
    assert (await beside.run(["ls", str(shown)], readonly=[shown])).stdout == b"data\n"


async def test_visible_folders_are_seen_and_hold_nothing_private(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "version").write_text("7")
    sandbox = Sandbox(SandboxRules(visible=[tools]))
    assert (await sandbox.run(["cat", str(tools / "version")])).stdout == b"7"
    with pytest.raises(ConfigError, match=r"data_dir is .*/tools/data, and code in the sandbox can read .*/tools"):
        await Sandbox(SandboxRules(visible=[tools], private={"data_dir": tools / "data"})).prepare()


def told_private(tmp_path: Path, **settings: object) -> SandboxRules:
    config = Config.model_validate({"data_dir": tmp_path / "data", **settings})
    return Antwort(LoadedConfig(config, tmp_path / "antwort.yaml")).sandbox.rules


def test_all_that_the_configuration_names_is_private(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    rules = told_private(
        tmp_path,
        plugins_dir=tmp_path / "plugins",
        auth={"keys_file": tmp_path / "keys.json"},
        observability={"audit_file": tmp_path / "audit.log"},
        storage={"url": f"postgresql://me@/db?host={tmp_path}/postgresql"},
        sandbox={"visible": ["/usr/local/go"]},
    )
    assert rules.private == {
        "data_dir": tmp_path / "data",
        "plugins_dir": tmp_path / "plugins",
        "auth.keys_file": tmp_path / "keys.json",
        "observability.audit_file": tmp_path / "audit.log",
        "storage.url": tmp_path / "postgresql",
        "the configuration": tmp_path / "antwort.yaml",
    }
    assert rules.visible == [Path("/usr/local/go")]
    assert told_private(tmp_path, storage={"url": f"sqlite:///{tmp_path}/own.db"}).private["storage.url"] == (
        tmp_path / "own.db"
    )


async def test_a_server_whose_data_code_could_read_does_not_start(tmp_path: Path) -> None:
    config = Config(
        data_dir=tmp_path / "tools" / "data",
        sandbox=SandboxConfig(visible=[tmp_path / "tools"]),
        providers={"workspace": {"enabled": True}},  # type: ignore[dict-item]
    )
    app = Antwort(config)
    try:
        with pytest.raises(ConfigError, match=r"data_dir is .*/tools/data, and code in the sandbox can read .*/tools"):
            async with app.providers_only(rehearsal=True):
                pass
    finally:
        await app.close()


def test_a_python_shows_what_is_its_own_and_not_what_lies_beside_it(tmp_path: Path) -> None:
    for name in ("bin", "lib", "data"):
        (tmp_path / name).mkdir()
    for name in ("pyvenv.cfg", "antwort.yaml"):
        (tmp_path / name).touch()
    assert [path.name for path in python_places([tmp_path, Path("/usr")])] == ["bin", "lib", "pyvenv.cfg"]
    assert python_places([Path("/usr/local")], [Path("/usr/bin/python3"), tmp_path / "python"]) == [tmp_path / "python"]


async def test_an_environment_may_be_in_the_folder_of_the_data(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False, symlinks=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "antwort.yaml").write_text(SECRET)
    private = {"data_dir": tmp_path / "data", "the configuration": tmp_path / "antwort.yaml"}
    sandbox = Sandbox(SandboxRules(private=private))
    python = await SandboxPython.find(sandbox, str(tmp_path / "bin" / "python"))
    code = f"import os; print(*sorted(os.listdir({str(tmp_path)!r})))"
    done = await sandbox.run([python.path, "-c", code], readonly=python.readonly)
    seen = set(done.stdout.decode().split())
    assert {"bin", "lib", "pyvenv.cfg"} <= seen, done.stderr
    assert not seen & {"data", "antwort.yaml"}
