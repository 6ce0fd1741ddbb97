"""Ends of pipes, read and written by the event loop. Each descriptor has one owner, which alone closes it, once.

A number that is closed twice is somebody else's the second time: that of a connection, whose client then reads what is
meant for another. The loops' own transports for pipes are not used, because they do not agree on who closes: asyncio
leaves it to the file that it was given, uvloop closes the number itself and the file once more. So

- what opens a pipe has both numbers until it hands one over, or closes it;
- an end made here has its number from the moment that it is given it, also if it cannot be made; it stops to wait for
  it and then closes it, on the thread of the loop: at the end of what there is to read, when the other end breaks, or
  when it is told to;
- files for `subprocess` are numbers, never its own pipes: whatever starts a program has both ends of each.
"""

import asyncio
import os

from typing_extensions import override

_PIECE = 1 << 16
"""Bytes that are read at once: as many as a pipe holds."""
_HIGH = 1 << 16
"""Bytes that may wait to be written before whoever writes them has to wait."""


class _End:
    """A descriptor that is waited for by the running loop."""

    def __init__(self, descriptor: int, protocol: asyncio.BaseProtocol) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._protocol = protocol

    def _give_back(self) -> bool:
        """Close the descriptor; False if that was done already."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return False
        self._loop.remove_reader(descriptor)  # first: closed, the number may be another's at once
        self._loop.remove_writer(descriptor)
        os.close(descriptor)
        return True

    def _end(self, error: OSError | None) -> None:
        if self._give_back():
            self._loop.call_soon(self._protocol.connection_lost, error)


class ReadingEnd(_End, asyncio.ReadTransport):
    """The end of a pipe from which is read; a protocol gets what comes. It is over when there is nothing more."""

    def __init__(self, descriptor: int, protocol: asyncio.Protocol) -> None:
        asyncio.ReadTransport.__init__(self)
        _End.__init__(self, descriptor, protocol)
        self._receiver = protocol
        self._reading = False
        try:
            os.set_blocking(descriptor, False)
            protocol.connection_made(self)
            self.resume_reading()
        except BaseException:
            self._give_back()
            raise

    @override
    def is_closing(self) -> bool:
        return self._descriptor < 0

    @override
    def is_reading(self) -> bool:
        return self._reading and not self.is_closing()

    @override
    def pause_reading(self) -> None:
        if self.is_reading():
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    @override
    def resume_reading(self) -> None:
        if not self._reading and not self.is_closing():
            self._loop.add_reader(self._descriptor, self._read)
            self._reading = True

    @override
    def close(self) -> None:
        self._end(None)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _PIECE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)
            return
        if data:
            self._receiver.data_received(data)
        else:
            self._receiver.eof_received()
            self._end(None)


class WritingEnd(_End, asyncio.WriteTransport):
    """The end of a pipe to which is written. Nothing is written any more once nobody reads."""

    def __init__(self, descriptor: int, protocol: asyncio.BaseProtocol) -> None:
        asyncio.WriteTransport.__init__(self)
        _End.__init__(self, descriptor, protocol)
        self._waiting = bytearray()
        self._closing = self._paused = False
        try:
            os.set_blocking(descriptor, False)
            protocol.connection_made(self)
        except BaseException:
            self._give_back()
            raise

    @override
    def is_closing(self) -> bool:
        return self._closing or self._descriptor < 0

    @override
    def get_write_buffer_size(self) -> int:
        return len(self._waiting)

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_closing():
            return
        if self._waiting:
            self._waiting += data
        elif (taken := self._taken(data)) < len(data) and not self.is_closing():
            self._waiting += memoryview(data)[taken:]
            self._loop.add_writer(self._descriptor, self._write)
        if len(self._waiting) > _HIGH and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    @override
    def can_write_eof(self) -> bool:
        return True

    @override
    def write_eof(self) -> None:
        self.close()

    @override
    def close(self) -> None:
        """Let whoever reads be at the end after what was written."""
        self._closing = True
        if not self._waiting:
            self._end(None)

    @override
    def abort(self) -> None:
        self._waiting.clear()
        self._end(None)

    def _write(self) -> None:
        del self._waiting[: self._taken(self._waiting)]
        if self._descriptor < 0:  # nobody reads any more
            return
        if not self._waiting:
            self._loop.remove_writer(self._descriptor)
            if self._closing:
                self._end(None)
        if self._paused and len(self._waiting) <= _HIGH // 4:
            self._paused = False
            self._protocol.resume_writing()

    def _taken(self, data: bytes | bytearray | memoryview) -> int:
        """Write what the pipe takes, and return how much that was."""
        try:
            return os.write(self._descriptor, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._waiting.clear()
            self._end(error)
            return 0


def reader_of(descriptor: int) -> tuple[asyncio.StreamReader, ReadingEnd]:
    """Take the end of a pipe; return what reads from it, and what closes it."""
    reader = asyncio.StreamReader()
    return reader, ReadingEnd(descriptor, asyncio.StreamReaderProtocol(reader))


def writer_of(descriptor: int) -> asyncio.StreamWriter:
    """Take the end of a pipe; return what writes to it."""
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    return asyncio.StreamWriter(WritingEnd(descriptor, protocol), protocol, None, asyncio.get_running_loop())
