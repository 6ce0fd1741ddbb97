"""The folders of workspaces: which there are, whose they are, and when they go."""

import asyncio
import contextlib
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from antwort.provider import BaseModel, ConflictError, Field, NotFoundError, Sandbox, delete_tree, disk_usage
from antwort.providers.workspace.files import Files

logger = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_USED = ".used"
_TRASH = ".trash-"
_LONGEST_PAUSE = 3600.0


class WorkspaceObject(BaseModel):
    """A workspace."""

    id: str = Field(description="The conversation, or the first response of the chain; or the run.")
    object: str = "workspace"
    last_active_at: int = Field(description="Seconds since 1970.")
    bytes: int | None = Field(default=None, description="What its files take on the disk; None in lists.")
    files: int | None = Field(default=None, description="Files and folders in it; None in lists.")


class Folders:
    """Workspaces by tenant and id, each a folder with a mark beside it that tells when it was used last.

    The mark is out of reach for commands, which could make a folder look as if it had just been used.
    """

    def __init__(self, place: Path, sandbox: Sandbox, *, keep: float, most: int) -> None:
        self._place = place
        self._sandbox = sandbox
        self._keep = keep
        self._most = most

    def find(self, tenant: str, workspace_id: str) -> Path:
        """Return the folder of a workspace; NotFoundError if there is none."""
        folder = self._folder(tenant, workspace_id)
        if folder is None or not folder.is_dir():
            raise NotFoundError(f"There is no workspace with the id '{workspace_id[:80]}'.", param="workspace_id")
        return folder

    def use(self, tenant: str, workspace_id: str) -> Path:
        """Return the folder of a workspace, which is made if it is not there, and note that it is used."""
        folder = self._folder(tenant, workspace_id)
        if folder is None:
            raise NotFoundError(f"'{workspace_id[:80]}' is no id of a workspace.", param="workspace_id")
        if not folder.is_dir():
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            if sum(1 for _ in self._marks(folder.parent)) >= self._most:
                raise ConflictError(f"There are {self._most:,} workspaces, which is the limit; delete some.")
            self._mark(folder).touch()
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                self._sandbox.adopt(folder)
        self._mark(folder).touch()
        return folder

    def all(self, tenant: str) -> list[WorkspaceObject]:
        """Return the workspaces of a tenant, those used last first."""
        found = [self._described(mark) for mark in self._marks(self._of(tenant))]
        return sorted(found, key=lambda one: (-one.last_active_at, one.id))

    def describe(self, tenant: str, workspace_id: str, most_files: int) -> WorkspaceObject:
        """Return a workspace with what is in it."""
        folder = self.find(tenant, workspace_id)
        used = disk_usage(folder, most_files)
        return self._described(self._mark(folder)).model_copy(update={"bytes": used.size, "files": used.files})

    def files(self, folder: Path) -> Files:
        """Return the files in a folder."""
        return Files(folder, (self._sandbox.path_of(folder),))

    def delete(self, tenant: str, workspace_id: str) -> None:
        """Delete a workspace with all that is in it."""
        self._delete(self.find(tenant, workspace_id))

    def sweep(self) -> int:
        """Delete workspaces that nobody has used for long; return how many that were."""
        count = 0
        for tenant in [path for path in self._place.iterdir() if path.is_dir()] if self._place.is_dir() else []:
            for trash in tenant.glob(f"{_TRASH}*"):  # of a process that ended meanwhile
                self._empty(trash)
            for mark in self._marks(tenant):
                if mark.stat().st_mtime < time.time() - self._keep:
                    self._delete(mark.with_suffix(""))
                    count += 1
        return count

    async def sweep_regularly(self) -> None:
        """Sweep again and again."""
        while True:
            try:
                if count := await asyncio.to_thread(self.sweep):
                    logger.info("deleted %d workspaces that were not used for long", count)
            except OSError:
                logger.exception("old workspaces cannot be deleted")
            await asyncio.sleep(min(self._keep / 4, _LONGEST_PAUSE))

    def _delete(self, folder: Path) -> None:
        trash = folder.with_name(f"{_TRASH}{secrets.token_hex(8)}")
        with contextlib.suppress(FileNotFoundError):
            folder.rename(trash)
        self._mark(folder).unlink(missing_ok=True)
        self._empty(trash)

    @staticmethod
    def _empty(trash: Path) -> None:
        """Delete what nobody can find any more; what a command still writes to goes with the next sweep."""
        try:
            delete_tree(trash)
        except OSError as error:
            logger.info("a deleted workspace is still in use: %s", error.strerror)

    def _of(self, tenant: str) -> Path:
        return self._place / hashlib.sha256(tenant.encode()).hexdigest()[:32]

    def _folder(self, tenant: str, workspace_id: str) -> Path | None:
        return self._of(tenant) / workspace_id if _ID.fullmatch(workspace_id) else None

    @staticmethod
    def _mark(folder: Path) -> Path:
        return folder.with_name(folder.name + _USED)

    @staticmethod
    def _marks(tenant: Path) -> Iterator[Path]:
        return tenant.glob(f"*{_USED}")

    @staticmethod
    def _described(mark: Path) -> WorkspaceObject:
        return WorkspaceObject(id=mark.name.removesuffix(_USED), last_active_at=int(mark.stat().st_mtime))
