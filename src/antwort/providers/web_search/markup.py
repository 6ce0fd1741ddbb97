"""HTML to text, as a reader sees it: without what stands around the text of a page, and without what is hidden.

lexbor builds the tree, as browsers do. But the time that it takes also grows with the depth of a page, and nothing can
stop it: a hostile page would keep it busy for hours, and so would one element with very many attributes. So the tags
are read once before: what is no text is dropped, every element gets its end, those that are too deep are left out, of
attributes only stays that they hide an element, and after very many tags the page ends.
"""

import html
import re
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from selectolax.lexbor import LexborHTMLParser, LexborNode

from antwort.provider import one_line, printable

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
_MOST_TAGS = 100_000
"""Tags and comments of a page that are read; with them, it ends. Each takes microseconds, in which nobody else runs."""
_MOST_ATTRIBUTES = 100_000
"""Attributes of a page that are looked at; after them, an element that may be hidden is."""
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
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_MAIN = frozenset({"main", "article"})
_LEAST_MAIN = 200
"""Characters that the main part of a page must have to stand for the whole."""
_LONGEST = 2_000_000
"""Characters of a page that are read."""
_LONGEST_TITLE = 1000

_OPENING = re.compile(r"<(?:!--|[!?]|(/?)([a-zA-Z][^\x00\t\n\f\r />]*)|/)")
"""Where something begins that is no text."""
_ATTRIBUTES = re.compile(
    r"(?:[\t\n\f\r /]++|[^\t\n\f\r />][^\t\n\f\r />=]*+"
    r"(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"[^\"]*+\"|'[^']*+'|(?![\"'])[^\t\n\f\r >]*+))?)*+>"
)
"""The rest of a tag, as browsers read it."""
_ATTRIBUTE = re.compile(
    r"([^\t\n\f\r />][^\t\n\f\r />=]*+)"
    r"(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"([^\"]*+)\"|'([^']*+)'|(?![\"'])([^\t\n\f\r >]*+)))?"
)
"""One of its attributes, with its value in one of the ways to write one."""
_COMMENT_END = re.compile(r"--!?>")
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_HIDING = re.compile(
    r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|(?:opacity|font-size)\s*:\s*0(?![\d.]*[1-9]))",
    re.IGNORECASE,
)
"""Styles under which a reader sees nothing."""
_MAY_HIDE = re.compile("hidden|style", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_BLANKS = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\n\s*\n\s*")
_KEPT = "\ue000"
"""Stands for a space of preformatted text until the others are tidied."""


@dataclass(frozen=True, slots=True)
class PageText:
    """The text of a page."""

    title: str
    text: str


def plain(text: str) -> str:
    """Return a title or snippet as one line of plain text: no tags, no entities, no control characters."""
    if "<" not in text and "&" not in text:
        return one_line(text)
    pieces = (_as_text(piece) for piece in _Tokens(text).pieces())
    return one_line("".join(pieces))


def readable(body: str) -> PageText:
    """Return the title and the text of an HTML page, its main part if it names one."""
    tokens = _Tokens(body[:_LONGEST])
    source = "".join(one.source for one in tokens.pieces())
    reader = _PageReader(LexborHTMLParser(source).body)
    main, whole = _tidy(reader.main), _tidy(reader.whole)
    return PageText(one_line(html.unescape(tokens.title)), main if len(main) >= _LEAST_MAIN else whole)


def sniffed_charset(body: bytes) -> str | None:
    """Return the encoding that a page begins with, or names in its head."""
    for mark, charset in _BYTE_ORDER_MARKS.items():
        if body.startswith(mark):
            return charset
    found = _META.search(body[:2048])
    return found[1].decode() if found else None


# --- tags, read once -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Piece:
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

    def __init__(self, body: str) -> None:
        self._body = body
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
            if self._tags > _MOST_TAGS:
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
            if self._attributes > _MOST_ATTRIBUTES:
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


@dataclass(frozen=True, slots=True)
class _Around:
    """What the elements around a text make of it."""

    is_main: bool = False
    is_preformatted: bool = False
    in_section: bool = False
    in_page_header: bool = False
    """Of which only the headings count."""


class _PageReader:
    """Writes down the text of a tree, and that of its main part."""

    def __init__(self, body: LexborNode | None) -> None:
        self.whole: list[str] = []
        self.main: list[str] = []
        self._prose: dict[int, int] = {}
        """By element that may stand beside the text: characters in it that are no link."""
        self._page_prose = 0
        if body is not None:
            self._page_prose = self._count(body)
            self._read_children(body, _Around())

    def _count(self, node: LexborNode) -> int:
        """Count the characters of prose in an element."""
        prose = 0
        for child in _children(node):
            if child.is_text_node:
                prose += len(_SPACES.sub(" ", child.text_content or "").strip())
            elif child.is_element_node and child.tag != "a" and not _is_hidden(child):
                prose += self._count(child)
        if node.tag in _ASIDE:
            self._prose[node.mem_id] = prose
        return prose

    def _read_children(self, node: LexborNode, around: _Around) -> None:
        for child in _children(node):
            if child.is_text_node:
                self._add(child.text_content or "", around)
            elif child.is_element_node and not _is_hidden(child):
                self._read(child, around)

    def _read(self, node: LexborNode, around: _Around) -> None:
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
        if name in _CELLS:
            self._write(" | ", around)
        if not self.whole or self.whole[-1] not in _PREFIXES.values():  # what begins a list item stands beside its mark
            self._break(name, around)
        self._write(_PREFIXES.get(name, ""), around)
        self._read_children(node, around)
        self._break(name, around)

    def _is_aside(self, node: LexborNode, around: _Around) -> bool:
        """Tell whether an element stands beside the text: not if most of it is inside, since nobody has closed it."""
        if node.tag not in _ASIDE or (node.tag == "header" and around.in_section):
            return False
        return self._prose.get(node.mem_id, 0) <= self._page_prose / 2

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
        elif name in _LINE_ELEMENTS and not (self.whole and self.whole[-1].endswith("\n")):
            self._write("\n", around)

    def _write(self, text: str, around: _Around) -> None:
        if text and not around.in_page_header:
            self.whole.append(text)
            if around.is_main:
                self.main.append(text)


def _children(node: LexborNode) -> Iterator[LexborNode]:
    child = node.first_child
    while child is not None:
        yield child
        child = child.next


def _is_hidden(node: LexborNode) -> bool:
    return "hidden" in node.attributes


def _tidy(pieces: list[str]) -> str:
    lines = (line.strip() for line in _BLANKS.sub(" ", "".join(pieces)).split("\n"))
    return _LINES.sub("\n\n", "\n".join(lines)).replace(_KEPT, " ").strip()
