"""Files that are a text as they are: plain texts, source code and configuration, JSON, tables such as CSV."""

import csv
import itertools
import json
import sys
from typing import Any

from antwort.documents.definitions import definition_name, is_attached
from antwort.documents.detection import decoded
from antwort.documents.document import DocumentBuilder, UnreadableError, readable

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
    source = readable(decoded(data)).split("\n")
    lines: list[str] = []
    size, attached, name = 0, 0, ""
    for line, following in itertools.pairwise([*source, ""]):
        defined = definition_name(line, following) if line[:1].strip() else ""
        first = len(lines) - (attached if defined else 0)
        after_empty = first > 0 and not lines[first - 1].strip()
        if after_empty and (defined or (size > _SEVERAL and line[:1].strip())):
            _add_code(lines[:first], name, builder)
            lines, name = lines[first:], ""
            size = sum(map(len, lines))
        name = name or defined
        lines.append(line)
        size += len(line) + 1
        attached = attached + 1 if is_attached(line) else 0
    _add_code(lines, name, builder)


def _add_code(lines: list[str], name: str, builder: DocumentBuilder) -> None:
    if name:
        builder.enter(name, 1)
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
