"""`/v1/files` through the shipped server, with the official SDK."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from openai import APIStatusError, BadRequestError, NotFoundError, PermissionDeniedError
from tests.providers.files.stage import KEYS, TENANTS, form, keep, kept, staged

FILE = 'file"; filename="a.txt"'


def test_files_are_created_listed_retrieved_downloaded_and_deleted(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        files = stage.client().files
        first = keep(stage, b"One.", "one.txt")
        assert (first.object, first.filename, first.bytes, first.purpose) == ("file", "one.txt", 4, "user_data")
        assert (first.status, first.expires_at) == ("processed", None)
        second = keep(stage, b"\x00" * 3_000_000, "two.bin", purpose="assistants")
        assert files.retrieve(second.id) == second
        assert files.content(second.id).read() == b"\x00" * 3_000_000
        assert files.list().data == [second, first]
        assert list(files.list(limit=1, order="asc")) == [first, second]
        assert [file.id for file in files.list(purpose="assistants")] == [second.id]
        assert files.wait_for_processing(first.id).id == first.id
        assert files.delete(first.id).to_dict() == {"id": first.id, "object": "file", "deleted": True}
        for ask in (files.retrieve, files.content, files.delete):
            with pytest.raises(NotFoundError) as refused:
                ask(first.id)
            assert refused.value.param == "file_id"
        assert kept(tmp_path) == [second.id]
        metrics = stage.request("GET", "/../metrics").text
        assert 'antwort_files_created_total{purpose="user_data"} 1.0' in metrics
        assert "antwort_files_received_bytes_total 3.000004e+06" in metrics


def test_a_file_may_expire(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        made = keep(stage, expires_after={"anchor": "created_at", "seconds": 3600})
        assert made.expires_at is not None
        assert 3600 <= made.expires_at - made.created_at <= 3601 + time.time() - made.created_at
        with pytest.raises(BadRequestError) as refused:
            keep(stage, expires_after={"anchor": "created_at", "seconds": 10})
        assert refused.value.param == "expires_after.seconds"
        assert kept(tmp_path) == [made.id]


def test_content_is_to_be_saved_and_not_shown(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        made = keep(stage, b"<script>alert(1)</script>", "é; x=y.html")
        found = stage.request("GET", f"/files/{made.id}/content")
        assert found.headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%A9%3B%20x%3Dy.html"
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["content-security-policy"] == "sandbox"
        assert found.headers["content-length"] == "25"


def test_a_part_of_the_content(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        made = keep(stage, b"0123456789")
        for asked, status, data, part in (
            ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
            ("bytes=7-", 206, b"789", "bytes 7-9/10"),
            ("bytes=-2", 206, b"89", "bytes 8-9/10"),
            ("bytes=5-100", 206, b"56789", "bytes 5-9/10"),
            ("bytes=1-2,4-5", 200, b"0123456789", None),
            ("lines=1-2", 200, b"0123456789", None),
            ("bytes=-", 200, b"0123456789", None),
            ("bytes=10-", 416, None, "bytes */10"),
            ("bytes=-0", 416, None, "bytes */10"),
            ("bytes=5-2", 416, None, "bytes */10"),
        ):
            found = stage.request("GET", f"/files/{made.id}/content", headers={"range": asked})
            assert (found.status_code, found.headers.get("content-range")) == (status, part)
            assert data is None or found.content == data


def test_fields_may_stand_behind_the_file(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        sent = form((FILE, b"Hello."), ('purpose"', b"vision"), ('expires_after[seconds]"', b"7200"))
        made = stage.request("POST", "/files", **sent)
        assert made.status_code == 200, made.text
        assert (made.json()["purpose"], made.json()["bytes"]) == ("vision", 6)
        assert made.json()["expires_at"] is not None


def test_when_a_file_expires_may_be_said_in_json(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        for said, param in (
            (b'{"anchor": "created_at", "seconds": 3600}', None),
            (b'{"anchor": "created_at", "seconds": 10}', "expires_after.seconds"),
            (b"soon", "expires_after"),
        ):
            sent = form((FILE, b"Hello."), ('purpose"', b"vision"), ('expires_after"', said))
            answer = stage.request("POST", "/files", **sent).json()
            assert answer.get("error", {}).get("param") == param
            assert param is not None or answer["expires_at"] is not None


def test_a_form_that_is_none_leaves_nothing(tmp_path: Path) -> None:
    purpose = ('purpose"', b"batch")
    forms: list[tuple[dict[str, Any], str | None]] = [
        (form((FILE, b"Hello.")), "purpose"),
        (form((FILE, b"Hello."), ('purpose"', b"world domination")), "purpose"),
        (form(purpose), "file"),
        (form(purpose, ('file"', b"no file")), "file"),
        (form(purpose, (FILE, b"Hello."), end=b""), None),
        (form((FILE, b"Hello."), ('purpose"', b"x" * 100_000)), None),
        (form((FILE, b"Hello."), ('more"; filename="b.txt"', b"x" * 100_000), purpose), None),
        ({"content": b"nonsense", "headers": {"content-type": "multipart/form-data; boundary=xyz"}}, None),
        ({"json": {"file": "a", "purpose": "batch"}}, None),
    ]
    with staged(tmp_path) as stage:
        for sent, param in forms:
            refused = stage.request("POST", "/files", **sent)
            assert refused.status_code in {400, 415}, refused.text
            assert refused.json()["error"]["type"] == "invalid_request_error"
            assert refused.json()["error"]["param"] == param
        assert stage.client().files.list().data == []
        assert kept(tmp_path) == []


def test_a_client_that_leaves_within_its_file_leaves_nothing(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        address = urlsplit(stage.server.url)
        with socket.create_connection((address.hostname, address.port)) as client:
            head = "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n"
            client.sendall(f"{head}Content-Type: multipart/form-data; boundary=xyz\r\n\r\n".encode())
            client.sendall(form((FILE, b"x" * 3_000_000), end=b"")["content"])
            while not kept(tmp_path):
                time.sleep(0.01)
        while kept(tmp_path):
            time.sleep(0.01)
        assert stage.client().files.list().data == []


def test_what_is_too_large_or_too_much_is_refused(tmp_path: Path) -> None:
    limits = {"per_tenant": {"max_file_bytes": "100KB", "max_files_bytes": "150KB"}}
    with staged(tmp_path, limits=limits) as stage:
        with pytest.raises(APIStatusError) as refused:
            keep(stage, b"x" * 2_000_000)
        assert refused.value.status_code == 413
        made = keep(stage, b"x" * 90_000)
        with pytest.raises(APIStatusError) as refused:
            keep(stage, b"x" * 90_000)
        assert (refused.value.status_code, refused.value.code) == (429, "storage_quota_exceeded")
        assert kept(tmp_path) == [made.id]
        stage.client().files.delete(made.id)
        keep(stage, b"x" * 90_000)


def test_no_name_leads_anywhere(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        for name in ("../../../etc/passwd", "/etc/passwd", "..\\..\\boot.ini", "a\x01b", "." * 400, "名前"):
            made = keep(stage, b"x", name)
            assert not set("/\\\x01") & set(made.filename)
            assert kept(tmp_path) == [made.id]
            assert stage.client().files.content(made.id).read() == b"x"
            stage.client().files.delete(made.id)


def test_cursors_that_are_none_are_refused(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        for query in ("after=nonsense", "after=file-%00", "limit=0", "limit=10001", "order=up", "purpose=%00"):
            refused = stage.request("GET", f"/files?{query}")
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, query.partition("=")[0])
        assert stage.request("GET", "/files/file-%01").status_code == 404


def test_tenants_have_files_of_their_own(tmp_path: Path) -> None:
    with staged(tmp_path, auth=TENANTS) as stage:
        ours, theirs = stage.client(KEYS["a"]).files, stage.client(KEYS["b"]).files
        made = ours.create(file=("a.txt", b"Hello."), purpose="user_data")
        for ask in (theirs.retrieve, theirs.content, theirs.delete):
            with pytest.raises(NotFoundError):
                ask(made.id)
        assert theirs.list().data == []
        assert ours.content(made.id).read() == b"Hello."


def test_credentials_need_scopes(tmp_path: Path) -> None:
    keys = [{"id": "r", "key": KEYS["a"], "scopes": ["files:read"]}, {"id": "n", "key": KEYS["b"], "scopes": ["x"]}]
    with staged(tmp_path, auth={"api_keys": keys}) as stage:
        assert stage.client(KEYS["a"]).files.list().data == []
        with pytest.raises(PermissionDeniedError):
            stage.client(KEYS["a"]).files.create(file=b"x", purpose="user_data")
        with pytest.raises(PermissionDeniedError):
            stage.client(KEYS["b"]).files.list()


def test_files_are_read_while_they_are_deleted(tmp_path: Path) -> None:
    data = b"0123456789" * 100_000
    with staged(tmp_path) as stage, ThreadPoolExecutor(8) as threads:
        made = [keep(stage, data).id for _ in range(4)]
        client = stage.client()

        def read(file_id: str) -> bytes | None:
            try:
                return client.files.content(file_id).read()
            except NotFoundError:
                return None

        def delete(file_id: str) -> bool:
            try:
                return client.files.delete(file_id).deleted
            except NotFoundError:
                return False

        reading = [threads.submit(read, file_id) for file_id in made * 3]
        deleting = [threads.submit(delete, file_id) for file_id in made * 2]
        assert {future.result() for future in reading} <= {data, None}
        assert True in {future.result() for future in deleting}
        assert kept(tmp_path) == []
        assert client.files.list().data == []
