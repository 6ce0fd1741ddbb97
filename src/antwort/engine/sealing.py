"""Sealing: what is carried or kept for us elsewhere, and nobody can change, nor another tenant use."""

import base64
import binascii
import contextlib
import functools
import hmac
import os
import secrets
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from antwort.errors import ConfigError
from antwort.lazy_imports import imported_on_use

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.ciphers import aead
    from cryptography.hazmat.primitives.kdf import hkdf
else:  # most servers never seal anything, and these take seven megabytes
    exceptions = imported_on_use("cryptography.exceptions")
    hashes = imported_on_use("cryptography.hazmat.primitives.hashes")
    aead = imported_on_use("cryptography.hazmat.primitives.ciphers.aead")
    hkdf = imported_on_use("cryptography.hazmat.primitives.kdf.hkdf")

PREFIX = "aw1."
_NONCE = 12
_NAME = 4
_SIGNATURE = 32
_LARGEST = 64 * 1024 * 1024
"""What a seal may hold, unpacked: a small text that unpacks to a huge one is refused."""


class SealError(ValueError):
    """A text that was not sealed here: for another purpose or tenant, with a key we do not have, or altered."""


class Sealer:
    """Seals with the first secret and opens with all of them, so that secrets can be replaced.

    What is sealed is compressed, encrypted and authenticated (AES-256-GCM), bound to a purpose and a tenant. The
    secrets are asked for when they are needed first: a server that never seals anything has no need of one.
    """

    def __init__(self, keys: Callable[[], Sequence[str]]) -> None:
        self._keys = keys

    @functools.cached_property
    def _ciphers(self) -> "list[tuple[bytes, aead.AESGCM]]":
        return [_cipher(key) for key in self._keys()]

    def seal(self, purpose: str, tenant: str, text: str) -> str:
        """Seal a text."""
        name, cipher = self._ciphers[0]
        nonce = secrets.token_bytes(_NONCE)
        sealed = cipher.encrypt(nonce, zlib.compress(text.encode()), _bound_to(purpose, tenant))
        return PREFIX + base64.urlsafe_b64encode(name + nonce + sealed).decode()

    def unseal(self, purpose: str, tenant: str, sealed: str) -> str:
        """Return the text that was sealed; SealError if it was not, or not so."""
        data = _data(sealed)
        if data is None:
            raise SealError("it is damaged")
        name, nonce, content = data[:_NAME], data[_NAME : _NAME + _NONCE], data[_NAME + _NONCE :]
        for known, cipher in self._ciphers:
            if known == name:
                return _opened(cipher, nonce, content, _bound_to(purpose, tenant))
        raise SealError("it was made with a key that this server does not have")

    def sign(self, purpose: str, tenant: str, data: bytes) -> bytes:
        """Return data with a signature in front (HMAC-SHA256), bound to a purpose and a tenant."""
        return _signature(self._signing_keys[0], purpose, tenant, data) + data

    def verify(self, purpose: str, tenant: str, signed: bytes) -> bytes:
        """Return data that was signed so; SealError if it was not."""
        signature, data = signed[:_SIGNATURE], signed[_SIGNATURE:]
        for key in self._signing_keys:
            if hmac.compare_digest(_signature(key, purpose, tenant, data), signature):
                return data
        raise SealError("it was altered, or belongs to somebody else")

    @functools.cached_property
    def _signing_keys(self) -> list[bytes]:
        return [hmac.digest(key.encode(), b"antwort signing 1", "sha256") for key in self._keys()]

    def knows(self, text: str) -> bool:
        """Tell whether a text was sealed with one of our keys; others' are left to those who made them."""
        data = _data(text) if text.startswith(PREFIX) else None
        return data is not None and any(data[:_NAME] == name for name, _ in self._ciphers)


def key_of(configured: str | None, file: Path) -> str:
    """Return the configured secret, or the one in a file, which is created if it is not there. This blocks."""
    if configured is not None:
        return configured
    try:
        return _read(file) if file.exists() else _create(file)
    except OSError as error:
        raise ConfigError(f"The key for encryption cannot be kept: {error.strerror}", where=str(file)) from error


def _read(file: Path) -> str:
    key = file.read_text(encoding="ascii", errors="replace").strip()
    if len(key) < 32:
        raise ConfigError(
            "The key for encryption is damaged: it must have at least 32 characters. Restore it from a backup; without "
            "it, what was encrypted is lost. A deleted file is replaced by a new key.",
            where=str(file),
        )
    return key


def _create(file: Path) -> str:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = file.with_name(f"{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    own.touch(mode=0o600, exist_ok=False)
    try:
        own.write_text(secrets.token_urlsafe(48), encoding="ascii")
        with contextlib.suppress(FileExistsError):  # of several processes that start at once, one wins
            os.link(own, file)
        return _read(file)
    finally:
        own.unlink()


def _data(sealed: str) -> bytes | None:
    try:
        return base64.b64decode(sealed.removeprefix(PREFIX), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None


def _cipher(key: str) -> "tuple[bytes, aead.AESGCM]":
    """Return the public name of a key, which tells nothing about it, and its cipher."""
    derived = hkdf.HKDF(hashes.SHA256(), 32 + _NAME, salt=None, info=b"antwort sealing 1").derive(key.encode())
    return derived[32:], aead.AESGCM(derived[:32])


def _signature(key: bytes, purpose: str, tenant: str, data: bytes) -> bytes:
    bound = _bound_to(purpose, tenant)
    return hmac.digest(key, len(bound).to_bytes(4, "big") + bound + data, "sha256")


def _bound_to(purpose: str, tenant: str) -> bytes:
    return f"{len(purpose)}:{purpose}:{tenant}".encode()


def _opened(cipher: "aead.AESGCM", nonce: bytes, content: bytes, bound: bytes) -> str:
    try:
        packed = cipher.decrypt(nonce, content, bound)
    except (exceptions.InvalidTag, ValueError):
        raise SealError("it was altered, or belongs to somebody else") from None
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(packed, _LARGEST)
    if unpacker.unconsumed_tail:
        raise SealError("it is too large")
    return text.decode()
