"""The code in the pages works, and prints what it says it prints."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from scripts import docs
from tests.support.plain_pytest import PLAIN

from antwort.config import load_config
from antwort.errors import ConfigError

PAGES = docs.pages()
RUNNER = Path(__file__).with_name("run_page.py")
CHECKED = {"python", "yaml", "console", "js"}  # js: tests/clients/test_docs.py
SHOWN_ONLY = {"sh", "text", "json", "toml", ""}


def blocks_of(page: Path, language: str) -> list[docs.Block]:
    return [block for block in docs.blocks(page.read_text()) if block.language == language and block.reason is None]


def python(*arguments: str | Path) -> list[str | Path]:
    return [sys.executable, "-W", "error", *arguments]


def environment() -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ANTWORT_", "PYTEST_"))}
    return {**environ, "PYTHONPATH": str(docs.ROOT)}


Run: TypeAlias = Callable[[Path, Path], tuple[int, str]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a page in a folder, in a process of its own; return its exit code and what it says."""
    with subprocess.Popen(
        python(RUNNER), env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as runner:
        asked, answered = runner.stdin, runner.stdout
        assert asked is not None
        assert answered is not None

        def run(page: Path, folder: Path) -> tuple[int, str]:
            errors = folder.with_name(f"{folder.name}-errors")
            asked.write(f"{json.dumps([str(page), str(folder), str(errors)])}\n")
            code = int(answered.readline())
            return code, errors.read_text()

        yield run


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page, "python")], ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path, run: Run) -> None:
    code, errors = run(page, tmp_path)
    assert code == 0, errors


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("print(1)  # 1", True),
        ("print('a\\nü')\n# a\n# ü", True),
        ("import asyncio\nprint(await asyncio.sleep(0, 2))  # 2", True),
        ("from urllib.request import urlopen\nprint(urlopen('http://127.0.0.1:8080/readyz').status)  # 200", True),
        ("print(1)  # 2", False),
        ("print(1)", False),
        ("for i in (1, 2):\n    print(i)\n# 1", False),
        ("raise ValueError", False),
    ],
)
def test_what_is_printed_is_compared(code: str, passes: bool, tmp_path: Path, run: Run) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```python\nvalue = 1\n```\n\n```python\nassert value\n{code}\n```\n", encoding="utf-8")
    exit_code, errors = run(page, tmp_path)
    assert (exit_code == 0) is passes, errors
    assert passes or "page.md" in errors


def test_the_tests_in_the_pages_pass(tmp_path: Path) -> None:
    pages = [page for page in PAGES if any("test_" in (block.path or "") for block in docs.blocks(page.read_text()))]
    assert pages
    for page in pages:
        folder = tmp_path / page.stem
        folder.mkdir()
        for block in docs.blocks(page.read_text()):
            docs.write_file(block, folder)
        command = python("-m", "pytest", "-q", *PLAIN, "-p", "no:asyncio")
        done = subprocess.run(
            command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def trouble_with(block: docs.Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Load a configuration in an empty folder; return what is wrong with it, or nothing."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    for path in re.findall(r"key_file: (\S+)", block.text):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("a secret\n")
    environ = {name: f"the content of {name}" for name in re.findall(r"(?<!\$)\$\{(\w+)\}", block.text)}
    file = Path("page.yaml")
    file.write_text(block.text)
    try:
        return "; ".join(load_config(file, environ=environ).warnings)
    except ConfigError as error:
        return "; ".join(str(problem) for problem in error.problems)


def test_yaml_blocks_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(page, block) for page in PAGES for block in blocks_of(page, "yaml")]
    assert len(found) > 10
    troubles = {
        f"{page.name}:{block.line}": trouble_with(block, tmp_path / str(number), monkeypatch)
        for number, (page, block) in enumerate(found)
    }
    assert {place: trouble for place, trouble in troubles.items() if trouble} == {}


def unknown_blocks(page: Path) -> Iterator[str]:
    text = page.read_text()
    found = docs.blocks(text)
    if len(found) * 2 != len(re.findall(r"^ *```", text, re.MULTILINE)):
        yield f"{page.name}: a block is not closed, or is indented"
    for block in found:
        if block.language not in CHECKED | SHOWN_ONLY:
            yield f"{page.name}:{block.line}: a block of '{block.language}'"
        if block.language in SHOWN_ONLY and re.search(r"^\$ ", block.text, re.MULTILINE):
            yield f"{page.name}:{block.line}: a session is a console block"


def test_every_block_is_of_a_known_kind() -> None:
    assert [block for page in PAGES for block in unknown_blocks(page)] == []
