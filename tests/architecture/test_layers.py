"""The structure holds: layers, plug-ins, names, sizes."""

import ast
import functools
import importlib.metadata
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from scripts.layers import LAYERS, ROOMS, rank

from antwort.functions.provider import is_function

SOURCE = Path(__file__).parents[2] / "src" / "antwort"

RANK = rank(LAYERS) | {"__main__": 0}
ENGINE_RANK = rank(ROOMS)
FACADES = ("antwort.provider", "antwort.extensions")


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if "templates" not in path.parts)


def part_of(path: Path) -> str:
    """Return the package or module right below `antwort` that a file belongs to."""
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the own modules that a tree imports, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "antwort":
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "antwort":
            yield str(node.module), node.lineno


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def violations(check: Callable[[Path], Iterator[str]]) -> list[str]:
    """Return what a check finds in all modules, each with its file."""
    return [f"{path.relative_to(SOURCE)}, {found}" for path in modules() for found in check(path)]


def forbidden_imports(path: Path) -> Iterator[str]:
    part = part_of(path)
    for name, line in imports(parsed(path)):
        if name == "antwort":  # the version
            continue
        target = name.split(".")[1]
        if part == "providers":
            own = ".".join(("antwort", *path.relative_to(SOURCE).parts[:2]))
            if name not in FACADES and not name.startswith(own):
                yield f"line {line}: a provider imports only {' and '.join(FACADES)}, not {name}"
        elif part != "__init__":
            if target not in RANK:
                yield f"line {line}: nobody imports {name}"
            elif RANK[target] < RANK[part]:
                yield f"line {line}: {part} may not import {name}, which is above it"


UPWARD = 1
"""How many imports may go up: those of `context/context.py` from `engine/budget.py`, for its types."""


def test_a_module_imports_only_from_layers_below() -> None:
    found = violations(forbidden_imports)

    assert len(found) <= UPWARD, found


def wrong_rooms(path: Path) -> Iterator[str]:
    room = path.parent.name
    if path.parent.parent != SOURCE / "engine" or room not in ENGINE_RANK:
        return
    for name, line in imports(parsed(path)):
        target = name.split(".")[2] if name.startswith("antwort.engine.") else ""
        if target == "engine" or ENGINE_RANK.get(target, len(ROOMS)) < ENGINE_RANK[room]:
            yield f"line {line}: engine/{room} may not import {name}, which is above it"


def test_a_room_of_the_engine_imports_only_from_rooms_below() -> None:
    assert {path.name for path in (SOURCE / "engine").iterdir() if path.is_dir()} - {"__pycache__"} == set(ENGINE_RANK)
    assert violations(wrong_rooms) == []


def hidden_imports(path: Path) -> Iterator[str]:
    if part_of(path) == "cli":  # commands import lazily, so that --help is instant
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for name, line in imports(node):
                yield f"line {line}: {name} is imported inside a function"


def test_own_modules_are_imported_at_the_top() -> None:
    assert violations(hidden_imports) == []


def reserved_names() -> set[str]:
    """Return the names of built-in providers, their functions and their tool types: only they may spell them out.

    Words that the protocol has too mean that.
    """
    names = set()
    for point in importlib.metadata.entry_points(group="antwort.providers"):
        if point.dist is not None and point.dist.name == "antwort":
            marked = {name for name, value in vars(point.load()).items() if is_function(value)}
            names |= {point.name, f"{point.name}_preview", f"{point.name}_call"} | marked
    return names - {"user"}  # the role of a message


def named_providers(path: Path, reserved: set[str]) -> Iterator[str]:
    if part_of(path) in {"providers", "wire"}:
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in reserved:
            yield f"line {node.lineno}: '{node.value}' names a provider or its function"
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if any(name.startswith("antwort.providers") for name in names):
                yield f"line {node.lineno}: a provider is imported"


def test_nobody_but_a_provider_names_one() -> None:
    assert violations(partial(named_providers, reserved=reserved_names())) == []


def lengths(path: Path) -> Iterator[str]:
    text = path.read_text()
    if (count := len(text.splitlines())) > 700:
        yield f"line 700: the file goes on for {count - 700} more"


def test_files_can_be_read_at_once() -> None:
    assert violations(lengths) == []


def test_the_checks_find_what_they_look_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    for folder in ("wire", "providers/mine"):
        (tmp_path / folder).mkdir(parents=True)
    body = "\n".join(["if TYPE_CHECKING:", "    from antwort.runs import z", *["x = 1"] * 700])
    (tmp_path / "wire" / "a.py").write_text(f"from antwort.server import x\nfrom antwort.nowhere import y\n{body}")
    (tmp_path / "providers" / "mine" / "b.py").write_text("def f():\n    import antwort.errors\n")
    (tmp_path / "errors.py").write_text("import antwort.providers.mine\nA = 'mine'\n")
    assert violations(forbidden_imports) == [
        "errors.py, line 1: nobody imports antwort.providers.mine",
        f"providers/mine/b.py, line 2: a provider imports only {' and '.join(FACADES)}, not antwort.errors",
        "wire/a.py, line 1: wire may not import antwort.server, which is above it",
        "wire/a.py, line 2: nobody imports antwort.nowhere",
        "wire/a.py, line 4: wire may not import antwort.runs, which is above it",
    ]
    assert violations(hidden_imports) == [
        "providers/mine/b.py, line 2: antwort.errors is imported inside a function",
    ]
    assert violations(partial(named_providers, reserved={"mine"})) == [
        "errors.py, line 1: a provider is imported",
        "errors.py, line 2: 'mine' names a provider or its function",
    ]
    assert violations(lengths) == [
        "wire/a.py, line 700: the file goes on for 4 more",
    ]


def test_importing_the_package_imports_next_to_nothing() -> None:
    tree = parsed(SOURCE / "__init__.py")
    for_all = [node for node in tree.body if not isinstance(node, ast.If)]  # not what only type checkers read
    assert [name for name, _ in imports(ast.Module(for_all, []))] == []


def test_the_error_tree_is_drawn_in_full() -> None:
    text = (SOURCE / "errors.py").read_text()
    tree = ast.parse(text)
    drawn = ast.get_docstring(tree) or ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            assert node.name in drawn, f"{node.name} is missing in the drawing"
