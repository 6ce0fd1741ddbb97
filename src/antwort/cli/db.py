"""`antwort db`."""

import click

from antwort.cli.options import configured, json_option
from antwort.cli.output import print_json
from antwort.config import LoadedConfig
from antwort.storage.locations import database_url
from antwort.storage.upgrade import current as current_revision
from antwort.storage.upgrade import head
from antwort.storage.upgrade import place as place_of
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
    place, revision = place_of(url), current_revision(url)
    if as_json:
        print_json({"database": place, "revision": revision, "needed": head()})
    elif revision is None:
        click.echo(f"{place} is empty or does not exist. 'antwort serve' or 'antwort db upgrade' creates it.")
    elif revision == head():
        click.echo(f"{place} has the revision {revision} and is up to date.")
    else:
        click.echo(f"{place} has the revision {revision}; this version of antwort needs {head()}.")


@db.command()
@json_option
@configured
def upgrade(loaded: LoadedConfig, *, as_json: bool) -> None:
    """Bring the database to the revision this version needs; create it if there is none."""
    url = database_url(loaded.config)
    place, before = place_of(url), current_revision(url)
    upgrade_database(url)
    after = current_revision(url)
    if as_json:
        print_json({"database": place, "before": before, "revision": after})
    elif before == after:
        click.echo(f"{place} has the revision {after} already.")
    else:
        click.echo(f"{place} now has the revision {after}.")
