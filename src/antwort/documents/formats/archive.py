"""Documents that are ZIP archives: DOCX, PPTX, XLSX and EPUB; neither they nor the XML in them can become too large."""

import importlib
import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from xml.parsers import expat

from antwort.documents.document import DocumentBuilder, UnreadableError

_KINDS = {"word/document.xml": "docx", "ppt/presentation.xml": "pptx", "xl/workbook.xml": "xlsx"}
_MOST_PARTS = 20_000
_MOST_BYTES = 256 << 20
"""Of all parts that are read, unpacked."""
_MOST_RATIO = 1000
"""How many times larger than packed a part may be; nothing that somebody wrote comes near."""
_SMALL = 1 << 20
_PIECE = 1 << 16
_DEEPEST = 500

StartHandler = Callable[[str, Mapping[str, str]], None]
EndHandler = Callable[[str], None]
TextHandler = Callable[[str], None]


def read(data: bytes, filename: str, builder: DocumentBuilder) -> None:  # noqa: ARG001 - all readers have it
    """Read a document, of the kind that its parts tell."""
    try:
        archive = Archive(zipfile.ZipFile(io.BytesIO(data)))
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError):
        raise UnreadableError("It is damaged, or cut off.") from None
    kind = next((kind for part, kind in _KINDS.items() if archive.has(part)), None)
    if kind is None and archive.has("META-INF/container.xml"):
        kind = "epub"
    if kind is None:
        raise UnreadableError("It is an archive; unpack it, and send what is in it.", "unsupported_file")
    importlib.import_module(f"antwort.documents.formats.{kind}").read(archive, builder)


class Archive:
    """The parts of a document, by name. UnreadableError for what is too large or cannot be read."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        if len(archive.infolist()) > _MOST_PARTS:
            raise UnreadableError(f"It has more than {_MOST_PARTS:,} parts.")
        self._archive = archive
        self._left = _MOST_BYTES
        self.names = archive.namelist()
        self._known = set(self.names)

    def has(self, name: str) -> bool:
        """Tell whether there is such a part."""
        return name in self._known

    def read(self, name: str) -> bytes:
        """Return the content of a part. What it says of its size is not believed."""
        try:
            info = self._archive.getinfo(name)
            with self._archive.open(info) as stream:
                found = bytearray()
                while piece := stream.read(_PIECE):
                    found += piece
                    self._left -= len(piece)
                    is_bomb = len(found) > _SMALL and len(found) > _MOST_RATIO * max(info.compress_size, 1)
                    if self._left < 0 or is_bomb:
                        raise UnreadableError("It becomes too large when it is unpacked.")
        except KeyError:
            raise UnreadableError(f"It is damaged: '{name}' is missing.") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
            raise UnreadableError("It is damaged, or cut off.") from None
        except RuntimeError:
            raise UnreadableError("It is encrypted, and needs a password.") from None
        return bytes(found)

    def scan(
        self, name: str, *, start: StartHandler, end: EndHandler | None = None, text: TextHandler | None = None
    ) -> None:
        """Read a part as XML, element by element; names are without namespaces."""
        scan_xml(self.read(name), start=start, end=end, text=text)

    def relations(self, name: str) -> dict[str, str]:
        """Return what a part refers to: the names of other parts, by the ids it has for them."""
        place = PurePosixPath(name)
        listed = f"{place.parent}/_rels/{place.name}.rels"
        found: dict[str, str] = {}

        def start(tag: str, attributes: Mapping[str, str]) -> None:
            if tag == "Relationship" and attributes.get("TargetMode") != "External":
                found[attributes.get("Id", "")] = joined(place.parent, attributes.get("Target", ""))

        if self.has(listed):
            self.scan(listed, start=start)
        return found


def joined(folder: PurePosixPath, target: str) -> str:
    """Return the name of a part that is named from within a folder."""
    parts: list[str] = [] if target.startswith("/") else list(folder.parts)
    for part in target.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in {"", ".", ".."}:
            parts.append(part)
    return "/".join(parts)


def scan_xml(
    data: bytes, *, start: StartHandler, end: EndHandler | None = None, text: TextHandler | None = None
) -> None:
    """Read XML element by element. One that declares entities is refused: they can stand for more than any memory."""
    depth = 0

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise UnreadableError("It is nested too deeply.")
        start(_local(tag), {_local(name): value for name, value in attributes.items()})

    def finish(tag: str) -> None:
        nonlocal depth
        depth -= 1
        if end is not None:
            end(_local(tag))

    def refuse(*_: object) -> None:
        raise UnreadableError("It declares entities in its XML, which no document needs.")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = begin
    parser.EndElementHandler = finish
    parser.EntityDeclHandler = refuse
    if text is not None:
        parser.buffer_text = True
        parser.CharacterDataHandler = text
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise UnreadableError(f"It is damaged: a part of it is no XML (line {error.lineno}).") from None


def _local(name: str) -> str:
    """Return a name without its namespace."""
    return name.rpartition(" ")[2]
