"""Containers: folders with the files of sessions; which there are, whose they are, and when they go."""

import asyncio
import contextlib
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from antwort.provider import ConflictError, NotFoundError, Sandbox, delete_tree
from antwort.providers.code_interpreter.files import Files

logger = logging.getLogger(__name__)

_ID = re.compile(r"cntr_[0-9a-f]{48}")
_ABOUT = ".json"
_TRASH = ".trash-"
_LONGEST_PAUSE = 3600.0


class About(Struct):
    """What is kept of a container, out of reach for the code in it."""

    name: str
    created_at: int
    minutes: int | None = None
    """Minutes after its last use that it is kept; None for what is configured."""
    memory_limit: str | None = None
    uploads: list[str] = msgspec.field(default_factory=list)
    """The paths of files that a client has put there."""
    begun: bool = False
    """Whether there was a session."""


class Container(Struct, frozen=True):
    """A container that is there."""

    id: str
    tenant: str
    folder: Path
    about: About
    last_active_at: int


class Containers:
    """Containers by tenant and id: a folder each, and a file beside it, whose time is that of the last use."""

    def __init__(self, place: Path, sandbox: Sandbox, *, keep: float, most: int, most_files: int) -> None:
        self._place = place
        self._sandbox = sandbox
        self._keep = keep
        self._most = most
        self._most_files = most_files

    def create(
        self,
        tenant: str,
        name: str,
        *,
        minutes: int | None = None,
        memory_limit: str | None = None,
        container_id: str | None = None,
    ) -> Container:
        """Make a container; ConflictError if there are too many."""
        container_id = container_id or f"cntr_{secrets.token_hex(24)}"
        folder = self._of(tenant) / container_id
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if sum(1 for _ in folder.parent.glob(f"*{_ABOUT}")) >= self._most:
            raise ConflictError(f"There are {self._most:,} containers, which is the limit; delete some.")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            self._sandbox.adopt(folder)
        self._write(folder, About(name, int(time.time()), minutes, memory_limit))
        return self.find(tenant, container_id)

    def find(self, tenant: str, container_id: str) -> Container:
        """Return a container; NotFoundError if there is none, or it has expired."""
        folder = self._of(tenant) / container_id
        found = self._read(folder, tenant) if _ID.fullmatch(container_id) else None
        if found is None or self.is_expired(found):
            raise NotFoundError(f"There is no container with the id '{container_id[:80]}'.", param="container_id")
        return found

    def use(self, tenant: str, container_id: str) -> Container:
        """Return a container, and note that it is used."""
        found = self.find(tenant, container_id)
        with contextlib.suppress(FileNotFoundError):
            self._path(found.folder).touch(exist_ok=True)
        return found

    def of_conversation(self, tenant: str, conversation_id: str, memory_limit: str | None) -> Container:
        """Return the container of a conversation, which is made if it is not there, and note that it is used."""
        digest = hashlib.sha256(f"{tenant}\0{conversation_id}".encode()).hexdigest()
        container_id = f"cntr_{digest[:48]}"
        try:
            return self.use(tenant, container_id)
        except NotFoundError:
            self._delete(self._of(tenant) / container_id)
            return self.create(tenant, "auto", memory_limit=memory_limit, container_id=container_id)

    def all(self, tenant: str) -> list[Container]:
        """Return the containers of a tenant, those made last first."""
        found = [one for one in self._found(self._of(tenant), tenant) if not self.is_expired(one)]
        return sorted(found, key=lambda one: (-one.about.created_at, one.id))

    def files(self, container: Container) -> Files:
        """Return the files of a container."""
        return Files(container.id, container.folder, self._most_files)

    def change(self, container: Container) -> None:
        """Keep what is known of a container anew."""
        self._write(container.folder, container.about)

    def delete(self, container: Container) -> None:
        """Delete a container with all its files."""
        self._delete(container.folder)

    def is_expired(self, container: Container) -> bool:
        """Tell whether nobody has used a container for so long that it is gone."""
        minutes = container.about.minutes
        return container.last_active_at + (self._keep if minutes is None else 60 * minutes) < time.time()

    def sweep(self) -> int:
        """Delete containers that have expired; return how many that were."""
        count = 0
        for tenant in [path for path in self._place.iterdir() if path.is_dir()] if self._place.is_dir() else []:
            for trash in tenant.glob(f"{_TRASH}*"):  # of a process that ended meanwhile
                delete_tree(trash)
            for found in self._found(tenant, ""):
                if self.is_expired(found):
                    self._delete(found.folder)
                    count += 1
        return count

    async def sweep_regularly(self) -> None:
        """Sweep again and again."""
        while True:
            try:
                if count := await asyncio.to_thread(self.sweep):
                    logger.info("deleted %d containers that were not used for long", count)
            except OSError:
                logger.exception("old containers cannot be deleted")
            await asyncio.sleep(min(self._keep / 4, _LONGEST_PAUSE))

    def _found(self, place: Path, tenant: str) -> Iterator[Container]:
        for path in place.glob(f"*{_ABOUT}"):
            if (found := self._read(path.with_suffix(""), tenant)) is not None:
                yield found

    def _read(self, folder: Path, tenant: str) -> Container | None:
        path = self._path(folder)
        try:
            about = msgspec.json.decode(path.read_bytes(), type=About)
            return Container(folder.name, tenant, folder, about, int(path.stat().st_mtime))
        except FileNotFoundError:
            return None

    def _write(self, folder: Path, about: About) -> None:
        new = folder.with_name(f".{secrets.token_hex(8)}")
        new.write_bytes(msgspec.json.encode(about))
        new.replace(self._path(folder))

    def _delete(self, folder: Path) -> None:
        trash = folder.with_name(f"{_TRASH}{secrets.token_hex(8)}")
        with contextlib.suppress(FileNotFoundError):
            folder.rename(trash)
        self._path(folder).unlink(missing_ok=True)
        delete_tree(trash)

    def _of(self, tenant: str) -> Path:
        return self._place / hashlib.sha256(tenant.encode()).hexdigest()[:32]

    @staticmethod
    def _path(folder: Path) -> Path:
        return folder.with_name(folder.name + _ABOUT)
