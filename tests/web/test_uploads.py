"""Files in forms, read as they come."""

import pytest
from starlette.requests import Request
from starlette.types import Message

from antwort.errors import BadRequestError, UnsupportedMediaTypeError
from antwort.web.requests import open_upload

FORM = (
    b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a b.csv"\r\nContent-Type: text/csv\r\n\r\n'
    b"one,two\r\n--bad\r\n\r\n--b--\r\n"
)


def request(pieces: list[bytes], kind: str = "multipart/form-data; boundary=b", **headers: str) -> Request:
    messages: list[Message] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Message:
        return messages.pop(0)

    given = {"content-type": kind, **headers}
    return Request({"type": "http", "headers": [(k.encode(), v.encode()) for k, v in given.items()]}, receive)


@pytest.mark.parametrize("size", [1, 2, 7, 50, 1000])
async def test_a_file_comes_whole_however_the_form_is_cut(size: int) -> None:
    upload = await open_upload(request([FORM[at : at + size] for at in range(0, len(FORM), size)]), "file")
    assert upload.filename == "a b.csv"
    assert b"".join([chunk async for chunk in upload.chunks]) == b"one,two\r\n--bad\r\n"


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        (b"filename=\"=?utf-8?B?dMOkLm1k?=\"; filename*=utf-8''t%C3%A4.md", "t\u00e4.md"),
        (b"filename*=UTF-8'en'a%20b.md", "a b.md"),
        (b"filename=a.md; filename*=utf-8''a.md", "a.md"),
        (b"filename=\"a; filename*=utf-8''b.md\"", "a; filename*=utf-8''b.md"),
    ],
)
async def test_names_are_read_as_clients_spell_them(spelt: bytes, name: str) -> None:
    upload = await open_upload(request([FORM.replace(b'filename="a b.csv"', spelt)]), "file")
    assert upload.filename == name


async def test_what_is_no_form_is_refused() -> None:
    for kind in ("application/json", "multipart/form-data", "multipart/mixed; boundary=b", ""):
        with pytest.raises(UnsupportedMediaTypeError):
            await open_upload(request([FORM], kind), "file")


async def test_a_boundary_that_is_too_long_is_refused() -> None:
    long = "b" * 257
    with pytest.raises(BadRequestError, match="The form cannot be read"):
        await open_upload(
            request([FORM.replace(b"--b", f"--{long}".encode())], f"multipart/form-data; boundary={long}"), "file"
        )


async def test_forms_of_web_pages_need_credentials_in_a_header() -> None:
    with pytest.raises(UnsupportedMediaTypeError, match="Authorization"):
        await open_upload(request([FORM], origin="https://evil.example"), "file")
    upload = await open_upload(request([FORM], origin="https://app.example", authorization="Bearer x"), "file")
    assert upload.filename == "a b.csv"


@pytest.mark.parametrize(
    "form",
    [
        b"",
        b"nonsense",
        b"--b--\r\n",
        FORM.replace(b'"file"', b'"other"'),
        FORM.replace(b'; filename="a b.csv"', b""),
        b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n' + b"x" * 100_000 + FORM,
        b"--b\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    ],
)
async def test_a_form_without_the_file_is_refused(form: bytes) -> None:
    with pytest.raises(BadRequestError):
        await open_upload(request([form[at : at + 5000] for at in range(0, len(form), 5000)]), "file")


async def test_a_form_that_breaks_off_is_refused() -> None:
    upload = await open_upload(request([FORM[:-12]]), "file")
    with pytest.raises(BadRequestError, match="no end"):
        _ = [chunk async for chunk in upload.chunks]
