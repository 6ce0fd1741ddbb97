"""Reading one file, in a process apart: `python -m antwort.documents.child`. Readers of foreign files may never end.

Its standard input is a line of JSON with the name of the file, then the file; its output an answer in MessagePack.
"""

import importlib
import sys
from collections.abc import Callable
from typing import cast

import msgspec

from antwort.documents.detection import Format, format_of
from antwort.documents.document import Document, DocumentBuilder, Problem, UnreadableError

Reader = Callable[[bytes, str, DocumentBuilder], None]
"""Reads the bytes of a file with a name into a document."""
_READERS: dict[Format, tuple[str, str]] = {
    "code": ("text", "read_code"),
    "html": ("html", "read"),
    "json": ("text", "read_json"),
    "mail": ("mail", "read"),
    "markdown": ("markdown", "read"),
    "package": ("archive", "read"),
    "pdf": ("pdf", "read"),
    "table": ("text", "read_table"),
    "text": ("text", "read"),
}
"""The function of `formats` that reads files of each format, with its module."""


def parsed(data: bytes, filename: str) -> Document:
    """Return what a file says; UnreadableError if it cannot be read, or says nothing."""
    module, name = _READERS[format_of(data, filename)]
    # Imported when it is needed: the process ends after one file, and most readers are for others.
    read = cast("Reader", getattr(importlib.import_module(f"antwort.documents.formats.{module}"), name))
    builder = DocumentBuilder()
    try:
        read(data, filename, builder)
    except RecursionError:
        raise UnreadableError("It is nested too deeply.") from None
    document = builder.document()
    if not document.text:
        raise UnreadableError("There is no text in it.")
    return document


class Answer(msgspec.Struct):
    """What the process says: a document, or why there is none."""

    document: Document | None = None
    problem: Problem = "invalid_file"
    reason: str = ""


def answer(data: bytes, filename: str) -> Answer:
    """Read a file; whatever a reader stumbles over is a reason."""
    try:
        return Answer(parsed(data, filename))
    except UnreadableError as error:
        return Answer(problem=error.problem, reason=str(error))
    except MemoryError:
        return Answer(reason="It needs more memory than reading one file may use.")
    except ImportError as error:
        hint = "a package that is not installed on the server: pip install 'antwort[files]'"
        return Answer(problem="unsupported_file", reason=f"Reading it needs {hint} ({error.name} is missing).")
    except Exception as error:  # noqa: BLE001 - files of strangers find every flaw of a reader
        return Answer(reason=f"It is damaged, or not what its name says ({type(error).__name__}).")


def main() -> None:
    """Answer to what comes over standard input."""
    stream = sys.stdin.buffer
    filename = msgspec.json.decode(stream.readline(), type=str)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer(stream.read(), filename)))


if __name__ == "__main__":
    main()
