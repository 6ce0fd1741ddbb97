"""What goes between a program in the sandbox and us: JSON behind its length. What comes may be the program's own."""

import asyncio
import struct
from typing import Annotated, Any, TypeAlias

import msgspec

from antwort.provider import LargeWork

LARGEST = 4 * 1024**2
"""Bytes of a call, and of all calls that are under way; a frame that ends a program has its names besides."""
_HEADER = struct.Struct(">I")
LARGE = 1 << 18
"""Bytes of a frame from which on it is read on a thread."""


class Ready(msgspec.Struct, frozen=True, tag_field="type", tag="ready", forbid_unknown_fields=True):
    """The program begins."""


class ProgramCall(msgspec.Struct, frozen=True, tag_field="type", tag="call", forbid_unknown_fields=True):
    """The program calls a function."""

    key: str
    """Which call it is, whenever the program runs."""
    name: str
    args: msgspec.Raw
    """As JSON, a list: to be read takes many times the memory of the text."""
    kwargs: msgspec.Raw
    references: list[str] = []
    """The ids of variables that are handed on in them."""


class Idle(msgspec.Struct, frozen=True, tag_field="type", tag="idle", forbid_unknown_fields=True):
    """The program does nothing for so many seconds, or until there is another result than those that it has seen."""

    seen: int
    seconds: Annotated[float, msgspec.Meta(ge=0)] | None


class End(msgspec.Struct, frozen=True, tag_field="type", tag="end", forbid_unknown_fields=True):
    """The program is over."""

    failed: bool
    text: str
    names: str
    """What it has defined, for the next one, in base 64; empty if that cannot be kept."""


Frame: TypeAlias = Ready | ProgramCall | Idle | End

_DECODER: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)
_ARGS: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[Any])
_KWARGS: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class BrokenError(Exception):
    """What came is no frame, or none that could come."""


class ProgramFrames:
    """Reads the frames of a program one by one: no more is held of them than one, of a limited size."""

    def __init__(self, stream: asyncio.StreamReader, work: LargeWork, *, most: int) -> None:
        self._stream = stream
        self._work = work
        self._most = most

    async def next(self) -> tuple[Frame, int] | None:
        """Return a frame and its size; None at the end of all, BrokenError if it is none."""
        try:
            (size,) = _HEADER.unpack(await self._stream.readexactly(_HEADER.size))
            if size > self._most:
                raise BrokenError(f"a frame of {size:,} bytes")
            data = await self._stream.readexactly(size)
        except asyncio.IncompleteReadError:
            return None
        try:
            return await self._work.run_if(size > LARGE, _DECODER.decode, data), size
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise BrokenError("what is no frame") from error


def arguments_of(call: ProgramCall) -> tuple[list[Any], dict[str, Any]]:
    """Return what a function is called with; BrokenError if that is none."""
    try:
        return _ARGS.decode(call.args), _KWARGS.decode(call.kwargs)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BrokenError("a call without arguments") from error


def encoded(frame: dict[str, Any]) -> bytes:
    """Return a frame for the program."""
    data = msgspec.json.encode(frame)
    return _HEADER.pack(len(data)) + data
