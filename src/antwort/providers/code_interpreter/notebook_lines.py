"""Runs in the sandbox, as a helper of the driver: lines that notebooks know and Python does not, as models write them.

`!command` is executed by a shell, as `%%bash` is; some `%magic` lines do something, or nothing, and all others say what
to use instead.
"""

import ast
import builtins
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

_CALL = "__notebook__"
"""The name under which code calls what is here."""
_LINE = re.compile(r"(?P<before>\s*(?:[\w.,\[\]'\" ]+=\s*)?)(?P<kind>!!?|%)(?P<text>[^=].*)", re.DOTALL)
_HELP = re.compile(r"(?P<before>\s*)\?{0,2}(?P<text>[A-Za-z_][\w.]*)\?{0,2}\s*")
_CELL = re.compile(r"\s*%%(?P<name>\w+)[ \t]*(?P<rest>[^\n]*)\n?(?P<body>.*)", re.DOTALL)
_VALUE = re.compile(r"\{\{|\}\}|\{(?P<value>[^{}\n]+)\}|\$(?P<name>[A-Za-z_]\w*)")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OPERATORS = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "2>&1", ">/dev/null", "2>/dev/null"})
_SILENT = frozenset({"matplotlib", "config", "autoreload", "autosave", "precision", "xmode", "colors", "pylab"})
_SHELLS = frozenset({"bash", "sh", "system", "sx", "script"})
_COMMANDS = frozenset({"ls", "ll", "cat", "cp", "mv", "rm", "mkdir", "rmdir", "head", "tail", "touch"})
_INSTALLERS = frozenset({"pip", "pip3", "conda", "mamba", "uv"})
_INSTEAD = {
    "time": "use `time.perf_counter()`",
    "timeit": "use the module `timeit`",
    "prun": "use the module `cProfile`",
    "run": "use `!python file.py`, or `runpy.run_path('file.py')`",
    "capture": "use `contextlib.redirect_stdout`",
    "env": "use `os.environ`",
    "who": "use `globals()`",
    "whos": "use `globals()`",
    "sql": "use the module `sqlite3`",
    "html": "write a file",
    "javascript": "write a file",
    "load_ext": "leave it out",
    "reset": "use `del`",
}
_SHOWN = 200
"""Packages that are named at most."""


class NotebookError(Exception):
    """A line that only notebooks know, and what to use instead."""


def parse(code: str, name: str) -> ast.Module:
    """Return code in which such lines are calls of what is here; SyntaxError for what is wrong besides."""
    vars(builtins)[_CALL] = _call
    if cell := _CELL.fullmatch(code):
        return ast.parse(_called("cell", cell["name"], cell["rest"].strip(), cell["body"]), name)
    lines = code.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while True:
        try:
            return ast.parse("\n".join(lines), name)
        except SyntaxError as error:
            if not _replace(lines, (error.lineno or 0) - 1):
                raise


def _replace(lines: "list[str]", number: int) -> bool:
    """Make a call of the line at which Python has stopped, if it is one that notebooks know."""
    if not 0 <= number < len(lines):
        return False
    if found := _HELP.fullmatch(lines[number]):
        lines[number] = f"{found['before']}help({found['text']})"
        return "?" in found[0]
    if _LINE.fullmatch(lines[number]) is None:
        return False
    following = number + 1
    while lines[number].endswith("\\") and following < len(
        lines
    ):  # one that goes on; those after it keep their numbers
        lines[number] = lines[number][:-1] + lines[following].strip()
        lines[following] = ""
        following += 1
    found = _LINE.fullmatch(lines[number])
    assert found is not None  # noqa: S101 - it was one before
    kind = (
        "magic" if found["kind"] == "%" else "lines" if found["before"].strip() or found["kind"] == "!!" else "command"
    )
    lines[number] = found["before"] + _called(kind, found["text"].strip())
    return True


def _called(*arguments: str) -> str:
    return f"{_CALL}({', '.join(map(repr, arguments))})"


def _call(kind: str, *texts: str) -> Any:
    """Do what a line says; names in braces, or after a dollar, are those of whoever calls."""
    if kind == "cell":
        return _cell(*texts)
    caller = sys._getframe(1)
    text = _filled(texts[0], {**caller.f_globals, **caller.f_locals})
    if kind == "magic":
        return _magic(*text.partition(" ")[::2])
    return _lines(text) if kind == "lines" else _command(text)


def _filled(text: str, names: "dict[str, Any]") -> str:
    """Return a text with values of Python in it; what is none is left to the shell."""

    def value(match: "re.Match[str]") -> str:
        if match["name"] is not None:
            return str(names[match["name"]]) if match["name"] in names else match[0]
        if match["value"] is None:
            return match[0][0]
        try:
            return str(eval(match["value"], names))  # noqa: S307 - code that is executed anyway
        except Exception:  # noqa: BLE001 - then it is no value
            return match[0]

    return _VALUE.sub(value, text)


def _command(text: str) -> None:
    """Execute a command by a shell, and tell if it has failed."""
    words = _words(text)
    if words[:1] == ["pip"] and words[1:2] in (["list"], ["freeze"]):
        _say("\n".join(_installed()))
        return
    if words[:1] == ["pip"] and words[1:2] == ["install"]:
        _install(words[2:])
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if code := subprocess.call([_shell(), "-c", text], stdin=subprocess.DEVNULL):  # noqa: S603 - what it is for
        _say(f"[exit code {code}]")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _lines(text: str) -> "list[str]":
    command = [_shell(), "-c", text]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)  # noqa: S603
    return done.stdout.decode(errors="replace").splitlines()


def _shell() -> str:
    return shutil.which("bash") or "/bin/sh"


def _magic(name: str, rest: str) -> Any:
    if name in _INSTALLERS:
        return _command(f"{name} {rest}")
    if name in _COMMANDS:
        return _command(f"{name} {rest}")
    if name == "cd":
        os.chdir(Path(rest.strip("'\"") or "~").expanduser())
        return None
    if name == "pwd":
        return str(Path.cwd())
    if name in _SHELLS:
        return _lines(rest)
    if name in _SILENT or (name in {"load_ext", "reload_ext"} and rest in _SILENT):
        return None
    raise _unknown(f"%{name}", name.lstrip("%"))


def _cell(name: str, rest: str, body: str) -> None:
    if name in _SHELLS:
        _command(body)
    elif name in {"writefile", "file"}:
        *options, path = shlex.split(rest) or [""]
        with Path(path).expanduser().open("a" if "-a" in options else "w", encoding="utf-8") as file:
            file.write(body)
        _say(f"Wrote {path}.")
    else:
        raise _unknown(f"%%{name}", name)


def _unknown(shown: str, name: str) -> NotebookError:
    instead = _INSTEAD.get(name, "write it in Python, or execute a command with `!command`")
    return NotebookError(f"There is no {shown} here, as this is Python and no notebook: {instead}.")


def _words(text: str) -> "list[str]":
    """Return the words of a command up to the next one; one for whatever installs packages begins with `pip`."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:  # the shell says what is wrong with it
        return []
    words = list(itertools.takewhile(lambda word: word not in _OPERATORS, words))
    if words[:1] == ["sudo"]:
        del words[0]
    if re.fullmatch(r"(.*/)?python[\d.]*", "".join(words[:1])) and words[1:2] == ["-m"]:
        del words[:2]
    if words[:2] == ["uv", "pip"]:
        del words[0]
    return ["pip", *words[1:]] if words[:1] and words[0] in _INSTALLERS else words


def _install(arguments: "list[str]") -> None:
    """Tell which packages are there, and of the others that they cannot be had."""
    missing = []
    for wanted in arguments:
        if wanted.startswith("-"):
            continue
        found = _REQUIREMENT.match(wanted)
        try:
            _say(f"{wanted}: version {metadata.version(found[0] if found else wanted)} is installed.")
        except (metadata.PackageNotFoundError, ValueError):
            missing.append(wanted)
    if missing:
        _say(
            f"[{', '.join(missing)} cannot be installed: there is no network, and nothing can be added to this Python. "
            f"Use its standard library, or what is installed: {', '.join(_installed()[:_SHOWN])}.]"
        )


def _installed() -> "list[str]":
    """Return the packages that are installed, with their versions."""
    found = {
        str(one.metadata["Name"]).lower(): f"{one.metadata['Name']} {one.version}" for one in metadata.distributions()
    }
    return [found[name] for name in sorted(found)] or ["none"]
