"""Files of vector stores as resources of the Model Context Protocol: what they say, as text."""

from collections.abc import Sequence

from antwort.provider import Context, NotFoundError, PayloadTooLargeError, Resource, ResourceContent
from antwort.providers.file_search.file_routes import StoreFileRoutes
from antwort.providers.file_search.routes import READ, find_open_store

_BEGINS = "antwort://vector_stores/"
_MOST_STORES = 20
"""Stores that are looked into for one page: there may be very many without a file."""


class StoreFileResources:
    """The files that can be searched."""

    scope = READ
    template = Resource(
        _BEGINS + "{vector_store_id}/files/{file_id}", "file", "text/plain", "A file of a vector store, as its text."
    )

    def __init__(self, routes: StoreFileRoutes) -> None:
        self._routes = routes

    async def page(self, ctx: Context, after: str | None, limit: int) -> tuple[Sequence[Resource], str | None]:
        """Return files, store by store, the newest first. Where it goes on is `store` or `store/file`."""
        routes, found = self._routes, list[Resource]()
        if routes.attached is None:
            return [], None
        store_id, _, file_id = (after or "").partition("/")
        for _ in range(_MOST_STORES):
            if not file_id:
                stores, _more = await routes.stores.page(ctx.tenant, limit=1, after=store_id or None)
                if not stores:
                    return found, None
                store_id = stores[0].id
            files, more = await routes.attached.store_files.page(
                ctx.tenant, store_id, status="completed", limit=limit - len(found), after=file_id or None
            )
            found += [
                Resource(f"{_BEGINS}{store_id}/files/{file.value.file_id}", file.value.filename, "text/plain")
                for file in files
            ]
            if more:
                return found, f"{store_id}/{files[-1].value.file_id}"
            if len(found) >= limit:
                break
            file_id = ""
        return found, store_id

    async def read(self, ctx: Context, uri: str, most: int) -> ResourceContent:
        """Return what a file says."""
        store_id, _, file_id = uri.removeprefix(_BEGINS).partition("/files/")
        store = await find_open_store(self._routes.stores, ctx, store_id)
        if self._routes.attached is None:
            raise NotFoundError("There are no files here.")
        text = await self._routes.attached.content(store, await self._routes.attached.get(store, file_id))
        if len(text) > most:
            raise PayloadTooLargeError(f"The file says more than {most:,} characters; search in it.")
        return ResourceContent(text, "text/plain")
