"""Files that are a text as they are: plain texts, source code and configuration, JSON, tables such as CSV."""

import csv
import json
import re
import sys
from typing import Any

from antwort.documents.detection import decoded
from antwort.documents.document import DocumentBuilder, UnreadableError, readable

_DEFINITION = re.compile(
    r"(?:@\w|(?:(?:export|public|private|protected|static|async|default|abstract|final|pub(?:\(\w+\))?)\s+)*"
    r"(?:def|class|func|fn|function|interface|struct|enum|trait|impl|type|module|namespace|object|record)\s+"
    r"(?P<name>[\w.$]+(?:::[\w.$]+)*))"
)
_SEVERAL = 1500
"""Characters after which an empty line before the margin ends a block, with a definition behind it or without."""


def read(data: bytes, filename: str, builder: DocumentBuilder) -> None:  # noqa: ARG001 - all readers have it
    """Read a text."""
    add_paragraphs(decoded(data), builder)


def add_paragraphs(text: str, builder: DocumentBuilder) -> None:
    """Add each paragraph of a text."""
    lines: list[str] = []
    for line in readable(text).split("\n"):
        if line.strip():
            lines.append(line)
        elif lines:
            builder.add("\n".join(lines))
            lines = []
    builder.add("\n".join(lines))


def read_code(data: bytes, filename: str, builder: DocumentBuilder) -> None:  # noqa: ARG001 - all readers have it
    """Read source code."""
    lines: list[str] = []
    size, after_empty = 0, True
    for line in readable(decoded(data)).split("\n"):
        begins = after_empty and line[:1].strip() != "" and lines
        if begins and (size > _SEVERAL or _DEFINITION.match(line)):
            _add_code(lines, builder)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
        after_empty = not line.strip()
    _add_code(lines, builder)


def _add_code(lines: list[str], builder: DocumentBuilder) -> None:
    found = next((match for match in map(_DEFINITION.match, lines) if match and match["name"]), None)
    if found is not None:
        builder.enter(found["name"], 1)
    builder.add("\n".join(lines), "code")


def read_json(data: bytes, filename: str, builder: DocumentBuilder) -> None:  # noqa: ARG001 - all readers have it
    """Read JSON; what only pretends to be some is read as a text."""
    text = decoded(data)
    try:
        values = [json.loads(text)]
    except ValueError:
        try:
            values = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            add_paragraphs(text, builder)
            return
    for value in values:
        _add_json(value, builder)


def _add_json(value: Any, builder: DocumentBuilder) -> None:
    if isinstance(value, dict):
        for key, part in value.items():
            builder.enter(str(key), 1)
            builder.add(_written({key: part}), "code")
    elif isinstance(value, list):
        for part in value:
            builder.add(_written(part), "code")
    else:
        builder.add(str(value))


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def read_table(data: bytes, filename: str, builder: DocumentBuilder) -> None:
    """Read a table."""
    text = readable(decoded(data))
    csv.field_size_limit(sys.maxsize)
    try:
        rows = [row for row in csv.reader(text.splitlines(), _dialect(text, filename)) if any(row)]
    except csv.Error as error:
        raise UnreadableError(f"It is no table: {error}.") from None
    builder.table(rows)


def _dialect(text: str, filename: str) -> type[csv.Dialect]:
    if filename.lower().endswith(".tsv"):
        return csv.excel_tab
    try:
        return csv.Sniffer().sniff(text[:4096], ",;\t|")
    except csv.Error:
        return csv.excel
