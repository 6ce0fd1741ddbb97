"""Variables of tenants as resources of the Model Context Protocol."""

from collections.abc import Callable, Sequence

from antwort.provider import (
    Context,
    NotFoundError,
    PayloadTooLargeError,
    Resource,
    ResourceContent,
    ServiceUnavailableError,
    ValueKind,
    Values,
    Variable,
)

_BEGINS = "antwort://variables/"
_MEDIA_TYPES: dict[ValueKind, str] = {
    "text": "text/plain",
    "json": "application/json",
    "bytes": "application/octet-stream",
}


class VariableResources:
    """The tenant's own: what belongs to conversations and responses is read with those."""

    scope = "variables:read"
    template = Resource(_BEGINS + "{variable_id}", "variable", "text/plain", "A variable of the tenant, by its id.")

    def __init__(self, values: Callable[[], Values | None]) -> None:
        self._given = values

    async def page(self, ctx: Context, after: str | None, limit: int) -> tuple[Sequence[Resource], str | None]:
        """Return variables, the newest first."""
        found = await self._values.list(
            ctx.tenant, where={"scope": "tenant"}, all_versions=False, after=after, limit=limit + 1, newest_first=True
        )
        return [_resource(one) for one in found[:limit]], found[limit - 1].id if len(found) > limit else None

    async def read(self, ctx: Context, uri: str, most: int) -> ResourceContent:
        """Return a value."""
        variable = await self._values.get(ctx.tenant, uri.removeprefix(_BEGINS))
        if variable is None or variable.scope != "tenant":
            raise NotFoundError("There is no such variable.")
        if variable.size > most:
            raise PayloadTooLargeError(f"The variable has more than {most:,} bytes; /v1/variables has it in parts.")
        data = b"".join([piece async for piece in self._values.read(variable)])
        return ResourceContent(
            data if variable.kind == "bytes" else data.decode(errors="replace"), _MEDIA_TYPES[variable.kind]
        )

    @property
    def _values(self) -> Values:
        values = self._given()
        if values is None:
            raise ServiceUnavailableError("There are no variables here: the app does not run.")
        return values


def _resource(variable: Variable) -> Resource:
    return Resource(f"{_BEGINS}{variable.id}", variable.key, _MEDIA_TYPES[variable.kind], size=variable.size)
