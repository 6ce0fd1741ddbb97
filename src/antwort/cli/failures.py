"""How errors become one line on standard error and an exit code."""

from typing import IO, Any

import click
from typing_extensions import override

from antwort.errors import APIError, ConfigError, FunctionError

__all__ = ["Failure", "Misuse", "failure_of"]


class Failure(click.ClickException):
    """Something went wrong; told in one line."""

    exit_code = 1

    @override
    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"antwort: {' '.join(self.message.split())}", file=file, err=file is None)


class Misuse(Failure):
    """The operator can put it right."""

    exit_code = 2


def failure_of(error: Exception) -> Failure:
    """Return what to tell about an error that a command raised."""
    if isinstance(error, ConfigError):
        more = len(error.problems) - 1
        return Misuse(f"{error} (and {more} more; run 'antwort check')" if more else str(error))
    if isinstance(error, APIError):
        is_ours = error.status < 500 and error.status != 429
        return (Misuse if is_ours else Failure)(error.message)
    if isinstance(error, FunctionError):
        return Failure(str(error))
    from antwort.observability import redact

    cause = redact(f"{type(error).__name__}: {error}".rstrip(": "))
    return Failure(f"unexpected error: {cause} ('antwort --debug …' shows the traceback)")
