"""Files: what is kept, who sees it, how much it may be, and what is left when something goes wrong."""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable

import pytest
from tests.files.keepers import InBucket, Keeper

from antwort.errors import (
    APIError,
    BadRequestError,
    NotFoundError,
    PayloadTooLargeError,
    RateLimitError,
    ServiceUnavailableError,
)
from antwort.files import FileLimits, FileRecord, StoredFiles
from antwort.files.disk import _NewFile
from antwort.files.service import ABANDONED, cleaned_name
from antwort.storage import Store


class KilledError(Exception):
    """Stands for the end of a process: nothing is done after it."""


Open = Callable[..., StoredFiles]
DATA = b"What is known of it."


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def keep(files: StoredFiles, data: bytes = DATA, name: str = "a.txt", tenant: str = "us") -> FileRecord:
    return await files.create(tenant, name, "user_data", pieces(data))


async def content(files: StoredFiles, file: FileRecord, offset: int = 0, length: int | None = None) -> bytes:
    read = await files.read(file.tenant, file.id, offset=offset, length=length, part_of=file.part_of)
    return b"".join([piece async for piece in read])


async def test_a_file_is_read_as_it_came(files: StoredFiles, keeper: Keeper) -> None:
    data = bytes(range(256)) * 10_000  # more than is written or read at once
    made = await files.create("us", "b.bin", "assistants", pieces(data[:5], b"", data[5:]), expires_at=2**33)
    assert (made.filename, made.purpose, made.bytes, made.expires_at) == ("b.bin", "assistants", len(data), 2**33)
    assert made.sha256 == hashlib.sha256(data).hexdigest()
    assert made.id.startswith("file-")
    assert await files.get("us", made.id) == made
    assert await content(files, made) == data
    assert await content(files, made, 300_000, 600_000) == data[300_000:900_000]
    assert await content(files, made, len(data) - 3, 10) == data[-3:]
    assert await content(files, made, len(data) + 3) == b""
    assert keeper.names() == [made.id]


async def test_an_empty_file_is_a_file(files: StoredFiles) -> None:
    made = await keep(files, b"")
    assert made.bytes == 0
    assert await content(files, made) == b""


async def test_tenants_do_not_see_each_others_files(files: StoredFiles) -> None:
    made = await keep(files)
    for use in (files.get, files.read, files.delete):
        with pytest.raises(NotFoundError):
            await use("them", made.id)
    assert (await files.list("them")).data == []
    assert await content(files, made) == DATA


async def test_lists_have_pages_and_purposes(files: StoredFiles) -> None:
    made = [await files.create("us", f"{n}", "vision" if n % 2 else "batch", pieces(b"x")) for n in range(5)]
    page = await files.list("us", limit=2)
    assert (list(page.data), page.has_more) == ([made[4], made[3]], True)
    await files.delete("us", made[3].id)  # whoever deletes page by page goes on from what is gone
    page = await files.list("us", limit=3, after=made[3].id)
    assert (list(page.data), page.has_more) == ([made[2], made[1], made[0]], False)
    assert list((await files.list("us", purpose="vision", order="asc")).data) == [made[1]]
    assert list((await files.list("us", order="asc", after=made[0].id, limit=1)).data) == [made[1]]
    with pytest.raises(BadRequestError, match="no id of a file"):
        await files.list("us", after="file-\x00")


async def test_parts_are_no_files_of_their_own(files: StoredFiles) -> None:
    part = await files.create("us", "p", "batch", pieces(b"xy"), part_of="upload_1")
    assert (await files.list("us")).data == []
    for of in ("", "upload_2"):
        with pytest.raises(NotFoundError):
            await files.get("us", part.id, part_of=of)
    assert await content(files, part) == b"xy"
    assert list((await files.list("us", part_of="upload_1")).data) == [part]
    await files.delete("us", part.id, part_of="upload_1")
    assert (await files.list("us", part_of="upload_1")).data == []


async def test_what_is_too_large_leaves_nothing(open_files: Open, store: Store, keeper: Keeper) -> None:
    files = open_files(FileLimits(file=10, tenant=15))
    with pytest.raises(PayloadTooLargeError, match="max_file_bytes"):
        await keep(files, b"x" * 11)
    part = await files.create("us", "p", "batch", pieces(b"x" * 8), part_of="upload_1")
    with pytest.raises(RateLimitError, match="max_files_bytes"):
        await keep(files, b"x" * 8)
    assert keeper.names() == [part.id]
    assert await store.files.usage("us") == 8
    await keep(files, b"x" * 8, tenant="them")
    await files.create("us", "whole", "batch", pieces(b"x" * 8), instead_of="upload_1")


async def test_files_that_come_at_the_same_time_do_not_exceed_the_quota_together(
    open_files: Open, store: Store
) -> None:
    files = open_files(FileLimits(tenant=25))
    ended = await asyncio.gather(*(keep(files, b"x" * 10) for _ in range(6)), return_exceptions=True)
    assert all(isinstance(each, FileRecord | RateLimitError) for each in ended)
    assert await store.files.usage("us") <= 25


async def test_what_does_not_come_to_its_end_leaves_nothing(files: StoredFiles, store: Store, keeper: Keeper) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        raise BadRequestError("The form has no end.")

    with pytest.raises(BadRequestError):
        await files.create("us", "a", "batch", broken())
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(files.create("us", "a", "batch", endless()))
    await begun.wait()
    assert (await files.list("us")).data == []  # nobody sees what is not complete
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert keeper.names() == []
    await store.files.mark_left_over(now=0, abandoned=2**40)
    assert await store.files.left_over("", 10) == []


async def test_an_expired_file_is_gone_at_once_and_swept_later(open_files: Open, keeper: Keeper) -> None:
    now = time.time()
    files = open_files(clock=lambda: now)
    told: list[str] = []

    async def tell(file: FileRecord) -> None:
        told.append(file.id)

    files.on_delete(tell)
    made = await files.create("us", "a", "batch", pieces(b"x"), expires_at=int(now) + 60)
    kept = await keep(files)
    assert await files.sweep() == 0
    now += 61
    with pytest.raises(NotFoundError):
        await files.get("us", made.id)
    assert list((await files.list("us")).data) == [kept]
    assert keeper.names() == sorted([made.id, kept.id])
    assert await files.sweep() == 1
    assert (told, keeper.names()) == ([made.id], [kept.id])


@pytest.mark.parametrize("crash", ["before the bytes are there", "before the row says so", "while it is deleted"])
async def test_what_a_crash_leaves_is_swept(open_files: Open, store: Store, keeper: Keeper, crash: str) -> None:
    files = open_files()
    if crash == "while it is deleted":
        made = await keep(files)
        await store.files.mark("us", made.id)
    else:

        async def cut_off(*_: object) -> None:
            raise KilledError

        monkey = pytest.MonkeyPatch()
        monkey.setattr(files, "_give_up", cut_off)
        monkey.setattr(_NewFile, "end", lambda new: os.close(new._descriptor))
        if crash == "before the row says so":
            monkey.setattr(store.files, "finish", cut_off)

        async def killed() -> AsyncIterator[bytes]:
            yield b"x" * 2_000_000
            if crash == "before the bytes are there":
                raise KilledError

        with pytest.raises(KilledError):
            await files.create("us", "a", "batch", killed())
        monkey.undo()
    unseen = isinstance(keeper, InBucket) and crash == "before the bytes are there"  # nothing is sent of so few
    assert len(keeper.names()) == (0 if unseen else 1)
    assert (await files.list("us")).data == []
    later = open_files(clock=lambda: time.time() + ABANDONED + 5)
    assert await later.sweep() == 1
    assert keeper.names() == []
    assert await store.files.usage("us") == 0
    assert await later.sweep() == 0


async def test_a_file_that_is_being_written_is_not_swept(files: StoredFiles) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield DATA
        assert await files.sweep() == 0

    assert await content(files, await files.create("us", "a", "batch", slow())) == DATA


async def test_a_file_given_up_while_it_comes_is_refused_at_its_end(open_files: Open, keeper: Keeper) -> None:
    files, later = open_files(), open_files(clock=lambda: time.time() + ABANDONED + 5)

    async def too_slow() -> AsyncIterator[bytes]:
        yield DATA
        assert await later.sweep() == 1

    with pytest.raises(APIError, match=r"given up|fails"):
        await files.create("us", "a", "batch", too_slow())
    assert keeper.names() == []


async def test_a_listener_that_fails_is_told_again(files: StoredFiles, keeper: Keeper) -> None:
    told: list[str] = []

    async def tell(file: FileRecord) -> None:
        told.append(file.filename)
        if len(told) == 1:
            raise ServiceUnavailableError("not now")

    files.on_delete(tell)
    made, kept = await keep(files, name="a"), await keep(files, name="b")
    await files.delete("us", made.id)
    with pytest.raises(NotFoundError):
        await files.delete("us", made.id)
    assert len(keeper.names()) == 2
    assert await files.sweep() == 1
    assert (told, keeper.names()) == (["a", "a"], [kept.id])


async def test_who_has_begun_to_read_reads_to_the_end(files: StoredFiles) -> None:
    data = b"0123456789" * 100_000
    made = await keep(files, data)
    reading = await files.read("us", made.id)
    first = await anext(reading)
    await files.delete("us", made.id)
    assert first + b"".join([piece async for piece in reading]) == data


async def test_bytes_that_are_gone_are_said_to_be(files: StoredFiles, keeper: Keeper) -> None:
    made = await keep(files)
    keeper.lose_all()
    with pytest.raises(NotFoundError, match="content of the file is gone"):
        await files.read("us", made.id)
    await files.delete("us", made.id)


async def test_what_fails_is_told(files: StoredFiles, keeper: Keeper) -> None:
    keeper.break_down()
    with pytest.raises(ServiceUnavailableError, match="fails"):
        await keep(files)
    assert (await files.list("us")).data == []


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\a b.txt", "a b.txt"),
        ("a\x00b\r\nc\u202e.txt", "abc.txt"),
        ("x" * 300 + ".csv", "x" * 251 + ".csv"),
        ("Über \U0001f600.md", "Über \U0001f600.md"),
        ("\ud800.txt", ".txt"),
        ("..", "file"),
        ("", "file"),
        ("folder/", "folder"),
    ],
)
def test_names_are_cleaned(given: str, name: str) -> None:
    assert cleaned_name(given) == name
