"""What commands print: tables for people, JSON for programs."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

__all__ = ["print_json", "print_table", "table"]

_GAP = "  "
_NARROWEST = 12


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, flexible: int = -1) -> None:
    """Print a table; on a terminal it is as wide as the terminal at most."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(table(headers, rows, width=width, flexible=flexible))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None, flexible: int = -1) -> str:
    """Return aligned columns. Where they are wider than `width`, the flexible one is cut."""
    lines = [[header.upper() for header in headers], *([_cell(text) for text in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if width is not None:
        surplus = sum(widths) + len(_GAP) * (len(widths) - 1) - width
        if surplus > 0:
            widths[flexible] = max(min(_NARROWEST, widths[flexible]), widths[flexible] - surplus)
    return "\n".join(
        _GAP.join(_cut(text, size).ljust(size) for text, size in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(text: str) -> str:
    """Return a text as one line that cannot move the cursor."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in " ".join(text.split()))


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"
