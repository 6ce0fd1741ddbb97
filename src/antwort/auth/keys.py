"""Authentication by API key: keys from the configuration, and keys from a file that is watched for changes."""

import asyncio
import hmac
import logging
import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from msgspec import Struct
from starlette.datastructures import Headers

from antwort.auth.base import credential
from antwort.auth.keyfile import KEY_PATTERN, KEY_PREFIX, ApiKey, KeyFile, hash_key
from antwort.context import Principal
from antwort.errors import AuthenticationError, ConfigError

logger = logging.getLogger(__name__)

CHECK_INTERVAL = 1.0
"""Seconds until a change of the file is noticed."""

NO_HASH = "sha256:" + "0" * 64
"""What an unknown key is compared with, so that it takes as long to refuse as a known one with a wrong secret."""


class _Index(Struct, frozen=True):
    by_id: dict[str, ApiKey]
    """Keys of the file: their tokens carry the id."""
    by_hash: dict[str, ApiKey]
    """All keys: those of the configuration may be any string, without an id inside."""

    @classmethod
    def of(cls, static: Sequence[ApiKey], kept: Sequence[ApiKey]) -> "_Index":
        by_hash = {record.hash: record for record in (*kept, *static)}
        return cls({record.id: record for record in kept}, by_hash)

    def find(self, token: str, digest: str) -> ApiKey | None:
        match = KEY_PATTERN.fullmatch(token)
        record = self.by_id.get(match[1]) if match else None
        record = record or self.by_hash.get(digest)
        accepted = hmac.compare_digest(digest, record.hash if record else NO_HASH)
        return record if accepted else None


class ApiKeyAuthenticator:
    """Accept API keys. Keys added to the file or revoked take effect while the server runs.

    A request costs one hash and one look-up: the file is looked at once a second at most, in a thread, and read only
    when it changed. A file that cannot be read any more changes nothing until it can be.
    """

    def __init__(
        self,
        static: Sequence[ApiKey] = (),
        file: KeyFile | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        _refuse_duplicates(static)
        self._static = tuple(static)
        self._file = file
        self._clock = clock
        self._now = now
        self._stamp = file.stamp() if file else None
        self._index = _Index.of(self._static, file.list() if file else ())
        self._checked = clock()
        self._failed = False

    async def authenticate(self, headers: Headers, /) -> Principal | None:
        """Return whom the key stands for; abstain when the credentials are not one of our keys."""
        token = credential(headers)
        if token is None:
            return None
        await self._refresh()
        # Header values are Latin-1 on the surface; the bytes below are what the client sent.
        record = self._index.find(token, hash_key(token.encode("latin-1")))
        if record is None:
            if token.startswith(KEY_PREFIX):
                raise AuthenticationError("The API key is not valid. Check it, or ask the operator for a new one.")
            return None
        if record.expired(self._now()):
            raise AuthenticationError("The API key has expired. Ask the operator for a new one.")
        return record.principal()

    @property
    def has_several_tenants(self) -> bool:
        """Tell whether the keys are those of more than one tenant."""
        return len({record.tenant for record in self._index.by_hash.values()}) > 1

    def describe(self) -> str:
        """Name it to the operator, with the number of keys."""
        return f"API keys ({len(self._index.by_hash)})"

    async def close(self) -> None:
        """Hold nothing."""

    async def _refresh(self) -> None:
        started = self._clock()
        if self._file is None or started - self._checked < CHECK_INTERVAL:
            return
        self._checked = math.inf  # nobody else looks meanwhile: an older answer must not overwrite a newer one
        try:
            await asyncio.to_thread(self._reload, self._file)
        finally:
            self._checked = started

    def _reload(self, file: KeyFile) -> None:
        try:
            stamp = file.stamp()
            if stamp == self._stamp and not self._failed:
                return
            index = _Index.of(self._static, file.read())
        except ConfigError as error:
            if not self._failed:
                logger.error("%s The last %d API keys stay in force.", error, len(self._index.by_hash))  # noqa: TRY400
            self._failed = True
            return
        logger.info("Read the API keys again: %d are in force.", len(index.by_hash))
        self._index, self._stamp, self._failed = index, stamp, False


def _refuse_duplicates(static: Sequence[ApiKey]) -> None:
    owners: dict[str, str] = {}
    for record in static:
        if record.hash in owners:
            raise ConfigError(
                f"'{owners[record.hash]}' and '{record.id}' are the same key. Give each its own.", where="auth.api_keys"
            )
        owners[record.hash] = record.id
