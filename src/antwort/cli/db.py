"""`antwort db`."""

import click

from antwort.cli.options import configured, json_option
from antwort.cli.output import print_json
from antwort.config import LoadedConfig
from antwort.storage.locations import database_url, sqlite_path
from antwort.storage.upgrade import current as current_revision
from antwort.storage.upgrade import head
from antwort.storage.upgrade import upgrade as upgrade_database

__all__ = ["db"]


@click.group()
def db() -> None:
    """Look after the database."""


@db.command()
@json_option
@configured
def current(loaded: LoadedConfig, *, as_json: bool) -> None:
    """Show the revision of the database and the one this version needs."""
    url = database_url(loaded.config)
    path, revision = sqlite_path(url), current_revision(url)
    if as_json:
        print_json({"database": str(path), "revision": revision, "needed": head()})
    elif revision is None:
        click.echo(f"{path} is empty or does not exist. 'antwort serve' or 'antwort db upgrade' creates it.")
    elif revision == head():
        click.echo(f"{path} has the revision {revision} and is up to date.")
    else:
        click.echo(f"{path} has the revision {revision}; this version of antwort needs {head()}.")


@db.command()
@json_option
@configured
def upgrade(loaded: LoadedConfig, *, as_json: bool) -> None:
    """Bring the database to the revision this version needs; create it if there is none."""
    url = database_url(loaded.config)
    path, before = sqlite_path(url), current_revision(url)
    upgrade_database(url)
    after = current_revision(url)
    if as_json:
        print_json({"database": str(path), "before": before, "revision": after})
    elif before == after:
        click.echo(f"{path} has the revision {after} already.")
    else:
        click.echo(f"{path} now has the revision {after}.")
