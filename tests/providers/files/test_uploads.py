"""`/v1/uploads` through the shipped server, with the official SDK."""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, BadRequestError, NotFoundError
from openai.types import Upload
from tests.providers.files.stage import KEYS, TENANTS, kept, staged

from antwort.providers.files import uploads

WISH: Any = {"filename": "a.txt", "mime_type": "text/plain", "purpose": "assistants"}


def test_parts_become_a_file_in_the_order_that_is_asked_for(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        client = stage.client()
        begun = client.uploads.create(bytes=10, **WISH, expires_after={"anchor": "created_at", "seconds": 7200})
        assert (begun.status, begun.bytes, begun.filename) == ("pending", 10, "a.txt")
        assert begun.expires_at == begun.created_at + 3600
        second = client.uploads.parts.create(begun.id, data=b"World!")
        first = client.uploads.parts.create(begun.id, data=b"Hi, ")
        assert (first.object, first.upload_id) == ("upload.part", begun.id)
        assert client.files.list().data == []
        md5 = hashlib.md5(b"Hi, World!", usedforsecurity=False).hexdigest()
        ended = client.uploads.complete(begun.id, part_ids=[first.id, second.id], md5=md5)
        assert ended.status == "completed"
        assert ended.file is not None
        assert ended.file.expires_at is not None
        assert client.files.content(ended.file.id).read() == b"Hi, World!"
        assert client.files.list().data == [ended.file]
        assert kept(tmp_path) == [ended.file.id]
        for again in (
            lambda: client.uploads.complete(begun.id, part_ids=[first.id]),
            lambda: client.uploads.cancel(begun.id),
            lambda: client.uploads.parts.create(begun.id, data=b"x"),
        ):
            with pytest.raises(BadRequestError, match="completed"):
                again()


def test_the_sdk_sends_a_file_in_chunks(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "large.bin").write_bytes(data)
    with staged(tmp_path) as stage:
        client = stage.client()
        ended = client.uploads.upload_file_chunked(
            file=tmp_path / "large.bin", mime_type="application/octet-stream", purpose="user_data", part_size=1_000_000
        )
        assert ended.file is not None
        assert (ended.file.filename, ended.file.bytes) == ("large.bin", len(data))
        assert client.files.content(ended.file.id).read() == data


def test_a_cancelled_upload_leaves_nothing(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        client = stage.client()
        begun = client.uploads.create(bytes=10, **WISH)
        client.uploads.parts.create(begun.id, data=b"World!")
        assert len(kept(tmp_path)) == 1
        assert client.uploads.cancel(begun.id).status == "cancelled"
        assert kept(tmp_path) == []


def test_what_does_not_fit_is_refused_and_can_be_mended(tmp_path: Path) -> None:
    with staged(tmp_path, limits={"per_tenant": {"max_file_bytes": 1000, "max_files_bytes": 1000}}) as stage:
        client = stage.client()
        with pytest.raises(APIStatusError) as large:
            client.uploads.create(bytes=1001, **WISH)
        assert (large.value.status_code, large.value.param) == (413, "bytes")
        for wrong_field in ({"bytes": "6"}, {"colour": "red"}, {"purpose": "fun"}):
            refused_upload = stage.request("POST", "/uploads", json={"bytes": 6, **WISH, **wrong_field})
            [field] = wrong_field
            assert (refused_upload.status_code, refused_upload.json()["error"]["param"]) == (400, field)
        begun = client.uploads.create(bytes=600, **WISH)  # parts and file together are more than the quota
        with pytest.raises(BadRequestError, match="more bytes"):
            client.uploads.parts.create(begun.id, data=b"x" * 601)
        with pytest.raises(BadRequestError, match="empty"):
            client.uploads.parts.create(begun.id, data=b"")
        part = client.uploads.parts.create(begun.id, data=b"x" * 300)
        with pytest.raises(BadRequestError, match="more bytes"):
            client.uploads.parts.create(begun.id, data=b"x" * 301)
        other = client.uploads.parts.create(begun.id, data=b"y" * 300)
        for part_ids, message in (
            ([part.id], "300 bytes"),
            ([part.id, part.id], "twice"),
            ([part.id, "part_0"], "no part"),
        ):
            with pytest.raises(BadRequestError, match=message) as refused:
                client.uploads.complete(begun.id, part_ids=part_ids)
            assert refused.value.param == "part_ids"
        with pytest.raises(BadRequestError) as wrong:
            client.uploads.complete(begun.id, part_ids=[part.id, other.id], md5="0" * 32)
        assert wrong.value.param == "md5"
        assert len(kept(tmp_path)) == 2
        ended = client.uploads.complete(begun.id, part_ids=[part.id, other.id])
        assert ended.file is not None
        assert kept(tmp_path) == [ended.file.id]


def test_of_two_who_complete_an_upload_one_does(tmp_path: Path) -> None:
    with staged(tmp_path) as stage, ThreadPoolExecutor(4) as threads:
        client = stage.client()
        begun = client.uploads.create(bytes=6, **WISH)
        part = client.uploads.parts.create(begun.id, data=b"World!")

        def complete(_: int) -> Upload | int:
            try:
                return client.uploads.complete(begun.id, part_ids=[part.id])
            except APIStatusError as error:
                return error.status_code

        ended = list(threads.map(complete, range(4)))
        [made] = [each.file for each in ended if isinstance(each, Upload)]
        assert made is not None
        assert {each for each in ended if isinstance(each, int)} <= {400, 404, 409}
        assert [file.id for file in client.files.list()] == kept(tmp_path) == [made.id]


def test_uploads_of_others_are_not_there(tmp_path: Path) -> None:
    with staged(tmp_path, auth=TENANTS) as stage:
        ours, theirs = stage.client(KEYS["a"]).uploads, stage.client(KEYS["b"]).uploads
        begun = ours.create(bytes=6, **WISH)
        part = ours.parts.create(begun.id, data=b"World!")
        for ask in (
            lambda: theirs.parts.create(begun.id, data=b"x"),
            lambda: theirs.complete(begun.id, part_ids=[part.id]),
            lambda: theirs.cancel(begun.id),
        ):
            with pytest.raises(NotFoundError):
                ask()
        assert ours.complete(begun.id, part_ids=[part.id]).status == "completed"


def test_an_upload_expires_with_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_LASTS", -1)
    with staged(tmp_path) as stage:
        client = stage.client()
        begun = client.uploads.create(bytes=6, **WISH)
        assert begun.status == "expired"
        with pytest.raises(BadRequestError, match="expired"):
            client.uploads.parts.create(begun.id, data=b"World!")
        monkeypatch.setattr(uploads, "_LASTS", 3600)
        monkeypatch.setattr(uploads, "_REMEMBERED", -time.time())
        client.uploads.create(bytes=6, **WISH)
        with pytest.raises(NotFoundError):
            client.uploads.cancel(begun.id)


def test_a_part_has_64_mebibytes_at_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(uploads, "_LARGEST_PART", 10)
    monkeypatch.setattr(uploads, "_MOST_PARTS", 2)

    with staged(tmp_path) as stage:
        client = stage.client()
        begun = client.uploads.create(bytes=100, **WISH)
        with pytest.raises(APIStatusError) as refused:
            client.uploads.parts.create(begun.id, data=b"x" * 11)
        assert refused.value.status_code == 413
        client.uploads.parts.create(begun.id, data=b"x")
        client.uploads.parts.create(begun.id, data=b"x")
        with pytest.raises(BadRequestError, match="send larger ones"):
            client.uploads.parts.create(begun.id, data=b"x")
