"""Server-sent events, cut out of a stream of bytes wherever it was split."""

import msgspec

from antwort.backends.http.transport import SMALL, AnswerLimits


class EventSplitter:
    """Gives the data of each event. Names, ids and comments mean nothing here: what an event is, its data says.

    Whatever way an event is cut into reads and lines, it costs no more than it is long, and it ends at a limit.
    """

    __slots__ = ("_data", "_limits", "_lines", "_parts", "_size")

    def __init__(self, limits: AnswerLimits) -> None:
        self._limits = limits
        self._parts: list[bytes] = []
        self._size = 0
        self._data: bytes | None = None
        self._lines: bytearray | None = None
        """The data of an event that has several lines of it."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take what arrived and return the data of every event that is complete with it."""
        if self._data is None and self._size + len(chunk) <= SMALL:
            if (
                chunk.find(b"\n") == len(chunk) - 2
                and chunk[:6] == b"data: "
                and chunk[-1:] == b"\n"
                and not self._size
            ):
                return [chunk[6:-2]]  # one event, as most reads of a stream that is written as it is made
            events = self._plain_events(chunk)
            if events is not None:
                return events
        return self._feed_lines(chunk)

    def _feed_lines(self, chunk: bytes) -> list[bytes]:
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

    def _plain_events(self, chunk: bytes) -> list[bytes] | None:
        """Return the data of the events in small pieces that have one line each, as nearly all do; None if not all do.

        To look for a mark of eight bytes is many times quicker than to go through the lines.
        """
        end = chunk.rfind(b"\n\n")
        if end < 0:
            return None
        text = b"".join((*self._parts, chunk[:end]))
        if text[:6] != b"data: ":
            return None
        events = text[6:].split(b"\n\ndata: ")
        if b"\n" in b"".join(events):
            return None
        self._parts, self._size = [], 0
        rest = chunk[end + 2 :]
        return events + self._feed_lines(rest) if rest else events

    def end(self) -> list[bytes]:
        """Return the event that the end of the stream left without its blank line, if there is one and it is whole."""
        rest, self._parts = b"".join(self._parts), []
        return [event for event in self._events([rest, b""]) if not _is_cut_off(event)]

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if line[:5] == b"data:":
                if data is None:
                    data = line[5:]
                else:
                    self._add(data, line[5:])
            elif data is not None and line in {b"", b"\r"}:
                if self._lines is not None:
                    events += self._all_lines()
                else:
                    if len(data) > SMALL:
                        self._limits.check_values(data)
                    events.append(data.strip())
                data = None
        self._data = data
        return events

    def _keep(self, part: bytes) -> None:
        """Keep the beginning of a line. Parts are joined once, so a long line costs no more than it is long."""
        self._size += len(part)
        self._check(self._size)
        self._parts.append(part)

    def _add(self, data: bytes, value: bytes) -> None:
        """Add a line to an event that has some already."""
        lines = self._lines
        if lines is None:
            lines = self._lines = bytearray(data)
        self._check(len(lines) + len(value))
        lines += b"\n"
        lines += value

    def _all_lines(self) -> list[bytes]:
        data, self._lines = bytes(self._lines or b""), None
        self._limits.check_values(data)
        return _parted(data)

    def _check(self, size: int) -> None:
        limit = self._limits.event_bytes
        if size > limit:
            raise self._limits.excess(f"an event of more than {limit:,} bytes", "max_event_bytes")


def _parted(data: bytes) -> list[bytes]:
    """Return one event whose data has several lines; some servers leave out the blank lines between events."""
    return [data.strip()] if _is_json(data) else [line for line in map(bytes.strip, data.split(b"\n")) if line]


def _is_cut_off(event: bytes) -> bool:
    """Tell whether the end of a connection has come in the middle of an event; what is no JSON at all is whole."""
    begin = event.lstrip()[:1]
    return not begin or (begin == b"{" and not _is_json(event))


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
