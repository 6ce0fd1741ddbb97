"""Reading a file. It happens in a process apart, `child`, since readers of foreign files may crash, or never end."""

import importlib
from collections.abc import Callable
from typing import cast

from antwort.documents.detection import format_of
from antwort.documents.document import Document, DocumentBuilder, UnreadableError

Reader = Callable[[bytes, str, DocumentBuilder], None]
"""Reads the bytes of a file with a name into a document."""


def parsed(data: bytes, filename: str) -> Document:
    """Return what a file says; UnreadableError if it cannot be read, or says nothing."""
    found = format_of(data, filename)
    # Imported when it is needed: the process ends after one file, and most readers are for others.
    read = cast("Reader", importlib.import_module(f"antwort.documents.formats.{found}").read)
    builder = DocumentBuilder()
    try:
        read(data, filename, builder)
    except RecursionError:
        raise UnreadableError("It is nested too deeply.") from None
    document = builder.document()
    if not document.text:
        raise UnreadableError("There is no text in it.")
    return document
