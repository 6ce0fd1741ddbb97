"""PDF, with PDFium: it mends what other readers refuse, such as files whose table of contents is missing."""

import ctypes
import importlib
import itertools
from collections import defaultdict
from typing import Any

from antwort.documents.document import DocumentBuilder, UnreadableError, named_pages
from antwort.documents.formats.columns import Box, may_have_columns, reading_order
from antwort.documents.formats.ocr import PictureReader
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
_SHORT = 500
"""Characters of a page that is not looked at for columns."""
_TWICE = 1.01
"""How much more the parts of a page may have than the page, as some lines touch two of them; never less."""
_TRIED = 12
"""Texts of a page that are looked at before all are."""
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
        self._recogniser = None if builder.ocr is None else PictureReader(builder.ocr)

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
            text = _text(page.get_textpage())
            if _is_picture(page, text):
                recognised = None if self._recogniser is None else self._recogniser.text_of(page)
                if recognised is None:
                    self._pictures.append(number + 1)
                elif len(recognised.split()) > len(text.split()):  # the picture has the stamp, too
                    text = recognised
        finally:
            page.close()
        add_paragraphs(text, self._builder)

    def _warn(self) -> None:
        if self._pictures:
            problem = "" if self._recogniser is None else self._recogniser.problem
            self._builder.has_pictures = self._recogniser is None
            cure = problem or f"{self._builder.cure[0].upper()}{self._builder.cure[1:]}."
            if not self._builder.document().text:
                reason = f"There is no text in it, only pictures of pages. {cure}"
                raise UnreadableError(reason, has_pictures=self._builder.has_pictures)
            self._builder.warn(f"The pictures that fill {named_pages(self._pictures)} were not read. {cure}")
        if self._damaged:
            self._builder.warn(f"{named_pages(self._damaged, 'Page')} could not be read: the file is damaged there.")


def _text(page: Any) -> str:
    """Return the text of a page, in the order in which it is read."""
    drawn = str(page.get_text_bounded())
    if len(drawn) < _SHORT or not (order := reading_order(_boxes(page))):
        return drawn
    parts = "\n\n".join(str(page.get_text_bounded(*part)) for part in order)
    before, after = (len("".join(text.split())) for text in (drawn, parts))
    return parts if before <= after <= _TWICE * before else drawn


def _boxes(page: Any) -> list[Box]:
    """Return where the texts of a page are, as they were drawn; none if there cannot be columns, or too many texts."""
    count = page.count_rects()
    if count > _MOST_OBJECTS:
        return []
    get = importlib.import_module("pypdfium2.raw").FPDFText_GetRect  # a fifth of the time of the method around it
    left, bottom, right, top = (ctypes.c_double() for _ in range(4))
    wanted = tuple(map(ctypes.byref, (left, top, right, bottom)))

    def box(number: int) -> Box:
        get(page, number, *wanted)
        return left.value, bottom.value, right.value, top.value

    # Of columns that are drawn line by line a text in two begins in the middle; a few tell. Odd, not to meet one only.
    if not may_have_columns([box(number) for number in range(0, count, count // _TRIED | 1)]):
        return []
    return [box(number) for number in range(count)]


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
