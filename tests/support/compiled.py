"""What workers would each compile for themselves, all at once, compiled before they start: once, on every core.

To let assertions of tests say what they compared takes longer than to import all of them, with what they import.
"""

import compileall
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

import antwort

__all__ = ["compile_for_workers"]

_HERE = Path(__file__).parents[1]


def compile_for_workers(config: pytest.Config) -> None:
    """Compile ours and the tests, where they were changed since; to import them is left to the workers."""
    cores = os.cpu_count() or 1
    children = []
    for core in range(cores):
        if (child := os.fork()) == 0:
            try:
                for path in sorted(_sources())[core::cores]:
                    _compile(path, config)
            finally:
                os._exit(0)  # a worker compiles what could not be, and says why
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _sources() -> Iterator[Path]:
    yield from Path(antwort.__file__).parent.rglob("*.py")
    yield from _HERE.rglob("*.py")


def _compile(path: Path, config: pytest.Config) -> None:
    if not (path.name.startswith("test_") or path.name == "conftest.py"):
        compileall.compile_file(path, quiet=2)
        return
    state = config.stash[rewrite.assertstate_key]
    folder = rewrite.get_cache_dir(path)
    compiled = folder / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite.try_makedirs(folder) and rewrite._read_pyc(path, compiled) is None:
        digest, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(state, code, digest, compiled)
