"""The structure holds: layers, plug-ins, names, sizes."""

import ast
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

import pytest

from antwort.functions.provider import is_function

SOURCE = Path(__file__).parents[2] / "src" / "antwort"

# From top to bottom: a module imports only from rows below its own (or from its own row).
LAYERS = (
    ("cli", "__main__"),
    ("testing",),
    ("app",),
    ("server",),
    ("auth",),
    ("runs",),
    ("engine",),
    ("backends",),
    ("provider",),
    ("functions",),
    ("storage",),
    ("outbound",),
    ("observability",),
    ("config",),
    ("wire",),
    ("sealing",),
    ("context",),
    ("scopes",),
    ("http_client",),
    ("large_work",),
    ("errors",),
    ("types",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FACADE = "antwort.provider"


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


def checked(tree: ast.Module) -> ast.Module:
    """Drop the blocks only type checkers read."""
    body = [n for n in tree.body if not (isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")]
    return ast.Module(body, [])


def tree_of(path: Path) -> ast.Module:
    return checked(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_layers_below(path: Path) -> None:
    part = part_of(path)
    for name, line in imports(tree_of(path)):
        if name == "antwort":  # the version
            continue
        target = name.split(".")[1]
        if part == "providers":
            own = ".".join(("antwort", *path.relative_to(SOURCE).parts[:2]))
            assert name == FACADE or name.startswith(own), f"line {line}: a provider imports only {FACADE}, not {name}"
        elif part != "__init__":
            assert target in RANK, f"line {line}: nobody imports {name}"
            assert RANK[target] >= RANK[part], f"line {line}: {part} may not import {name}, which is above it"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_own_modules_are_imported_at_the_top(path: Path) -> None:
    if part_of(path) == "cli":  # commands import lazily, so that --help is instant
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            found = [name for name, _ in imports(node)]
            assert not found, f"line {node.lineno}: {found} imported inside a function"


def reserved_names() -> set[str]:
    """Return the names of built-in providers, their functions and their tool types: only they may spell them out."""
    names = set()
    for point in importlib.metadata.entry_points(group="antwort.providers"):
        if point.dist is not None and point.dist.name == "antwort":
            marked = {name for name, value in vars(point.load()).items() if is_function(value)}
            names |= {point.name, f"{point.name}_preview", f"{point.name}_call"} | marked
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nobody_but_a_provider_names_one(path: Path) -> None:
    if part_of(path) in {"providers", "wire"}:
        return
    forbidden = reserved_names()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert node.value not in forbidden, f"line {node.lineno}: '{node.value}' names a provider or its function"
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            assert not any(name.startswith("antwort.providers") for name in names), f"line {node.lineno}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_can_be_read_at_once(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 70, f"{node.name} is too long"


def test_importing_the_package_imports_next_to_nothing() -> None:
    tree = tree_of(SOURCE / "__init__.py")
    assert [name for name, _ in imports(tree)] == []


def test_the_error_tree_is_drawn_in_full() -> None:
    text = (SOURCE / "errors.py").read_text()
    tree = ast.parse(text)
    drawn = ast.get_docstring(tree) or ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            assert node.name in drawn, f"{node.name} is missing in the drawing"
