"""`antwort ingest`."""

import asyncio
import collections
import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

import click
import msgspec
from typing_extensions import override

from antwort.app import Antwort
from antwort.cli.folder_upload import (
    FileReport,
    FolderUpload,
    LocalFile,
    Outcome,
    ServerFiles,
    StoredFile,
    UploadWatcher,
    found_files,
)
from antwort.cli.groups import Group
from antwort.cli.options import configured, json_option, log_options
from antwort.cli.output import Misuse, print_json
from antwort.cli.running_server import own_url
from antwort.cli.terminal import harmless
from antwort.config import LoadedConfig
from antwort.observability import configure_logging

# --- what is shown while it works: a bar in a terminal, a line now and then elsewhere --------------------------------


_WIDTH = 24
"""Characters of the bar."""
_EVERY, _EVERY_LINE = 0.1, 30.0
"""Seconds between two pictures of a terminal, and between two lines elsewhere."""
_SURE = 1.0
"""Seconds before which no rate is told."""
_ENOUGH = 0.05
"""Part of all bytes before which no time left is told, unless a file says how far it is: small files come first."""
_CLEAR = "\r\x1b[K"


class NoProgress(UploadWatcher):
    """Shows nothing."""

    @override
    def see(self, file: LocalFile, state: StoredFile) -> None:
        pass

    @override
    def end(self, report: FileReport) -> None:
        pass

    @override
    def close(self) -> None:
        pass


class ShownProgress(UploadWatcher):
    """Shows how far all files are, at which rate, how long it takes, and how far the file is that was looked at last.

    Files count by their bytes: how many chunks one has is not known before it is read.
    """

    def __init__(
        self,
        files: Sequence[LocalFile],
        out: TextIO,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._now = now
        self._sizes = {file.name: _size(file) for file in files}
        self._files = len(files)
        self._total = sum(self._sizes.values())
        self._ended = 0
        self._done = 0.0
        """Bytes of files that are done with."""
        self._chunks = 0
        """Chunks of those."""
        self._states: dict[str, StoredFile] = {}
        self._last = ""
        """The file that was looked at last."""
        self._began = now()
        self._shown = self._began - (_EVERY if self._is_terminal else 0)

    @override
    def see(self, file: LocalFile, state: StoredFile) -> None:
        self._states[file.name] = state
        self._last = file.name
        self._show()

    @override
    def end(self, report: FileReport) -> None:
        state = self._states.pop(report.name, None)
        size = self._sizes.pop(report.name, 0)
        if report.outcome == "removed":
            return
        self._ended += 1
        if report.outcome == "unchanged":
            self._total -= size
        else:
            self._done += size
        if state is not None:
            self._chunks += state.chunks or state.embedded
        self._show()

    @override
    def close(self) -> None:
        if self._is_terminal:
            self._out.write(_CLEAR)
            self._out.flush()

    def _show(self) -> None:
        now = self._now()
        if now - self._shown < (_EVERY if self._is_terminal else _EVERY_LINE):
            return
        self._shown = now
        if self._is_terminal:
            line = f"{self._bar()} {self._text(now)}"
            self._out.write(f"{_CLEAR}{line[: shutil.get_terminal_size().columns - 1]}")
        else:
            self._out.write(f"antwort: {self._text(now)}\n")
        self._out.flush()

    @property
    def _part(self) -> float:
        """The part of all bytes that can be found."""
        begun = sum(self._sizes.get(name, 0) * state.part for name, state in self._states.items())
        return min(1.0, (self._done + begun) / self._total) if self._total else 1.0

    def _bar(self) -> str:
        full = int(_WIDTH * self._part)
        return f"[{'#' * full}{'-' * (_WIDTH - full)}]"

    def _text(self, now: float) -> str:
        parts = [f"{self._ended:,} of {self._files:,} files"]
        chunks, elapsed = self._chunks + sum(one.embedded for one in self._states.values()), now - self._began
        if chunks and elapsed >= _SURE:
            parts.append(f"{chunks:,} chunk{'' if chunks == 1 else 's'}, {chunks / elapsed:.1f} a second")
        least = 0.0 if any(one.part for one in self._states.values()) else _ENOUGH
        if (part := self._part) > least and elapsed >= _SURE:
            parts.append(f"{_duration(elapsed * (1 - part) / part)} left")
        text = ", ".join(parts)
        state = self._states.get(self._last)
        return text if state is None else f"{text}; {harmless(self._last)}: {_described(state)}"


def _described(state: StoredFile) -> str:
    if state.chunks is None:
        return state.phase or "waiting"
    pages = "" if state.pages is None else f", {state.pages:,} pages"
    return f"{state.embedded:,} of {state.chunks:,} chunks{pages}"


def _duration(seconds: float) -> str:
    """Say how long something takes, about."""
    if seconds < 60:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _size(file: LocalFile) -> int:
    try:
        return max(1, file.path.stat().st_size)
    except OSError:  # it is told when its turn comes
        return 1


# --- the command -----------------------------------------------------------------------------------------------------


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
