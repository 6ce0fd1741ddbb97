"""PDF, with PDFium: it mends what other readers refuse, such as files whose table of contents is missing."""

import importlib
from collections import defaultdict
from typing import Any

from antwort.documents.document import DocumentBuilder, UnreadableError
from antwort.documents.formats.text import add_paragraphs

_MOST_PAGES = 20_000
_PASSWORD = 4
"""PDFium's error for a file that needs one."""


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
    outline = _outline(pdf)
    for number in range(len(pdf)):
        builder.page = number + 1
        for level, title in outline[number]:
            builder.enter(title, level)
        add_paragraphs(_text(pdf, number), builder)
    if len(pdf) and not builder.document().text:
        raise UnreadableError("There is no text in it, only pictures of pages; recognise their text first (OCR).")


def _text(pdf: Any, number: int) -> str:
    """Return the text of a page; a damaged one has none."""
    try:
        page = pdf[number]
        try:
            return str(page.get_textpage().get_text_bounded())
        finally:
            page.close()
    except importlib.import_module("pypdfium2").PdfiumError:
        return ""


def _outline(pdf: Any) -> dict[int, list[tuple[int, str]]]:
    """Return which headings begin on which page, as far as the file says."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for entry in pdf.get_toc(max_depth=6):
        target = entry.get_dest()
        index = None if target is None else target.get_index()
        if index is not None and entry.get_title():
            found[index].append((entry.level + 1, " ".join(entry.get_title().split())))
    return found
