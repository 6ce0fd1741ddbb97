"""Programs in terminals."""

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

PATIENCE = 60.0


@contextlib.contextmanager
def hangups(*, ignored: bool) -> Iterator[None]:
    """Let programs that are started meanwhile end by a hangup, or ignore it, as `nohup` has them do."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *arguments: str, kind: str = "dumb") -> None:
        self._ours, theirs = pty.openpty()
        environ = {**os.environ, "TERM": kind, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "antwort", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environ
        )
        os.close(theirs)
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal that ends the program."""
        self.process.send_signal(number)

    def until(self, text: str) -> str:
        """Return what appears until a text has, that included."""
        while text not in self._seen:
            piece = self._read()
            assert piece, f"{text!r} did not appear: {self._seen!r}"
            self._seen += piece
        seen, _, self._seen = self._seen.partition(text)
        return seen + text

    def rest(self) -> str:
        """Return what appears until the program is over."""
        while piece := self._read():
            self._seen += piece
        self.process.wait(timeout=PATIENCE)
        return self._seen

    def _read(self) -> str:
        ready, _, _ = select.select([self._ours], [], [], PATIENCE)
        assert ready, f"nothing came after {self._seen!r}"
        try:
            return os.read(self._ours, 4096).decode().replace("\r\n", "\n")
        except OSError:  # how Linux says that nobody has the other side any more
            return ""

    def close(self) -> None:
        """End the program, which removes what it kept meanwhile, if it is not over yet."""
        try:
            self.signal(signal.SIGTERM)
            self.process.wait(timeout=PATIENCE)
        finally:
            self.process.kill()
            os.close(self._ours)
