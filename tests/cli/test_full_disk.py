"""A disk that is full: what fails leaves nothing, deletions work, and the server goes on once there is room."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.small_disk import SmallDisk, small_disk

SIZE = 40 << 20
RESERVE = 4 << 20
PIECE = 1 << 20
BOUNDARY = "a-boundary"


class Server:
    """A server whose data folder is on a small disk."""

    def __init__(self, process: "subprocess.Popen[str]", base: str) -> None:
        self.process = process
        self.base = base

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> tuple[int, Any]:
        """Return the status and the body of an answer."""
        request = urllib.request.Request(self.base + path, body, {"Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def respond(self) -> int:
        """Return the status of a response that is stored."""
        return self.ask("POST", "/v1/responses", json.dumps({"model": "antwort-demo", "input": "Hi"}).encode())[0]

    def put(self, key: str, size: int) -> tuple[int, Any]:
        """Store a large value."""
        return self.ask("PUT", f"/v1/variables?key={key}", varied(size), "application/octet-stream")

    def upload(self, size: int) -> int:
        """Return the status of a file that is uploaded."""
        part = f"--{BOUNDARY}\r\nContent-Disposition: form-data; name="
        head = f'{part}"purpose"\r\n\r\nuser_data\r\n{part}"file"; filename="a.bin"\r\n\r\n'
        body = head.encode() + varied(size) + f"\r\n--{BOUNDARY}--\r\n".encode()
        return self.ask("POST", "/v1/files", body, f"multipart/form-data; boundary={BOUNDARY}")[0]

    def ready(self) -> tuple[int, str]:
        """Return the status of the probe, and its message."""
        status, body = self.ask("GET", "/readyz")
        return status, body.get("error", {}).get("message", "")

    def becomes_ready(self) -> bool:
        """Ask the probe until it says so; it tries to write once a second."""
        deadline = time.monotonic() + 60
        while self.ready()[0] != 200:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def becomes_full(self, disk: SmallDisk) -> None:
        """Take what room there is, until nothing can be stored: the log has some left."""
        disk.fill()
        while self.respond() == 200:
            disk.fill()

    def stop(self) -> None:
        """End it in order."""
        self.process.terminate()
        assert self.process.wait(60) == 0


def varied(size: int) -> bytes:
    """Return bytes of which no two chunks are the same."""
    return b"".join(number.to_bytes(8, "big") * 32 for number in range(size // 256 + 1))[:size]


def serve(disk: SmallDisk) -> list[str]:
    """Return the command that starts a server on the disk."""
    arguments = ("serve", "--port", "0", "--log-level", "error", "--data-dir", str(disk.folder / "data"))
    return disk.command(sys.executable, "-m", "antwort", *arguments)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, SIZE) as disk:
        yield disk


@pytest.fixture
def start(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Server]]:
    """Start a server on the disk, once or again."""
    monkeypatch.setenv("ANTWORT_STORAGE__DISK_RESERVE", str(RESERVE))
    started: list[subprocess.Popen[str]] = []

    def start() -> Server:
        process = subprocess.Popen(
            serve(disk),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Listening on "):
                return Server(process, line.split()[2].rstrip("/"))
        raise AssertionError("it did not listen")

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_value_that_meets_a_full_disk_leaves_nothing(start: Callable[[], Server], disk: SmallDisk) -> None:
    server = start()
    assert (server.respond(), server.ready()[0]) == (200, 200)
    before = disk.free()
    status, body = server.put("large", 60 << 20)
    assert (status, "the disk is full" in body["error"]["message"]) == (503, True)
    assert disk.free() > before - PIECE
    assert (server.respond(), server.upload(PIECE), server.becomes_ready()) == (200, 200, True)
    server.stop()
    server = start()
    assert (server.respond(), server.upload(PIECE), server.becomes_ready()) == (200, 200, True)
    assert server.ask("GET", "/v1/variables")[1]["data"] == []


def test_on_a_full_disk_deletions_work_and_the_probe_says_what_to_do(
    start: Callable[[], Server], disk: SmallDisk
) -> None:
    server = start()
    status, variable = server.put("large", 10 << 20)
    assert (status, server.respond()) == (200, 200)
    server.becomes_full(disk)
    deadline = time.monotonic() + 60
    while "Make room on it, or delete what is not needed" not in server.ready()[1]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert server.ask("DELETE", f"/v1/variables/{variable['id']}")[0] == 200
    assert disk.free() > 8 << 20
    assert (disk.inside / "data" / "antwort.db-reserve").stat().st_size == RESERVE
    assert (server.respond(), server.upload(PIECE), server.becomes_ready()) == (200, 200, True)


def test_a_server_starts_on_a_full_disk_and_goes_on_when_there_is_room(
    start: Callable[[], Server], disk: SmallDisk
) -> None:
    server = start()
    made = [server.put(f"value{number}", 3 << 20)[1]["id"] for number in range(3)]
    server.process.kill()
    server.process.wait()
    disk.fill()
    server = start()
    disk.fill()
    assert server.put("another", 20 << 20)[0] == 503
    for name in made:
        assert server.ask("DELETE", f"/v1/variables/{name}")[0] == 200
    assert (server.respond(), server.becomes_ready()) == (200, True)


def test_a_file_that_meets_a_full_disk_leaves_nothing(start: Callable[[], Server], disk: SmallDisk) -> None:
    server = start()
    assert server.upload(PIECE) == 200
    disk.fill(but=8 << 20)
    before = disk.free()
    assert server.upload(20 << 20) == 503
    assert disk.free() > before - PIECE
    assert [path.suffix for path in (disk.inside / "data" / "blobs").glob("*/*")] == [""]
    assert (server.upload(PIECE), server.respond(), server.becomes_ready()) == (200, 200, True)


def test_a_server_with_file_search_starts_on_a_full_disk_and_lets_workers_in_when_there_is_room(
    start: Callable[[], Server], disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"embedding_url": "http://127.0.0.1:1/v1/embeddings", "embedding_dimensions": 8}
    monkeypatch.setenv("ANTWORT_PROVIDERS__FILE_SEARCH__ENABLED", "true")
    monkeypatch.setenv("ANTWORT_PROVIDERS__FILE_SEARCH__SETTINGS", json.dumps(settings))
    server = start()
    status, store = server.ask("POST", "/v1/vector_stores", b'{"name": "docs"}')
    assert (status, server.respond()) == (200, 200)
    door = disk.inside / "data" / "providers" / "file_search" / "workers.json"
    before = door.read_bytes()
    server.becomes_full(disk)
    server.process.kill()
    server.process.wait()
    disk.fill()
    door.with_suffix(".new").symlink_to("/dev/full")  # nothing that the start gives back to the disk helps
    server = start()
    assert server.ask("GET", f"/v1/vector_stores/{store['id']}")[1]["name"] == "docs"
    assert server.ask("DELETE", f"/v1/vector_stores/{store['id']}")[0] == 200
    (disk.inside / "filler").unlink()
    deadline = time.monotonic() + 60
    while door.read_bytes() == before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (server.respond(), server.becomes_ready()) == (200, True)


@pytest.mark.parametrize("reserve", [RESERVE, 0])
def test_a_start_without_any_room_says_that_the_disk_is_full(
    start: Callable[[], Server], disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, reserve: int
) -> None:
    monkeypatch.setenv("ANTWORT_STORAGE__DISK_RESERVE", str(reserve))
    server = start()
    assert server.respond() == 200
    server.stop()
    with suppress(FileNotFoundError):
        (disk.inside / "data" / "antwort.db-reserve").unlink()
    disk.fill()
    ended = subprocess.run(serve(disk), capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode != 0
    assert "The disk is full" in ended.stderr
    assert "Make room" in ended.stderr
    assert "Let the server's user write" not in ended.stderr
    (disk.inside / "filler").unlink()
    assert start().respond() == 200


DELETION = """
import asyncio, os, sys
from pathlib import Path
from antwort.storage.sqlite.connection import create_file, open_writer
from antwort.storage.sqlite.reserve import DiskReserve
from antwort.storage.sqlite.store import SqliteWriter

path, size = Path(sys.argv[1]) / "a.db", int(sys.argv[2])
kept = [size]

def fill():
    with open(path.with_name("filler"), "ab", buffering=0) as filler:
        while left := os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize:
            filler.write(bytes(min(left, 1 << 20)))

def delete(database):
    kept.append(path.with_name("a.db-reserve").stat().st_size)
    if kept[-1] < kept[-2] == size:
        fill()
    database.execute("DELETE FROM things")

async def main():
    create_file(path)
    database = open_writer(path, "normal")
    database.execute("CREATE TABLE things (id INTEGER)")
    database.execute("INSERT INTO things VALUES (1)")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    reserve = DiskReserve(path, size)
    assert reserve.make()
    writer = SqliteWriter(database, reserve)
    fill()
    try:
        await writer.run(delete, frees=True)
    finally:
        await writer.close()
        print(*dict.fromkeys(kept))

asyncio.run(main())
"""
"""Another takes the room that is given up, as soon as it is."""


def test_a_deletion_works_though_somebody_else_takes_what_the_reserve_gives_up_for_it(disk: SmallDisk) -> None:
    command = disk.command(sys.executable, "-c", DELETION, str(disk.folder), str(RESERVE))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout.split()) == (
        0,
        [str(RESERVE), str(RESERVE - PIECE), str(RESERVE - 3 * PIECE)],
    ), ended.stderr
