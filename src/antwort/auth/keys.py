"""Authentication by API key: keys of the configuration, and of a file that holds their hashes and is watched.

A key reads `ak_<id>_<secret>`. The id is public and has no underscore, so the second underscore always ends it;
the secret may contain more. Keys an operator writes into the configuration may be any string.
"""

import asyncio
import fcntl
import hashlib
import hmac
import json
import logging
import math
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from msgspec import Struct
from pydantic import AwareDatetime, TypeAdapter, ValidationError
from starlette.datastructures import Headers
from typing_extensions import TypedDict

from antwort.auth.base import credential
from antwort.context import Principal
from antwort.errors import AuthenticationError, ConfigError
from antwort.lazy_imports import compiled_on_use

# --- keys at rest: what a key is, and the file that holds the hashes of all of them ----------------------------------


KEY_PREFIX = "ak_"
KEY_PATTERN = compiled_on_use(r"ak_([a-z2-7]{8,12})_[A-Za-z0-9_-]{43,}")
HASH_PATTERN = compiled_on_use(r"sha256:[0-9a-f]{64}")
ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
ID_LENGTH = 10
SECRET_BYTES = 32

Stamp = tuple[int, int, int]
"""Modification time, size and inode of a file: differs when the content does."""


def hash_key(key: str | bytes) -> str:
    """Return what is stored of a key.

    A plain SHA-256 is enough: salt and slowness protect passwords, because those can be guessed. Nobody guesses 256
    random bits, and a slow hash would be paid for on every request.
    """
    return "sha256:" + hashlib.sha256(key.encode() if isinstance(key, str) else key).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is stored: who it stands for, and the hash that recognises it. The key itself is nowhere."""

    id: str
    hash: str = field(repr=False)
    tenant: str
    subject: str
    scopes: frozenset[str] = frozenset({"*"})
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        """Refuse a record that could never authenticate anybody, or anybody at all."""
        for name in ("id", "tenant", "subject"):
            if not getattr(self, name).strip():
                raise ValueError(f"the {name} of an API key must not be empty")
        if HASH_PATTERN.fullmatch(self.hash) is None:
            raise ValueError("the hash of an API key must be 'sha256:' and 64 lowercase hexadecimal digits")
        if any(time is not None and time.utcoffset() is None for time in (self.created_at, self.expires_at)):
            raise ValueError("the times of an API key must have a time zone")

    def expired(self, now: datetime) -> bool:
        """Tell whether the key has come to its end."""
        return self.expires_at is not None and now >= self.expires_at

    def principal(self) -> Principal:
        """Return the caller this key stands for."""
        return Principal(self.tenant, self.subject, self.scopes, method="api_key", key_id=self.id)


class _Document(TypedDict):
    version: Literal[1]
    keys: tuple[ApiKey, ...]


class KeyFile:
    """The keys of a server in one JSON file, safe to edit from several processes at once.

    Every change is made under a lock beside the file and replaces the file in one step, so a reader sees the old
    keys or the new ones, never half of them.
    """

    def __init__(self, path: Path, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.path = path
        self._now = now

    @cached_property
    def _documents(self) -> TypeAdapter[_Document]:
        return TypeAdapter(_Document)

    def list(self) -> tuple[ApiKey, ...]:
        """Return all keys, oldest first; none when there is no file."""
        return () if self.stamp() is None else self.read()

    def new(
        self,
        tenant: str,
        subject: str | None = None,
        scopes: Iterable[str] = ("*",),
        expires_at: datetime | None = None,
        label: str | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key and return it with its plain text, which exists only here. The subject defaults to the id."""
        key_id = "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_LENGTH))
        plaintext = f"{KEY_PREFIX}{key_id}_{secrets.token_urlsafe(SECRET_BYTES)}"
        record = ApiKey(
            id=key_id,
            hash=hash_key(plaintext),
            tenant=tenant,
            subject=key_id if subject is None else subject,
            scopes=frozenset(scopes),
            created_at=self._now(),
            expires_at=expires_at,
            label=label,
        )
        self.add(record)
        return record, plaintext

    def add(self, record: ApiKey) -> None:
        """Store a key; an id that is taken is a `ConfigError`."""
        with self._locked():
            records = self.list()
            if any(known.id == record.id for known in records):
                raise ConfigError(f"There is already an API key with the id '{record.id}'.", where=str(self.path))
            self._write([*records, record])

    def revoke(self, key_id: str) -> bool:
        """Remove a key for good; return False when there is none with that id. The file stays, even empty."""
        if self.stamp() is None:
            return False
        with self._locked():
            records = self.list()
            kept = [record for record in records if record.id != key_id]
            if len(kept) == len(records):
                return False
            self._write(kept)
        return True

    def stamp(self) -> Stamp | None:
        """Return what changes whenever the file does, or None when there is no file."""
        try:
            status = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unreadable(error) from error
        return status.st_mtime_ns, status.st_size, status.st_ino

    def read(self) -> tuple[ApiKey, ...]:
        """Return all keys; no file is a `ConfigError`, as is one that cannot be understood."""
        try:
            document = self._documents.validate_json(self.path.read_bytes())
        except OSError as error:
            raise self._unreadable(error) from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            raise self._broken(f"{key}: {first['msg']}" if key else first["msg"]) from None
        ids = [record.id for record in document["keys"]]
        if len(set(ids)) < len(ids):
            raise self._broken("two keys have the same id")
        return document["keys"]

    def _write(self, records: Iterable[ApiKey]) -> None:
        document = self._documents.dump_python({"version": 1, "keys": tuple(records)}, mode="json")
        for record in document["keys"]:
            record["scopes"].sort()
        try:
            descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}-")
            temporary = Path(name)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                    self._hand_over(stream.fileno())
                    stream.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
                    stream.flush()
                    os.fsync(stream.fileno())
                temporary.replace(self.path)
            finally:
                temporary.unlink(missing_ok=True)
            self._sync_directory()
        except OSError as error:
            raise self._unwritable(error) from error

    def _sync_directory(self) -> None:
        """Make the replacement itself survive a power cut."""
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.path.with_name(f"{self.path.name}.lock")
        with ExitStack() as stack:
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                stack.callback(os.close, descriptor)
                self._hand_over(descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError as error:
                raise self._unwritable(error) from error
            yield

    def _hand_over(self, descriptor: int) -> None:
        """Give what root creates to the owner of the directory, or a server run as that user could not read it."""
        if os.geteuid() == 0:
            owner = self.path.parent.stat()
            # A root without that right, as in many containers, runs the server as well.
            with suppress(PermissionError):
                os.fchown(descriptor, owner.st_uid, owner.st_gid)

    def _unreadable(self, error: OSError) -> ConfigError:
        reason = error.strerror or type(error).__name__
        return ConfigError(
            f"The file of API keys cannot be read ({reason}). Let the server's user read it.", where=str(self.path)
        )

    def _unwritable(self, error: OSError) -> ConfigError:
        reason = error.strerror or type(error).__name__
        return ConfigError(
            f"The file of API keys cannot be written ({reason}). Make its directory writable, or set 'auth.keys_file'.",
            where=str(self.path),
        )

    def _broken(self, problem: str) -> ConfigError:
        return ConfigError(
            f"The file of API keys is broken ({problem}). "
            "Restore it from a backup, or move it away and create new keys with 'antwort keys new'.",
            where=str(self.path),
        )


# --- authentication by key -------------------------------------------------------------------------------------------


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
    by_holder: dict[tuple[str, str], ApiKey]
    """All keys, by their tenant and their id."""

    @classmethod
    def of(cls, static: Sequence[ApiKey], kept: Sequence[ApiKey]) -> "_Index":
        by_hash = {record.hash: record for record in (*kept, *static)}
        by_holder = {(record.tenant, record.id): record for record in by_hash.values()}
        return cls({record.id: record for record in kept}, by_hash, by_holder)

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

    async def holder(self, tenant: str, key_id: str) -> Principal | None:
        """Return whom a key of a tenant stands for now, by its id; None if it was revoked or has expired."""
        await self._refresh()
        record = self._index.by_holder.get((tenant, key_id))
        return None if record is None or record.expired(self._now()) else record.principal()

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
