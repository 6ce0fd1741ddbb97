"""The page on the architecture names files that are there."""

import re
from itertools import product

from scripts import docs

PAGE = (docs.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = docs.ROOT / "src" / "antwort"
NAME = r"[a-z_0-9]+"


OF_OTHERS = {"TrustedHostMiddleware"}
"""Classes of libraries that are not used, and that the page says why."""


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


def told() -> list[str]:
    """Return the modules that code spans name by their paths, and by their names after that of their folder."""
    spans = [span.removesuffix(".py") for span in re.findall(rf"`((?:{NAME}/)+{NAME}(?:\.py)?)`", PAGE)]
    listed = re.findall(rf"`((?:{NAME}/)+)`: ((?:`{NAME}`(?:,| and)? ?)+)", PAGE)
    names = [f"{folder}{name}" for folder, found in listed for name in re.findall(NAME, found)]
    rooms = {path.name for path in PACKAGE.iterdir()} | {"tests", "docs", "src", "scripts", "examples", "benchmarks"}
    return sorted({path for path in [*spans, *names] if path.partition("/")[0] in rooms})


def classes() -> list[str]:
    """Return the names in code spans that are those of classes."""
    spans = re.findall(r"`([^`\n]+)`", PAGE)
    return sorted({name for span in spans for name in re.findall(r"\b[A-Z][a-z]+[A-Z]\w*\b", span)} - OF_OTHERS)


def test_the_files_that_the_page_names_are_there() -> None:
    assert [path for path in [*drawn(), *tabled(), *told()] if not exists(path)] == []


def test_the_classes_that_the_page_names_are_there() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    assert set(classes()) <= set(re.findall(r"\w+", source))


def test_the_drawings_and_the_tables_are_read() -> None:
    assert {"server/http/sse", "documents/child", "auth/"} <= set(drawn())
    assert {"config/load.py", "engine/engine.py"} <= set(tabled())
    assert {"server/http/exchange", "server/sockets/connection", "backends/text_calls/formats"} <= set(told())
    assert {"FunctionSpec", "FunctionRegistry", "ServerCall"} <= set(classes())
