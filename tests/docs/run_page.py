"""Run the Python blocks of a page: `python run_page.py PAGE`, in an empty folder.

The blocks run in their order, in one namespace, inside a coroutine. Whatever a top-level statement prints must stand in
the comment behind it. The page's files (see `scripts/docs.py`) lie in the working folder; its tests are left out.
Blocks that speak to the address that pages show speak to an app with the defaults.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts import docs

from antwort import Antwort
from antwort.config import Config
from antwort.testing import running

SHOWN = f"http://127.0.0.1:{docs.SHOWN_PORT}"


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


if __name__ == "__main__":
    given = Path(sys.argv[1])
    asyncio.run(run_page(given.name, given.read_text(encoding="utf-8"), Path.cwd()))
