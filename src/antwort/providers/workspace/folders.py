"""The folders of workspaces: which there are, whose they are, and what is in them."""

import contextlib
import re
from pathlib import Path

from typing_extensions import override

from antwort.provider import BaseModel, ConfinedFiles, Field, MissingFileError, NotFoundError, TenantFolders

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_DISPENSABLE = "dispensable"
"""What the mark says of a workspace to which no client has given anything."""


class WorkspaceObject(BaseModel):
    """A workspace."""

    id: str = Field(description="The conversation, or the first response of the chain; or the run.")
    object: str = "workspace"
    last_active_at: int = Field(description="Seconds since 1970.")
    bytes: int | None = Field(default=None, description="What its files take on the disk; None in lists.")
    files: int | None = Field(default=None, description="Files and folders in it; None in lists.")


class Folders(TenantFolders):
    """Workspaces by tenant and id. Those that only calls have used can go to make room for others."""

    what = "workspace"
    suffix = ".used"

    def find(self, tenant: str, workspace_id: str) -> Path:
        """Return the folder of a workspace; NotFoundError if there is none."""
        folder = self._folder(tenant, workspace_id)
        if folder is None or not folder.is_dir():
            raise _missing(workspace_id)
        return folder

    def use(self, tenant: str, workspace_id: str, *, for_client: bool = False) -> Path:
        """Return the folder of a workspace, which is made if it is not there, and note that it is used.

        What is used `for_client` does not go before its time.
        """
        folder = self._folder(tenant, workspace_id)
        if folder is None:
            raise NotFoundError(f"'{workspace_id[:80]}' is no id of a workspace.", param="workspace_id")
        mark = self._mark(folder)
        with self._changing:
            if not folder.is_dir():
                self._make(folder)
                mark.write_text(_DISPENSABLE)
            if for_client:
                mark.write_text("")
            mark.touch()
        return folder

    def all(self, tenant: str) -> list[WorkspaceObject]:
        """Return the workspaces of a tenant, those used last first."""
        found = []
        for mark in self._marks(self._of(tenant)):
            with contextlib.suppress(FileNotFoundError):  # somebody has just deleted it
                found.append(self._described(mark))
        return sorted(found, key=lambda one: (-one.last_active_at, one.id))

    def describe(self, tenant: str, workspace_id: str, most_files: int) -> WorkspaceObject:
        """Return a workspace with what is in it."""
        folder = self.find(tenant, workspace_id)
        try:
            used = self.files(folder).usage(most_files)
        except MissingFileError:
            raise _missing(workspace_id) from None
        try:
            found = self._described(self._mark(folder))
        except FileNotFoundError:
            raise _missing(workspace_id) from None
        return found.model_copy(update={"bytes": used.size, "files": used.files})

    def files(self, folder: Path) -> ConfinedFiles:
        """Return the files in a folder."""
        return ConfinedFiles(folder, self._sandbox.paths_of(folder), self.what, held=self.held)

    def delete(self, tenant: str, workspace_id: str) -> None:
        """Delete a workspace with all that is in it."""
        self._delete(self.find(tenant, workspace_id))

    @override
    def _is_dispensable(self, mark: Path) -> bool:
        return mark.read_text() == _DISPENSABLE

    def _folder(self, tenant: str, workspace_id: str) -> Path | None:
        return self._of(tenant) / workspace_id if _ID.fullmatch(workspace_id) else None

    def _described(self, mark: Path) -> WorkspaceObject:
        return WorkspaceObject(id=mark.name.removesuffix(self.suffix), last_active_at=int(mark.stat().st_mtime))


def _missing(workspace_id: str) -> NotFoundError:
    return NotFoundError(f"There is no workspace with the id '{workspace_id[:80]}'.", param="workspace_id")
