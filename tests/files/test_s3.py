"""Bytes of files in a bucket: what is too large for one request, what is broken off, and what goes wrong."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from openai import OpenAI
from tests.support.s3 import Bucket

from antwort import Antwort
from antwort.config import Config, S3Config, StorageConfig
from antwort.errors import BadRequestError, ConfigError, NotFoundError, ServiceUnavailableError
from antwort.files import Blobs, open_blobs
from antwort.testing import running

LARGE = random.Random(7).randbytes(18 * 1024**2)
"""More than two parts."""
STEP = 1024**2


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), STEP):
        yield data[start : start + STEP]


async def content(blobs: Blobs, name: str, offset: int, length: int) -> bytes:
    return b"".join([piece async for piece in blobs.read(name, offset, length)])


@pytest.fixture
def blobs(bucket: Bucket, tmp_path: Path) -> Blobs:
    return open_blobs(bucket.settings, tmp_path)


async def test_a_large_file_comes_in_parts_and_goes_in_ranges(blobs: Blobs, bucket: Bucket) -> None:
    await blobs.write("a", pieces(LARGE))
    assert (bucket.objects(), bucket.unfinished()) == (["kept/files/a"], 0)
    assert await content(blobs, "a", 0, len(LARGE)) == LARGE
    assert await content(blobs, "a", 5_000_000, 9_000_000) == LARGE[5_000_000:14_000_000]
    assert await content(blobs, "a", 7, 0) == b""
    await blobs.delete("a")
    await blobs.delete("a")
    assert bucket.objects() == []
    for length in (0, 1):
        with pytest.raises(NotFoundError):
            await content(blobs, "a", 0, length)


async def test_what_does_not_come_to_its_end_leaves_no_parts(blobs: Blobs, bucket: Bucket) -> None:
    async def broken() -> AsyncIterator[bytes]:
        async for piece in pieces(LARGE):
            yield piece
        raise BadRequestError("The form has no end.")

    with pytest.raises(BadRequestError, match="no end"):
        await blobs.write("a", broken())
    assert (bucket.objects(), bucket.unfinished()) == ([], 0)


async def test_who_is_cancelled_leaves_no_parts(blobs: Blobs, bucket: Bucket) -> None:
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        async for piece in pieces(LARGE):
            yield piece
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(blobs.write("a", endless()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (bucket.objects(), bucket.unfinished()) == ([], 0)


async def test_a_bucket_that_fails_in_the_middle_is_told(blobs: Blobs, bucket: Bucket) -> None:
    async def interrupted() -> AsyncIterator[bytes]:
        for number in range(1000):
            if number == 20:
                bucket.delete()
            yield LARGE[:STEP]

    with pytest.raises(ServiceUnavailableError, match="no such bucket"):
        await blobs.write("a", interrupted())


async def test_a_server_that_is_away_is_told_and_its_address_is_not(bucket: Bucket, tmp_path: Path) -> None:
    blobs = open_blobs(S3Config(bucket="files", endpoint="http://127.0.0.1:9"), tmp_path)
    with pytest.raises(ServiceUnavailableError, match="does not answer") as caught:
        await blobs.write("a", pieces(b"x"))
    assert "127.0.0.1" not in str(caught.value)


async def test_a_new_file_is_not_gone_where_the_server_finds_nothing(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_found(*_: object, **__: object) -> None:
        raise FileNotFoundError("404 Not Found: <html>")

    monkeypatch.setattr("obstore.put_async", not_found)
    with pytest.raises(ServiceUnavailableError, match="not found"):
        await blobs.write("a", pieces(b"x"))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "antwort.files.s3", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'antwort\[s3\]'"):
        open_blobs(S3Config(bucket="files"), tmp_path)


def test_an_app_keeps_its_files_there(bucket: Bucket, tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, storage=StorageConfig(s3=bucket.settings))
    with running(Antwort(config)) as server, OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        file = client.files.create(file=("a.bin", LARGE), purpose="user_data")
        assert bucket.objects() == [f"kept/files/{file.id}"]
        assert client.files.content(file.id).content == LARGE
        url, part = f"{server.url}/v1/files/{file.id}/content", {"range": "bytes=9000000-9000099"}
        assert httpx.get(url, headers=part).content == LARGE[9_000_000:9_000_100]
        client.files.delete(file.id)
        assert bucket.objects() == []
        assert not (tmp_path / "blobs").exists()
