"""HTML: what a reader sees of a page, without what stands around its text, and without what is hidden.

Uploaded files, pages of the web, books and messages are read by these rules, so that each has one text, whoever reads
it. It is written as in Markdown: headings begin with `#` and items of lists with `-`; a row of a table is a line.

lexbor builds the tree, as browsers do. But the time that it takes also grows with the depth of a page, and nothing can
stop it: a hostile page would keep it busy for hours, and so would one element with very many attributes. So the tags
are read once before: what is no text is dropped, every element gets its end, those that are too deep are left out, of
attributes only stays that they hide an element, and where there are limits, the page ends after very many tags.
"""

import codecs
import html
import re
import sys
from collections import Counter
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from antwort.documents.detection import decoded
from antwort.documents.document import BlockKind, DocumentBuilder, table_text
from antwort.lazy_imports import compiled_on_use, imported_on_use
from antwort.text.foreign_text import one_line, printable

if TYPE_CHECKING:
    from selectolax import lexbor
else:
    lexbor = imported_on_use("selectolax.lexbor")  # whoever only shows titles needs no parser

_SKIPPED = frozenset(
    {"script", "style", "textarea", "title", "noscript", "template", "iframe", "svg", "math", "xmp", "select", "object"}
    | {"noembed", "noframes", "video", "audio", "canvas"}
)
"""Elements whose content is no text of the page; they are skipped whole, as far as they end."""
_PLAIN_TEXT = frozenset({"script", "style", "textarea", "title", "iframe", "xmp", "noembed", "noframes"})
"""Of these, elements that hold no elements: without an end, they reach to the end of the page."""
_DROPPED = frozenset({"html", "head", "body", "frameset", "frame", "plaintext"})
"""Tags that say nothing about the text, or would change how all that follows is read."""
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
)
_FORMATTING = frozenset(
    {"a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"}
)
"""Elements that may end across each other; none of them ends others."""
_CELLS = frozenset({"td", "th"})
_TABLES = frozenset({"table", "caption", "colgroup", "tbody", "tfoot", "thead", "tr", "td", "th"})
_FENCES = frozenset({"table", "td", "th", "caption", "button", "marquee"})
"""Elements that a tag does not end elements around, unless it is one of a table."""
_TABLE = frozenset({"table"})
_ENDED_BY = {
    "li": (frozenset({"li"}), frozenset({"ul", "ol", "article", "section", "pre", "blockquote"}) | _FENCES),
    "dt": (frozenset({"dt", "dd"}), frozenset({"dl"}) | _FENCES),
    "dd": (frozenset({"dt", "dd"}), frozenset({"dl"}) | _FENCES),
    "td": (_CELLS, _TABLE),
    "th": (_CELLS, _TABLE),
    "tr": (frozenset({"tr"}), _TABLE),
}
"""The elements that the beginning of one ends, and those that it does not end elements around."""
_DEEPEST = 128
"""Elements inside each other; deeper ones are left out, but not their text."""
_ASIDE = frozenset({"nav", "header", "footer", "aside", "button", "label", "dialog"})
"""Elements around the text of a page."""
_SECTIONS = frozenset({"article", "main", "section"})
"""Elements whose header belongs to the text."""
_PARAGRAPHS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "table", "ul", "ol", "blockquote"})
"""Elements that stand in paragraphs of their own."""
_LINE_ELEMENTS = frozenset(
    {"address", "article", "body", "br", "caption", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption"}
    | {"figure", "form", "hr", "html", "li", "main", "option", "section", "summary", "tbody", "tfoot", "thead", "tr"}
)
_BLOCKS = _PARAGRAPHS | _LINE_ELEMENTS
_ENDING_PARAGRAPHS = _BLOCKS - {"br", "option"}
"""Elements that no paragraph holds."""
_PREFIXES = {"li": "- ", "h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "h5": "##### ", "h6": "###### "}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_KINDS: dict[str, BlockKind] = {**dict.fromkeys(_HEADINGS, "heading"), "pre": "code"}
_IN_LAYOUTS = frozenset({*_HEADINGS, "ul", "ol", "dl", "pre", "blockquote", "form"})
"""Elements that stand in tables which are there for the layout."""
_LONGEST_CELL = 1000
"""Characters of prose in a cell of a table with data."""
_MAIN = frozenset({"main", "article"})
_LEAST_MAIN = 200
"""Characters that the main part of a page must have to stand for the whole."""
_LONGEST_TITLE = 1000

_OPENING = compiled_on_use(r"<(?:!--|[!?]|(/?)([a-zA-Z][^\x00\t\n\f\r />]*)|/)")
"""Where something begins that is no text."""
_ATTRIBUTES = compiled_on_use(
    r"(?:[\t\n\f\r /]++|[^\t\n\f\r />][^\t\n\f\r />=]*+"
    r"(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"[^\"]*+\"|'[^']*+'|(?![\"'])[^\t\n\f\r >]*+))?)*+>"
)
"""The rest of a tag, as browsers read it."""
_ATTRIBUTE = compiled_on_use(
    r"([^\t\n\f\r />][^\t\n\f\r />=]*+)"
    r"(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"([^\"]*+)\"|'([^']*+)'|(?![\"'])([^\t\n\f\r >]*+)))?"
)
"""One of its attributes, with its value in one of the ways to write one."""
_COMMENT_END = compiled_on_use(r"--!?>")
_META = compiled_on_use(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_NO_TEXT = frozenset({"idna", "punycode"})
"""Encodings of names, whose time grows with the square of the length."""
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_HIDING = compiled_on_use(
    r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|(?:opacity|font-size)\s*:\s*0(?![\d.]*[1-9]))",
    re.IGNORECASE,
)
"""Styles under which a reader sees nothing."""
_MAY_HIDE = compiled_on_use("hidden|style", re.IGNORECASE)
_SPACES = compiled_on_use(r"\s+")
_BLANKS = compiled_on_use(r"[^\S\n]+")
_LINES = compiled_on_use(r"\n\s*\n\s*")
_KEPT = "\ue000"
"""Stands for a space of preformatted text until the others are tidied."""


class HtmlLimits(Struct, frozen=True):
    """How much of a page is read; there it ends."""

    characters: int = 2_000_000
    tags: int = 100_000
    """Tags and comments. Each takes microseconds, in which nobody else runs."""
    attributes: int = 100_000
    """Attributes that are looked at; after them, an element that may be hidden is."""


_OF_PAGES = HtmlLimits()
_NONE = HtmlLimits(sys.maxsize, sys.maxsize, sys.maxsize)
"""For files: each is read in a process of its own, which has limits, and nothing of them is cut in silence."""


class HtmlPage(Struct, frozen=True):
    """What a page says."""

    title: str
    text: str


def read(data: bytes, filename: str, builder: DocumentBuilder) -> None:  # noqa: ARG001 - all readers have it
    """Read a file."""
    add_page(decoded_html(data), builder)


def add_page(source: str, builder: DocumentBuilder, *, is_whole: bool = False) -> None:
    """Add what a page says, all of it or its main part; with `is_whole`, also what would stand around a page's text.

    Chapters of books and messages have no menus: what looks like one is a note, say.
    """
    title, blocks = _read(source, _NONE, is_whole=is_whole)
    builder.title = builder.title or title
    for block in blocks:
        if block.kind == "heading":
            builder.enter(block.heading, block.level)
        builder.add(block.text, block.kind)


def read_html(source: str, limits: HtmlLimits = _OF_PAGES) -> HtmlPage:
    """Return the title and the text of a page, or of its main part if it names one."""
    title, blocks = _read(source, limits)
    return HtmlPage(title, "\n\n".join(block.text for block in blocks))


def html_line(text: str) -> str:
    """Return a title or snippet as one line of plain text: no tags, no entities, no control characters."""
    if "<" not in text and "&" not in text:
        return one_line(text)
    return one_line("".join(_as_text(piece) for piece in _Tokens(text, _OF_PAGES).pieces()))


def decoded_html(data: bytes, charset: str | None = None) -> str:
    """Return the text of a page in the encoding that is given or, without one, that it names itself.

    If there is none, or nobody knows it, it is read as any text is.
    """
    try:
        named = codecs.lookup(charset or html_charset(data) or "").name
        return decoded(data) if named in _NO_TEXT else data.decode(named, "replace")
    except (LookupError, UnicodeError):
        return decoded(data)


def html_charset(data: bytes) -> str | None:
    """Return the encoding that a page begins with, or names in its head."""
    for mark, charset in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return charset
    found = _META.search(data[:2048])
    return found[1].decode() if found else None


def _read(source: str, limits: HtmlLimits, *, is_whole: bool = False) -> tuple[str, "list[_TextBlock]"]:
    """Return the title of a page, and what it says."""
    tokens = _Tokens(source[: limits.characters], limits)
    body = lexbor.LexborHTMLParser("".join(piece.source for piece in tokens.pieces())).body
    reader = _PageReader(body, is_whole=is_whole)
    has_main = not is_whole and reader.main.length >= _LEAST_MAIN
    return one_line(html.unescape(tokens.title)), (reader.main if has_main else reader.whole).blocks


# --- tags, read once -------------------------------------------------------------------------------------------------


class _Piece(Struct, frozen=True, gc=False):
    """A tag, or the text between two."""

    source: str
    tag: str = ""
    """The name of the tag, in lower case; empty for text."""


def _as_text(piece: _Piece) -> str:
    if not piece.tag:
        return html.unescape(piece.source)
    return " " if piece.tag in _BLOCKS or piece.tag in {"td", "th"} else ""


class _Tokens:
    """Reads HTML once, from the front to the end, and gives what is text, or a tag that the text needs.

    What is given holds no comments and no elements in which tags mean something else, and its elements end in the order
    in which browsers would end them, so that its tree is no deeper than it is counted here.
    """

    def __init__(self, body: str, limits: HtmlLimits) -> None:
        self._body = body
        self._limits = limits
        self._open: list[str] = []
        self._left_out: Counter[str] = Counter()
        """How many elements of a name are too deep, and still open."""
        self._tags = self._attributes = 0
        self._unclosed: set[str] = set()
        """Names of elements that do not end any more."""
        self.title = ""

    def pieces(self) -> Iterator[_Piece]:
        """Give the pieces, in order."""
        body, position = self._body, 0
        while (found := _OPENING.search(body, position)) is not None:
            self._tags += 1
            if self._tags > self._limits.tags:
                return
            if found.start() > position:
                yield _text(body[position : found.start()])
            name = (found[2] or "").lower()
            if not name:
                position = self._after_comment(found)
                continue
            rest = _ATTRIBUTES.match(body, found.end())
            if rest is None:  # the page ends in the middle of it
                return
            position = rest.end()
            if found[1]:
                yield from self._closed(name)
            elif name in _SKIPPED:
                position = self._after_element(name, position)
            elif name not in _DROPPED:
                yield from self._opened(name, body[found.end() : position - 1])
        if position < len(body):
            yield _text(body[position:])

    def _after_comment(self, found: re.Match[str]) -> int:
        """Return where a comment, a declaration or nonsense ends."""
        body, start = self._body, found.end()
        if found[0] != "<!--":
            end = body.find(">", start)
            return len(body) if end < 0 else end + 1
        if body.startswith((">", "->"), start):
            return body.index(">", start) + 1
        ended = _COMMENT_END.search(body, start)
        return len(body) if ended is None else ended.end()

    def _after_element(self, name: str, start: int) -> int:
        """Return where an element that is skipped ends; of a title, keep the text."""
        found = None
        if name not in self._unclosed:
            found = re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE).search(self._body, start)
        if found is None:
            self._unclosed.add(name)
            return len(self._body) if name in _PLAIN_TEXT else start
        if name == "title" and not self.title:
            self.title = self._body[start : min(found.start(), start + _LONGEST_TITLE)]
        rest = _ATTRIBUTES.match(self._body, found.end())
        return len(self._body) if rest is None else rest.end()

    def _opened(self, name: str, attributes: str) -> Iterator[_Piece]:
        """Give a tag that begins an element, after the ends that it implies; nothing if it is too deep."""
        may_hide = _MAY_HIDE.search(attributes) is not None
        if name in _FORMATTING and name != "a" and not may_hide:
            return
        if name in _ENDING_PARAGRAPHS and self._open and self._open[-1] == "p":
            yield from self._ended(len(self._open) - 1)
        if name in _ENDED_BY:
            yield from self._ended(self._found(*_ENDED_BY[name]))
        if name in _VOID:
            yield _Piece(f"<{name}>", name)
        elif len(self._open) < _DEEPEST:
            self._open.append(name)
            yield _Piece(f"<{name} hidden>" if may_hide and self._hides(attributes) else f"<{name}>", name)
        else:
            self._left_out[name] += 1

    def _hides(self, attributes: str) -> bool:
        """Tell whether an element says of itself that nobody sees it; of an attribute given twice, the first counts."""
        seen: dict[str, str] = {}
        for found in _ATTRIBUTE.finditer(attributes):
            self._attributes += 1
            if self._attributes > self._limits.attributes:
                return True
            key = found[1].lower()
            if key == "hidden":
                return True
            if key in {"aria-hidden", "style"}:
                seen.setdefault(key, html.unescape(found[2] or found[3] or found[4] or ""))
        if seen.get("aria-hidden", "").strip().lower() == "true":
            return True
        return _HIDING.search(seen.get("style", "")) is not None

    def _closed(self, name: str) -> Iterator[_Piece]:
        """Give the tags that a tag ends elements with: what is inside its element ends, too."""
        if self._left_out[name]:
            self._left_out[name] -= 1
        elif name not in self._open:
            return
        elif name in _FORMATTING:
            yield from self._ended(self._found(frozenset({name}), frozenset(self._open) - _FORMATTING))
        else:
            yield from self._ended(self._found(frozenset({name}), _TABLE if name in _TABLES else _FENCES))

    def _found(self, names: frozenset[str], fences: Container[str]) -> int | None:
        """Return where the innermost element of these names is, unless one of the fences stands inside it."""
        if names.isdisjoint(self._open):
            return None
        for position in range(len(self._open) - 1, -1, -1):
            if self._open[position] in names:
                return position
            if self._open[position] in fences:
                return None
        return None

    def _ended(self, position: int | None) -> Iterator[_Piece]:
        """End all elements from one on."""
        while position is not None and len(self._open) > position:
            name = self._open.pop()
            yield _Piece(f"</{name}>", name)


def _text(source: str) -> _Piece:
    # A bracket that begins no tag would, if what follows it is dropped.
    return _Piece(source.replace("<", "&lt;"))


# --- the tree, read as a reader does ---------------------------------------------------------------------------------


class _TextBlock(Struct, frozen=True):
    """A part of the text that belongs together."""

    kind: BlockKind
    text: str
    level: int = 0
    """Of a heading."""

    @property
    def heading(self) -> str:
        """The words of a heading."""
        return " ".join(self.text.lstrip("-# ").split())


class _Blocks:
    """Takes pieces of text, until a block ends."""

    def __init__(self) -> None:
        self.blocks: list[_TextBlock] = []
        self.length = 0
        """Characters of the text."""
        self._pieces: list[str] = []

    def write(self, text: str) -> None:
        """Take a piece."""
        self._pieces.append(text)

    def end(self, kind: BlockKind, level: int) -> None:
        """End a block, if there is anything in it."""
        text, self._pieces = _tidy(self._pieces), []
        block = _TextBlock(kind, text, level)
        if text and (kind != "heading" or block.heading):
            self.blocks.append(block)
            self.length += len(text) + (2 if len(self.blocks) > 1 else 0)


class _Around(Struct, frozen=True):
    """What the elements around a text make of it."""

    is_main: bool = False
    is_preformatted: bool = False
    in_section: bool = False
    in_page_header: bool = False
    """Of which only the headings count."""


class _PageReader:
    """Writes down the text of a tree, and that of its main part."""

    def __init__(self, body: "lexbor.LexborNode | None", *, is_whole: bool) -> None:
        self.whole = _Blocks()
        self.main = _Blocks()
        self._is_whole = is_whole
        self._last = ""
        """The piece that was written last."""
        self._kind: tuple[BlockKind, int] = "paragraph", 0
        """What is being written, with the level of a heading."""
        self._prose: dict[int, int] = {}
        """By element that may stand beside the text: characters in it that are no link."""
        self._page_prose = 0
        self._data_tables: set[int] = set()
        self._open_tables: list[int] = []
        if body is not None:
            self._page_prose = self._survey(body)
            self._read_children(body, _Around())
            self._end_blocks(_Around(is_main=True))

    # --- what there is, looked at before it is read ---

    def _survey(self, node: "lexbor.LexborNode") -> int:
        """Count the characters of prose in an element, and find out which tables have data."""
        prose = 0
        for child in _children(node):
            if child.is_text_node:
                prose += len(_SPACES.sub(" ", child.text_content or "").strip())
            elif child.is_element_node and child.tag != "a" and not _is_hidden(child):
                prose += self._survey_table(child) if child.tag == "table" else self._survey(child)
        if node.tag in _ASIDE:
            self._prose[node.mem_id] = prose
        if self._open_tables and (node.tag in _IN_LAYOUTS or (node.tag in _CELLS and prose > _LONGEST_CELL)):
            self._data_tables.discard(self._open_tables[-1])
        return prose

    def _survey_table(self, table: "lexbor.LexborNode") -> int:
        """Find out whether a table has data; one around others, or around what has a structure itself, is a layout."""
        if self._open_tables:
            self._data_tables.discard(self._open_tables[-1])
        self._open_tables.append(table.mem_id)
        self._data_tables.add(table.mem_id)
        prose = self._survey(table)
        self._open_tables.pop()
        return prose

    # --- reading ---

    def _read_children(self, node: "lexbor.LexborNode", around: _Around) -> None:
        for child in _children(node):
            if child.is_text_node:
                self._add(child.text_content or "", around)
            elif child.is_element_node and not _is_hidden(child):
                self._read(child, around)

    def _read(self, node: "lexbor.LexborNode", around: _Around) -> None:
        name = str(node.tag)
        if self._is_aside(node, around):
            if name != "header":
                return
            around = replace(around, in_page_header=True)
        elif name in _HEADINGS and around.in_page_header:
            around = replace(around, in_page_header=False)
        if name in _SECTIONS:
            around = replace(around, in_section=True, is_main=around.is_main or name in _MAIN)
        if name == "pre":
            around = replace(around, is_preformatted=True)
        if self._last not in _PREFIXES.values():  # what begins an item of a list stands beside its mark
            self._break(name, around)
        outer = self._kind
        if name in _PARAGRAPHS:
            self._kind = _KINDS.get(name, "paragraph"), _HEADINGS.get(name, 0)
        self._write(_PREFIXES.get(name, ""), around)
        if node.mem_id in self._data_tables:
            self._read_table(node, around)
        else:
            self._read_children(node, around)
        self._break(name, around)
        self._kind = outer

    def _is_aside(self, node: "lexbor.LexborNode", around: _Around) -> bool:
        """Tell whether an element stands beside the text: not if most of it is inside, since nobody has closed it."""
        if self._is_whole or node.tag not in _ASIDE or (node.tag == "header" and around.in_section):
            return False
        return self._prose.get(node.mem_id, 0) <= self._page_prose / 2

    def _read_table(self, table: "lexbor.LexborNode", around: _Around) -> None:
        """Write a table with data: its caption, and a line for each row."""
        captions: list[str] = []
        rows: list[list[str]] = []
        self._gather(table, captions, rows, around)
        if captions:
            self._kind = "paragraph", 0
            self._write(" ".join(captions), around)
            self._break("table", around)
        self._kind = "table", 0
        self._write(table_text(rows), around)

    def _gather(self, node: "lexbor.LexborNode", captions: list[str], rows: list[list[str]], around: _Around) -> None:
        """Find the captions and the rows in a part of a table."""
        for child in _children(node):
            if not child.is_element_node or _is_hidden(child):
                continue
            if child.tag == "caption":
                captions.append(self._inline(child, around))
            elif child.tag in _CELLS:
                rows[-1:] = [[*rows[-1], self._inline(child, around)]] if rows else [[self._inline(child, around)]]
            else:
                if child.tag == "tr":
                    rows.append([])
                self._gather(child, captions, rows, around)

    def _inline(self, node: "lexbor.LexborNode", around: _Around) -> str:
        """Return the text of an element in one line."""
        pieces: list[str] = []
        self._add_inline(node, pieces, around)
        return " ".join("".join(pieces).split())

    def _add_inline(self, node: "lexbor.LexborNode", pieces: list[str], around: _Around) -> None:
        for child in _children(node):
            if child.is_text_node:
                pieces.append(printable(child.text_content or ""))
            elif child.is_element_node and not _is_hidden(child) and not self._is_aside(child, around):
                gap = " " if child.tag in _BLOCKS else ""
                pieces.append(gap)
                self._add_inline(child, pieces, around)
                pieces.append(gap)

    # --- writing ---

    def _add(self, text: str, around: _Around) -> None:
        """Take a piece of text."""
        text = printable(text)
        if around.is_preformatted:
            self._write(text.replace(" ", _KEPT).replace("\t", _KEPT * 4), around)
        else:
            self._write(_SPACES.sub(" ", text), around)

    def _break(self, name: str, around: _Around) -> None:
        if name in _PARAGRAPHS:
            self._write("\n\n", around)
            self._end_blocks(around)
        elif (name in _LINE_ELEMENTS or name in _CELLS) and not self._last.endswith("\n"):
            self._write("\n", around)

    def _write(self, text: str, around: _Around) -> None:
        if text and not around.in_page_header:
            self._last = text
            self.whole.write(text)
            if around.is_main:
                self.main.write(text)

    def _end_blocks(self, around: _Around) -> None:
        if not around.in_page_header:
            self.whole.end(*self._kind)
            if around.is_main:
                self.main.end(*self._kind)


def _children(node: "lexbor.LexborNode") -> "Iterator[lexbor.LexborNode]":
    child = node.first_child
    while child is not None:
        yield child
        child = child.next


def _is_hidden(node: "lexbor.LexborNode") -> bool:
    return "hidden" in node.attributes


def _tidy(pieces: list[str]) -> str:
    lines = (line.strip() for line in _BLANKS.sub(" ", "".join(pieces)).split("\n"))
    return _LINES.sub("\n\n", "\n".join(lines)).replace(_KEPT, " ").strip()
