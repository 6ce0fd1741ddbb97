"""HTML: what a reader sees, without the menus and scripts around it."""

import re

from selectolax.lexbor import LexborHTMLParser, LexborNode

from antwort.documents.detection import decoded
from antwort.documents.document import DocumentBuilder, UnreadableError

_HIDDEN = "script, style, noscript, template, svg, nav, iframe, object, head > :not(title)"
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = re.compile(
    "address|article|aside|blockquote|body|br|caption|center|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure|"
    "footer|form|h[1-6r]|header|html|legend|li|main|ol|p|pre|section|summary|table|tbody|td|tfoot|th|thead|tr|ul"
)
_DEEPEST = 400
"""Elements in each other: no page that somebody wrote has more."""


def read(data: bytes, filename: str, builder: DocumentBuilder) -> None:  # noqa: ARG001 - all readers have it
    """Read a page."""
    add_page(decoded(data), builder)


def add_page(html: str, builder: DocumentBuilder) -> None:
    """Add what a page says."""
    tree = LexborHTMLParser(html)
    title = tree.css_first("title")
    if title is not None and not builder.title:
        builder.title = " ".join(title.text().split())
    for node in tree.css(_HIDDEN):
        node.decompose()
    if tree.body is not None:
        _Walk(builder).element(tree.body)


class _Walk:
    """Goes through a page, and gathers what stands in one line until a block begins or ends."""

    def __init__(self, builder: DocumentBuilder) -> None:
        self._builder = builder
        self._line: list[str] = []
        self._depth = 0

    def element(self, node: LexborNode) -> None:
        """Add an element with all that is in it."""
        tag = node.tag or ""
        if tag in _HEADINGS:
            self._flush()
            self._builder.heading(node.text(), _HEADINGS[tag])
        elif tag == "table" and node.css_first("table table") is None:
            self._flush()
            self._table(node)
        elif tag == "pre":
            self._flush()
            self._builder.add(node.text(), "code")
        else:
            self._children(node, is_block=_BLOCKS.fullmatch(tag) is not None)

    def _children(self, node: LexborNode, *, is_block: bool) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnreadableError("It is nested too deeply.")
        if is_block:
            self._flush()
        for child in node.iter(include_text=True):
            if child.tag == "-text":
                self._line.append(child.text_content or "")
            else:
                self.element(child)
        if is_block:
            self._flush()
        self._depth -= 1

    def _table(self, node: LexborNode) -> None:
        caption = node.css_first("caption")
        if caption is not None:
            self._builder.add(caption.text())
        rows = [[cell.text(separator=" ") for cell in row.css("th, td")] for row in node.css("tr")]
        self._builder.table(rows)

    def _flush(self) -> None:
        text = " ".join("".join(self._line).split())
        self._line = []
        self._builder.add(text)
