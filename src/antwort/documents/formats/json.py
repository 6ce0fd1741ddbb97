"""JSON, and JSON line by line: written anew, so that it can be cut between values."""

import json
from typing import Any

from antwort.documents.detection import decoded
from antwort.documents.document import DocumentBuilder
from antwort.documents.formats.text import add_paragraphs


def read(data: bytes, filename: str, builder: DocumentBuilder) -> None:  # noqa: ARG001 - all readers have it
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
        _add(value, builder)


def _add(value: Any, builder: DocumentBuilder) -> None:
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
