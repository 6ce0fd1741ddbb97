"""Cutting a document into chunks: of a size, along its structure, each a range of the text.

A chunk that begins within the rows of a table has the names of the columns in front, and one that begins within a
definition of source code the lines of the definitions around it.

The text is first divided into units that are best left whole: blocks, or where these are too large their lines,
sentences, or tokens. Chunks are as many units as fit. Where a section or a definition ends and a chunk is at least half
full, it ends too; else the next begins with the last units of the one before.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from antwort.documents.definitions import code_lines
from antwort.documents.document import Block, Document
from antwort.lazy_imports import compiled_on_use

AUTO_SIZE, AUTO_OVERLAP = 200, 0
"""Tokens of a chunk if nobody says how many.

With what stands above it, an English text has no more than 256 tokens of a small embedding model, and so one vector.
"""
_TOKEN = compiled_on_use(
    r"[^\S\n]*(?:"
    r"[A-Za-z]{1,8}|"
    r"\d{1,3}|"
    r"[^\W\d_A-Za-z\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,4}|"  # other alphabets are cut into smaller parts
    r"[^\s])"
    r"|\s{1,64}"
)
"""Tokens, as near as one comes without a model's own dictionary: every character of a text is in exactly one."""
_LINE = compiled_on_use(r"[^\n]*\n+|[^\n]+")
_SENTENCE = compiled_on_use(r".+?(?:[.!?…][\"'»”)\]]*\s+|[\u3002\uff01\uff1f]\s*|\Z)", re.DOTALL)
_SHARE = 4
"""A block is left whole as a unit of an overlap only if it is no more than such a part of a chunk."""
_LONGEST_CONTEXT = 300


class TokenRuler:
    """Where the tokens of a text begin, or the first of them: so many at most."""

    def __init__(self, text: str, most: int | None = None) -> None:
        self._starts = array("L", (match.start() for match in islice(_TOKEN.finditer(text), most)))
        self._length = len(text)

    def count(self, start: int, end: int) -> int:
        """Count the tokens that begin in a range."""
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)

    def after(self, start: int, count: int) -> int:
        """Return where a range ends that begins somewhere and has at most so many tokens."""
        number = bisect_left(self._starts, start) + count
        return self._starts[number] if number < len(self._starts) else self._length


class DocumentChunk(Struct, frozen=True):
    """A range of a document's text; of the text of a chunk, as many characters at its end are the range."""

    index: int
    start: int
    end: int
    text: str
    tokens: int
    headings: tuple[str, ...] = ()
    """The headings that it begins below."""
    page: int | None = None
    last_page: int | None = None

    def context(self, title: str) -> str:
        """Return what stands above it, the title of the document first: with it, a passage says what it is about."""
        parts = [title, *self.headings]
        shown = " > ".join(dict.fromkeys(part for part in parts if part))
        return shown[:_LONGEST_CONTEXT]

    def in_context(self, title: str) -> str:
        """Return what is embedded: the text below what stands above it."""
        return f"{self.context(title)}\n\n{self.text}"


class _TextUnit(Struct, frozen=True, gc=False):
    """A part of the text that is not cut."""

    start: int
    end: int
    block: Block
    tokens: int
    begins_section: bool
    leads: bool
    """It belongs to what follows it: a heading, or the header of a table."""
    header: "_Header"
    """What a chunk that begins with it has in front."""


class _Header(Struct, frozen=True, gc=False):
    """What stands in front of a part of something: the names of a table's columns, or where in source code it is."""

    text: str = ""
    tokens: int = 0

    @classmethod
    def of(cls, shown: str, size: int) -> "_Header":
        """Return what is shown in front: half of a chunk at most."""
        if not shown:
            return _NO_HEADER
        text, most = f"{shown}\n", size // 2
        ruler = TokenRuler(text, most + 1)  # there is a header for each definition, with all that it stands in
        if ruler.count(0, len(text)) > most:
            text = text[: ruler.after(0, most - 1)].rstrip() + "\n" if most > 1 else ""
            ruler = TokenRuler(text)
        return cls(text, ruler.count(0, len(text)))


_NO_HEADER = _Header()


def chunked(document: Document, *, size: int = AUTO_SIZE, overlap: int = AUTO_OVERLAP) -> list[DocumentChunk]:
    """Return the chunks of a document: at most `size` tokens each, of which `overlap` may be the end of the last one.

    Together they have every character; none of them is only a repetition.
    """
    if not 0 <= overlap < size:
        raise ValueError("chunks must be larger than their overlap")
    ruler = TokenRuler(document.text)
    units = list(_units(document, ruler, size, max(1, overlap // _SHARE if overlap else size)))
    found: list[DocumentChunk] = []
    first = end = 0
    while first < len(units):
        end = _end_of(units, first, end, size)
        found.append(_chunk(document, units[first:end], len(found), ruler))
        if end == len(units):
            break
        first = _next_first(units, first, end, size, overlap)
    return found


def _units(document: Document, ruler: TokenRuler, size: int, most: int) -> Iterator[_TextUnit]:
    above: tuple[str, ...] = ()
    for block in document.blocks:
        is_heading = block.kind == "heading"
        starts = is_heading or (block.kind == "code" and block.headings != above)
        header = _Header.of(block.header, size)
        rows = block.start
        if block.header and document.text.startswith(block.header, block.start):
            found = _LINE.match(document.text, rows + len(block.header), block.end)
            rows = block.end if found is None else found.end()
        whole = min(size, most)
        ranges: Iterable[tuple[int, int]] = [(block.start, block.end)]
        if ruler.count(block.start, block.end) > whole:
            if block.kind == "code":
                yield from _code_units(document.text, block, ruler, size, whole, starts=starts)
                above = block.headings
                continue
            ranges = _parts(document.text, block, rows, ruler, size - header.tokens if block.kind == "table" else whole)
        for start, end in ranges:
            leads = is_heading or end <= rows < block.end
            repeated = header if start >= rows else _NO_HEADER
            yield _TextUnit(start, end, block, ruler.count(start, end), starts, leads, repeated)
            starts = False
        above = block.headings


def _parts(text: str, block: Block, rows: int, ruler: TokenRuler, most: int) -> Iterator[tuple[int, int]]:
    """Divide a block into ranges of at most so many tokens: by lines, by sentences, by tokens.

    What is in front of the rows of a table is one line.
    """
    lines = [(block.start, rows)] if rows > block.start else []
    for first, last in (*lines, *(line.span() for line in _LINE.finditer(text, rows, block.end))):
        if ruler.count(first, last) <= most:
            yield first, last
            continue
        yield from _pieces(text, first, last, ruler, most)


def _pieces(text: str, first: int, last: int, ruler: TokenRuler, most: int) -> Iterator[tuple[int, int]]:
    """Divide a line into ranges of at most so many tokens."""
    for sentence in _SENTENCE.finditer(text, first, last):
        start, end = sentence.span()
        while ruler.count(start, end) > most:
            cut = ruler.after(start, most)
            yield start, cut
            start = cut
        yield start, end


def _code_units(
    text: str, block: Block, ruler: TokenRuler, size: int, whole: int, *, starts: bool
) -> Iterator[_TextUnit]:
    """Divide source code into its lines; definitions begin sections, the first as the block does."""
    spans = [line.span() for line in _LINE.finditer(text, block.start, block.end)]
    headers: dict[tuple[str, ...], _Header] = {}
    for (start, end), line in zip(spans, code_lines([text[start:end] for start, end in spans]), strict=True):
        if (header := headers.get(line.enclosing)) is None:
            header = headers[line.enclosing] = _Header.of("\n".join(line.enclosing), size)
        begins = starts if start == block.start else line.begins
        for first, last in _pieces(text, start, end, ruler, max(1, min(whole, size - header.tokens))):
            yield _TextUnit(first, last, block, ruler.count(first, last), begins, False, header)
            begins = False


def _end_of(units: list[_TextUnit], first: int, new: int, size: int) -> int:
    """Return before which unit a chunk ends that begins with one, and has at least one that is new."""
    tokens, end = units[first].header.tokens, first
    while end < len(units) and tokens + units[end].tokens <= size:
        if units[end].begins_section and end > first and 2 * tokens >= size:
            return end
        tokens += units[end].tokens
        end += 1
    if end == len(units):
        return end
    while end - 1 > new and units[end - 1].leads:
        end -= 1
    return max(end, new + 1)


def _next_first(units: list[_TextUnit], first: int, end: int, size: int, overlap: int) -> int:
    """Return with which unit the next chunk begins; it has at least one that no chunk before has."""
    if units[end].begins_section:
        return end
    room = size - units[end].tokens
    begin, tokens = end, 0
    while begin - 1 > first:
        unit = units[begin - 1]
        if tokens + unit.tokens > min(overlap, room - unit.header.tokens):
            break
        begin -= 1
        tokens += unit.tokens
        if unit.begins_section:
            break
    return begin


def _chunk(document: Document, units: list[_TextUnit], index: int, ruler: TokenRuler) -> DocumentChunk:
    start, end = units[0].start, units[-1].end
    return DocumentChunk(
        index,
        start,
        end,
        units[0].header.text + document.text[start:end],
        units[0].header.tokens + ruler.count(start, end),
        units[0].block.headings,
        units[0].block.page,
        units[-1].block.page,
    )
