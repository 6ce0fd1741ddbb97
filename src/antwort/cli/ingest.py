"""`antwort ingest`."""

import asyncio
import collections
import contextlib
import signal
import sys
from collections.abc import Sequence

import click
import msgspec
from typing_extensions import override

from antwort.app import Antwort
from antwort.cli.folder_upload import FileReport, FolderUpload, LocalFile, Outcome, ServerFiles, found_files
from antwort.cli.groups import Group
from antwort.cli.ingest_progress import NoProgress, ShownProgress
from antwort.cli.options import configured, json_option, log_options
from antwort.cli.output import Misuse, print_json
from antwort.cli.running_server import own_url
from antwort.cli.terminal import harmless
from antwort.config import LoadedConfig
from antwort.observability import configure_logging

EXIT_FAILED = 1
_HELP = frozenset({"-h", "--help"})


class IngestReport(msgspec.Struct):
    """What is printed as JSON."""

    counts: dict[Outcome, int]
    files: list[FileReport]


class _Ingest(Group):
    """A group whose first command is meant if none is named: what follows is files."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in _HELP:
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Ingest)
def ingest() -> None:
    """Make files searchable.

    'antwort ingest PATH… --store NAME' is short for 'antwort ingest files PATH… --store NAME'.
    """


@ingest.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--store", required=True, metavar="NAME", help="Vector store, by name or id; created if there is none.")
@click.option("--mirror", is_flag=True, help="Remove what earlier runs have brought in and this one does not name.")
@click.option("--url", metavar="URL", help="The running server; that of this folder if not given.")
@click.option("--api-key", envvar="OPENAI_API_KEY", show_envvar=True, metavar="KEY", help="Key for that server.")
@json_option
@configured
def files(
    loaded: LoadedConfig,
    *,
    paths: Sequence[str],
    store: str,
    mirror: bool,
    url: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """Bring files, folders or those that a pattern matches into a vector store of a running server, and wait for them.

    It shows how far it is: a bar in a terminal, a line now and then elsewhere, and nothing with --json.
    What is there already in the same version is left alone, so that a run that was broken off can be started again.
    The exit code is 1 if a file cannot be made searchable; the others are all the same.
    """
    found = found_files(paths)
    if not found and not mirror:
        raise Misuse(f"there are no files in {' and '.join(repr(path) for path in paths)}")
    try:
        reports = asyncio.run(_bring(found, store, url or own_url(loaded), api_key, mirror=mirror, quiet=as_json))
    except KeyboardInterrupt:
        click.echo("antwort: broken off; the same command goes on from here", err=True)
        raise
    counts = collections.Counter(report.outcome for report in reports)
    if as_json:
        print_json(msgspec.to_builtins(IngestReport(dict(counts), reports)))
    else:
        _print_problems(reports)
        shown = [f"{counts[outcome]} {outcome}" for outcome in ("completed", "unchanged", "removed", "failed")]
        click.echo(", ".join(text for text in shown if not text.startswith("0 ")) or "nothing to do")
    if counts["failed"]:
        raise click.exceptions.Exit(EXIT_FAILED)


def _print_problems(reports: Sequence[FileReport]) -> None:
    """Print why files have failed, and what of others was not read."""
    for report in reports:
        if report.outcome == "failed":
            click.echo(f"{harmless(report.name)}: {harmless(report.reason)}", err=True)
        for warning in report.warnings:
            click.echo(f"{harmless(report.name)}: warning: {harmless(warning)}", err=True)


async def _bring(
    found: Sequence[LocalFile], store: str, url: str, key: str | None, *, mirror: bool, quiet: bool
) -> list[FileReport]:
    server = ServerFiles(url, key)
    try:
        store_id = await server.store(store)
        watcher = NoProgress() if quiet else ShownProgress(found, sys.stderr)
        with contextlib.closing(watcher):
            return await FolderUpload(server, store_id, watcher).run(found, mirror=mirror)
    finally:
        await server.close()


@ingest.command()
@click.option(
    "--idle", type=float, metavar="SECONDS", help="End after so many seconds without work; never if not given."
)
@log_options
@configured
def watch(loaded: LoadedConfig, *, idle: float | None) -> None:
    """Read and embed files that are attached to vector stores, as they come.

    It works for the server of this configuration, whose data folder it has to be able to read; a server that is away is
    waited for. Several may run. 'antwort serve' starts one itself, unless its setting 'ingestion_workers' is 0.
    """
    logs = loaded.config.observability
    app = Antwort(loaded)
    configure_logging(logs.log_level, logs.log_format, redactor=app.redactor)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_watch(app, idle))


async def _watch(app: Antwort, idle: float | None) -> None:
    working = asyncio.ensure_future(app.work_apart(idle=idle))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, working.cancel)
    try:
        await working
    finally:
        await app.close()
