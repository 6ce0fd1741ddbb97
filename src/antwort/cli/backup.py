"""`antwort backup` and `antwort restore`."""

import time
from pathlib import Path

import click
import msgspec

from antwort.cli.options import configured, json_option
from antwort.cli.output import Misuse, print_json
from antwort.cli.running_server import running_server
from antwort.config import LoadedConfig
from antwort.storage.archive import Tell
from antwort.storage.backup import restore_backup, write_backup

TELL_EVERY = 2.0
"""Seconds between two lines about work that takes long."""
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("file", type=_FILE)
@json_option
@configured
def backup(loaded: LoadedConfig, *, file: Path, as_json: bool) -> None:
    """Write all that the server keeps to one file, FILE; a server may be running.

    It is a tar.gz with the database, the files of clients, vectors, keys and workspaces. The configuration is not in
    it, nor what is kept elsewhere: in a bucket, in Qdrant. A PostgreSQL database is copied with pg_dump.
    """
    made = write_backup(loaded.config, file, _progress_reporter())
    if as_json:
        print_json(msgspec.to_builtins(made))
        return
    click.echo(f"{made.file} has {_counted(made.parts)} of {made.content:,} bytes, in {made.size:,} bytes.")
    for name in made.left_out:
        click.echo(f"antwort: warning: {name!r} is left out: it is neither a file nor a folder", err=True)
    for name in made.changed:
        click.echo(f"antwort: warning: {name!r} became shorter while it was read, and is filled with zeros", err=True)
    _warn(made.elsewhere)
    click.echo("It has the keys and all that was said: keep it where nobody else reads it.", err=True)


@click.command()
@click.argument("file", type=_FILE)
@click.option("--dry-run", is_flag=True, help="Only look whether the archive is sound and fits, and restore nothing.")
@json_option
@configured
def restore(loaded: LoadedConfig, *, file: Path, dry_run: bool, as_json: bool) -> None:
    """Bring back what 'antwort backup' wrote to FILE.

    Nothing is overwritten: the data folder has to be empty, and so has a PostgreSQL database. It is all or nothing, and
    each part is compared with the sum that the archive has of it.
    """
    if not dry_run and (url := running_server(loaded.config)) is not None:
        raise Misuse(
            f"A server runs on {loaded.config.data_dir} ({url}). Stop it, or name another folder with --data-dir."
        )
    done = restore_backup(loaded.config, file, _progress_reporter(), dry_run=dry_run)
    if as_json:
        print_json({**msgspec.to_builtins(done), "dry_run": dry_run})
        return
    what = f"{_counted(done.parts)} of {done.content:,} bytes, of {done.created_at} and antwort {done.antwort}"
    if dry_run:
        click.echo(f"{done.file} is sound: {what}.")
    else:
        click.echo(f"Restored {what}, to {done.data_dir} and {done.database}.")
    if done.revision != done.needed:
        click.echo(
            f"The database has the revision {done.revision}; 'antwort db upgrade' brings it to {done.needed}.", err=True
        )
    _warn(done.elsewhere)


def _warn(elsewhere: list[str]) -> None:
    for what in elsewhere:
        click.echo(f"antwort: warning: not in the archive: {what}", err=True)


def _progress_reporter() -> Tell:
    last = time.monotonic()

    def tell(what: str, done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= TELL_EVERY:
            last = time.monotonic()
            click.echo(f"… {done:,} bytes, {what}", err=True)

    return tell


def _counted(parts: int) -> str:
    return "1 part" if parts == 1 else f"{parts:,} parts"
