"""EPUB: the pages of a book, in the order of reading."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import unquote

from antwort.documents.document import DocumentBuilder, UnreadableError, named_pages
from antwort.documents.formats.archive import Archive, joined
from antwort.documents.formats.html import add_page, decoded_html

_CONTAINER = "META-INF/container.xml"


def read(archive: Archive, builder: DocumentBuilder) -> None:
    """Read a book."""
    package = _Package()
    place = _package_name(archive)
    archive.scan(place, start=package.start, end=package.end, text=package.text)
    builder.title = " ".join("".join(package.title).split())
    folder = PurePosixPath(place).parent
    missing: list[int] = []
    for number, item in enumerate(package.spine, 1):
        part = joined(folder, unquote(package.items.get(item, "")))
        if archive.has(part):
            builder.page = number
            add_page(decoded_html(archive.read(part)), builder, is_whole=True)
        else:
            missing.append(number)
    if missing:
        builder.warn(f"{named_pages(missing, 'Chapter')} could not be read: the file names them, and has them not.")


def _package_name(archive: Archive) -> str:
    found: list[str] = []

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "rootfile":
            found.append(attributes.get("full-path", ""))

    archive.scan(_CONTAINER, start=start)
    if not found:
        raise UnreadableError("It is damaged: it does not say where the book is.")
    return found[0]


class _Package:
    """What the package document of a book says."""

    def __init__(self) -> None:
        self.items: dict[str, str] = {}
        self.spine: list[str] = []
        self.title: list[str] = []
        self._in_title = False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        if tag == "item":
            self.items[attributes.get("id", "")] = attributes.get("href", "")
        elif tag == "itemref":
            self.spine.append(attributes.get("idref", ""))
        self._in_title = tag == "title" and not self.title

    def end(self, tag: str) -> None:
        """End an element."""
        self._in_title = self._in_title and tag != "title"

    def text(self, text: str) -> None:
        """Take what stands in an element."""
        if self._in_title:
            self.title.append(text)
