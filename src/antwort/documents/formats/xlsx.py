"""XLSX: each sheet is a table with a heading; cells are what the last program that saved it has computed."""

import re
from collections.abc import Mapping

from antwort.documents.document import DocumentBuilder, row_text
from antwort.documents.formats.archive import Archive

_WORKBOOK = "xl/workbook.xml"
_STRINGS = "xl/sharedStrings.xml"
_MANY = 1_000_000
"""Characters after which rows become a block: a small file may stand for very long ones."""
_COLUMN = re.compile(r"[A-Z]{1,3}")
_MOST_COLUMNS = 500


def read(archive: Archive, builder: DocumentBuilder) -> None:
    """Read a workbook, sheet by sheet."""
    strings = _shared_strings(archive)
    for number, (name, part) in enumerate(_sheets(archive), 1):
        builder.page = number
        builder.heading(name, 1)
        sheet = _Sheet(builder, strings)
        archive.scan(part, start=sheet.start, end=sheet.end, text=sheet.text)
        sheet.flush()


def _sheets(archive: Archive) -> list[tuple[str, str]]:
    relations = archive.relations(_WORKBOOK)
    found: list[tuple[str, str]] = []

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        part = relations.get(attributes.get("id", ""), "")
        if tag == "sheet" and archive.has(part):
            found.append((attributes.get("name", ""), part))

    archive.scan(_WORKBOOK, start=start)
    return found


def _shared_strings(archive: Archive) -> list[str]:
    found: list[str] = []
    parts: list[str] = []
    taking = False

    def start(tag: str, _: Mapping[str, str]) -> None:
        nonlocal taking
        if tag == "si":
            parts.clear()
        taking = tag == "t"

    def end(tag: str) -> None:
        nonlocal taking
        taking = False
        if tag == "si":
            found.append("".join(parts))

    def text(text: str) -> None:
        if taking:
            parts.append(text)

    if archive.has(_STRINGS):
        archive.scan(_STRINGS, start=start, end=end, text=text)
    return found


class _Sheet:
    """Takes the elements of a sheet as they come."""

    def __init__(self, builder: DocumentBuilder, strings: list[str]) -> None:
        self._builder = builder
        self._strings = strings
        self._header = ""
        """The first row, which mostly names the columns."""
        self._lines: list[str] = []
        self._length = 0
        self._row: list[str] = []
        self._column = 0
        self._kind = ""
        self._taking = False
        self._value: list[str] = []

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        if tag == "row":
            self._row = []
        elif tag == "c":
            self._kind, self._value = attributes.get("t", ""), []
            self._column = min(_column(attributes.get("r", ""), len(self._row)), _MOST_COLUMNS)
        self._taking = tag in {"v", "t"}

    def text(self, text: str) -> None:
        """Take what stands in an element."""
        if self._taking:
            self._value.append(text)

    def end(self, tag: str) -> None:
        """End an element."""
        self._taking = False
        if tag == "c":
            self._row += [""] * (self._column - len(self._row)) + [self._shown("".join(self._value))]
        elif tag == "row" and any(map(str.strip, self._row)):
            self._end_row()

    def flush(self) -> None:
        """Add the rows so far."""
        self._builder.add("\n".join(self._lines), "table", self._header)
        self._lines, self._length = [], 0

    def _end_row(self) -> None:
        line = row_text(self._row)
        self._header = self._header or line
        self._lines.append(line)
        self._length += len(line)
        if self._length > _MANY:
            self.flush()

    def _shown(self, value: str) -> str:
        if self._kind == "s" and value.isdigit():
            return self._strings[int(value)] if int(value) < len(self._strings) else ""
        if self._kind == "b":
            return "TRUE" if value == "1" else "FALSE"
        return value


def _column(reference: str, otherwise: int) -> int:
    """Return which column a cell such as `C7` is in, from 0."""
    letters = _COLUMN.match(reference)
    if letters is None:
        return otherwise
    number = 0
    for letter in letters[0]:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1
