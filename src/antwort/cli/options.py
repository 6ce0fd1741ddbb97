"""Options that several commands share, and the loading of the configuration they lead to."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from antwort.config import LoadedConfig, Override, load_config, load_right_parts
from antwort.observability import configure_logging

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

_FILE = "antwort.config.file"
_OVERRIDES = "antwort.config.overrides"


def setting(
    flag: str, key: str, *, meaning: Callable[[Any], Mapping[str, object]] | None = None, **attributes: Any
) -> Callable[[F], F]:
    """Return the option that overrides one key of the configuration. The command itself does not receive it.

    `meaning` returns the keys and values that a value of the flag stands for, where it stands for more than itself.
    """

    def remember(ctx: click.Context, _param: click.Parameter, value: object) -> None:
        values = {key: value} if meaning is None or value is None else meaning(value)
        ctx.meta.setdefault(_OVERRIDES, []).extend(Override(name, each, flag) for name, each in values.items())

    return click.option(flag, default=None, expose_value=False, callback=remember, **attributes)


def _remember_file(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
    ctx.meta[_FILE] = value


def config_options(command: F) -> F:
    """Add the options of every command that loads the configuration."""
    folder = click.Path(path_type=Path)
    options = (
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            expose_value=False,
            callback=_remember_file,
            help="Configuration file; antwort.yaml in this folder if not given.",
        ),
        setting("--data-dir", "data_dir", type=folder, help="Folder for everything the server keeps."),
        setting("--plugins-dir", "plugins_dir", type=folder, help="Folder whose Python files may hold providers."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def log_options(command: F) -> F:
    """Add the options of every command that logs what it does."""
    level = setting(
        "--log-level",
        "observability.log_level",
        type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        help="Least severe messages to log.",
    )
    form = setting(
        "--log-format",
        "observability.log_format",
        type=click.Choice(["auto", "console", "json"]),
        help="Form of the log.",
    )
    return level(form(command))


def server_options(command: F) -> F:
    """Add the options that name a running server."""
    url = click.option("--url", metavar="URL", help="The running server; that of the configuration if not given.")
    key = click.option(
        "--api-key", envvar="OPENAI_API_KEY", show_envvar=True, metavar="KEY", help="Key for that server."
    )
    return url(key(command))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def load(ctx: click.Context) -> LoadedConfig:
    """Load the configuration as the options say, with its warnings on standard error."""
    configure_logging("warning", "console")
    loaded = load_config(ctx.meta.get(_FILE), overrides=ctx.meta.get(_OVERRIDES, ()))
    for warning in loaded.warnings:
        click.echo(f"antwort: warning: {warning}", err=True)
    return loaded


def load_again(ctx: click.Context, path: Path | None) -> LoadedConfig:
    """Load the configuration once more as the options say, from the file it was read from."""
    return load_config(path or ctx.meta.get(_FILE), overrides=ctx.meta.get(_OVERRIDES, ()))


def load_rest(ctx: click.Context) -> LoadedConfig | None:
    """Load what is right of a configuration that cannot be loaded, so that it can be examined; None if nothing is."""
    return load_right_parts(ctx.meta.get(_FILE), overrides=ctx.meta.get(_OVERRIDES, ()))


def configured(command: Callable[Concatenate[LoadedConfig, P], None]) -> Callable[P, None]:
    """Add the common options to a command and give it the configuration as its first argument."""

    @config_options
    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        command(load(click.get_current_context()), *args, **kwargs)

    return run
