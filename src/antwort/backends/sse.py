"""Server-sent events, cut out of a stream of bytes wherever it was split."""

from antwort.backends.failures import BROKEN
from antwort.errors import BadGatewayError

__all__ = ["EventStream"]

MAX_EVENT = 32 * 1024 * 1024
"""Bytes of one event; whoever sends more is not a model server."""


class EventStream:
    """Gives the data of each event. Names, ids and comments mean nothing here: what an event is, its data says."""

    __slots__ = ("_backend", "_data", "_parts", "_size")

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._parts: list[bytes] = []
        self._size = 0
        self._data: bytes | None = None

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take what arrived and return the data of every event that is complete with it."""
        lines = chunk.split(b"\n")
        if len(lines) == 1:
            self._keep(chunk)
            return []
        if self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts = []
            self._size = 0
        if rest := lines.pop():
            self._keep(rest)
        return self._events(lines)

    def end(self) -> list[bytes]:
        """Return the event that the end of the stream left without its blank line, if there is one."""
        rest, self._parts = b"".join(self._parts), []
        return self._events([rest, b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events = []
        data = self._data
        for line in lines:
            if line[:5] == b"data:":
                value = line[5:]
                data = value if data is None else self._joined(data, value)
            elif data is not None and line in {b"", b"\r"}:
                events.append(data.strip())
                data = None
        self._data = data
        return events

    def _keep(self, part: bytes) -> None:
        """Keep the beginning of a line. Parts are joined once, so a long line costs no more than it is long."""
        self._size += len(part)
        self._check(self._size)
        self._parts.append(part)

    def _joined(self, data: bytes, value: bytes) -> bytes:
        self._check(len(data) + len(value))
        return data + b"\n" + value

    def _check(self, size: int) -> None:
        if size > MAX_EVENT:
            raise BadGatewayError(
                f"The backend '{self._backend}' sent an event of more than {MAX_EVENT:,} bytes.", code=BROKEN
            )
