"""What `scripts/structure.py` measures stays within its bars, and it measures what it says."""

import ast
from pathlib import Path

import pytest
from scripts.structure import MEASURES, Module, Source, import_share
from tests.support.source import own_source

BARS = {
    "twice": 0,
    "protocols": 4,
    "long": 0,
    "complexity": 0,
    "crumbs": 1,
    "alike": 0,
    "circles": 0,
    "arrows": 199,
}
"""How many places each measure may find."""


@pytest.mark.parametrize("measure", BARS)
def test_no_measure_finds_more_than_it_may(measure: str) -> None:
    places = [f"{place.text} ({place.weight})" for place in MEASURES[measure][1](own_source())]

    assert len(places) <= BARS[measure], "\n".join(places)


def checkout(folder: Path, **modules: str) -> Source:
    """Write modules by their names, `_` for a slash, and read them."""
    package = folder / "src" / "antwort"
    for name, text in modules.items():
        path = package / f"{name.replace('_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Source(folder)


def found(source: Source, measure: str) -> list[str]:
    return [place.text for place in MEASURES[measure][1](source)]


DECISIONS = """\
async def f(a, *b):
    assert a and b or a  # 1: what an assertion says is not looked at
    try:  # 2
        pass
    except ValueError:
        pass
    else:
        pass
    finally:
        pass
    for _ in b:  # 2
        continue
    else:
        pass
    async for _ in b:  # 1
        pass
    while a or b:  # 2
        break
    x = [c if c else a for c in b if c for d in c]  # 4
    match a:  # 2
        case 1:
            pass
        case 2:
            pass
        case _:
            pass
    def g():  # its own
        return lambda: 1 if a else 2
    class C:
        def h(self):
            if a:
                pass
    with a:
        return a and b and x  # 2
"""


def test_complexity_is_counted_as_radon_counts() -> None:
    [f, g, h] = Module("a.py", DECISIONS, ast.parse(DECISIONS)).functions

    assert [(f.name, f.complexity), (g.name, g.complexity), (h.name, h.complexity)] == [("f", 17), ("g", 2), ("h", 2)]


def test_long_functions_are_found_but_those_of_revisions(tmp_path: Path) -> None:
    long = "def long(\n    a,\n):\n    'Of which this line is not counted.'\n" + "    pass\n" * 51
    source = checkout(tmp_path, a=long, b=long.replace("    pass\n", "", 1), storage_schema_migrations_versions_r=long)

    assert found(source, "long") == ["a.py:1 long"]


def test_names_and_statements_that_are_there_twice_are_found(tmp_path: Path) -> None:
    body = "    def f(self):\n        a = 1\n        b = 2\n        c = 3\n        d = 4\n        e = 5\n"
    source = checkout(tmp_path, a=f"class A:\n{body}", b=f"class B:\n{body}", c="class A: ...\n")

    assert found(source, "twice") == ["A: a.py:1, c.py:1"]
    assert found(source, "alike") == ["a.py:2 = b.py:2"]


def test_circles_are_found_where_only_types_are_imported(tmp_path: Path) -> None:
    source = checkout(
        tmp_path,
        a_b="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from antwort.c import d\n",
        c_d="from antwort.e import x\n",
        e="from antwort.a.b import y\n",
        f="import antwort.e\n",
    )

    assert found(source, "circles") == ["antwort.a.b ↔ antwort.c.d ↔ antwort.e"]
    assert found(source, "arrows") == ["a → c", "c → e", "e → a", "f → e"]


def test_protocols_that_one_class_alone_implements_are_found(tmp_path: Path) -> None:
    two = "class {}:\n    n: int\n    def f(self): ...\n"
    source = checkout(
        tmp_path,
        a=two.format("One(Protocol)") + "class Both(Protocol):\n    def f(self): ...\nclass Call(Protocol):\n"
        "    def __call__(self): ...\n",
        b="class A:\n    def f(self):\n        self.n = 1\n",
        c="class B:\n    def f(self): ...\n    def __call__(self): ...\n",
    )

    assert found(source, "protocols") == ["a.py:1 One ← A"]


def test_small_files_of_one_importer_are_crumbs(tmp_path: Path) -> None:
    source = checkout(tmp_path, a="x = 1\n", b="from antwort import a\n", c="x = 1\n" * 50, d="from antwort import c\n")

    assert found(source, "small") == [
        "a.py (1 lines, imported by 1)",
        "b.py (1 lines, imported by 0)",
        "d.py (1 lines, imported by 0)",
    ]
    assert found(source, "crumbs") == ["a.py (1 lines) → antwort.b"]
    assert import_share(source) == pytest.approx(3.8)
