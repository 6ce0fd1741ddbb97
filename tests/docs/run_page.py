"""Run the Python blocks of pages: each line of the input is a page, an empty folder and a file for errors, as JSON.

The blocks run in their order, in one namespace, inside a coroutine. Whatever a top-level statement prints must stand in
the comment behind it. The page's files (see `scripts/docs.py`) lie in the working folder; its tests are left out.
Blocks that speak to the address that pages show speak to an app with the defaults.

Each page has a process of its own, a fork of this one, whose exit code is printed: to import what most pages need takes
longer than to run them.
"""

import ast
import asyncio
import contextlib
import importlib
import inspect
import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts import docs
from tests.support.warm_start import keep_everything

from antwort import Antwort
from antwort.config import Config
from antwort.testing import running

SHOWN = f"http://127.0.0.1:{docs.SHOWN_PORT}"
PATIENCE = 120
"""Seconds after which a page is ended."""


async def run_page(page: str, text: str, folder: Path) -> None:
    """Run a page in this very module, so that everything a block defines belongs to an importable one."""
    with contextlib.ExitStack() as stack:
        address = ""
        for block in docs.blocks(text):
            path = docs.write_file(block, folder)
            if block.language == "python" and block.reason is None and not (path and path.name.startswith("test_")):
                if SHOWN in block.text and not address:
                    app = Antwort(Config(data_dir=folder / "data-of-the-shown-server"))
                    address = stack.enter_context(running(app)).url
                code = replace(block, text=block.text.replace(SHOWN, address)) if address else block
                await run(code, page, vars(sys.modules[__name__]))


async def run(block: docs.Block, page: str, namespace: dict[str, Any]) -> None:
    lines = block.text.splitlines()
    for statement in ast.parse(block.text).body:
        shown = list(comments_behind(statement, lines))
        tree = ast.increment_lineno(ast.Module([statement], []), block.line - 1)
        code = compile(tree, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            result = eval(code, namespace)
            if inspect.iscoroutine(result):
                await result
        printed = output.getvalue().splitlines()
        if printed and printed != shown:
            sys.exit(f"{page}, line {statement.lineno}: it prints {printed}, the comment says {shown}")


def comments_behind(statement: ast.stmt, lines: list[str]) -> Iterator[str]:
    """Yield the comment behind a statement, and those on the lines right below it."""
    end = (statement.end_lineno or 0) - 1
    rest = lines[end].encode()[statement.end_col_offset or 0 :].decode().strip()
    if rest.startswith("# "):
        yield rest[2:]
    for line in lines[end + 1 :]:
        if not line.startswith("# "):
            break
        yield line[2:]


def run_alone(page: Path, folder: Path, errors: Path) -> None:
    """Run a page in this process, which is there for nothing else."""
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), stream.fileno())
    signal.alarm(PATIENCE)
    asyncio.run(run_page(page.name, page.read_text(encoding="utf-8"), folder))


def main() -> None:
    importlib.import_module("openai")
    keep_everything()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run_alone(*map(Path, json.loads(line)))
            return
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(sys.stdout.fileno(), f"{code}\n".encode())


if __name__ == "__main__":
    main()
