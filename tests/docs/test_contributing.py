import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def section() -> str:
    """The part of CONTRIBUTING.md about tests."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return text[text.index("## Tests\n") : text.index("## Adding a provider")]


def test_every_folder_and_file_of_tests_that_it_names_is_there(section: str) -> None:
    named = re.findall(r"`(tests/[\w./]+)`", section)

    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_folder_of_tests_is_named(section: str) -> None:
    folders = [path.parent.name for path in (ROOT / "tests").glob("*/*.py")] + ["providers"]

    assert {name for name in folders if f"`tests/{name}" not in section} == set()


def test_it_says_what_to_run_after_changing_any_part_of_the_source(section: str) -> None:
    cells = "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    source = ROOT / "src/antwort"
    parts = [path.name + "/" for path in source.iterdir() if (path / "__init__.py").exists()]
    parts += [path.name for path in source.glob("*.py") if not path.name.startswith("__")]

    assert {part for part in parts if f"`{part}" not in cells} == set()
