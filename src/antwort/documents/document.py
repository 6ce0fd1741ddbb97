"""What a file says: one text, and which parts of it are what."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from antwort.lazy_imports import compiled_on_use

BlockKind = Literal["heading", "paragraph", "table", "code"]
Problem = Literal["unsupported_file", "invalid_file"]
"""Nothing here can read such a file; or something could, but not this one."""

MOST_CHARACTERS = 20_000_000
"""Of one document: about five million tokens."""
_RULE = compiled_on_use(r"[\s|:+=-]*-{2,}[\s|:+=-]*")
_DEEPEST = 6
_LONGEST_HEADING = 200


class UnreadableError(Exception):
    """A file cannot be read; the message says why, to whoever has sent it."""

    def __init__(self, message: str, problem: Problem = "invalid_file") -> None:
        super().__init__(message)
        self.problem = problem


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


class DocumentBuilder:
    """Puts a document together, part by part; UnreadableError if it becomes too long."""

    def __init__(self) -> None:
        self.title = ""
        self.page: int | None = None
        """The page that what is added now stands on."""
        self._parts: list[str] = []
        self._blocks: list[Block] = []
        self._length = 0
        self._headings: list[tuple[int, str]] = []

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

    def document(self) -> Document:
        """Return what was put together."""
        return Document("".join(self._parts), self._blocks, self.title)


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
