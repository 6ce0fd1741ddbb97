"""Source code and configuration: as it is, cut where something new begins at the left margin."""

import re

from antwort.documents.detection import decoded
from antwort.documents.document import DocumentBuilder, readable

_DEFINITION = re.compile(
    r"(?:@\w|(?:(?:export|public|private|protected|static|async|default|abstract|final|pub(?:\(\w+\))?)\s+)*"
    r"(?:def|class|func|fn|function|interface|struct|enum|trait|impl|type|module|namespace|object|record)\s+"
    r"(?P<name>[\w.$]+(?:::[\w.$]+)*))"
)
_SEVERAL = 1500
"""Characters after which an empty line before the margin ends a block, with a definition behind it or without."""


def read(data: bytes, filename: str, builder: DocumentBuilder) -> None:  # noqa: ARG001 - all readers have it
    """Read source code."""
    lines: list[str] = []
    size, after_empty = 0, True
    for line in readable(decoded(data)).split("\n"):
        begins = after_empty and line[:1].strip() != "" and lines
        if begins and (size > _SEVERAL or _DEFINITION.match(line)):
            _add(lines, builder)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
        after_empty = not line.strip()
    _add(lines, builder)


def _add(lines: list[str], builder: DocumentBuilder) -> None:
    found = next((match for match in map(_DEFINITION.match, lines) if match and match["name"]), None)
    if found is not None:
        builder.enter(found["name"], 1)
    builder.add("\n".join(lines), "code")
