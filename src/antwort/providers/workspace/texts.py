"""Texts of files: parts that a model reads, and edits that it makes."""

import difflib
from collections.abc import Sequence
from typing import BinaryIO

from antwort.provider import BaseModel, Field, FunctionError

_PIECE = 1 << 16
_HEAD = 1024
_SHOWN = 80


class Edit(BaseModel):
    """One change of a file."""

    search: str = Field(min_length=1, description="Text that stands in the file exactly once, with its whitespace.")
    replace: str = Field(description="What stands there instead.")


def read_lines(file: BinaryIO, path: str, offset: int, limit: int | None, most: int) -> str:
    """Return lines of a file from the one with the number `offset` on, as many as asked for and as there is room."""
    if b"\0" in file.read(_HEAD):
        raise FunctionError(f"'{path}' is binary: it cannot be read as text. Look at it with a command.")
    file.seek(0)
    number = 1
    while number < offset and (piece := file.readline(_PIECE)):
        number += piece.endswith(b"\n")
    if number < offset:
        raise FunctionError(f"'{path}' has only {number:,} lines.")
    lines: list[bytes] = []
    room, is_whole = most, False
    while limit is None or len(lines) < limit:
        line = file.readline(room + 1)
        is_whole = not line
        if is_whole or len(line) > room:
            break
        lines.append(line)
        room -= len(line)
    else:
        is_whole = not file.read(1)
    text = b"".join(lines).decode(errors="replace")
    if is_whole:
        return text
    if not lines:
        raise FunctionError(f"Line {offset} of '{path}' has more than {most:,} bytes: look at it with a command.")
    following = offset + len(lines)
    return f"{text}[lines {offset}-{following - 1}; go on with offset={following}]"


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Return a text with all edits made, one after the other; FunctionError if one of them cannot be."""
    for number, edit in enumerate(edits, 1):
        count = text.count(edit.search)
        if count != 1:
            where = f"stands in the file {count} times; add what is around it" if count else "is not in the file"
            begins = repr(edit.search[:_SHOWN])
            raise FunctionError(f"Edit {number}: its text {where}. Nothing was changed. It begins: {begins}")
        text = text.replace(edit.search, edit.replace)
    return text


def difference(path: str, before: str, after: str) -> str:
    """Return what an edit has changed, as a unified diff."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
