"""All that a server keeps, in one file, and back.

A backup is of one moment, as if the server had been killed then, and it goes on meanwhile. For that moment nothing is
written where files are changed in place, which are copied at once; the database is kept as it is by a transaction.
Whatever else is in the data folder is copied after that: what the database names is there by then.
"""

import contextlib
import datetime
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

import antwort
from antwort.config import Config
from antwort.errors import ConfigError
from antwort.storage.archive import (
    ROOMS,
    ArchivedPart,
    ArchiveWriter,
    OwnersOfParts,
    Tell,
    is_beyond,
    opened_archive,
)
from antwort.storage.claims import claimed
from antwort.storage.in_place import LOCK, copy_sparsely, folders_in_place, standing_still
from antwort.storage.maintenance import DatabaseCopy, DatabaseSnapshot, check_target, location, restore, snapshot
from antwort.storage.schema.revisions import head, is_known
from antwort.storage.urls import database_url, is_postgres, sqlite_path
from antwort.types import JSON

_DATA, _DATABASE, _KEYS = ROOMS
_KEYS_FILE = "keys.json"
_OF_PROCESSES = {"server.url", "providers-lock"}
"""What is in the data folder only while a server runs."""
_OF_DATABASE = ("", "-wal", "-shm", "-journal", "-reserve", "-lock")
"""Ends of the names of the files that SQLite and we keep for a database."""
_EMPTY = {"lost+found"}
"""What may be in a folder that is empty."""
_UNDONE = "Nothing was restored; correct that, and try again."


class WrittenBackup(Struct, frozen=True):
    """What came of a backup."""

    file: str
    antwort: str
    created_at: str
    revision: str
    size: int
    """Bytes of the file."""
    parts: int
    content: int
    """Bytes of all parts."""
    left_out: list[str]
    """Links and devices, which are in no archive."""
    changed: list[str]
    """Files that somebody cut off while they were read."""
    elsewhere: list[str]
    """What the server keeps, and not in the archive, in words."""


class RestoredBackup(Struct, frozen=True):
    """What came of bringing a backup back, or of looking at it."""

    file: str
    antwort: str
    """The version that made the archive."""
    created_at: str
    revision: str
    needed: str
    """The revision that this version needs."""
    parts: int
    content: int
    elsewhere: list[str]
    database: str
    data_dir: str


class _Places(Struct, frozen=True):
    """Where a configuration has what is kept."""

    data: Path
    url: str
    keys: Path | None
    """The file of keys if it is not in the data folder."""

    @classmethod
    def of(cls, config: Config) -> "_Places":
        keys = config.auth.keys_file
        is_apart = keys is not None and keys.absolute() != (config.data_dir / _KEYS_FILE).absolute()
        return cls(config.data_dir, database_url(config), keys if is_apart else None)

    @property
    def database(self) -> Path | None:
        """The file of the database, if it is one."""
        return None if is_postgres(self.url) else sqlite_path(self.url)

    def is_own(self, path: Path) -> bool:
        """Tell whether a file of the data folder is not copied with it: it is copied otherwise, or of processes."""
        database = self.database
        names = set() if database is None else {database.with_name(database.name + end) for end in _OF_DATABASE}
        return path in names or path.name == LOCK or (path.parent == self.data and path.name in _OF_PROCESSES)


@contextlib.contextmanager
def _system_errors(file: Path, cure: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{reason}. {cure}", where=str(error.filename or file)) from error


# --- making one -------------------------------------------------------------------------------------------------------


def write_backup(config: Config, file: Path, tell: Tell) -> WrittenBackup:
    """Write all that a server keeps to a new file, which nobody else can read; a server may be running meanwhile.

    The file appears when it is complete.
    """
    places = _Places.of(config)
    unfinished = file.with_name(f".{file.name}.{secrets.token_hex(4)}.part")
    with _system_errors(file, "There is no backup; correct that, and make it again."):
        _check_file(file, places)
        try:
            with (
                tempfile.TemporaryDirectory(prefix=".antwort-backup-", dir=file.parent) as name,
                open(unfinished, "xb", opener=_private) as target,
            ):
                written = _Backup(config, places, Path(name), tell).write(target)
                target.flush()
                os.fsync(target.fileno())
                size = target.tell()
            unfinished.rename(file)
        finally:
            unfinished.unlink(missing_ok=True)
    return msgspec.structs.replace(written, file=str(file), size=size)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _check_file(file: Path, places: _Places) -> None:
    if os.path.lexists(file):
        raise ConfigError(
            "There is a file of this name already, which is not overwritten. Name another.", where=str(file)
        )
    if not file.parent.is_dir():
        raise ConfigError("There is no such folder. Make it, or name a file elsewhere.", where=str(file.parent))
    if file.parent.resolve().is_relative_to(places.data.resolve()):
        raise ConfigError(
            "This is in the data folder, so that each backup would hold those before it. Name a file elsewhere, best "
            "on another disk.",
            where=str(file),
        )


class _KeptFile(Struct, frozen=True):
    """A file or folder that goes into an archive."""

    name: str
    path: Path
    about: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.about.st_mode)


class _Backup:
    """A backup that is being made."""

    def __init__(self, config: Config, places: _Places, staging: Path, tell: Tell) -> None:
        self._config = config
        self._places = places
        self._staging = staging
        self._tell = tell
        self._staged: dict[Path, list[_KeptFile]] = {}
        """What is in folders where files are changed in place, as it was at the moment of the backup."""
        self._left_out: list[str] = []

    def write(self, target: BinaryIO) -> WrittenBackup:
        """Write the archive."""
        with contextlib.ExitStack() as keeping:
            with standing_still(folders := folders_in_place(self._places.data / "providers")):
                for number, folder in enumerate(folders):
                    self._stage(folder, self._staging / str(number))
                frozen = keeping.enter_context(snapshot(self._places.url))
            about = self._about(frozen)
            writer = keeping.enter_context(contextlib.closing(ArchiveWriter(target, about, self._tell)))
            self._add_database(frozen, writer)
            self._add_files(writer)
        return WrittenBackup(
            file="",
            antwort=about["antwort"],
            created_at=about["created_at"],
            revision=about["database"]["revision"],
            size=0,
            parts=len(writer.parts),
            content=_sum(writer.parts),
            left_out=self._left_out,
            changed=writer.changed,
            elsewhere=about["elsewhere"],
        )

    def _add_files(self, writer: ArchiveWriter) -> None:
        if (keys := self._places.keys) is not None and keys.exists():
            writer.add_file(f"{_KEYS}/{_KEYS_FILE}", keys)
        for found in self._walk(self._places.data, _DATA):
            self._add(found, writer)
        writer.finish()

    def _about(self, frozen: DatabaseSnapshot) -> JSON:
        where = location(self._places.url)
        if frozen.revision is None:
            raise ConfigError("There is no database yet, so there is nothing to keep a copy of.", where=where)
        if not is_known(frozen.revision):
            raise ConfigError(
                f"The database has the revision '{frozen.revision}', and this version of antwort knows those up to "
                f"{head()}. Make the backup with the version that wrote it.",
                where=where,
            )
        return {
            "antwort": antwort.__version__,
            "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "owner": self._places.data.stat().st_uid if self._places.data.exists() else os.geteuid(),
            "database": {"kind": frozen.kind, "revision": frozen.revision, **frozen.details},
            "elsewhere": _elsewhere(self._config),
        }

    def _stage(self, folder: Path, copy: Path) -> None:
        copy.mkdir(mode=0o700)
        staged = self._staged[folder] = []
        for found in self._walk(folder, ""):
            if found.is_folder:
                staged.append(found)
                continue
            path = copy / str(len(staged))
            copy_sparsely(found.path, path)
            staged.append(msgspec.structs.replace(found, path=path))

    def _add_database(self, frozen: DatabaseSnapshot, writer: ArchiveWriter) -> None:
        copy = frozen.write(self._staging, lambda size: self._tell("database", size))
        original = self._places.database
        writer.add_file(f"{_DATABASE}/{copy.name}", copy, None if original is None else original.stat())
        copy.unlink()

    def _add(self, found: _KeptFile, writer: ArchiveWriter) -> None:
        if not found.is_folder:
            with contextlib.suppress(FileNotFoundError):  # it was deleted, or has another name by now
                writer.add_file(found.name, found.path)
            return
        writer.add_folder(found.name, found.about)
        for inner in self._staged.get(found.path, ()):
            name = f"{found.name}{inner.name}"
            if inner.is_folder:
                writer.add_folder(name, inner.about)
            else:
                writer.add_file(name, inner.path, inner.about)

    def _walk(self, folder: Path, name: str) -> Iterator[_KeptFile]:
        """Yield what is in a folder and below it, each folder before what is in it."""
        waiting = [_KeptFile(name, folder, folder.stat())] if folder.exists() else []
        while waiting:  # code in a sandbox makes folders in folders, as deep as it likes
            inside = self._inside(waiting.pop())
            yield from inside
            waiting += [found for found in inside if found.is_folder and found.path not in self._staged]

    def _inside(self, folder: _KeptFile) -> list[_KeptFile]:
        """Return what is in a folder; note what is left out."""
        found = []
        try:
            with os.scandir(folder.path) as entries:
                paths = sorted(Path(entry.path) for entry in entries)
            for path in paths:
                about = path.stat(follow_symlinks=False)
                if self._places.is_own(path):
                    continue
                name = f"{folder.name}/{path.name}"
                if is_beyond(name):
                    self._left_out.append(str(path))
                elif stat.S_ISDIR(about.st_mode) or stat.S_ISREG(about.st_mode):
                    found.append(_KeptFile(name, path, about))
                else:
                    self._left_out.append(str(path))
        except FileNotFoundError:  # it was deleted meanwhile
            pass
        return found


def _elsewhere(config: Config) -> list[str]:
    """Return what is kept, and in no archive, in words."""
    found = []
    kept = config.storage.files or ("disk" if config.storage.s3 is None else "s3")
    if kept not in ("disk", "s3"):
        found.append("what 'storage.files' keeps of clients' files outside of the data folder stays there")
    elif kept == "s3" and config.storage.s3 is not None:
        found.append(f"the content of clients' files is in the bucket '{config.storage.s3.bucket}', and stays there")
    if config.encryption.key is not None:
        found.append("'encryption.key' is in the configuration; what it encrypted cannot be read without it")
    return found


def _sum(parts: list[ArchivedPart]) -> int:
    return sum(part.size for part in parts)


# --- bringing one back ------------------------------------------------------------------------------------------------


def restore_backup(config: Config, file: Path, tell: Tell, *, dry_run: bool = False) -> RestoredBackup:
    """Bring a backup to an empty data folder and an empty database, all or nothing; a dry run only looks at it."""
    places = _Places.of(config)
    with _system_errors(file, _UNDONE), opened_archive(file, tell) as archive:
        about = archive.head
        copy = _check_head(about, places, file)
        if dry_run:
            parts = archive.unpack(None, None)
        else:
            _check_empty(places, copy)
            with _folder_made(places.data), claimed(_claims(places)):
                staging = places.data / f".restoring-{secrets.token_hex(4)}"
                try:
                    parts = archive.unpack(staging, _owners(about, places.data))
                    _put_in_place(staging, places, copy, tell)
                finally:
                    shutil.rmtree(staging, ignore_errors=True)
    return RestoredBackup(
        file=str(file),
        antwort=about["antwort"],
        created_at=about["created_at"],
        revision=about["database"]["revision"],
        needed=head(),
        parts=len(parts),
        content=_sum(parts),
        elsewhere=about["elsewhere"],
        database=location(places.url),
        data_dir=str(places.data),
    )


def _check_head(about: JSON, places: _Places, file: Path) -> DatabaseCopy:
    """Return what the archive says of its database; ConfigError if this version and configuration cannot have it."""
    said = about["database"]
    copy = DatabaseCopy(
        kind=said["kind"],
        schema=str(said.get("schema", "")),
        beside=[str(name) for name in said.get("beside", ())],
        extensions=[(str(name), str(schema)) for name, schema in said.get("extensions", ())],
    )
    if not is_known(said["revision"]):
        raise ConfigError(
            f"The archive is of antwort {about['antwort']} with the revision '{said['revision']}' of the tables, and "
            f"this version knows those up to {head()}. Install the version that made it, or a newer one.",
            where=str(file),
        )
    if copy.is_postgres != is_postgres(places.url):
        kinds = ("a PostgreSQL database", "a SQLite database")
        is_in, named = kinds if copy.is_postgres else kinds[::-1]
        raise ConfigError(f"There is {is_in} in the archive, and 'storage.url' names {named}.", where=str(file))
    return copy


def _check_empty(places: _Places, copy: DatabaseCopy) -> None:
    """Raise ConfigError if there is something already where something is to come."""
    inside = sorted({path.name for path in places.data.iterdir()} - _EMPTY) if places.data.exists() else []
    if inside:
        raise ConfigError(
            f"The data folder is not empty ('{inside[0]}' is in it), and nothing is overwritten. Stop the server if "
            "one runs, and move the folder away, or name a new one with --data-dir.",
            where=str(places.data),
        )
    for path in filter(None, (places.database, places.keys)):
        if os.path.lexists(path):
            raise ConfigError("This is there already, and nothing is overwritten. Move it away.", where=str(path))
    check_target(places.url, copy)


def _claims(places: _Places) -> list[Path]:
    """Return what no server may begin to use meanwhile."""
    return [path for path in (places.database, places.data / "providers") if path is not None]


@contextlib.contextmanager
def _folder_made(folder: Path) -> Iterator[None]:
    """Make a folder, which goes again if it stays empty."""
    is_new = not folder.exists()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()


def _owners(about: JSON, data: Path) -> OwnersOfParts | None:
    """Return who gets the files: root gives them to whom the data folder belongs, others have them themselves."""
    if os.geteuid() != 0:
        return None
    owner = data.stat()
    return OwnersOfParts(before=int(about["owner"]), uid=owner.st_uid, gid=owner.st_gid)


def _put_in_place(staging: Path, places: _Places, copy: DatabaseCopy, tell: Tell) -> None:
    """Bring what was unpacked to where it belongs; the database first, since that alone can still fail."""
    (database,) = (staging / _DATABASE).iterdir()
    restore(places.url, database, copy, lambda: tell("database", 0))
    if places.database is not None:
        _move(database, places.database)
    if places.keys is not None and (kept := staging / _KEYS / _KEYS_FILE).exists():
        _move(kept, places.keys)
    inside = staging / _DATA
    for path in sorted(inside.iterdir()) if inside.exists() else ():
        path.rename(places.data / path.name)
    os.sync()  # one by one it would take long, and none is of use without the others


def _move(path: Path, target: Path) -> None:
    """Move a file, to another disk if need be, where it appears as a whole."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        shutil.move(path, unfinished)
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)
