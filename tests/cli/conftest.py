import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner, Result
from tests.cli.terminals import hangups
from tests.support.warm_start import started_cold

from antwort.cli.main import root


@pytest.fixture(autouse=True)
def _clean_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, and nothing of the machine's own configuration or model servers."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.upper().startswith(("ANTWORT_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ANTWORT_NO_PROBE", "1")  # a model server of the machine must not answer our tests


@pytest.fixture(autouse=True)
def _heard_hangups() -> Iterator[None]:
    """Servers that a hangup ends, also where whoever runs the tests ignores it: they would have that from us."""
    with hangups(ignored=False):
        yield


@pytest.fixture
def cold() -> Iterator[None]:
    """Start the real command with nothing imported, as everybody does."""
    with started_cold():
        yield


@pytest.fixture
def cli() -> Callable[..., Result]:
    """Run a command in this process."""

    def cli(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(root, arguments, input=stdin, prog_name="antwort")

    return cli


@pytest.fixture
def refused(cli: Callable[..., Result]) -> Callable[..., str]:
    """Run a command that must fail with exit code 2 and one line, and return what the line says."""

    def refused(*arguments: str) -> str:
        result = cli(*arguments)
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        (line,) = result.stderr.splitlines()
        assert line.startswith("antwort: ")
        return line.removeprefix("antwort: ")

    return refused


@pytest.fixture
def config() -> Callable[[str], Path]:
    """Write `antwort.yaml`."""

    def config(text: str) -> Path:
        path = Path("antwort.yaml")
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return config


@pytest.fixture
def plugin() -> Callable[[str, str], None]:
    """Write a plug-in file into the folder `plugins`."""

    def plugin(name: str, text: str) -> None:
        Path("plugins").mkdir(exist_ok=True)
        imports = "from antwort.provider import *\nfrom antwort.provider import Provider, function\n"
        Path("plugins", f"{name}.py").write_text(imports + dedent(text), encoding="utf-8")

    return plugin


@pytest.fixture
def process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the real command; whatever still runs at the end of the test is killed."""
    with contextlib.ExitStack() as stack:

        def process(*arguments: str) -> subprocess.Popen[str]:
            running = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "antwort", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,  # no terminal of whoever runs the tests: its hangups would be others
                )
            )
            stack.callback(running.kill)
            return running

        yield process


@pytest.fixture
def listening(process: Callable[..., subprocess.Popen[str]]) -> Callable[..., tuple[subprocess.Popen[str], list[str]]]:
    """Start `antwort serve` on a free port; return it with its banner once it listens."""

    def listening(*arguments: str) -> tuple[subprocess.Popen[str], list[str]]:
        server = process("serve", "--port", "0", "--log-level", "error", *arguments)
        assert server.stdout is not None
        banner: list[str] = []
        for line in server.stdout:
            banner.append(line.rstrip("\n"))
            if line.startswith("Listening on "):
                return server, banner
        raise AssertionError(f"it did not listen: {banner} {server.communicate(timeout=60)[1]}")

    return listening
