"""What a file says: one text, and which parts of it are what."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from antwort.documents.language import language_of
from antwort.documents.ocr import NO_OCR, OcrRequest
from antwort.lazy_imports import compiled_on_use

BlockKind = Literal["heading", "paragraph", "table", "code"]
Problem = Literal["unsupported_file", "invalid_file"]
"""Nothing here can read such a file; or something could, but not this one."""

MOST_CHARACTERS = 20_000_000
"""Of one document: about five million tokens."""
_RULE = compiled_on_use(r"[\s|:+=-]*-{2,}[\s|:+=-]*")
_DEEPEST = 6
_LONGEST_HEADING = 200
_MOST_WARNINGS = 20
_LONGEST_WARNING = 2000
_MOST_RANGES = 100
"""Of pages that a warning names; of further ones it says how many they are."""
_UNKNOWN = "\ufffd"
"""What readers put where they do not know the character."""


class UnreadableError(Exception):
    """A file cannot be read; the message says why, to whoever has sent it."""

    def __init__(self, message: str, problem: Problem = "invalid_file", *, has_pictures: bool = False) -> None:
        super().__init__(message)
        self.problem = problem
        self.has_pictures = has_pictures
        """Its text may be in pictures, and could be recognised."""


class Block(Struct, frozen=True):
    """A part of the text that belongs together. Each begins where the one before ends."""

    start: int
    end: int
    kind: BlockKind = "paragraph"
    headings: tuple[str, ...] = ()
    """The headings that it stands below, the highest first; a heading stands below itself."""
    page: int | None = None
    """The page, or the slide, from 1."""
    header: str = ""
    """Of a table, what names its columns: a chunk that begins within its rows has it in front."""


class Document(Struct, frozen=True):
    """A text with its blocks, which cover all of it."""

    text: str
    blocks: list[Block]
    title: str = ""
    warnings: list[str] = []
    """What of the file is not in the text, each a sentence."""
    has_pictures: bool = False
    """Some of it is in pictures whose text could be recognised."""

    @property
    def language(self) -> str:
        """The language it is written in, as ISO 639-1 writes it; empty if that cannot surely be told."""
        return language_of(self.text)

    def with_warnings(self) -> str:
        """Return the text, and behind it what is not in it, for whoever is told nothing else."""
        return "".join([self.text, *(f"[{warning}]\n" for warning in self.warnings)])


class DocumentBuilder:
    """Puts a document together, part by part; UnreadableError if it becomes too long."""

    def __init__(self, cure: str = NO_OCR.cure, ocr: OcrRequest | None = None) -> None:
        self.cure = cure
        """What can be done about pictures that are not read."""
        self.ocr = ocr
        """How their text is recognised; None if that is not to be done."""
        self.has_pictures = False
        """Set by readers that leave out some."""
        self.title = ""
        self.page: int | None = None
        """The page that what is added now stands on."""
        self._parts: list[str] = []
        self._blocks: list[Block] = []
        self._length = 0
        self._headings: list[tuple[int, str]] = []
        self._warnings: list[str] = []

    def heading(self, text: str, level: int) -> None:
        """Add a heading; what follows stands below it until one of the same level or a higher one comes."""
        shown = " ".join(text.split())
        if shown:
            self.enter(shown, level)
            self.add(shown, "heading")

    def enter(self, heading: str, level: int) -> None:
        """Let what follows stand below a heading that is not part of the text."""
        level = max(1, min(level, _DEEPEST))
        self._headings = [(other, text) for other, text in self._headings if other < level]
        self._headings.append((level, heading[:_LONGEST_HEADING]))

    def add(self, text: str, kind: BlockKind = "paragraph", header: str = "") -> None:
        """Add a block, if there is anything in it.

        The columns of a table are named by its `header`; if none is given, by its first line.
        """
        text = readable(text).strip("\n")
        if not text.strip():
            return
        if kind == "table" and not header:
            header = _header_of(text)
        text += "\n\n"
        start, self._length = self._length, self._length + len(text)
        if self._length > MOST_CHARACTERS:
            raise UnreadableError(f"It is too long: it has more than {MOST_CHARACTERS:,} characters of text.")
        self._parts.append(text)
        headings = tuple(heading for _, heading in self._headings)
        self._blocks.append(Block(start, self._length, kind, headings, self.page, header))

    def table(self, rows: Sequence[Sequence[str]], header: str = "") -> None:
        """Add a table, a line for each row; the `header` is that of a table that these rows go on with."""
        self.add(table_text(rows), "table", header)

    def warn(self, text: str) -> None:
        """Say what of the file is not in the text, in a sentence that may have parts of the file in it."""
        shown = " ".join(readable(text).split())
        if len(self._warnings) < _MOST_WARNINGS:
            self._warnings.append(shown if len(shown) <= _LONGEST_WARNING else f"{shown[:_LONGEST_WARNING]}…")

    def document(self) -> Document:
        """Return what was put together."""
        text, warnings = "".join(self._parts), list(self._warnings)
        if unknown := text.count(_UNKNOWN):
            of = "a character" if unknown == 1 else f"{unknown:,} characters"
            warnings.append(f"It does not say what {of} of it are; '{_UNKNOWN}' stands in their place.")
        return Document(text, self._blocks, self.title, warnings, self.has_pictures)


def named_pages(numbers: Sequence[int], what: str = "page") -> str:
    """Return pages, or slides, by their numbers in order: `page 3`, or `pages 1-4, 7 and 9`."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    named = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:_MOST_RANGES]]
    if more := sum(last - first + 1 for first, last in ranges[_MOST_RANGES:]):
        named.append(f"{more:,} others")
    listed = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return f"{what if len(numbers) == 1 else f'{what}s'} {listed}"


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text, a line for each row that says something."""
    return "\n".join(line for line in map(row_text, rows) if line)


def row_text(row: Sequence[str]) -> str:
    """Return a row of a table as a line; empty if it says nothing."""
    return " | ".join(" ".join(cell.split()) for cell in row).rstrip(" |")


def _header_of(text: str) -> str:
    """Return the lines of a table that name its columns: the first, and in Markdown the rule below it."""
    first, _, rest = text.partition("\n")
    rule = rest.partition("\n")[0]
    return f"{first}\n{rule}" if _RULE.fullmatch(rule) else first


def readable(text: str) -> str:
    """Return a text with lines that end as usual, and without characters that no text has."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")
    if text.isprintable():
        return text
    return text.translate(_UNWANTED).encode("utf-8", "replace").decode("utf-8")


_UNWANTED = dict.fromkeys([*range(9), 0x0B, *range(0x0E, 0x20), 0x7F, 0xFEFF, 0xFFFE, 0xFFFF])
