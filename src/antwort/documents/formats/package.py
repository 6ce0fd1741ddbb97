"""Documents that are ZIP archives: DOCX, PPTX, XLSX and EPUB."""

import importlib
import io
import zipfile

from antwort.documents.document import DocumentBuilder, UnreadableError
from antwort.documents.formats.archive import Archive

_KINDS = {"word/document.xml": "docx", "ppt/presentation.xml": "pptx", "xl/workbook.xml": "xlsx"}


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
