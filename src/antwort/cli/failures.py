"""How errors become one line on standard error and an exit code."""

from typing import IO, Any

import click
from typing_extensions import override

from antwort.errors import APIError, ConfigError, FunctionError, did_you_mean

__all__ = ["Failure", "Misuse", "failure_of", "misuse_of"]

_HELP: type[click.UsageError] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""What newer releases of click raise to show the help of a group that is called without a command."""


class Failure(click.ClickException):
    """Something went wrong; told in one line."""

    exit_code = 1

    @override
    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"antwort: {' '.join(self.message.split())}", file=file, err=file is None)


class Misuse(Failure):
    """The operator can put it right."""

    exit_code = 2


def misuse_of(error: click.UsageError) -> click.ClickException:
    """Return what to tell about a command line that cannot be read; a group without a command still shows its help."""
    if isinstance(error, _HELP):
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
