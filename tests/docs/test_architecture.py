"""The page on the architecture names files that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
SOURCE = ROOT / "src" / "antwort"


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_file_that_is_named_is_there() -> None:
    named = set(re.findall(r"`((?:[a-z0-9_]+/)*[a-z0-9_]+\.py)`", PAGE))
    assert len(named) > 40
    missing = {name for name in named if not list(SOURCE.rglob(name)) and not (ROOT / name).exists()}
    assert missing == set()


def test_the_spine_has_at_most_nineteen_files() -> None:
    spine = re.findall(r"^\| \d+ \| `([a-z0-9_/]+\.py)` \|", section("Reading path"), re.MULTILINE)
    assert 10 < len(spine) <= 19
    assert [name for name in spine if not (SOURCE / name).is_file()] == []


def test_every_module_of_the_drawn_paths_is_there() -> None:
    drawn = re.findall(r"\b((?:cli|server|engine|backends|functions|web|concurrency|runs|storage)/[a-z0-9_/]+)", PAGE)
    missing = {name for name in drawn if not (SOURCE / f"{name}.py").is_file() and not (SOURCE / name).is_dir()}
    assert missing == set()
