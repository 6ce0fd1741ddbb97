"""Events as bytes. Whoever sends them decides how they are framed."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

encode = msgspec.json.Encoder().encode


class EventSink(Protocol):
    """Takes the events of one response, in order."""

    @property
    def started(self) -> bool:
        """Tell whether anything has been sent."""

    def put(self, kind: str, data: bytes) -> None:
        """Take an event: its type and its JSON."""

    async def flush(self) -> None:
        """Send what was taken; wait while the reader is slow."""


class Events:
    """Numbers events and writes them as JSON; without a sink it does nothing."""

    __slots__ = ("_put", "sequence")

    def __init__(self, put: Callable[[str, bytes], None] | None, sequence: int = 0) -> None:
        self._put = put
        self.sequence = sequence

    @property
    def enabled(self) -> bool:
        """Tell whether anybody listens."""
        return self._put is not None

    def emit(self, kind: str, **fields: Any) -> None:
        """Send an event."""
        if self._put is not None:
            self._put(kind, encode({"type": kind, "sequence_number": self.sequence, **fields}))
            self.sequence += 1

    def delta(self, kind: str, middle: bytes, delta: str, end: bytes) -> None:
        """Send a delta whose other fields are written already: the hot path."""
        if self._put is not None:
            number = b"%d" % self.sequence
            self._put(kind, b"".join((_HEADS[kind], number, middle, encode(delta), end)))
            self.sequence += 1


_HEADS = {
    kind: b'{"type":"%s","sequence_number":' % kind.encode()
    for kind in (
        "response.output_text.delta",
        "response.reasoning_text.delta",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
    )
}
