"""Texts of files: parts that a model reads, and edits that it makes."""

import difflib
from collections.abc import Sequence
from io import BufferedReader
from typing import BinaryIO, Literal

from typing_extensions import override

from antwort.provider import BaseModel, Field, FunctionError

_PIECE = 1 << 16
_HEAD = 1024
_SHOWN = 80
_EDITABLE = 8 << 20
"""Bytes of a file that can be edited: it is held as a whole, several times."""
_COMPARED = 25_000_000
"""Pairs of lines up to which texts are compared line by line: whoever wants to can make that take very long."""
_CONTEXT = 3

Change = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]
"""What has become of lines: from one to another of the old ones, and of the new ones."""


class Edit(BaseModel):
    """One change of a file."""

    search: str = Field(min_length=1, description="Text that stands in the file exactly once, with its whitespace.")
    replace: str = Field(description="What stands there instead.")


def read_lines(file: BufferedReader, path: str, offset: int, limit: int | None, most: int) -> str:
    """Return lines of a file from the one with the number `offset` on, as many as asked for and as there is room."""
    if b"\0" in file.read(_HEAD):
        raise FunctionError(f"'{path}' is binary: it cannot be read as text. Look at it with a command.")
    file.seek(0)
    ended, piece = 0, b""
    while ended < offset - 1 and (more := file.readline(_PIECE)):
        piece = more
        ended += piece.endswith(b"\n")
    if offset > 1 and not file.peek(1):
        count = ended + (bool(piece) and not piece.endswith(b"\n"))
        raise FunctionError(f"'{path}' has only {count:,} {'line' if count == 1 else 'lines'}.")
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


def read_whole(file: BinaryIO, path: str) -> str:
    """Return all of a file that is to be edited."""
    data = file.read(_EDITABLE + 1)
    if len(data) > _EDITABLE:
        raise FunctionError(f"'{path}' has more than {_EDITABLE:,} bytes: edit it with a command.")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise FunctionError(f"'{path}' is no text in UTF-8: it cannot be edited.") from None


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
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    parts = [f"--- a/{path}\n", f"+++ b/{path}\n"] if before != after else []
    for hunk in _Known(_changes(old, new)).get_grouped_opcodes(_CONTEXT) if parts else ():
        first, last = hunk[0], hunk[-1]
        parts.append(f"@@ -{_span(first[1], last[2])} +{_span(first[3], last[4])} @@\n")
        for tag, old_start, old_end, new_start, new_end in hunk:
            if tag == "equal":
                parts += [f" {line}" for line in old[old_start:old_end]]
            else:
                parts += [f"-{line}" for line in old[old_start:old_end]]
                parts += [f"+{line}" for line in new[new_start:new_end]]
    return "".join(part if part.endswith("\n") else f"{part}\n\\ No newline at end of file\n" for part in parts)


class _Known(difflib.SequenceMatcher[str]):
    """Changes that are known already, to be put together in hunks."""

    def __init__(self, changes: list[Change]) -> None:
        super().__init__()
        self._changes = changes

    @override
    def get_opcodes(self) -> list[Change]:
        return self._changes


def _changes(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """Return what is equal and what is not; where too much is not, all of it counts as replaced."""
    shorter = min(len(old), len(new))
    head = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    tail = next((n for n in range(shorter - head) if old[-1 - n] != new[-1 - n]), shorter - head)
    old_end, new_end = len(old) - tail, len(new) - tail
    middle: list[Change] = [("replace", head, old_end, head, new_end)]
    if (old_end - head) * (new_end - head) <= _COMPARED:
        found = difflib.SequenceMatcher(None, old[head:old_end], new[head:new_end]).get_opcodes()
        middle = [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in found]
    ends: list[Change] = [("equal", 0, head, 0, head), ("equal", old_end, len(old), new_end, len(new))]
    return [one for one in (ends[0], *middle, ends[1]) if one[1] != one[2] or one[3] != one[4]]


def _span(start: int, end: int) -> str:
    """Return lines as the head of a hunk names them."""
    count = end - start
    return f"{start + 1}" if count == 1 else f"{start + bool(count)},{count}"
