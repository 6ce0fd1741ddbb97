"""PDF, with PDFium: it mends what other readers refuse, such as files whose table of contents is missing."""

import importlib
import itertools
from collections import defaultdict
from typing import Any

from antwort.documents.document import DocumentBuilder, UnreadableError, named_pages
from antwort.documents.formats.text import add_paragraphs

_MOST_PAGES = 20_000
_PASSWORD = 4
"""PDFium's error for a file that needs one."""
_LITTLE_TEXT = 60
"""Letters of a page at most that may be but a stamp, or a number, on a picture of it."""
_COVERED = 0.3
"""Which part of such a page pictures cover at least that are what it says."""
_MANY_SHAPES = 200
"""How many lines and curves such a page has at least if they are letters."""
_MOST_OBJECTS = 2000
_PATH, _IMAGE = 2, 3
"""PDFium's numbers of what is on a page."""


def read(data: bytes, filename: str, builder: DocumentBuilder) -> None:  # noqa: ARG001 - all readers have it
    """Read a PDF, page by page."""
    pdfium = importlib.import_module("pypdfium2")
    try:
        pdf = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) == _PASSWORD or "password" in str(error).lower():
            raise UnreadableError("It is encrypted, and needs a password.") from None
        raise UnreadableError("It is no PDF that can be read: it is damaged, or cut off.") from None
    if len(pdf) > _MOST_PAGES:
        raise UnreadableError(f"It has {len(pdf):,} pages; {_MOST_PAGES:,} are the most.")
    builder.title = str(pdf.get_metadata_value("Title") or "")
    _PdfPages(pdf, builder).read()


class _PdfPages:
    """Reads the pages, and says which of them it could not read."""

    def __init__(self, pdf: Any, builder: DocumentBuilder) -> None:
        self._pdf = pdf
        self._builder = builder
        self._pictures: list[int] = []
        self._damaged: list[int] = []

    def read(self) -> None:
        """Read all pages."""
        pdfium = importlib.import_module("pypdfium2")
        outline = _outline(self._pdf)
        for number in range(len(self._pdf)):
            self._builder.page = number + 1
            for level, title in outline[number]:
                self._builder.enter(title, level)
            try:
                self._read_page(number)
            except pdfium.PdfiumError:
                self._damaged.append(number + 1)
        self._warn()

    def _read_page(self, number: int) -> None:
        page = self._pdf[number]
        try:
            text = str(page.get_textpage().get_text_bounded())
            if _is_picture(page, text):
                self._pictures.append(number + 1)
        finally:
            page.close()
        add_paragraphs(text, self._builder)

    def _warn(self) -> None:
        if self._pictures and not self._builder.document().text:
            raise UnreadableError("There is no text in it, only pictures of pages; recognise their text first (OCR).")
        if self._pictures:
            pages = named_pages(self._pictures)
            self._builder.warn(f"The pictures that fill {pages} were not read; recognise their text first (OCR).")
        if self._damaged:
            self._builder.warn(f"{named_pages(self._damaged, 'Page')} could not be read: the file is damaged there.")


def _is_picture(page: Any, text: str) -> bool:
    """Tell whether a page has hardly any text, and is filled by pictures, or by the shapes of letters."""
    if len(text) > _LITTLE_TEXT and len("".join(text.split())) > _LITTLE_TEXT:
        return False
    width, height = page.get_size()
    covered, shapes = 0.0, 0
    for found in itertools.islice(page.get_objects(), _MOST_OBJECTS):
        if found.type == _IMAGE:
            left, bottom, right, top = found.get_bounds()
            covered += max(0.0, right - left) * max(0.0, top - bottom)
        shapes += found.type == _PATH
    return covered >= _COVERED * width * height or shapes >= _MANY_SHAPES


def _outline(pdf: Any) -> dict[int, list[tuple[int, str]]]:
    """Return which headings begin on which page, as far as the file says."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for entry in pdf.get_toc(max_depth=6):
        target = entry.get_dest()
        index = None if target is None else target.get_index()
        if index is not None and entry.get_title():
            found[index].append((entry.level + 1, " ".join(entry.get_title().split())))
    return found
