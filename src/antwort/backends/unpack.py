"""Undoing the compression of servers that compress unasked: a piece at a time, for a little may become very much."""

import zlib
from collections.abc import Mapping

__all__ = ["Unpacker"]

MAX_PIECE = 256 * 1024
"""Bytes that are unpacked at a time."""


class Unpacker:
    """Unpacks one body. What is left of it for the next piece is its `rest`."""

    __slots__ = ("_inflate", "rest")

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self.rest = b""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Unpacker | None":
        """Return one for an answer that is compressed."""
        packed = headers.get("content-encoding", "identity").strip().lower() in {"gzip", "deflate", "x-gzip"}
        return cls() if packed else None

    def piece(self, data: bytes) -> bytes:
        """Return the next piece of what follows; a ValueError if it is not what it says."""
        try:
            plain = self._inflate.decompress(data, MAX_PIECE)
        except zlib.error as error:
            raise ValueError(str(error)) from None
        self.rest = self._inflate.unconsumed_tail
        return plain
