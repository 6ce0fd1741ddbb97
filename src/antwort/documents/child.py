"""Reading one file, in a process apart: `python -m antwort.documents.child`. Readers of foreign files may never end.

Its standard input is a line of JSON, a ParserRequest, then the file; its output an answer in MessagePack.
"""

import importlib
import sys
from collections.abc import Callable
from typing import cast

import msgspec

from antwort.documents.detection import Format, format_of
from antwort.documents.document import Document, DocumentBuilder, Problem, UnreadableError
from antwort.documents.ocr import NO_OCR, OcrRequest

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


class ParserRequest(msgspec.Struct):
    """What the process is told about a file."""

    filename: str
    cure: str = NO_OCR.cure
    """What can be done about pictures that are not read."""
    ocr: OcrRequest | None = None
    """How to recognise their text; None if that is not to be done."""


def parsed(data: bytes, filename: str, builder: DocumentBuilder | None = None) -> Document:
    """Return what a file says; UnreadableError if it cannot be read, or says nothing."""
    module, name = _READERS[format_of(data, filename)]
    # Imported when it is needed: the process ends after one file, and most readers are for others.
    read = cast("Reader", getattr(importlib.import_module(f"antwort.documents.formats.{module}"), name))
    builder = builder or DocumentBuilder()
    try:
        read(data, filename, builder)
    except RecursionError:
        raise UnreadableError("It is nested too deeply.") from None
    document = builder.document()
    if not document.text:
        raise UnreadableError("There is no text in it.")
    return document


class ParserAnswer(msgspec.Struct):
    """What the process says: a document, or why there is none."""

    document: Document | None = None
    problem: Problem = "invalid_file"
    reason: str = ""
    has_pictures: bool = False
    """That is only because nobody has recognised the text of its pictures."""


def answer(data: bytes, request: ParserRequest) -> ParserAnswer:
    """Read a file; whatever a reader stumbles over is a reason."""
    try:
        return ParserAnswer(parsed(data, request.filename, DocumentBuilder(request.cure, request.ocr)))
    except UnreadableError as error:
        return ParserAnswer(problem=error.problem, reason=str(error), has_pictures=error.has_pictures)
    except MemoryError:
        return ParserAnswer(reason="It needs more memory than reading one file may use.")
    except ImportError as error:
        hint = "a package that is not installed on the server: pip install 'antwort[files]'"
        return ParserAnswer(problem="unsupported_file", reason=f"Reading it needs {hint} ({error.name} is missing).")
    except Exception as error:  # noqa: BLE001 - files of strangers find every flaw of a reader
        return ParserAnswer(reason=f"It is damaged, or not what its name says ({type(error).__name__}).")


def main() -> None:
    """Answer to what comes over standard input."""
    stream = sys.stdin.buffer
    request = msgspec.json.decode(stream.readline(), type=ParserRequest)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer(stream.read(), request)))


if __name__ == "__main__":
    main()
