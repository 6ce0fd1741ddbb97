"""HTML to text, in time that grows with its length only: whatever a page holds, no part is looked at twice.

The parser of the standard library is quadratic on hostile input in some of the versions we run on.
"""

import html
import re

from antwort.provider import one_line, printable

_TAG = re.compile(r"</?([a-zA-Z][a-zA-Z0-9:-]*)")
_RAW = frozenset({"script", "style", "textarea", "title", "noscript", "template", "iframe", "svg", "math", "xmp"})
"""Elements whose content is no text of the page; it is skipped whole."""
_ASIDE = frozenset({"nav", "header", "footer", "aside", "form", "button", "select", "dialog"})
"""Elements around the text of a page."""
_PARAGRAPHS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "table", "ul", "ol", "blockquote"})
"""Elements that stand in paragraphs of their own."""
_LINE_ELEMENTS = frozenset(
    {"address", "article", "body", "br", "caption", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption"}
    | {"figure", "hr", "html", "li", "main", "option", "section", "summary", "tbody", "tfoot", "thead", "tr"}
)
_BLOCKS = _PARAGRAPHS | _LINE_ELEMENTS
_PREFIXES = {"li": "- ", "h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "h5": "##### ", "h6": "###### "}
_MAIN = frozenset({"main", "article"})
_LEAST_MAIN = 200
"""Characters that the main part of a page must have to stand for the whole."""
_LONGEST = 2_000_000
"""Characters of a page that are read."""
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_STOP = re.compile(r"=\s*([\"'])|>")
_SPACES = re.compile(r"\s+")
_BLANKS = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\n\s*\n\s*")
_KEPT = "\ue000"
"""Stands for a space of preformatted text until the others are tidied."""


class Page:
    """The text of a page."""

    def __init__(self, title: str, text: str) -> None:
        self.title = title
        self.text = text


def plain(text: str) -> str:
    """Return a title or snippet as one line of plain text: no tags, no entities, no control characters."""
    return one_line(_Scanner(text, inline=True).text()) if "<" in text or "&" in text else one_line(text)


def readable(body: str) -> Page:
    """Return the title and the text of an HTML page, its main part if it names one."""
    scanner = _Scanner(body[:_LONGEST])
    whole = scanner.text()
    main = _tidy("".join(scanner.main))
    return Page(one_line(html.unescape(scanner.title)), main if len(main) >= _LEAST_MAIN else _tidy(whole))


def sniffed_charset(body: bytes) -> str | None:
    """Return the encoding that a page names in its head."""
    found = _META.search(body[:2048])
    return found[1].decode() if found else None


class _Scanner:
    """Reads HTML once, from the front to the end."""

    def __init__(self, body: str, *, inline: bool = False) -> None:
        self._body = body
        self._inline = inline
        self._last_quotes = {quote: body.rfind(quote) for quote in "\"'"}
        self._aside = 0
        self._depth = 0
        """How many elements of the main part are open."""
        self._pre = 0
        self.title = ""
        self.main: list[str] = []
        self._whole: list[str] = []

    def text(self) -> str:
        """Return the text."""
        body, place = self._body, 0
        while place < len(body):
            start = body.find("<", place)
            if start < 0:
                start = len(body)
            if start > place:
                self._add(html.unescape(body[place:start]))
            place = self._skip(start)
        return "".join(self._whole)

    def _skip(self, start: int) -> int:
        """Read the tag, comment or lone bracket at a place; return where it ends."""
        body = self._body
        if start >= len(body):
            return start
        if body.startswith("<!--", start):
            return _after(body, "-->", start + 4)
        if body.startswith(("<!", "<?"), start):
            return _after(body, ">", start)
        found = _TAG.match(body, start)
        if found is None:
            self._write("<")
            return start + 1
        name, closing = found[1].lower(), body.startswith("</", start)
        end = self._end_of_tag(found.end())
        if closing:
            self._close(name)
        elif name in _RAW:
            return self._raw(name, end)
        elif not body.startswith("/>", end - 2):
            self._open(name)
        elif name in _BLOCKS:
            self._break(name)
        return end

    def _end_of_tag(self, place: int) -> int:
        """Return the place after the `>` of a tag; one in a quoted value does not count."""
        while found := _STOP.search(self._body, place):
            quote, place = found[1], found.end()
            if quote is None:
                return place
            if self._last_quotes[quote] >= place:
                place = self._body.find(quote, place) + 1
        return len(self._body)

    def _raw(self, name: str, place: int) -> int:
        """Skip an element whole; of a title, keep the text."""
        found = re.compile(f"</{name}", re.IGNORECASE).search(self._body, place)
        end = len(self._body) if found is None else found.start()
        if name == "title" and not self.title:
            self.title = self._body[place : min(end, place + 1000)]
        return end if found is None else _after(self._body, ">", end)

    def _open(self, name: str) -> None:
        if name in _ASIDE:
            self._aside += 1
        elif name in _MAIN:
            self._depth += 1
        elif name == "pre":
            self._pre += 1
        elif name in {"td", "th"}:
            self._write(" | ")
        if name in _BLOCKS:
            self._break(name)
            self._write(_PREFIXES.get(name, ""))

    def _close(self, name: str) -> None:
        if name in _ASIDE:
            self._aside = max(0, self._aside - 1)
        elif name == "pre":
            self._pre = max(0, self._pre - 1)
        if name in _BLOCKS:
            self._break(name)
        if name in _MAIN:
            self._depth = max(0, self._depth - 1)

    def _add(self, text: str) -> None:
        """Take a piece of text."""
        text = printable(text)
        if self._pre and not self._inline:
            self._write(text.replace(" ", _KEPT).replace("\t", _KEPT * 4))
        else:
            self._write(_SPACES.sub(" ", text))

    def _break(self, name: str) -> None:
        if name in _PARAGRAPHS:
            self._write("\n\n")
        elif not self._whole or not self._whole[-1].endswith("\n"):
            self._write("\n")

    def _write(self, text: str) -> None:
        if not text or (self._aside and not self._inline):
            return
        self._whole.append(text)
        if self._depth:
            self.main.append(text)


def _after(body: str, end: str, place: int) -> int:
    """Return the place after a mark; the end of the body if it does not come."""
    found = body.find(end, place)
    return len(body) if found < 0 else found + len(end)


def _tidy(text: str) -> str:
    lines = (line.strip() for line in _BLANKS.sub(" ", text).split("\n"))
    return _LINES.sub("\n\n", "\n".join(lines)).replace(_KEPT, " ").strip()
