"""Keep README.md and docs/ true: rewrite what is generated in them, and record their sessions again.

`python scripts/docs.py` rewrites the pages; with `--check` it changes nothing, and shows what would change and exits
with 1 if there is anything.

Generated parts stand between `<!-- generated: NAME -->` and `<!-- end -->`; NAME is a key of `PARTS` below.

A `console` block is a session: each command after a `$` is run by the shell in a folder that has nothing but
`examples`, and what it prints is written below it. A code block whose first line is a comment with a path, such as
`# plugins/units.py`, is a file in that folder from there on. `antwort serve` runs until the page ends or starts
another. A block that comes after `<!-- not run: REASON -->` is left alone.
"""

import argparse
import contextlib
import difflib
import inspect
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Self, cast

import click

from antwort import Antwort, errors
from antwort.cli.main import root
from antwort.config import BackendConfig, Config
from antwort.provider import Allow, Provider, Verdict, check, function, route
from antwort.testing import ServedApp, served

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # a file that is run as a program does not find its neighbours by their full names

from scripts import layers, recording  # noqa: E402
from scripts.api_reference import markdown_reference  # noqa: E402
from scripts.settings_reference import markdown_table, markdown_tables  # noqa: E402

COLUMNS = 80


def pages() -> list[Path]:
    """Return the pages that are checked, README first."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


# --- blocks ----------------------------------------------------------------------------------------------------------

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_FILE = re.compile(r"# (?P<path>[\w./-]+\.(?:py|yaml|toml|md))")


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a page."""

    language: str
    text: str
    start: int
    """Where its text begins in the page."""
    line: int
    reason: str | None
    """Why it is not run, if it is not."""

    @property
    def path(self) -> str | None:
        """The file it is, if its first line says so."""
        first = _FILE.fullmatch(self.text.partition("\n")[0])
        return first["path"] if first else None


def blocks(page: str) -> list[Block]:
    """Return the code blocks of a page in order."""
    return [
        Block(
            found["language"],
            found["text"],
            found.start("text"),
            page.count("\n", 0, found.start("text")) + 1,
            found["reason"],
        )
        for found in _BLOCK.finditer(page)
    ]


def write_file(block: Block, folder: Path) -> Path | None:
    """Write the file that a block shows into a folder; return its path, or None if it is not a file."""
    if block.path is None:
        return None
    path = folder / block.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")
    return path


# --- sessions --------------------------------------------------------------------------------------------------------

SHOWN_PORT = 8080
_ID = re.compile(r"\bfile-[0-9a-f]{32,}")
"""The id of a file, another one in every run."""
_PROGRESS = re.compile(r"^antwort: \d+ of \d+ files[,;] .*\n", re.MULTILINE)
"""How far work is that takes longer on a slow machine."""

_OF_A_SHELL = set("|<>&;$`*?~()\\\n")
"""What makes a line more than a command and its arguments."""

# A page may use curl; a machine may not have it.
_CURL = """\
import argparse, sys, urllib.error, urllib.request
parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("-s", action="store_true")
parser.add_argument("-N", action="store_true")
parser.add_argument("-X", dest="method")
parser.add_argument("-H", dest="headers", action="append", default=[])
parser.add_argument("-d", dest="data")
given = parser.parse_args()
headers = dict(header.split(": ", 1) for header in given.headers)
data = None if given.data is None else given.data.encode()
request = urllib.request.Request(given.url, data, headers, method=given.method)
try:
    answer = urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as error:
    answer = error
sys.stdout.write(answer.read().decode())
"""


def _words(command: str) -> list[str]:
    """Return how to run a command line of antwort."""
    return [sys.executable, "-m", *shlex.split(command)]


class Session:
    """Commands run one after the other in one folder, with nothing of the machine's own settings."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        curl = programs / "curl"
        curl.write_text(f"#!{sys.executable}\n{_CURL}", encoding="utf-8")
        curl.chmod(0o755)
        own = Path(sys.executable).parent
        self._environment = {
            "PATH": os.pathsep.join([str(programs), str(own), os.defpath]),
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "COLUMNS": str(COLUMNS),
            "ANTWORT_NO_PROBE": "1",  # a model server on this machine is none of a page's business
        }
        self._server: subprocess.Popen[str] | None = None
        self._port = str(SHOWN_PORT)

    def run(self, command: str) -> str:
        """Run a command and return what it prints, errors included."""
        if command.startswith("antwort serve"):
            return self._serve(command)
        command = command.replace(f":{SHOWN_PORT}", f":{self._port}")
        is_own = command.startswith("antwort ") and not _OF_A_SHELL & set(command)
        done = subprocess.run(
            _words(command) if is_own else command,
            shell=not is_own,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return self._tidy(done.stdout)

    def _serve(self, command: str) -> str:
        self.close()
        with tempfile.TemporaryFile("w+") as log:
            self._server = subprocess.Popen(
                [*_words(command), "--port", "0"],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            printed = ""
            for line in cast("Iterable[str]", self._server.stdout):
                printed += line
                if line.startswith("Listening on "):
                    self._port = line.strip().rpartition(":")[2]
                    return self._tidy(printed)
            self._server.wait()
            log.seek(0)
            return self._tidy(printed + log.read())

    def _tidy(self, text: str) -> str:
        text = _ID.sub("file-…", _PROGRESS.sub("", text).replace(f":{self._port}", f":{SHOWN_PORT}"))
        if str(self._folder) in text or "Traceback (most recent call last)" in text:
            raise ValueError(f"this output is not for a page: {text}")
        return "\n".join(line.rstrip() for line in text.rstrip().splitlines()) + "\n" if text.strip() else ""

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.terminate()
            self._server.communicate(timeout=30)
            self._server = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def commands(text: str) -> Iterator[str]:
    """Yield the commands of a console block; a line that ends in a backslash goes on in the next."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines)
            yield command


def with_sessions(page: str) -> str:
    """Return a page with every session recorded again."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as programs,
        Session(Path(folder), Path(programs)) as session,
    ):
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        parts, written = [], 0
        for block in blocks(page):
            write_file(block, Path(folder))
            if block.language == "console" and block.reason is None:
                parts.append(page[written : block.start])
                parts += [f"$ {command}\n{session.run(command)}" for command in commands(block.text)]
                written = block.start + len(block.text)
        return "".join(parts) + page[written:]


# --- generated parts -------------------------------------------------------------------------------------------------


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _sentence(subject: object) -> str:
    return (inspect.getdoc(subject) or "").partition("\n")[0]


@contextlib.contextmanager
def _app(*providers: Provider[Any]) -> Iterator[ServedApp]:
    with tempfile.TemporaryDirectory() as folder:
        config = {"data_dir": folder, "observability": {"access_log": False}}
        with served(config, providers=providers) as app:
            yield app


def settings() -> str:
    """Return the tables of all settings."""
    return markdown_tables().replace("## ", "### ").strip()


def cli() -> str:
    """Return the help of every command."""
    return "\n\n".join(
        f"## `{ctx.command_path}`\n\n```text\n{ctx.get_help().strip()}\n```" for ctx in command_contexts()
    )


def command_contexts() -> Iterator[click.Context]:
    """Yield a context for every command and group, the root first."""
    yield from _below(click.Context(root, info_name="antwort", terminal_width=COLUMNS, **root.context_settings))


def _below(ctx: click.Context) -> Iterator[click.Context]:
    yield ctx
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            if command is not None:
                yield from _below(click.Context(command, parent=ctx, info_name=name, terminal_width=COLUMNS))


class Sample(Provider):
    """Used once, so that every metric has its labels."""

    @function
    async def sample(self) -> None:
        """Do nothing at all."""

    @check("input")
    async def look(self, text: str) -> Verdict:  # noqa: ARG002 - there is nothing to look for
        """Allow everything."""
        return Allow()

    @route("GET", "/v1/sample")
    async def get_sample(self) -> None:
        """Answer nothing at all."""


_OWN_METRICS = ("antwort_", "gen_ai_")


def metrics() -> str:
    """Return the table of the server's own metrics."""
    with _app(Sample()) as app:
        app.call("sample")
        app.get("/v1/sample")
        app.request("POST", "/v1/responses", body={"input": "Hello!", "stream": True})
        app.request("POST", "/v1/embeddings", body={"input": "Hello!"})  # refused, and counted
        app.get("/healthz")  # an answer is counted after it was sent, so in any case before the next one
        families = [found for found in app.app.metrics.registry.collect() if found.name.startswith(_OWN_METRICS)]
    with_server = Antwort(Config(backends={"main": BackendConfig(url="http://localhost")}))  # the demo model is none
    of_server = {found.name: found for found in with_server.metrics.registry.collect()}
    families = [family if family.samples else of_server[family.name] for family in families]
    rows = []
    for family in families:
        if not family.samples:
            raise ValueError(f"the metric {family.name} has no sample; use it in `metrics`, so that its labels show")
        labels = [name for name in family.samples[0].labels if name != "le"]
        name = f"{family.name}_total" if family.type == "counter" else family.name
        rows.append((f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), family.documentation))
    return _table(("Metric", "Type", "Labels", "What"), sorted(rows))


def api_reference() -> str:
    """Return the reference of the server's own endpoints."""
    with _app() as app:
        return markdown_reference(app.get("/openapi.json").json())


def _subclasses(kind: type) -> list[Any]:
    return [getattr(errors, name) for name in dir(errors) if kind in getattr(getattr(errors, name), "__mro__", ())[1:]]


def _when(error: type[errors.APIError]) -> str:
    text = _sentence(error).partition(": ")[2]
    return text[:1].upper() + text[1:]


def api_errors() -> str:
    """Return the table of HTTP errors."""
    rows = [
        (str(e.status), f"`{e.__name__}`", f"`{e.type}`", f"`{e.default_code or 'null'}`", _when(e))
        for e in sorted(_subclasses(errors.APIError), key=lambda e: int(e.status))
    ]
    return _table(("Status", "Class", "`type`", "`code`", "When"), rows)


def function_errors() -> str:
    """Return the table of the statuses of a result."""
    kinds = [errors.FunctionError, *_subclasses(errors.FunctionError)]
    rows = [(f"`{kind.status}`", f"`{kind.__name__}`", _sentence(kind)) for kind in kinds]
    return _table(("Status", "Class", "When"), rows)


def layer_table() -> str:
    """Return the table of the layers."""
    return layers.markdown_table(layers.LAYERS, "Layer")


def engine_rooms() -> str:
    """Return the table of the engine's rooms."""
    return layers.markdown_table(layers.ROOMS, "Room")


PARTS: dict[str, Callable[[], str]] = {
    "layers": layer_table,
    "rooms of the engine": engine_rooms,
    "settings": settings,
    "cli": cli,
    "metrics": metrics,
    "api reference": api_reference,
    "api errors": api_errors,
    "function errors": function_errors,
}


def _provider(name: str) -> type[Provider[Any]]:
    [found] = entry_points(group="antwort.providers", name=name)
    return cast("type[Provider[Any]]", found.load())


def provider_settings(name: str) -> str:
    """Return the table of a provider's settings."""
    return markdown_table(_provider(name).settings_type)


def provider_api(name: str) -> str:
    """Return the reference of a provider's endpoints, for a page in `docs/providers`."""
    with _app(_provider(name)()) as app:
        return markdown_reference(app.get("/openapi.json").json(), only=name, http="../http-api.md")


PROVIDER_PARTS: dict[str, Callable[[str], str]] = {"settings of": provider_settings, "api of": provider_api}


def part(name: str) -> str:
    """Return a generated part by its name; `settings of NAME` and `api of NAME` are those of a provider."""
    kind, _, provider = name.rpartition(" ")
    return PROVIDER_PARTS[kind](provider) if kind in PROVIDER_PARTS else PARTS[name]()


_PART = re.compile(
    r"(?P<begin><!-- generated: (?P<name>[\w ]+) -->\n).*?(?P<end>^<!-- end -->$)", re.MULTILINE | re.DOTALL
)


def with_parts(page: str) -> str:
    """Return a page with its generated parts written anew."""
    return _PART.sub(lambda found: f"{found['begin']}\n{part(found['name'])}\n\n{found['end']}", page)


# --- the command -----------------------------------------------------------------------------------------------------


def regenerated(page: str) -> str:
    """Return a page as it should be."""
    return with_sessions(with_parts(page))


def difference(path: Path) -> str:
    """Return what is out of date in a page, as a diff; nothing if it is current."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    old, new = text.splitlines(keepends=True), regenerated(text).splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, f"{name} (as it is)", f"{name} (as it should be)"))


def main() -> int:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a page is out of date")
    check = parser.parse_args().check
    stale = 0
    for path in pages():
        if check:
            diff = difference(path)
            stale += bool(diff)
            print(diff, end="")
        else:
            path.write_text(regenerated(path.read_text(encoding="utf-8")), encoding="utf-8")
    if not check:
        played = recording.recording(recording.PAGE.read_text(encoding="utf-8"))
        recording.IMAGE.write_text(played, encoding="utf-8")
    if stale:
        print("The pages above are out of date; run 'make docs'.", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
