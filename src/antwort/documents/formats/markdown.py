"""Markdown: the source itself is the text, since models read it well; its structure tells where to cut."""

import re

from antwort.documents.detection import decoded
from antwort.documents.document import BlockKind, DocumentBuilder, readable

_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")
_TABLE_RULE = re.compile(r" {0,3}:?-+:?\s*(?:\|\s*:?-+:?\s*)+")
"""What stands below the names of the columns, in a table whose lines do not begin with a mark."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def read(data: bytes, filename: str, builder: DocumentBuilder) -> None:  # noqa: ARG001 - all readers have it
    """Read Markdown."""
    _Scanner(builder).read(_without_front_matter(readable(decoded(data)).split("\n"), builder))


def _without_front_matter(lines: list[str], builder: DocumentBuilder) -> list[str]:
    """Return the lines behind the settings that some tools put in front; a title among them is the document's."""
    if lines[0].rstrip() != "---":
        return lines
    end = next((number for number, line in enumerate(lines[1:200], 1) if line.rstrip() == "---"), None)
    if end is None:
        return lines
    for line in lines[1:end]:
        if line.startswith("title:"):
            builder.title = line.removeprefix("title:").strip().strip("\"'")
    builder.add("\n".join(lines[1:end]), "code")
    return lines[end + 1 :]


class _Scanner:
    """Goes through the lines once."""

    def __init__(self, builder: DocumentBuilder) -> None:
        self._builder = builder
        self._lines: list[str] = []
        self._kind: BlockKind = "paragraph"
        self._fence = ""

    def read(self, lines: list[str]) -> None:
        """Add the blocks of all lines."""
        for line in lines:
            if self._fence:
                self._lines.append(line)
                if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
                    self._fence = ""
                    self._end()
            else:
                self._take(line)
        self._end()

    def _take(self, line: str) -> None:
        """Take a line that is not in a block of code."""
        if fence := _FENCE.match(line):
            self._end()
            self._fence, self._kind = fence[1], "code"
            self._lines.append(line)
        elif heading := _HEADING.match(line):
            self._end()
            self._builder.heading(heading[2], len(heading[1]))
        elif len(self._lines) == 1 and self._kind == "paragraph" and (underline := _UNDERLINE.match(line)):
            text, self._lines = self._lines[0], []
            self._builder.heading(text, 1 if underline[1][0] == "=" else 2)
        elif not line.strip():
            self._end()
        else:
            is_second = len(self._lines) == 1
            if (line.lstrip().startswith("|") and not self._lines) or (is_second and _TABLE_RULE.fullmatch(line)):
                self._kind = "table"
            self._lines.append(line)

    def _end(self) -> None:
        """Add the block that the lines so far are."""
        self._builder.add("\n".join(self._lines), self._kind)
        self._lines, self._kind = [], "paragraph"
