"""Virtual environments in which packages are installed as their users would install them."""

import contextlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Environment:
    """A virtual environment that also has everything the one around it has, antwort included."""

    python: Path
    work: Path
    """The folder commands run in."""

    def install(self, package: Path) -> None:
        """Install a package with pip, from its folder, without looking elsewhere for anything."""
        options = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "install", *options, str(package)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, *arguments: str) -> str:
        """Run Python to a good end and return what it printed."""
        command = [str(self.python), *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.work, env=_environ())
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def antwort(self, *arguments: str) -> str:
        """Run the installed command to a good end and return what it printed."""
        return self.run(_script(), *arguments)

    @contextlib.contextmanager
    def serving(self, *arguments: str) -> Iterator[str]:
        """Run `antwort serve` on a free port and yield its URL."""
        command = [str(self.python), _script(), "serve", "--port", "0", *arguments]
        with (
            (self.work / "serve.log").open("w+") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.work, env=_environ()
            ) as process,
        ):
            try:
                assert process.stdout is not None
                urls = (line.split()[-1] for line in process.stdout if line.startswith("Listening on "))
                url = next(urls, None)
                assert url is not None, Path(log.name).read_text()
                yield url
            finally:
                process.terminate()


def _script() -> str:
    """Return the command as it was installed; run by another environment's Python, it sees what that one has."""
    return str(Path(sysconfig.get_path("scripts")) / "antwort")


def _environ() -> dict[str, str]:
    outside = ("ANTWORT_", "OPENAI_", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
    return kept | {"ANTWORT_NO_PROBE": "1"}  # a model server on this machine is none of a test's business


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    # The .pth files of the other environment count too: an editable installation is nothing else.
    around = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    lines = [f"import site; site.addsitedir({path!r})\n" for path in sorted(around)]
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "around.pth").write_text("".join(lines))
    work = tmp_path / "work"
    work.mkdir()
    return Environment(folder / "bin" / "python", work)
