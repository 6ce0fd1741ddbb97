"""PPTX: each slide is a page; its title is a heading."""

from collections.abc import Mapping

from antwort.documents.document import DocumentBuilder, named_pages
from antwort.documents.formats.archive import Archive

_PRESENTATION = "ppt/presentation.xml"


def read(archive: Archive, builder: DocumentBuilder) -> None:
    """Read a presentation, slides in their order."""
    pictures: list[int] = []
    for number, name in enumerate(_slides(archive), 1):
        builder.page = number
        slide = _Slide(builder)
        archive.scan(name, start=slide.start, end=slide.end, text=slide.text)
        if slide.has_picture and not slide.has_text:
            pictures.append(number)
        for notes in archive.relations(name).values():
            if "/notesSlides/" in notes and archive.has(notes):
                spoken = _Slide(builder, is_notes=True)
                archive.scan(notes, start=spoken.start, end=spoken.end, text=spoken.text)
    if pictures:
        builder.warn(f"There are only pictures on {named_pages(pictures, 'slide')}; what they say was not read.")


def _slides(archive: Archive) -> list[str]:
    relations = archive.relations(_PRESENTATION)
    found: list[str] = []

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        # Both ids of a slide are called the same without their namespaces; only one refers to a part.
        if tag == "sldId":
            found.extend(relations[value] for value in attributes.values() if value in relations)

    archive.scan(_PRESENTATION, start=start)
    return [name for name in found if archive.has(name)]


class _Slide:
    """Takes the elements of a slide as they come."""

    def __init__(self, builder: DocumentBuilder, *, is_notes: bool = False) -> None:
        self._builder = builder
        self._is_notes = is_notes
        self._lines: list[str] = []
        self._line: list[str] = []
        self._rows: list[list[str]] = []
        self._in_text = False
        self._is_title = False
        self._is_number = False
        self.has_text = False
        self.has_picture = False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        if tag == "sp":
            self._lines, self._is_title, self._is_number = [], False, False
        elif tag == "ph":
            self._is_title = attributes.get("type") in {"title", "ctrTitle"}
            self._is_number = attributes.get("type") in {"sldNum", "dt", "ftr", "hdr"}
        elif tag == "p":
            self._line = []
        elif tag == "t":
            self._in_text = True
        elif tag == "br":
            self._line.append("\n")
        elif tag == "tbl":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag == "tc":
            self._lines = []
        elif tag == "pic":
            self.has_picture = True

    def text(self, text: str) -> None:
        """Take what stands in an element."""
        if self._in_text:
            self._line.append(text)
            self.has_text = self.has_text or bool(text.strip())

    def end(self, tag: str) -> None:
        """End an element."""
        if tag == "t":
            self._in_text = False
        elif tag == "p":
            self._lines.append("".join(self._line))
        elif tag == "tc" and self._rows:
            self._rows[-1].append(" ".join(self._lines))
        elif tag == "tbl":
            self._lines = []
            self._builder.table(self._rows)
        elif tag == "sp" and not self._is_number:
            self._end_shape("\n".join(self._lines))

    def _end_shape(self, text: str) -> None:
        if self._is_title and not self._is_notes:
            self._builder.heading(text, 1)
        else:
            self._builder.add(text)
        self._lines = []
