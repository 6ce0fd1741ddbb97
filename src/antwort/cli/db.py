"""`antwort db`."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import click

from antwort.cli.groups import Group
from antwort.cli.options import configured, json_option
from antwort.cli.output import Misuse, print_json
from antwort.config import Config, LoadedConfig, read_age, written_duration
from antwort.errors import ConfigError
from antwort.storage import open_store
from antwort.storage.maintenance import current as current_revision
from antwort.storage.maintenance import location
from antwort.storage.maintenance import upgrade as upgrade_database
from antwort.storage.maintenance import vacuum as vacuum_database
from antwort.storage.retention import KINDS, Pruner
from antwort.storage.schema.revisions import head
from antwort.storage.urls import database_url

TELL_EVERY = 2.0
"""Seconds between two lines about work that takes long."""


def _age(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else read_age(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group(cls=Group)
def db() -> None:
    """Look after the database."""


@db.command()
@json_option
@configured
def current(loaded: LoadedConfig, *, as_json: bool) -> None:
    """Show the revision of the database and the one this version needs."""
    url = database_url(loaded.config)
    database, revision = location(url), current_revision(url)
    if as_json:
        print_json({"database": database, "revision": revision, "needed": head()})
    elif revision is None:
        click.echo(f"{database} is empty or does not exist. 'antwort serve' or 'antwort db upgrade' creates it.")
    elif revision == head():
        click.echo(f"{database} has the revision {revision} and is up to date.")
    else:
        click.echo(f"{database} has the revision {revision}; this version of antwort needs {head()}.")


@db.command()
@json_option
@configured
def upgrade(loaded: LoadedConfig, *, as_json: bool) -> None:
    """Bring the database to the revision this version needs; create it if there is none."""
    url = database_url(loaded.config)
    database, before = location(url), current_revision(url)
    upgrade_database(url)
    after = current_revision(url)
    if as_json:
        print_json({"database": database, "before": before, "revision": after})
    elif before == after:
        click.echo(f"{database} has the revision {after} already.")
    else:
        click.echo(f"{database} now has the revision {after}.")


@db.command()
@click.option(
    "--older-than",
    "age",
    callback=_age,
    metavar="AGE",
    help="Delete what is older: 30d, 12h, 15m, 90s, 2w. What storage.keep says, if not given.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="What to delete; repeatable. Everything if not given.",
)
@click.option("--dry-run", is_flag=True, help="Only count, and delete nothing.")
@json_option
@configured
def prune(loaded: LoadedConfig, *, age: float | None, kinds: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Delete what is too old, of all tenants. A server may be running meanwhile.

    Background responses and batches that are not over stay, however old they are, and so do their conversations.
    """
    keep, now = loaded.config.storage.keep, time.time()
    given = {kind: getattr(keep, kind) if age is None else age for kind in kinds or KINDS}
    ages: dict[str, float] = {kind: given[kind] for kind in KINDS if given.get(kind) is not None}
    if not ages:
        raise Misuse("Nothing is ever too old here. Give --older-than, or set storage.keep.")
    where = _usable(loaded.config)
    counts = asyncio.run(_prune(loaded.config, {kind: int(now - each) for kind, each in ages.items()}, dry_run=dry_run))
    if as_json:
        print_json({"database": where, "dry_run": dry_run, "deleted": counts})
        return
    told = _counts_with_ages(counts, ages)
    click.echo(f"Would delete {told} from {where}." if dry_run else f"Deleted {told} from {where}.")
    if not dry_run and any(counts.values()):
        click.echo("'antwort db vacuum' gives their space back.", err=True)


def _counts_with_ages(counts: dict[str, int], ages: dict[str, float]) -> str:
    """Return `2 responses, 1 event older than 30 days`; each with its age if there are several."""
    if len(set(ages.values())) == 1:
        return f"{_counts(counts)} older than {written_duration(next(iter(ages.values())))}"
    return ", ".join(
        f"{_counts({kind: count})} older than {written_duration(ages[kind])}" for kind, count in counts.items()
    )


def _counts(counts: dict[str, int]) -> str:
    one = {kind: kind.removesuffix("s") for kind in counts} | {"batches": "batch"}
    named = ((count, one[kind] if count == 1 else kind) for kind, count in counts.items())
    return ", ".join(f"{count:,} {kind.replace('_', ' ')}" for count, kind in named)


async def _prune(config: Config, before: dict[str, int], *, dry_run: bool) -> dict[str, int]:
    store = await asyncio.to_thread(open_store, config)
    try:
        return await Pruner(store, progress=_progress_reporter()).prune(before, dry_run=dry_run)
    finally:
        await store.close()


def _progress_reporter() -> Callable[[dict[str, int]], None]:
    last = time.monotonic()

    def tell(counts: dict[str, int]) -> None:
        nonlocal last
        if time.monotonic() - last >= TELL_EVERY:
            last = time.monotonic()
            click.echo(f"… {_counts(counts)}", err=True)

    return tell


@db.command()
@json_option
@configured
def vacuum(loaded: LoadedConfig, *, as_json: bool) -> None:
    """Give the space of what was deleted back. While a SQLite file is written anew, a server that writes waits."""
    where = _usable(loaded.config)
    if not as_json:
        click.echo(f"Vacuuming {where}; with a large database this takes a while.", err=True)
    done = vacuum_database(database_url(loaded.config))
    result: dict[str, Any] = {"database": where, "before": done.before, "after": done.after}
    if as_json:
        print_json(result)
    else:
        click.echo(f"{where} takes {done.after:,} bytes now; it took {done.before:,}.")


def _usable(config: Config) -> str:
    """Return where the database is; a ConfigError if there is none, or not one of this version."""
    url = database_url(config)
    where, revision = location(url), current_revision(url)
    if revision is None:
        raise ConfigError("There is no database yet, so there is nothing to do.", where=where)
    if revision != head():
        raise ConfigError(
            f"The database has the revision {revision}, and this version of antwort needs {head()}. "
            "Run 'antwort db upgrade'.",
            where=where,
        )
    return where
