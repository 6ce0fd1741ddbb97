"""Content parts of wire items as Chat Completions content parts."""

import base64
import binascii
from typing import Any
from urllib.parse import unquote_to_bytes

from antwort.backends.chat.dialect import Dialect
from antwort.errors import BadRequestError
from antwort.types import JSON

__all__ = ["Content", "chat_content", "chat_parts", "is_text"]

Content = str | list[JSON]

_FILE_HINT = "send its content as `file_data`"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def chat_content(content: Any, dialect: Dialect, backend: str) -> Content:
    """Return a message's content; a single text as a plain string, which every server takes."""
    if isinstance(content, str):
        return content
    parts = chat_parts(content, dialect, backend)
    if not parts:
        return ""
    return str(parts[0]["text"]) if len(parts) == 1 and is_text(parts[0]) else parts


def chat_parts(content: Any, dialect: Dialect, backend: str) -> list[JSON]:
    """Return content as parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [_text(content)] if content else []
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise BadRequestError("The content of a message must be a string or a list of parts.", param="input")
    return [_part(part, dialect, backend) for part in content]


def is_text(part: JSON) -> bool:
    """Tell whether a Chat Completions part is text."""
    return part.get("type") == "text"


def _part(part: JSON, dialect: Dialect, backend: str) -> JSON:
    kind = part.get("type")
    if kind == "input_image":
        return _image(part)
    if kind == "input_file":
        return _file(part, dialect, backend)
    text = part.get("refusal") if kind == "refusal" else part.get("text")
    if isinstance(text, str):
        return _text(text)
    raise BadRequestError(
        f"The backend '{backend}' cannot be given content of the type '{kind}'.",
        param="input",
        code="unsupported_content",
    )


def _text(text: str) -> JSON:
    return {"type": "text", "text": text}


def _image(part: JSON) -> JSON:
    url = part.get("image_url")
    if not isinstance(url, str) or not url:
        by_id = part.get("file_id") is not None
        reason = "Images cannot be named by `file_id` yet" if by_id else "The image has no `image_url`"
        raise BadRequestError(
            f"{reason}; send it as `image_url`, a URL or data URL.", param="input", code="unsupported_image"
        )
    image: JSON = {"url": url}
    if part.get("detail") is not None:
        image["detail"] = part["detail"]
    return {"type": "image_url", "image_url": image}


def _file(part: JSON, dialect: Dialect, backend: str) -> JSON:
    name = part.get("filename") or "file"
    data = part.get("file_data")
    if not isinstance(data, str) or not data:
        named_by = next((key for key in ("file_id", "file_url") if part.get(key) is not None), None)
        reason = f"Files cannot be named by `{named_by}` yet" if named_by else "The file has no `file_data`"
        raise _refused(f"{reason}; {_FILE_HINT}.")
    raw = _decoded(data, name)
    if raw.startswith(b"%PDF-"):
        if not dialect.pdf:
            raise _refused(
                f"The backend '{backend}' takes no PDF files, and '{name}' is one; send its text instead. "
                f"(If the model server does read PDF, set backends.{backend}.pdf.)"
            )
        encoded = data if data.startswith("data:") else f"data:application/pdf;base64,{data}"
        return {"type": "file", "file": {"filename": name, "file_data": encoded}}
    return _text(f"[file: {name}]\n{_as_text(raw, name)}\n[end of file: {name}]")


def _decoded(data: str, name: str) -> bytes:
    """Return the bytes of a data URL or of bare base64."""
    head, comma, body = data.partition(",") if data.startswith("data:") else ("", "", data)
    if comma and not head.endswith(";base64"):
        return unquote_to_bytes(body)
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        raise _refused(f"The `file_data` of '{name}' is not base64.") from None


def _as_text(raw: bytes, name: str) -> str:
    # The bytes say more reliably than names and media types whether a file is text.
    try:
        text = raw.decode("utf-16" if raw.startswith(_UTF16) else "utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise _refused(
            f"The file '{name}' is not text; only text files and, where the model takes them, PDF can be read."
        )
    return text


def _refused(message: str) -> BadRequestError:
    return BadRequestError(message, param="input", code="unsupported_file")
