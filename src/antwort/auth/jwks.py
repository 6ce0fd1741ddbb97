"""The public keys of a token issuer, cached."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jwt

from antwort.auth.sources import KeysUnavailableError, Source
from antwort.errors import ServiceUnavailableError

__all__ = ["KeySet"]

logger = logging.getLogger(__name__)

RETRY_INTERVAL = 10.0
"""Seconds between two attempts to load keys, however many tokens with unknown keys arrive."""

PUBLIC_KEY_TYPES = ("RSA", "EC", "OKP")
"""The set is public: a symmetric key in it would let everybody sign."""


class KeySet:
    """The keys of one issuer: loaded when first needed, after `refresh` seconds, and when a token names an unknown one.

    Requests that come together share one load. When loading fails, the keys of before stay in force.
    """

    def __init__(
        self,
        source: Source,
        algorithms: Sequence[str],
        *,
        refresh: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._algorithms = tuple(algorithms)
        self._refresh = refresh
        self._clock = clock
        self._keys: tuple[jwt.PyJWK, ...] = ()
        self._loaded: float | None = None
        self._tried: float | None = None
        self._problem: str | None = None
        self._loading: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Load the keys now, blocking; raise `KeysUnavailableError` when that fails."""
        self._adopt(self._read())

    async def find(self, key_id: str | None, algorithm: str) -> list[jwt.PyJWK]:
        """Return the keys that may have signed a token; without an id, every key of the algorithm.

        Raise `ServiceUnavailableError` while no key is known at all.
        """
        if self._loaded is None or self._clock() - self._loaded >= self._refresh:
            # An issuer that failed last time must not slow down requests that the known keys can serve.
            await self._update(wait=self._problem is None or not self._match(key_id, algorithm))
        if not self._match(key_id, algorithm):
            await self._update(wait=True)
        if not self._keys:
            raise ServiceUnavailableError(
                f"The token cannot be verified because the issuer's keys are not available: {self._problem}.",
                headers={"retry-after": f"{RETRY_INTERVAL:.0f}"},
            )
        return self._match(key_id, algorithm)

    async def close(self) -> None:
        """Give up a load that is under way."""
        if (loading := self._loading) is not None:
            loading.cancel()
            await asyncio.wait([loading])

    def _match(self, key_id: str | None, algorithm: str) -> list[jwt.PyJWK]:
        fitting = [key for key in self._keys if key.algorithm_name == algorithm]
        return [key for key in fitting if key_id is None or key.key_id in (None, key_id)]

    async def _update(self, *, wait: bool) -> None:
        if self._loading is None:
            now = self._clock()
            if self._tried is not None and now - self._tried < RETRY_INTERVAL:
                return
            self._tried = now
            self._loading = asyncio.create_task(self._load())
        if wait:
            # Shielded: the client that caused the load may hang up while others wait for the same one.
            await asyncio.shield(self._loading)

    async def _load(self) -> None:
        try:
            self._adopt(await asyncio.to_thread(self._read))
        except KeysUnavailableError as error:
            self._problem = error.problem
            effect = "the keys of before stay in force" if self._keys else "no token can be verified"
            logger.error("Cannot load the keys of a token issuer, so %s: %s.", effect, error)  # noqa: TRY400
        finally:
            self._loading = None

    def _read(self) -> tuple[jwt.PyJWK, ...]:
        keys = tuple(_usable(self._source(), self._algorithms))
        if not keys:
            raise KeysUnavailableError(f"no key is usable for {', '.join(self._algorithms)}", "the key set")
        return keys

    def _adopt(self, keys: tuple[jwt.PyJWK, ...]) -> None:
        self._keys, self._loaded, self._problem = keys, self._clock(), None


def _usable(document: Mapping[str, Any], algorithms: Sequence[str]) -> Iterator[jwt.PyJWK]:
    """Yield each key once for every algorithm it may verify; skip the others, as RFC 7517 asks."""
    entries = document.get("keys")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or entry.get("kty") not in PUBLIC_KEY_TYPES or entry.get("use") == "enc":
            continue
        for algorithm in algorithms:
            if entry.get("alg", algorithm) != algorithm:
                continue
            try:
                yield jwt.PyJWK(entry, algorithm)
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                logger.debug("A key in the set is not one for %s.", algorithm)
