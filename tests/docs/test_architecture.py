"""The page on the architecture names files that are there."""

import re
from itertools import product

from scripts import docs

PAGE = (docs.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = docs.ROOT / "src" / "antwort"
NAME = r"[a-z_0-9]+"


def exists(path: str) -> bool:
    folders = (PACKAGE, PACKAGE / "engine", docs.ROOT)
    return any((folder / f"{path}{end}").exists() for folder, end in product(folders, ("", ".py")))


def drawn() -> list[str]:
    """Return the paths in the drawings: of a module, or of a folder with a slash at its end."""
    drawings = "\n".join(block.text for block in docs.blocks(PAGE) if block.language == "text")
    return sorted(set(re.findall(rf"(?<![\w/{{}}])({NAME}(?:/{NAME})*/{NAME}|{NAME}/)(?![\w{{}}])", drawings)))


def tabled() -> list[str]:
    """Return the files that the tables name, a path or a name of the engine's."""
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    return sorted(set(re.findall(rf"`((?:{NAME}/)*{NAME}\.py)`", rows)))


def test_the_files_that_the_page_names_are_there() -> None:
    assert [path for path in [*drawn(), *tabled()] if not exists(path)] == []


def test_the_drawings_and_the_tables_are_read() -> None:
    assert {"server/http/sse", "documents/child", "auth/"} <= set(drawn())
    assert {"config/load.py", "engine/engine.py"} <= set(tabled())
