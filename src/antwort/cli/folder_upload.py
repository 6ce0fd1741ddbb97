"""Bringing files of this machine into a vector store of a server, and keeping the two alike."""

import asyncio
import hashlib
import itertools
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol
from urllib.parse import urlsplit

import aiohttp
from msgspec import Struct

from antwort.cli.output import CommandFailure, Misuse
from antwort.types import JSON

Outcome = Literal["completed", "failed", "unchanged", "removed"]
_AT_ONCE = 4
"""Files that are uploaded at the same time."""
_POLL, _LONGEST_POLL, _SLOWER = 0.5, 2.0, 1.2
"""Seconds between looks at how far a file is: at first, at most, and how they grow. Very many would hold workers up."""
_LONGEST = 512
"""Characters of an attribute."""
_GLOB = frozenset("*?[")
_REFUSED = frozenset({400, 413, 429})
"""Answers that are about one file, such as one that is too large; the others may be taken."""


class LocalFile(Struct, frozen=True):
    """A file to bring in."""

    path: Path
    name: str
    """Its path below the folder that was named, or before a pattern: what tells it from others in the store."""


class StoredFile(Struct, frozen=True):
    """A file that an earlier run has brought in."""

    id: str
    name: str
    sha256: str
    status: str
    reason: str = ""
    warnings: Sequence[str] = ()
    phase: str = ""
    """What happens to it, while it is read and embedded."""
    pages: int | None = None
    chunks: int | None = None
    """How many it has, as soon as that is known."""
    embedded: int = 0

    @property
    def part(self) -> float:
        """The part of it that is embedded."""
        return min(1.0, self.embedded / self.chunks) if self.chunks else 0.0


class FileReport(Struct, frozen=True):
    """What became of a file."""

    name: str
    outcome: Outcome
    file_id: str
    reason: str = ""
    pages: int | None = None
    chunks: int | None = None
    """As many as were seen while it was embedded; None if that was too quick to be seen."""
    warnings: Sequence[str] = ()
    """What of it the server has not read."""


class UploadWatcher(Protocol):
    """Sees how far files are."""

    def see(self, file: LocalFile, state: StoredFile) -> None:
        """Take note that a file is so far."""

    def end(self, report: FileReport) -> None:
        """Take note that a file is done with."""

    def close(self) -> None:
        """Show nothing more."""


class RefusedFile(CommandFailure):
    """The server does not take a file."""


def found_files(paths: Sequence[str]) -> list[LocalFile]:
    """Return the files that are named: single ones, all of folders but hidden ones, and those that patterns match."""
    found: dict[str, LocalFile] = {}
    for text in paths:
        for file in _named(text):
            other = found.setdefault(file.name, file)
            if other.path.resolve() != file.path.resolve():
                raise Misuse(
                    f"'{other.path}' and '{file.path}' would have one name, '{file.name}'; name the folder above both, "
                    "or give each a store of its own"
                )
    return list(found.values())


def _named(text: str) -> list[LocalFile]:
    path = Path(text)
    if path.is_dir():
        return [_below(path, one) for one in sorted(_inside(path))]
    if path.is_file():
        return [_below(path.parent, path)]
    if _GLOB.isdisjoint(text):
        raise Misuse(f"there is no file or folder '{text}'")
    plain = list(itertools.takewhile(_GLOB.isdisjoint, path.parts))
    folder = Path(*plain)
    files = [_below(folder, one) for one in sorted(folder.glob(str(Path(*path.parts[len(plain) :])))) if one.is_file()]
    if not files:
        raise Misuse(f"no file matches '{text}'")
    return files


def _below(folder: Path, path: Path) -> LocalFile:
    return LocalFile(path, path.relative_to(folder).as_posix())


def _inside(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        paths = (Path(parent, name) for name in names if not _is_hidden(name))
        yield from (path for path in paths if path.is_file())


def _unreadable(error: OSError) -> NoReturn:
    """Refuse a folder that cannot be listed: its files would seem to be gone."""
    raise Misuse(f"the folder '{error.filename}' cannot be read: {error.strerror}")


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


class ServerFiles:
    """The files and vector stores of a server, over its API. What goes wrong is a CommandFailure."""

    def __init__(self, url: str, key: str | None) -> None:
        if not url.startswith(("http://", "https://")):
            raise Misuse("--url must begin with http:// or https://")
        self._url = url.rstrip("/") if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._session = aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=None, sock_read=300))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def store(self, name: str) -> str:
        """Return the id of the store with a name, or an id; it is created if there is none."""
        async for store in self._listed("/vector_stores", {}):
            if name in {store["name"], store["id"]} and store["status"] != "expired":
                return str(store["id"])
        return str((await self._ask("POST", "/vector_stores", json={"name": name}))["id"])

    async def stored(self, store_id: str) -> list[StoredFile]:
        """Return what earlier runs have brought into a store, the oldest first."""
        files = self._listed(f"/vector_stores/{store_id}/files", {"order": "asc"})
        return [_stored(file) async for file in files if {"path", "sha256"} <= (file["attributes"] or {}).keys()]

    async def state(self, store_id: str, file_id: str) -> StoredFile:
        """Return how far a file is."""
        return _stored(await self._ask("GET", f"/vector_stores/{store_id}/files/{file_id}"))

    async def bring(self, store_id: str, file: LocalFile, sha256: str) -> str:
        """Upload a file, attach it, and return its id. Raises RefusedFile, and OSError if it cannot be read."""
        with file.path.open("rb") as content:
            form = aiohttp.FormData({"purpose": "assistants"})
            form.add_field("file", content, filename=file.path.name, content_type="application/octet-stream")
            file_id = str((await self._ask("POST", "/files", data=form))["id"])
        attributes = {"path": file.name[-_LONGEST:], "sha256": sha256}
        attached = {"file_id": file_id, "attributes": attributes}
        try:
            await self._ask("POST", f"/vector_stores/{store_id}/files", json=attached)
        except RefusedFile:
            await self._ask("DELETE", f"/files/{file_id}")
            raise
        return file_id

    async def remove(self, store_id: str, file_id: str) -> None:
        """Remove a file from a store, and delete it."""
        await self._ask("DELETE", f"/vector_stores/{store_id}/files/{file_id}")
        await self._ask("DELETE", f"/files/{file_id}")

    async def _listed(self, path: str, query: Mapping[str, str]) -> AsyncIterator[JSON]:
        wanted = {"limit": "100", **query}
        while True:
            page = await self._ask("GET", path, params=wanted)
            for one in page["data"]:
                yield one
            if not page["has_more"]:
                return
            wanted["after"] = page["last_id"]

    async def _ask(self, method: str, path: str, **options: Any) -> JSON:
        try:
            async with self._session.request(method, f"{self._url}{path}", **options) as answer:
                body = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            why = _cause(error)
            raise CommandFailure(
                f"no answer from {self._url}: {why}; start the server ('antwort serve'), or say where it is with --url"
            ) from None
        if answer.status != 200:
            message = body.get("error", {}).get("message") if isinstance(body, dict) else None
            if answer.status in _REFUSED:
                raise RefusedFile(message or str(answer.reason))
            raise CommandFailure(f"{method} {path}: {message or answer.reason}")
        return dict(body)


class FolderUpload:
    """Brings files into a store: what is there already in the same version is left alone, others replace theirs.

    A run that was broken off is gone on with by the next one.
    """

    def __init__(self, server: ServerFiles, store_id: str, watcher: UploadWatcher) -> None:
        self._server = server
        self._store_id = store_id
        self._watcher = watcher

    async def run(self, files: Iterable[LocalFile], *, mirror: bool) -> list[FileReport]:
        """Bring files in, and return what became of each; with `mirror`, remove what was brought in and is not there.

        An older version of a file goes when the new one can be found; if that has failed, one that can be found stays.
        """
        before: dict[str, list[StoredFile]] = {}
        for stored in await self._server.stored(self._store_id):
            before.setdefault(stored.name, []).append(stored)
        wanted = list(files)
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(file: LocalFile) -> list[FileReport]:
            async with slots:
                return await self._bring(file, before.get(file.name[-_LONGEST:], []))

        reports = list(itertools.chain.from_iterable(await asyncio.gather(*map(one, wanted))))
        if mirror:
            names = {file.name[-_LONGEST:] for file in wanted}
            gone = [stored for name, group in before.items() if name not in names for stored in group]
            reports += [await self._remove(stored) for stored in gone]
        return reports

    async def _bring(self, file: LocalFile, before: Sequence[StoredFile]) -> list[FileReport]:
        try:
            report = await self._brought(file, before)
        except RefusedFile as error:
            report = FileReport(file.name, "failed", "", error.message)
        except OSError as error:
            report = FileReport(file.name, "failed", "", f"It cannot be read: {error.strerror or error}.")
        self._watcher.end(report)
        for old in before:
            is_better = report.outcome == "failed" and (old.status == "completed" or not report.file_id)
            if old.id != report.file_id and not is_better:
                await self._server.remove(self._store_id, old.id)
        return [report]

    async def _brought(self, file: LocalFile, before: Sequence[StoredFile]) -> FileReport:
        sha256 = await asyncio.to_thread(_hash, file.path)
        same = next((one for one in before if one.sha256 == sha256 and one.status != "failed"), None)
        if same is not None and same.status == "completed":
            return FileReport(file.name, "unchanged", same.id, warnings=same.warnings)
        begun = same.id if same is not None else await self._server.bring(self._store_id, file, sha256)
        return await self._settled(file, begun)

    async def _settled(self, file: LocalFile, file_id: str) -> FileReport:
        pause, pages, chunks = _POLL, None, None
        while (state := await self._server.state(self._store_id, file_id)).status == "in_progress":
            pages, chunks = state.pages, state.chunks
            self._watcher.see(file, state)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_POLL, pause * _SLOWER)
        outcome: Outcome = "completed" if state.status == "completed" else "failed"
        return FileReport(file.name, outcome, state.id, state.reason, pages, chunks, state.warnings)

    async def _remove(self, stored: StoredFile) -> FileReport:
        await self._server.remove(self._store_id, stored.id)
        report = FileReport(stored.name, "removed", stored.id)
        self._watcher.end(report)
        return report


def _stored(file: JSON) -> StoredFile:
    attributes, error, details = (file.get(key) or {} for key in ("attributes", "last_error", "status_details"))
    return StoredFile(
        str(file["id"]),
        str(attributes.get("path", "")),
        str(attributes.get("sha256", "")),
        str(file["status"]),
        str(error.get("message", "")),
        [str(warning) for warning in details.get("warnings", ())],
        str(details.get("phase", "")),
        details.get("pages"),
        details.get("chunks"),
        int(details.get("chunks_embedded", 0)),
    )


def _cause(error: Exception) -> str:
    """Say why there is no answer, in few words."""
    if isinstance(error, aiohttp.ClientConnectorError) and (number := error.os_error.errno) and number > 0:
        return os.strerror(number).lower()
    return str(error) or type(error).__name__


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
