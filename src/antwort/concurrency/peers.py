"""The workers of one server, as one of them sees them: short letters to the others, and questions to them.

Letters make quick what would come out anyway, for nobody waits for room in a mailbox: one that is full takes no more.
"""

import array
import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

logger = logging.getLogger(__name__)

_LONGEST = 32 * 1024
"""Bytes of a letter: more than a header may have, and so any name that comes with a request."""
_PATIENCE = 2.0
"""Seconds that others have to answer a question."""
_END = b"\0"
_NOT_INHERITED = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""Python makes no descriptor that programs inherit, but for those that come in a letter."""


class Letters(Protocol):
    """Short letters between workers. Any of them may be lost."""

    def tell(self, kind: str, text: str) -> None:
        """Send a letter to all others."""

    def hear(self, kind: str, listener: Callable[[str], None]) -> None:
        """Have letters of a kind read by somebody."""


class Mailbox:
    """Where a worker finds its letters. It is made before the processes are, and outlives those that die."""

    def __init__(self) -> None:
        self.slot, self.inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.slot.setblocking(False)
        self.inside.setblocking(False)

    def close(self) -> None:
        """Let nobody write to it, or read from it, any more."""
        self.slot.close()
        self.inside.close()


class Peers:
    """All workers of a server, of which this process is number `number`. Without mailboxes it is the only one.

    `server` is a word that they have in common with each other, and with no worker of another server.
    """

    def __init__(self, number: int = 0, mailboxes: Sequence[Mailbox] = (), server: str = "") -> None:
        self.number = number
        self.server = server or secrets.token_hex(6)
        self.count = max(1, len(mailboxes))
        self._own = mailboxes[number].inside if mailboxes else None
        self._others = {other: box.slot for other, box in enumerate(mailboxes) if other != number}
        self._listeners: dict[bytes, Callable[[str], None]] = {}
        self._answers: dict[bytes, Callable[[], bytes]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    # --- saying ------------------------------------------------------------------------------------------------------

    def tell(self, kind: str, text: str) -> None:
        """Send a letter to all others."""
        for slot in self._others.values():
            with contextlib.suppress(OSError):  # it has letters enough, or is about to end
                slot.send(kind.encode() + _END + text.encode())

    async def ask(self, kind: str) -> dict[int, bytes]:
        """Ask all others; return what those say who answer in time, by their numbers."""
        answers = await asyncio.gather(*(self._ask(slot, kind) for slot in self._others.values()))
        return {number: answer for number, answer in zip(self._others, answers, strict=True) if answer}

    async def _ask(self, slot: socket.socket, kind: str) -> bytes:
        """Send the question with one end of a new connection, to which the answer is written."""
        here, there = socket.socketpair()
        here.setblocking(False)
        with there:
            try:
                socket.send_fds(slot, [kind.encode() + _END], [there.fileno()])
            except OSError:
                here.close()
                return b""
        reader, writer = await asyncio.open_unix_connection(sock=here)
        try:
            async with asyncio.timeout(_PATIENCE):
                return await reader.read()
        except (TimeoutError, OSError):
            return b""
        finally:
            writer.close()

    # --- hearing -----------------------------------------------------------------------------------------------------

    def hear(self, kind: str, listener: Callable[[str], None]) -> None:
        """Have letters of a kind read by somebody."""
        self._listeners[kind.encode()] = listener

    def answer(self, kind: str, make: Callable[[], bytes]) -> None:
        """Have questions of a kind answered."""
        self._answers[kind.encode()] = make

    def open(self) -> None:
        """Begin to read letters, on the running loop."""
        if self._own is not None:
            asyncio.get_running_loop().add_reader(self._own.fileno(), self._empty)

    def close(self) -> None:
        """Read no more letters."""
        if self._own is not None:
            asyncio.get_running_loop().remove_reader(self._own.fileno())
        for task in self._answering:
            task.cancel()

    def _empty(self) -> None:
        """Read all letters there are."""
        assert self._own is not None, "letters come to a mailbox"  # noqa: S101 - for the type checker
        size = array.array("i").itemsize
        while True:
            try:
                data, extra, _, _ = self._own.recvmsg(_LONGEST, socket.CMSG_SPACE(size), _NOT_INHERITED)
            except (BlockingIOError, InterruptedError):
                return
            handles = array.array("i")
            for _, _, numbers in extra:
                handles.frombytes(numbers[: len(numbers) - len(numbers) % size])
            kind, _, text = data.partition(_END)
            if handles:
                self._reply(kind, handles[0])
            elif kind in self._listeners:
                self._listeners[kind](text.decode(errors="replace"))

    def _reply(self, kind: bytes, handle: int) -> None:
        if kind not in self._answers:
            os.close(handle)
            return
        task = asyncio.get_running_loop().create_task(_write(socket.socket(fileno=handle), self._answers[kind]))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)


async def _write(sock: socket.socket, make: Callable[[], bytes]) -> None:
    """Write an answer; whoever asked may have left."""
    sock.setblocking(False)
    _, writer = await asyncio.open_unix_connection(sock=sock)
    try:
        writer.write(make())
        await writer.drain()
    except OSError:
        return
    except Exception:
        logger.exception("a question of another worker could not be answered")
    finally:
        writer.close()
