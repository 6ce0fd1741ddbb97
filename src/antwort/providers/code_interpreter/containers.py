"""Containers: folders with the files of sessions, and what is known of each."""

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from typing_extensions import override

from antwort.provider import ConfinedFiles, NotFoundError, Sandbox, SandboxLimits, TenantFolders
from antwort.providers.code_interpreter.files import ContainerFiles

_ID = re.compile(r"cntr_[0-9a-f]{48}")
_REMEMBERED = 10_000
"""Containers that are remembered after their end."""


class About(Struct):
    """What is kept of a container, out of reach for the code in it."""

    name: str
    created_at: int
    minutes: int | None = None
    """Minutes after its last use that it is kept; None for what is configured."""
    memory_limit: str | None = None
    uploads: list[str] = msgspec.field(default_factory=list)
    """The paths of files that a client has put there."""
    given: list[str] = msgspec.field(default_factory=list)
    """The ids of files that were put there because a tool has named them."""
    begun: bool = False
    """Whether there was a session."""
    is_auto: bool = False
    """Whether it was made for a conversation, not by a client."""
    birth: str = msgspec.field(default_factory=lambda: secrets.token_hex(8))
    """Tells it from one that had the same id before."""


class Container(Struct, frozen=True):
    """A container that is there."""

    id: str
    tenant: str
    folder: Path
    about: About
    last_active_at: int


class Containers(TenantFolders):
    """Containers by tenant and id; what is known of one is in its mark.

    Those of conversations to which no client has given anything can go to make room for others.
    """

    what = "container"
    suffix = ".json"

    def __init__(
        self,
        place: Path,
        sandbox: Sandbox,
        *,
        keep: float,
        most: int,
        most_files: int,
        limits: SandboxLimits | None = None,
    ) -> None:
        super().__init__(place, sandbox, keep=keep, most=most, limits=limits)
        self._most_files = most_files
        self._gone: dict[Path, tuple[int, str]] = {}
        """Where those that are gone were in the lists."""

    def create(
        self, tenant: str, name: str, *, minutes: int | None = None, memory_limit: str | None = None
    ) -> Container:
        """Make a container; ConflictError if there are too many, and none can go."""
        about = About(name, int(time.time()), minutes, memory_limit)
        made = self._create(tenant, f"cntr_{secrets.token_hex(24)}", about)
        self.empty_discarded()
        return made

    def find(self, tenant: str, container_id: str) -> Container:
        """Return a container; NotFoundError if there is none, or it has expired."""
        found = self._read(self._of(tenant) / container_id, tenant) if _ID.fullmatch(container_id) else None
        if found is None or self._has_expired(found):
            raise NotFoundError(f"There is no container with the id '{container_id[:80]}'.", param="container_id")
        return found

    def use(self, tenant: str, container_id: str) -> Container:
        """Return a container, and note that it is used."""
        found = self.find(tenant, container_id)
        self.touch(found.folder)
        return found

    def of_conversation(self, tenant: str, conversation_id: str, memory_limit: str | None) -> Container:
        """Return the container of a conversation, which is made if it is not there, and note that it is used."""
        container_id = self.id_of_conversation(tenant, conversation_id)
        with self._changing:
            try:
                return self.use(tenant, container_id)
            except NotFoundError:
                self.discard(self._of(tenant) / container_id)
                about = About("auto", int(time.time()), memory_limit=memory_limit, is_auto=True)
                return self._create(tenant, container_id, about)

    def id_of_conversation(self, tenant: str, conversation_id: str) -> str:
        """Return the id that the container of a conversation has, or would have."""
        digest = hashlib.sha256(f"{tenant}\0{conversation_id}".encode()).hexdigest()
        return f"cntr_{digest[:48]}"

    def all(self, tenant: str, *, after: str | None = None, newest_first: bool = True) -> list[Container]:
        """Return the containers of a tenant, by when they were made, or those after one; NotFoundError if that is none.

        It may be one that was deleted: scripts delete what a page shows, and go on after the last.
        """
        found = sorted((one for one in self._found(tenant) if not self._has_expired(one)), key=_order)
        start = None if after is None else self._place_in_list(tenant, after)
        if newest_first:
            return [one for one in found if start is None or _order(one) > start]
        return [one for one in reversed(found) if start is None or _order(one) < start]

    def _place_in_list(self, tenant: str, container_id: str) -> tuple[int, str]:
        try:
            return _order(self.find(tenant, container_id))
        except NotFoundError:
            gone = self._gone.get(self._of(tenant) / container_id)
            if gone is None:
                raise
            return gone

    def files(self, container: Container) -> ContainerFiles:
        """Return the files of a container."""
        confined = ConfinedFiles(container.folder, what="container", held=self.held)
        return ContainerFiles(container.id, confined, self._most_files)

    def change(self, container: Container, change: Callable[[About], None]) -> None:
        """Change what is known of a container, unless it is gone."""
        with self._changing:
            found = self._read(container.folder, container.tenant)
            if found is not None and found.about.birth == container.about.birth:
                change(found.about)
                self._write(found.folder, found.about)

    @override
    def discard(self, folder: Path) -> None:
        with self._changing:
            if (found := self._read(folder, "")) is not None:
                self._gone[folder] = _order(found)
                if len(self._gone) > _REMEMBERED:
                    del self._gone[next(iter(self._gone))]
            super().discard(folder)

    @override
    def _is_expired(self, mark: Path) -> bool:
        found = self._read(mark.with_suffix(""), "")
        return found is not None and self._has_expired(found)

    @override
    def _is_dispensable(self, mark: Path) -> bool:
        found = self._read(mark.with_suffix(""), "")
        return found is not None and (self._has_expired(found) or (found.about.is_auto and not found.about.uploads))

    def _has_expired(self, container: Container) -> bool:
        """Tell whether nobody has used a container for so long that it is gone."""
        minutes = container.about.minutes
        return container.last_active_at + (self._keep if minutes is None else 60 * minutes) < time.time()

    def _create(self, tenant: str, container_id: str, about: About) -> Container:
        folder = self._of(tenant) / container_id
        with self._changing:
            self._make(folder)
            self._write(folder, about)
            return self.find(tenant, container_id)

    def _found(self, tenant: str) -> Iterator[Container]:
        for mark in self._marks(self._of(tenant)):
            if (found := self._read(mark.with_suffix(""), tenant)) is not None:
                yield found

    def _read(self, folder: Path, tenant: str) -> Container | None:
        mark = self._mark(folder)
        try:
            about = msgspec.json.decode(mark.read_bytes(), type=About)
            return Container(folder.name, tenant, folder, about, int(mark.stat().st_mtime))
        except FileNotFoundError:
            return None

    def _write(self, folder: Path, about: About) -> None:
        new = folder.with_name(f".{secrets.token_hex(8)}")
        new.write_bytes(msgspec.json.encode(about))
        new.replace(self._mark(folder))


def _order(container: Container) -> tuple[int, str]:
    """Return by what lists are ordered, the newest first."""
    return -container.about.created_at, container.id
