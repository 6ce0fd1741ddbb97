"""The folders of tests are those of the source, but for the ones that CONTRIBUTING names."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE, TESTS = ROOT / "src" / "antwort", ROOT / "tests"
WITH_OTHERS = {"context"}
"""Packages that are tested with those who use them."""


def folders(top: Path, pattern: str) -> set[str]:
    """Return the folders that have such files, but for packages of Node."""
    found = {path.parent.relative_to(top).as_posix() for path in top.rglob(pattern)}
    return {folder for folder in found if "node_modules" not in folder} - {"."}


def without_counterpart() -> set[str]:
    """Return the folders of tests that CONTRIBUTING lists by what they are about."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("These folders have no counterpart in the source:")[2].partition("\n\nDatabases:")[0]
    return {folder.strip("/") for folder in re.findall(r"`tests/([\w/]+)/`", table)}


def test_a_folder_of_tests_is_one_of_the_source_or_is_named() -> None:
    unknown = folders(TESTS, "test_*.py") - folders(SOURCE, "*.py") - without_counterpart()

    assert unknown == {"benchmarks"}  # of the folder beside the source


def test_every_package_has_a_folder_of_tests() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}

    assert packages - {folder.partition("/")[0] for folder in folders(TESTS, "test_*.py")} == WITH_OTHERS


def test_every_folder_that_is_named_is_there() -> None:
    assert [folder for folder in sorted(without_counterpart()) if not (TESTS / folder).is_dir()] == []
