"""The structure holds: layers, plug-ins, names, sizes."""

import ast
import importlib.metadata
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from scripts.layers import LAYERS, ROOMS, rank
from scripts.structure import ROOT, Module, Source
from tests.support.source import own_source

from antwort.functions.provider import is_function

SOURCE = ROOT / "src" / "antwort"

RANK = rank(LAYERS) | {"__main__": 0}
ENGINE_RANK = rank(ROOMS)
FACADES = ("antwort.provider", "antwort.extensions")


def imports(module: Module) -> Iterator[tuple[str, int]]:
    """Yield the own modules that a module imports, with the line."""
    for node in module.import_statements:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        for name in names:
            if name.split(".")[0] == "antwort":
                yield name, node.lineno


def violations(check: Callable[[Module], Iterator[str]], source: Source | None = None) -> list[str]:
    """Return what a check finds in all modules, each with its file."""
    return [f"{module.path}, {found}" for module in (source or own_source()).modules for found in check(module)]


def forbidden_imports(module: Module) -> Iterator[str]:
    for name, line in imports(module):
        if name == "antwort":  # the version
            continue
        target = name.split(".")[1]
        if module.room == "providers":
            own = ".".join(("antwort", *module.path.split("/")[:2]))
            if name not in FACADES and not name.startswith(own):
                yield f"line {line}: a provider imports only {' and '.join(FACADES)}, not {name}"
        elif module.room != "__init__":
            if target not in RANK:
                yield f"line {line}: nobody imports {name}"
            elif RANK[target] < RANK[module.room]:
                yield f"line {line}: {module.room} may not import {name}, which is above it"


UPWARD = 1
"""How many imports may go up: those of `context/context.py` from `engine/budget.py`, for its types."""


def test_a_module_imports_only_from_layers_below() -> None:
    found = violations(forbidden_imports)

    assert len(found) <= UPWARD, found


def wrong_rooms(module: Module) -> Iterator[str]:
    [package, room, *_] = [*module.path.split("/"), ""]
    if package != "engine" or room not in ENGINE_RANK:
        return
    for name, line in imports(module):
        target = name.split(".")[2] if name.startswith("antwort.engine.") else ""
        if target == "engine" or ENGINE_RANK.get(target, len(ROOMS)) < ENGINE_RANK[room]:
            yield f"line {line}: engine/{room} may not import {name}, which is above it"


def test_a_room_of_the_engine_imports_only_from_rooms_below() -> None:
    assert {path.name for path in (SOURCE / "engine").iterdir() if path.is_dir()} - {"__pycache__"} == set(ENGINE_RANK)
    assert violations(wrong_rooms) == []


def hidden_imports(module: Module) -> Iterator[str]:
    if module.room == "cli":  # commands import lazily, so that --help is instant
        return
    functions = [node for node in module.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    for name, line in imports(module):
        if any(node.lineno <= line <= (node.end_lineno or 0) for node in functions):
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
    return names - {"user", "mcp"}  # the role of a message, and the command for clients of the protocol of that name


def named_providers(module: Module, reserved: set[str]) -> Iterator[str]:
    if module.room in {"providers", "wire"}:
        return
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in reserved:
            yield f"line {node.lineno}: '{node.value}' names a provider or its function"
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if any(name.startswith("antwort.providers") for name in names):
                yield f"line {node.lineno}: a provider is imported"


def test_nobody_but_a_provider_names_one() -> None:
    assert violations(partial(named_providers, reserved=reserved_names())) == []


def lengths(module: Module) -> Iterator[str]:
    if module.lines > 700:
        yield f"line 700: the file goes on for {module.lines - 700} more"


def test_files_can_be_read_at_once() -> None:
    assert violations(lengths) == []


def test_the_checks_find_what_they_look_for(tmp_path: Path) -> None:
    package = tmp_path / "src" / "antwort"
    for folder in ("wire", "providers/mine"):
        (package / folder).mkdir(parents=True)
    body = "\n".join(["if TYPE_CHECKING:", "    from antwort.runs import z", *["x = 1"] * 700])
    (package / "wire" / "a.py").write_text(f"from antwort.server import x\nfrom antwort.nowhere import y\n{body}")
    (package / "providers" / "mine" / "b.py").write_text("def f():\n    import antwort.errors\n")
    (package / "errors.py").write_text("import antwort.providers.mine\nA = 'mine'\n")
    source = Source(tmp_path)
    assert violations(forbidden_imports, source) == [
        "errors.py, line 1: nobody imports antwort.providers.mine",
        f"providers/mine/b.py, line 2: a provider imports only {' and '.join(FACADES)}, not antwort.errors",
        "wire/a.py, line 1: wire may not import antwort.server, which is above it",
        "wire/a.py, line 2: nobody imports antwort.nowhere",
        "wire/a.py, line 4: wire may not import antwort.runs, which is above it",
    ]
    assert violations(hidden_imports, source) == [
        "providers/mine/b.py, line 2: antwort.errors is imported inside a function",
    ]
    assert violations(partial(named_providers, reserved={"mine"}), source) == [
        "errors.py, line 1: a provider is imported",
        "errors.py, line 2: 'mine' names a provider or its function",
    ]
    assert violations(lengths, source) == [
        "wire/a.py, line 700: the file goes on for 4 more",
    ]


def test_importing_the_package_imports_next_to_nothing() -> None:
    [package] = [module for module in own_source().modules if module.path == "__init__.py"]
    for_all = [node for node in package.tree.body if not isinstance(node, ast.If)]  # not what only type checkers read
    assert list(imports(Module(package.path, "", ast.Module(for_all, [])))) == []


def test_the_error_tree_is_drawn_in_full() -> None:
    text = (SOURCE / "errors.py").read_text()
    tree = ast.parse(text)
    drawn = ast.get_docstring(tree) or ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            assert node.name in drawn, f"{node.name} is missing in the drawing"
