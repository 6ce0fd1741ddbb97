"""`antwort init`."""

from pathlib import Path

import click

from antwort.config import commented_config
from antwort.errors import ConfigError
from antwort.functions import Catalogue

__all__ = ["init"]

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
