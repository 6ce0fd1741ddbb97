"""What a file is: by its content first, since names are often wrong; by its name where the content says little."""

import re
from pathlib import PurePath
from typing import Literal

from antwort.documents.document import UnreadableError
from antwort.lazy_imports import compiled_on_use

Format = Literal["code", "html", "json", "mail", "markdown", "package", "pdf", "table", "text"]

_PDF = compiled_on_use(rb"%PDF-\d")
_HTML = compiled_on_use(  # what is read is never read in another way: many comments would take for ever
    rb"\s*+(?:<\?xml[^>]*+>\s*+)?+(?:(?><!--.*?-->)\s*+)*+<(?:!doctype\s++html|html)[\s>]", re.IGNORECASE | re.DOTALL
)
_BEGINNING = 1024
"""Bytes in which the mark of a PDF has to be, as its readers agree."""
_BOMS = (b"\xff\xfe", b"\xfe\xff")
_FOREIGN = {
    b"\xd0\xcf\x11\xe0": "an Office document of the old binary kind, or one with a password; save it as DOCX, PPTX or "
    "XLSX without one",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"RIFF": "a sound, a film or an image",
    b"\x1f\x8b": "a compressed file",
    b"BZh": "a compressed file",
    b"\xfd7zXZ": "a compressed file",
    b"7z\xbc\xaf": "a compressed archive",
    b"Rar!": "a compressed archive",
    b"\x7fELF": "a program",
    b"MZ": "a program",
    b"SQLite format 3": "a database",
    b"{\\rtf": "RTF; save it as DOCX",
}
_BY_NAME: dict[str, Format] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdx": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".csv": "table",
    ".tsv": "table",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".eml": "mail",
    ".mbox": "mail",
    ".mht": "mail",
    ".mhtml": "mail",
}
_CODE = compiled_on_use(
    r"\.(?:c|cc|cfg|clj|cpp|cs|css|dart|exs?|go|gradle|h|hpp|hs|ini|java|jsx?|kt|lua|m|ml|php|pl|proto|ps1|pyi?|r|rb|rs"
    r"|scala|scss|sh|sql|svg|swift|tf|toml|tsx?|vue|xml|ya?ml)"
)
_READ_OUT = frozenset({"html", "mail", "package", "pdf"})
"""Formats whose texts are not what is in the file."""
_PACKAGES = (".docx", ".pptx", ".xlsx", ".epub")


def format_of(data: bytes, filename: str) -> Format:
    """Return the format of a file; UnreadableError if nothing reads it."""
    if not data.strip():
        raise UnreadableError("It is empty.")
    ending = PurePath(filename.lower()).suffix
    is_zip = data.startswith(b"PK\x03\x04") or (ending in _PACKAGES and b"PK\x05\x06" in data)
    is_pdf = _PDF.search(data, 0, _BEGINNING) is not None
    if is_pdf and not (is_zip and ending != ".pdf"):
        return "pdf"
    if is_zip:
        return "package"
    for mark, what in _FOREIGN.items():
        if data.startswith(mark):
            raise UnreadableError(f"It is {what}, which cannot be read here.", "unsupported_file")
    if _HTML.match(data, 0, 4 * _BEGINNING):
        return "html"
    if is_binary(data):
        raise UnreadableError("It is neither a text nor a document of a kind that can be read.", "unsupported_file")
    return "code" if _CODE.fullmatch(ending) else _BY_NAME.get(ending, "text")


def own_text(data: bytes, filename: str) -> str | None:
    """Return the text that a file is, as it was written; None for one out of which a text has to be read."""
    try:
        kind = format_of(data, filename)
    except UnreadableError:
        return None
    return None if kind in _READ_OUT else decoded(data)


def is_binary(data: bytes) -> bool:
    """Tell whether data is no text: texts have no zeros, unless they say at the beginning why."""
    sample = data[: 1 << 16]
    if sample.startswith(_BOMS):
        return False
    control = sum(sample.count(bytes([code])) for code in (*range(9), *range(0x0E, 0x1B)))
    return b"\x00" in sample or control * 100 > len(sample)


def decoded(data: bytes) -> str:
    """Return the text that bytes stand for: UTF-8 or UTF-16, else what Windows wrote, in which any bytes are a text."""
    if data.startswith(_BOMS):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")
