"""A machine with something to steal or to break, and somebody who runs commands in the sandbox on it."""

import base64
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from antwort.sandbox import Finished
from antwort.sandbox.usage import is_stopped

SECRET = "the-secret-that-nobody-in-a-sandbox-may-see"
KINDS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
"""Who runs the sandbox: a server that is root, and one that is not, which is all that others can test."""


@dataclass
class Machine:
    """What there is outside of the sandbox, and a runner of one kind that puts commands into it."""

    folder: Path
    places: dict[str, str]
    runner: "subprocess.Popen[str]"
    victim: "subprocess.Popen[bytes]"
    listeners: list[socket.socket] = field(default_factory=list)

    def run(self, command: list[str], own: str | None = None, **limits: Any) -> Finished:
        """Run a command in a folder of its own, or one that was used before."""
        told = self._ask(command, own, limits)
        stdout, stderr = (base64.b64decode(told[name]) for name in ("stdout", "stderr"))
        return Finished(told["ending"], told["exit_code"], stdout, stderr, 0.0)

    def pause(self, command: list[str], **limits: Any) -> dict[str, Any]:
        """Start a command, pause it when it says that it is ready, and return what went on then."""
        return self._ask(command, None, limits, pause=True)

    def _ask(
        self, command: list[str], own: str | None, limits: dict[str, Any], *, pause: bool = False
    ) -> dict[str, Any]:
        filled = [self.filled(part) for part in command]
        asked = {"command": filled, "folder": own or f"w{secrets.token_hex(4)}", "limits": limits, "pause": pause}
        assert self.runner.stdin is not None
        assert self.runner.stdout is not None
        self.runner.stdin.write(json.dumps(asked) + "\n")
        self.runner.stdin.flush()
        told: dict[str, Any] = json.loads(self.runner.stdout.readline())
        assert "error" not in told, told
        return told

    def filled(self, text: str) -> str:
        """Return a text with what is outside in the place of its names, as in `@database@`."""
        for name, value in self.places.items():
            text = text.replace(f"@{name}@", value)
        return text

    def check_unharmed(self) -> None:
        """Nothing outside has changed, and nobody has called."""
        assert self.victim.poll() is None, "a process outside was ended"
        assert not is_stopped(self.victim.pid), "a process outside was stopped"
        assert os.getpriority(os.PRIO_PROCESS, self.victim.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        for name in ("database", "key", "other"):
            assert SECRET in Path(self.places[name]).read_text()
        for listener in self.listeners:
            with contextlib.suppress(BlockingIOError):
                listener.accept()
                raise AssertionError(f"somebody came to {listener.getsockname()!r}")


def _listening(family: int, address: Any) -> socket.socket:
    listener = socket.socket(family)
    listener.bind(address)
    listener.listen()
    listener.setblocking(False)
    return listener


@contextlib.contextmanager
def machine(kind: str) -> Iterator[Machine]:
    """Give a machine with a runner; everything is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="antwort-sandbox-"))
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: subprocess.run(["rm", "-rf", folder], check=True))  # some is too deep for Python
        data = folder / "data"
        data.mkdir(mode=0o700)
        (data / "w0").mkdir()
        places = {"folder": str(data), "database": str(data / "antwort.db"), "key": str(data / "encryption.key")}
        places |= {"other": str(data / "w0" / "notes.txt"), "socket": str(data / "socket")}
        for name in ("database", "key", "other"):
            Path(places[name]).write_text(SECRET)
        places["mark"] = f"600.{secrets.randbelow(10**9):09}"  # a time to sleep by which a process is found
        abstract = f"antwort-{secrets.token_hex(4)}"
        listeners = [
            stack.enter_context(_listening(socket.AF_INET, ("127.0.0.1", 0))),
            stack.enter_context(_listening(socket.AF_UNIX, f"\0{abstract}")),
            stack.enter_context(_listening(socket.AF_UNIX, places["socket"])),
        ]
        places |= {"port": str(listeners[0].getsockname()[1]), "abstract": abstract}
        if kind.startswith("ordinary"):
            folder.chmod(0o711)
        runner = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("runner.py")), kind, str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ANTWORT_TEST_SECRET": SECRET},
        )
        stack.callback(_end, runner)
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n"
        victim = subprocess.Popen(
            ["sleep", "600"], user=65534 if kind.startswith("ordinary") and os.geteuid() == 0 else None
        )
        stack.callback(_end, victim)
        yield Machine(data, {**places, "victim": str(victim.pid)}, runner, victim, listeners)


def _end(process: "subprocess.Popen[Any]") -> None:
    process.kill()
    process.communicate()
