"""What `antwort run` asks: the question with what was piped in, and files."""

import base64
import mimetypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from antwort.cli.failures import Misuse
from antwort.types import JSON

__all__ = ["clean", "file_part", "read_question", "user_input"]


_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def read_question(argument: str | None) -> str:
    """Return the question: the argument, what is piped in, or the first about the second; empty if there is neither."""
    stdin: TextIO | None = sys.stdin  # None in a process that was started without
    piped = "" if stdin is None or stdin.isatty() else stdin.buffer.read().decode(errors="replace").strip()
    return "\n\n".join(part for part in (clean(argument or "").strip(), piped) if part)


def clean(text: str) -> str:
    """Return a text without the halves of characters that arguments which are not UTF-8 consist of."""
    return text.encode(errors="replace").decode()


def user_input(text: str, files: Sequence[JSON]) -> str | list[JSON]:
    """Return the `input` of a request: the text alone, or a message with files before it."""
    if not files:
        return text
    content = [*files, {"type": "input_text", "text": text}] if text else list(files)
    return [{"type": "message", "role": "user", "content": content}]


def file_part(path: Path) -> JSON:
    """Return a file as a part of a message: images to be seen, everything else to be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Misuse(f"--file {path}: cannot be read: {error.strerror or error}") from None
    kind = mimetypes.guess_type(path.name)[0] or "text/plain"
    url = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    if kind in _IMAGES:
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": clean(path.name), "file_data": url}
