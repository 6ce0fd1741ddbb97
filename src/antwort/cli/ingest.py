"""`antwort ingest`."""

import asyncio
import contextlib
import signal

import click

from antwort.app import Antwort
from antwort.cli.groups import Group
from antwort.cli.options import configured
from antwort.config import LoadedConfig
from antwort.observability import configure_logging


@click.group(cls=Group)
def ingest() -> None:
    """Make files searchable."""


@ingest.command()
@click.option(
    "--idle", type=float, metavar="SECONDS", help="End after so many seconds without work; never if not given."
)
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
