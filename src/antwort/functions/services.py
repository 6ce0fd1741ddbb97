"""What an app gives a provider to work with."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from antwort.http_client import HttpClient
from antwort.storage.base import Records

__all__ = ["Services"]


@dataclass(frozen=True, slots=True)
class Services:
    """What a provider has from its app, from the beginning of its `lifespan` on."""

    http: HttpClient
    """The client for the world outside; functions and routes have it as `ctx.http` too."""
    records: Records
    """What the provider keeps in the app's database."""
    place: Path
    """Where its folder is, or would be."""

    @property
    def folder(self) -> Path:
        """The folder in which the provider may keep files; it is made when it is asked for first.

        Nobody else of the machine can look into it, whoever made the folder around it.
        """
        self.place.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.place.parent, self.place):
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.stat().st_mode & 0o077:  # of an older release
                with contextlib.suppress(PermissionError):  # it is another user's, who shares it with us
                    folder.chmod(0o700)
        return self.place
