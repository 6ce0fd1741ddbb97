"""Bytes of files in a bucket, of Amazon S3 or of a server that speaks its API.

A file is one object. One that came in parts is there when the last of them is; whoever breaks off takes back what was
sent. Only a process that is killed leaves parts behind, which nobody can see, and which a rule of the bucket removes.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store
from typing_extensions import override

from antwort.concurrency.undisturbed import undisturbed
from antwort.config import S3Config
from antwort.errors import ConfigError, NotFoundError, ServiceUnavailableError
from antwort.files.base import Blobs

if TYPE_CHECKING:  # what it is at run time nobody can import
    from obstore.store import S3Config as StoreConfig

logger = logging.getLogger(__name__)

_PIECE = 4 * 1024**2
"""Bytes that are read at once. Each is a request of its own: one for all of them would wait for slow readers."""
_PART = 8 * 1024**2
"""Bytes of a part; what has no more is sent in one request."""
_PARTS_AT_ONCE = 2
_TIMEOUT = timedelta(seconds=60)
"""Time for one request, of a part at most."""
_RETRIES, _PATIENCE = 4, timedelta(seconds=20)
"""Tries after a failure that may pass, and the time after which there is none."""


class S3Blobs(Blobs):
    """Keeps each blob as an object of a bucket. ConfigError if the settings make no sense."""

    def __init__(self, settings: S3Config) -> None:
        config: StoreConfig = {"disable_bulk_delete": True}  # not every server has it, and one by one is deleted
        if settings.endpoint is not None:
            config["endpoint"] = settings.endpoint
        if settings.region is not None:
            config["region"] = settings.region
        try:
            self._store = S3Store(
                settings.bucket,
                prefix=settings.prefix.strip("/") or None,
                config=config,
                client_options={"timeout": _TIMEOUT, "allow_http": (settings.endpoint or "").startswith("http:")},
                retry_config={"max_retries": _RETRIES, "retry_timeout": _PATIENCE},
            )
        except (BaseError, ValueError) as error:
            raise ConfigError(f"the bucket cannot be used: {_first_line(error)}", where="storage.s3") from error

    @classmethod
    def of(cls, settings: S3Config, folder: Path) -> Self:  # noqa: ARG003 - nothing of it is on disk
        """Make it as the settings say."""
        return cls(settings)

    @override
    async def write(self, name: str, chunks: AsyncIterable[bytes]) -> None:
        coming = aiter(chunks)
        begun = bytearray()
        async for chunk in coming:
            begun += chunk
            if len(begun) > _PART:
                await self._write_in_parts(name, bytes(begun), coming)
                return
        await undisturbed(self._send(name, bytes(begun)))

    @override
    async def read(self, name: str, offset: int, length: int) -> AsyncIterator[bytes]:
        with _own_errors():
            if length <= 0:
                await obstore.head_async(self._store, name)
            for start in range(offset, offset + length, _PIECE):
                size = min(_PIECE, offset + length - start)
                yield bytes(await obstore.get_range_async(self._store, name, start=start, length=size))

    @override
    async def delete(self, name: str) -> None:
        with contextlib.suppress(NotFoundError), _own_errors():
            await undisturbed(obstore.delete_async(self._store, name))

    @override
    async def close(self) -> None:
        """There is nothing to give back."""

    async def _write_in_parts(self, name: str, begun: bytes, coming: AsyncIterator[bytes]) -> None:
        relay = _Relay(begun)
        sending = asyncio.ensure_future(self._send(name, relay))
        sending.add_done_callback(relay.leave)
        try:
            async for chunk in coming:
                if not await relay.give(chunk):
                    break
        except BaseException:
            relay.break_off()
            with contextlib.suppress(Exception):  # what broke it off is what is raised
                await undisturbed(sending)
            raise
        relay.end()
        await undisturbed(sending)

    async def _send(self, name: str, content: "bytes | _Relay") -> None:
        try:
            with _own_errors():
                await obstore.put_async(self._store, name, content, chunk_size=_PART, max_concurrency=_PARTS_AT_ONCE)
        except NotFoundError as error:  # nothing was to be there yet: it is the bucket that is not found
            raise ServiceUnavailableError("The bucket that has the files fails: it is not found.") from error


class _BrokenOffError(Exception):
    """What was being sent is not wanted any more."""


class _Relay(AsyncIterator[bytes]):
    """Hands pieces over, one at a time, from the task that gets them to the upload that takes them.

    An upload that is cancelled would leave its parts behind; one whose pieces end with an error takes them back.
    """

    def __init__(self, first: bytes) -> None:
        self._piece: bytes | None = first
        self._filled = asyncio.Event()
        self._filled.set()
        self._emptied = asyncio.Event()
        self._ended = self._broken = self._left = False

    async def give(self, piece: bytes) -> bool:
        """Leave a piece when the one before is taken; return False if nobody takes any more."""
        await self._emptied.wait()
        if self._left:
            return False
        self._piece = piece
        self._emptied.clear()
        self._filled.set()
        return True

    def end(self) -> None:
        """Say that no more comes."""
        self._ended = True
        self._filled.set()

    def break_off(self) -> None:
        """Say that what was given is not wanted any more."""
        self._broken = True
        self.end()

    def leave(self, _upload: object) -> None:
        """Say that nobody takes any more."""
        self._left = True
        self._emptied.set()

    @override
    async def __anext__(self) -> bytes:
        await self._filled.wait()
        if self._broken:
            raise _BrokenOffError
        if self._piece is None:
            raise StopAsyncIteration
        piece, self._piece = self._piece, None
        if not self._ended:
            self._filled.clear()
        self._emptied.set()
        return piece


@contextlib.contextmanager
def _own_errors() -> Iterator[None]:
    """Turn what goes wrong into errors of ours. What the server said is for the log: it has addresses and names."""
    try:
        yield
    except FileNotFoundError as error:
        if "NoSuchBucket" not in str(error):
            raise NotFoundError("The content of the file is gone.") from None
        raise _unavailable("there is no such bucket", error) from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise _unavailable("it refuses the server's credentials", error) from error
    except BaseError as error:
        raise _unavailable("it does not answer as it should", error) from error


def _unavailable(reason: str, error: Exception) -> ServiceUnavailableError:
    logger.error("the bucket that has the files fails: %s", _first_line(error))
    return ServiceUnavailableError(f"The bucket that has the files fails: {reason}.")


def _first_line(error: Exception) -> str:
    """Return what an error says; below that, the package shows its insides."""
    return str(error).partition("\n")[0].strip()
