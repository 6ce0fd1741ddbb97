"""What providers keep that clients of the Model Context Protocol can read: listed, and read by a URI."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from antwort.context import Context


class Resource(NamedTuple):
    """Something that can be read."""

    uri: str
    name: str
    media_type: str
    description: str = ""
    size: int | None = None
    """Bytes, if that is known."""


class ResourceContent(NamedTuple):
    """What is read: a text, or bytes."""

    data: str | bytes
    media_type: str


class ResourceSource(Protocol):
    """Resources of one kind, of all tenants; every question is one caller's."""

    @property
    def scope(self) -> str:
        """The scope that credentials must carry."""

    @property
    def template(self) -> Resource:
        """How the URIs look, with names in braces; all begin as it does before the first brace."""

    async def page(self, ctx: Context, after: str | None, limit: int) -> tuple[Sequence[Resource], str | None]:
        """Return resources of the caller's tenant, and where the list goes on; NotFoundError for no such place."""

    async def read(self, ctx: Context, uri: str, most: int) -> ResourceContent:
        """Return what a resource says; NotFoundError if the caller has none, PayloadTooLargeError beyond `most`."""
