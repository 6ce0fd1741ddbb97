"""A machine with something to steal, and a server's functions on it, called as root or as an ordinary user."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from antwort.sandbox import delete_tree
from antwort.types import JSON

SECRET = "the-secret-that-no-code-may-see"
KINDS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
"""Who runs the server: root, and one who is not, which is all that others can test."""


@dataclass
class FunctionMachine:
    """A server's functions, and what lies outside of their folders."""

    folder: Path
    runner: "subprocess.Popen[str]"
    names: dict[str, str] = field(default_factory=dict)
    """What stands in the place of `@name@` in arguments."""
    count: int = 0

    @property
    def outside(self) -> Path:
        """A folder that all users of the machine can write to."""
        return self.folder / "outside"

    def call(self, name: str, conversation: str = "own", tenant: str = "t", **arguments: Any) -> tuple[str, str]:
        """Make a call; return its output and its status."""
        asked = {"name": name, "arguments": self.filled(arguments), "tenant": tenant, "conversation": conversation}
        assert self.runner.stdin is not None
        assert self.runner.stdout is not None
        self.runner.stdin.write(json.dumps(asked) + "\n")
        self.runner.stdin.flush()
        told = json.loads(self.runner.stdout.readline())
        return told["output"], told["status"]

    def filled(self, value: Any) -> Any:
        """Put what the names stand for in their places."""
        text = json.dumps(value)
        for name, stands_for in self.names.items():
            text = text.replace(f"@{name}@", stands_for)
        return json.loads(text)

    def check_unharmed(self) -> None:
        """Nothing outside has changed."""
        assert (self.outside / "secret.txt").read_text() == SECRET
        assert sorted(path.name for path in self.outside.iterdir()) == ["secret.txt"]


@contextlib.contextmanager
def function_machine(kind: str, providers: JSON) -> Iterator[FunctionMachine]:
    """Give a machine with a server that has some providers; everything is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="antwort-functions-"))
    folder.chmod(0o711)
    with contextlib.ExitStack() as stack:
        stack.callback(delete_tree, folder)
        outside, data = folder / "outside", folder / "data"
        outside.mkdir(mode=0o777)
        (outside / "secret.txt").write_text(SECRET)
        for path in (outside, outside / "secret.txt"):
            path.chmod(0o777)
        data.mkdir()
        program = Path(__file__).with_name("function_runner.py")
        runner = subprocess.Popen(
            [sys.executable, str(program), kind, str(data), json.dumps(providers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ANTWORT_TEST_SECRET": SECRET},
        )
        stack.callback(runner.communicate)
        stack.callback(runner.kill)
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n"
        yield FunctionMachine(folder, runner, {"outside": str(outside), "data": str(data), "pid": str(runner.pid)})
