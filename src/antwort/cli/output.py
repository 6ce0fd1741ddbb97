"""What commands print: tables for people, JSON for programs, and errors in one line, with an exit code."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import IO, Any

import click
from typing_extensions import override

from antwort.errors import APIError, ConfigError, FunctionError, did_you_mean

DEBUG = "antwort.debug"
"""Where the context of a command has whether tracebacks are wanted."""
_GAP = "  "
_NARROWEST = 12


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def iso_time(seconds: float) -> str:
    """Return a moment, in seconds since 1970, as people and programs can read it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


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


class CommandFailure(click.ClickException):
    """Something went wrong; told in one line."""

    exit_code = 1

    @override
    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"antwort: {' '.join(self.message.split())}", file=file, err=file is None)


class Misuse(CommandFailure):
    """The operator can put it right."""

    exit_code = 2


def misuse_of(error: click.UsageError) -> click.ClickException:
    """Return what to tell about a command line that cannot be read; a group without a command still shows its help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    text, ctx = error.format_message(), error.ctx
    if ctx is None:
        return Misuse(text)
    if isinstance(error, click.NoSuchOption):
        known = [option for parameter in ctx.command.get_params(ctx) for option in parameter.opts]
        text = f"There is no option '{error.option_name}'{did_you_mean(error.option_name, known)}"
    if "did you mean" in text:
        return Misuse(text)
    return Misuse(f"{text.rstrip('.')} (see '{ctx.command_path} --help')")


def failure_of(error: Exception) -> CommandFailure:
    """Return what to tell about an error that a command raised."""
    if isinstance(error, ConfigError):
        more = len(error.problems) - 1
        return Misuse(f"{error} (and {more} more; run 'antwort check')" if more else str(error))
    if isinstance(error, APIError):
        is_ours = error.status < 500 and error.status != 429
        return (Misuse if is_ours else CommandFailure)(error.message)
    if isinstance(error, FunctionError):
        return CommandFailure(str(error))
    from antwort.observability import redact

    cause = redact(f"{type(error).__name__}: {error}".rstrip(": "))
    return CommandFailure(f"unexpected error: {cause} ('antwort --debug …' shows the traceback)")
