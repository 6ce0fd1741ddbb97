"""`antwort init` and `antwort config`."""

import json
from pathlib import Path
from typing import Any

import click

from antwort.cli.groups import Group
from antwort.cli.options import configured, json_option
from antwort.cli.output import print_json, print_table
from antwort.config import LoadedConfig, commented_config, is_duration, short_duration
from antwort.errors import ConfigError
from antwort.functions import Catalogue

DEFAULT = Path("antwort.yaml")


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=DEFAULT)
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
def init(path: Path, *, force: bool) -> None:
    """Write a configuration file with every key and its default.

    PATH is antwort.yaml if not given.
    """
    text = commented_config({found.name: f"From {found.origin}." for found in Catalogue()})
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError("there is a file already; replace it with --force", where=str(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot write the file: {error.strerror}", where=str(path)) from error
    start = "antwort serve" if path == DEFAULT else f"antwort serve --config {path}"
    click.echo(f"Wrote {path}. Start the server with '{start}'.")


@click.group(cls=Group)
def config() -> None:
    """Show the configuration that is in force."""


@config.command()
@json_option
@configured
def show(loaded: LoadedConfig, *, as_json: bool) -> None:
    """Show every value and where it comes from; secrets are masked.

    Of the settings of providers, only those that are given are shown, without their defaults.
    """
    entries = loaded.entries()
    if as_json:
        print_json([{"key": entry.key, "value": entry.value, "origin": str(entry.origin)} for entry in entries])
        return
    print_table(
        ("key", "value", "origin"),
        [(entry.key, _text(entry.value), str(entry.origin)) for entry in entries],
        flexible=1,
    )


def _text(value: Any) -> str:
    if is_duration(value):
        return short_duration(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
