"""DOCX: paragraphs, headings and tables of the text, then its notes; pages as far as a program has noted them."""

import re
from collections.abc import Mapping

from antwort.documents.document import DocumentBuilder
from antwort.documents.formats.archive import Archive

_TEXT = "word/document.xml"
_STYLES = "word/styles.xml"
_NOTES = ("word/footnotes.xml", "word/endnotes.xml")
_HEADING = re.compile(r"heading\s*(\d)", re.IGNORECASE)
_TITLE = re.compile(r"title", re.IGNORECASE)


def read(archive: Archive, builder: DocumentBuilder) -> None:
    """Read a document."""
    body = _DocxBody(builder, _levels(archive))
    archive.scan(_TEXT, start=body.start, end=body.end, text=body.text)
    for notes in filter(archive.has, _NOTES):  # of the whole document, since no part of it says where a page ends
        archive.scan(notes, start=body.start, end=body.end, text=body.text)


def _levels(archive: Archive) -> dict[str, int]:
    """Return the styles of headings, by id, with their levels: ids are in the language of the author, names are not."""
    found: dict[str, int] = {}
    style = ""

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal style
        if tag == "style":
            style = attributes.get("styleId", "")
        elif tag == "name" and style:
            name = attributes.get("val", "")
            if match := _HEADING.fullmatch(name):
                found[style] = int(match[1])
            elif _TITLE.fullmatch(name):
                found[style] = 1

    if archive.has(_STYLES):
        archive.scan(_STYLES, start=start)
    return found


class _DocxBody:
    """Takes the elements of the text as they come."""

    def __init__(self, builder: DocumentBuilder, levels: Mapping[str, int]) -> None:
        self._builder = builder
        self._levels = levels
        self._paragraph: list[str] = []
        self._level = 0
        self._in_text = False
        self._tables = 0
        self._rows: list[list[str]] = []
        self._cell: list[str] = []
        builder.page = 1

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        if tag == "p":
            self._paragraph, self._level = [], 0
        elif tag == "pStyle":
            self._level = self._levels.get(attributes.get("val", ""), self._level)
        elif tag == "outlineLvl" and attributes.get("val", "9").isdigit():
            level = int(attributes.get("val", "9")) + 1
            self._level = level if level < 10 else 0
        elif tag == "t":
            self._in_text = True
        elif tag in {"tab", "br", "cr"}:
            self._paragraph.append("\n" if tag != "tab" else "\t")
            if attributes.get("type") == "page":
                self._turn_page()
        elif tag == "lastRenderedPageBreak":
            self._turn_page()
        elif tag == "tbl":
            self._tables += 1
            if self._tables == 1:
                self._rows = []
        elif self._tables == 1:  # what is in a table inside another is text of the outer one's cell
            self._start_in_table(tag)

    def _start_in_table(self, tag: str) -> None:
        if tag == "tr":
            self._rows.append([])
        elif tag == "tc":
            self._cell = []

    def text(self, text: str) -> None:
        """Take what stands in an element."""
        if self._in_text:
            self._paragraph.append(text)

    def end(self, tag: str) -> None:
        """End an element."""
        if tag == "t":
            self._in_text = False
        elif tag == "p":
            self._end_paragraph("".join(self._paragraph))
        elif tag == "tc" and self._tables == 1:
            self._rows[-1:] = [[*(self._rows[-1] if self._rows else []), " ".join(self._cell)]]
        elif tag == "tbl":
            self._tables -= 1
            if self._tables == 0:
                self._builder.table(self._rows)

    def _end_paragraph(self, text: str) -> None:
        if self._tables:
            self._cell.append(text)
        elif self._level:
            self._builder.heading(text, self._level)
        else:
            self._builder.add(text)
        self._paragraph = []

    def _turn_page(self) -> None:
        self._builder.page = (self._builder.page or 1) + 1
