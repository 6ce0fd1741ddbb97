"""`/v1/config` and `/v1/keys`: what is set, and the API keys of the caller's tenant."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from msgspec import Meta, Struct
from pydantic import BaseModel, ConfigDict, Field

from antwort.auth import ApiKey, is_anonymous, keys_file
from antwort.config import LoadedConfig
from antwort.context import Context
from antwort.context.context import ADMIN, ADMIN_WRITE, mistake_in
from antwort.errors import (
    BadRequestError,
    ConfigError,
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
)
from antwort.observability import AuditLog, Redactor
from antwort.server.api.description import examples
from antwort.web.routes import Route

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_MOST_KEYS = 1_000
"""Keys of a tenant that are made by requests."""

_LAST = 253_402_300_799
"""The last second of the year 9999."""

Text = Annotated[str, Field(pattern=r"\S", max_length=200)]


class Setting(Struct, kw_only=True):
    """A setting that is in force."""

    object: Literal["setting"] = "setting"
    key: str
    value: Annotated[Any, Meta(description="Its value; secrets are masked.")]
    origin: Annotated[str, Meta(description="Where it was given: a line of a file, a variable, a flag, or `default`.")]


class SettingList(Struct, kw_only=True):
    """All settings, in the order of their sections."""

    object: Literal["list"] = "list"
    data: list[Setting]


class KeyInfo(Struct, kw_only=True):
    """An API key, without the key itself."""

    object: Literal["api_key"] = "api_key"
    id: str
    tenant: str
    subject: Annotated[str, Meta(description="Who uses it.")]
    scopes: Annotated[Sequence[str], Meta(description="What it may do.")]
    created_at: Annotated[int | None, Meta(description="Null for one of the configuration.")]
    expires_at: int | None
    label: str | None
    source: Annotated[Literal["file", "configuration"], Meta(description="Where it is kept.")]


class NewKey(KeyInfo, kw_only=True):
    """An API key that was just made."""

    key: Annotated[str, Meta(description="The key itself. It is told this once, and kept nowhere.")]


class KeyList(Struct, kw_only=True):
    """The API keys of a tenant, those of the configuration first."""

    object: Literal["list"] = "list"
    data: list[KeyInfo]


class DeletedKey(Struct, kw_only=True):
    """That a key is revoked."""

    object: Literal["api_key"] = "api_key"
    id: str
    deleted: bool = True


class CreateKey(BaseModel):
    """What a new API key is to be."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    subject: Annotated[Text | None, Field(description="Who will use it; its id if not given.")] = None
    scopes: Annotated[
        list[Text] | None,
        Field(min_length=1, max_length=100, description="What it may do; if not given, what the caller may."),
    ] = None
    expires_at: Annotated[int | None, Field(ge=0, le=_LAST, description="When it ends, in seconds since 1970.")] = None
    label: Annotated[Text | None, Field(description="A note.")] = None


class AdministrationEndpoints:
    """The endpoints for those who look after the server; `loaded` gives the configuration that is in force."""

    def __init__(self, loaded: Callable[[], LoadedConfig], audit: AuditLog, redactor: Redactor) -> None:
        self._loaded = loaded
        self._audit = audit
        self._redactor = redactor

    def routes(self) -> list[Route]:
        """Return the routes."""
        read, write = partial(Route, scope=ADMIN), partial(Route, scope=ADMIN_WRITE)
        return [
            read("GET", "/v1/config", self.list_settings, examples=examples.SETTINGS),
            read("GET", "/v1/keys", self.list_keys, examples=examples.KEYS),
            write("POST", "/v1/keys", self.create_key, errors=[ConflictError], examples=examples.CREATE_KEY),
            write("DELETE", "/v1/keys/{key_id}", self.revoke_key, errors=[ConflictError], examples=examples.REVOKE_KEY),
        ]

    async def list_settings(self, ctx: Context) -> SettingList:
        """List the settings that are in force, with where each was given; secrets are masked.

        The API keys of other tenants are left out.
        """
        loaded, value = self._loaded(), self._redactor.value
        keys = enumerate(loaded.config.auth.api_keys)
        others = tuple(f"auth.api_keys.{number}." for number, entry in keys if entry.tenant != ctx.tenant)
        found = (entry for entry in loaded.entries() if not entry.key.startswith(others))
        return SettingList(
            data=[Setting(key=entry.key, value=value(entry.value), origin=str(entry.origin)) for entry in found]
        )

    async def list_keys(self, ctx: Context) -> KeyList:
        """List the API keys of the caller's tenant, never the keys themselves."""
        given = self._loaded().config.auth.api_keys
        fixed = [
            KeyInfo(
                id=entry.id,
                tenant=entry.tenant,
                subject=entry.subject or entry.id,
                scopes=sorted(entry.scopes),
                created_at=None,
                expires_at=None,
                label=None,
                source="configuration",
            )
            for entry in given
            if entry.tenant == ctx.tenant
        ]
        return KeyList(data=[*fixed, *(_described(record) for record in await self._records(ctx))])

    async def create_key(self, ctx: Context, body: CreateKey) -> NewKey:
        """Make an API key for the caller's tenant, which may do no more than the caller. It is told this once.

        A server that asks nobody for keys makes none: its first one is made by `antwort keys new`.
        """
        config = self._loaded().config
        if is_anonymous(config):
            raise ConflictError("This server asks nobody for keys. Make the first one with 'antwort keys new'.")
        scopes = _scopes(ctx, body.scopes)
        if body.expires_at is not None and body.expires_at <= time.time():
            raise BadRequestError("'expires_at' is over already.", param="expires_at", code="invalid_value")
        if len(await self._records(ctx)) >= _MOST_KEYS:
            raise ConflictError(f"The tenant has {_MOST_KEYS:,} keys. Revoke those that nobody uses.")
        ends = None if body.expires_at is None else datetime.fromtimestamp(body.expires_at, UTC)
        record, key = await _done(keys_file(config).new, ctx.tenant, body.subject, scopes, ends, body.label)
        self._note("key.created", ctx, record.id)
        return NewKey(**_fields(record), key=key)

    async def revoke_key(self, ctx: Context, key_id: str) -> DeletedKey:
        """Revoke an API key of the caller's tenant for good. It is refused within a second."""
        config = self._loaded().config
        if any(entry.id == key_id and entry.tenant == ctx.tenant for entry in config.auth.api_keys):
            raise ConflictError(f"The configuration gives the API key '{key_id}'. Remove it there.", param="key_id")
        known = {record.id for record in await self._records(ctx)}
        if key_id not in known or not await _done(keys_file(config).revoke, key_id):
            raise NotFoundError(f"There is no API key '{key_id[:64]}'.", param="key_id", code="key_not_found")
        self._note("key.revoked", ctx, key_id)
        return DeletedKey(id=key_id)

    async def _records(self, ctx: Context) -> list[ApiKey]:
        records = await _done(keys_file(self._loaded().config).list)
        return [record for record in records if record.tenant == ctx.tenant]

    def _note(self, event: str, ctx: Context, key_id: str) -> None:
        self._audit.record(event, tenant=ctx.tenant, subject=ctx.subject, request_id=ctx.request_id, key_id=key_id)


def _scopes(ctx: Context, asked: Iterable[str] | None) -> Sequence[str]:
    """Return the scopes of a new key: nobody gives what he has not."""
    if asked is None:
        return sorted(ctx.scopes)
    scopes = list(dict.fromkeys(asked))
    for number, scope in enumerate(scopes):
        param = f"scopes[{number}]"
        if mistake := mistake_in(scope):
            raise BadRequestError(f"'{param}': {mistake}.", param=param, code="invalid_value")
        if not ctx.grants(scope):
            message = f"The credentials lack the scope '{scope}', so they cannot give it to a key."
            raise PermissionDeniedError(message, param=param)
    return scopes


def _described(record: ApiKey) -> KeyInfo:
    return KeyInfo(**_fields(record))


def _fields(record: ApiKey) -> dict[str, Any]:
    return {
        "id": record.id,
        "tenant": record.tenant,
        "subject": record.subject,
        "scopes": sorted(record.scopes),
        "created_at": int(record.created_at.timestamp()),
        "expires_at": None if record.expires_at is None else int(record.expires_at.timestamp()),
        "label": record.label,
        "source": "file",
    }


async def _done(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Read or write the file of keys, on a thread."""
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except ConfigError as error:
        logger.error("%s", error)  # noqa: TRY400 - it says what to do
        raise ServiceUnavailableError("The file of API keys cannot be used; the log of the server says why.") from None
