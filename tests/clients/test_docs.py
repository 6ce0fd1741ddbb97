"""The blocks of `docs/clients.md` that run on Node print what they say, against `antwort serve`.

Those in Python are run with all other pages', by `tests/docs`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import docs
from tests.clients.node_scripts import FOLDER, run_script

PAGE = docs.ROOT / "docs" / "clients.md"
BLOCKS = [block for block in docs.blocks(PAGE.read_text()) if block.language == "js"]
SHOWN = f"http://127.0.0.1:{docs.SHOWN_PORT}"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `antwort serve` with its defaults."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ANTWORT_", "OPENAI_"))}
    command = [sys.executable, "-m", "antwort", "serve", "--port", "0", "--log-level", "error"]
    with subprocess.Popen(
        command,
        cwd=tmp_path_factory.mktemp("server"),
        env={**environ, "ANTWORT_NO_PROBE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            printed = []
            for line in server.stdout:
                printed.append(line)
                if line.startswith("Listening on "):
                    break
            assert printed[-1].startswith("Listening on "), printed
            yield printed[-1].removeprefix("Listening on ").strip()
        finally:
            server.terminate()
            assert server.communicate(timeout=60)[0] == ""


@pytest.mark.parametrize("block", BLOCKS, ids=[f"line {block.line}" for block in BLOCKS])
async def test_a_block_prints_what_it_says(block: docs.Block, tmp_path: Path, url: str) -> None:
    assert SHOWN in block.text
    (tmp_path / "node_modules").symlink_to(FOLDER / "node_modules")
    script = tmp_path / "block.mjs"
    script.write_text(block.text.replace(SHOWN, url), encoding="utf-8")
    printed = await run_script(script, base_url="http://127.0.0.1:9", key="not used")
    shown = re.findall(r"console\.log\(.*\); // (.*)$", block.text, re.MULTILINE)
    assert shown
    assert printed.splitlines() == shown


def test_the_page_has_a_block_for_every_client() -> None:
    text = PAGE.read_text()
    assert len(BLOCKS) == 3
    for package in ("agents", "langchain_openai", "openai", "pydantic_ai"):
        assert f"\nfrom {package}" in text
