"""Plain texts: paragraphs are what stands between empty lines."""

from antwort.documents.detection import decoded
from antwort.documents.document import DocumentBuilder, readable


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
