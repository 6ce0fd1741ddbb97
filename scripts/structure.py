"""Measure the structure of the source: how large its parts are, how they hang together, and what is there twice.

`python scripts/structure.py` prints a table of this checkout, `--source DIR` of another one, `--json` the same for
programs, and `--list MEASURE` the places behind a figure, worst first. `tests/architecture` holds the bars.

What is counted:

- *lines*: all lines of all modules; *imports*: the share of them that import statements take.
- *functions*: from their `def` to their end; those of the revisions of tables, which are never changed, aside.
- *complexity*: decisions in a function, counted as radon counts them: closures for themselves, lambdas for whom they
  stand in.
- *class names twice*: classes of one name in two modules.
- *protocols of one*: protocols whose members exactly one class has. Those that are only called are not counted, since
  any function may stand for them, nor those that an `__init__` exports: somebody else may implement them.
- *alike*: pairs of runs of statements, five lines or longer, that are the same to the letter.
- *circles*: groups of modules each of which imports the others, directly or not; imports for type checkers count.
- *rooms*: packages and modules right below `antwort`; *arrows*: pairs of them of which one imports the other.
"""

import argparse
import ast
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONG_FUNCTION = 50
COMPLEX_FUNCTION = 15
SMALL_FILE = 50
REVISIONS = "storage/schema/migrations/versions/"
ALIKE = 5
"""How many lines two runs of statements have, so that they are no coincidence."""

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A module of the source."""

    path: str
    """Below the package, as `wire/items.py`."""
    text: str
    tree: ast.Module

    @cached_property
    def text_lines(self) -> list[str]:
        """Its lines."""
        return self.text.splitlines()

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return len(self.text_lines)

    @cached_property
    def name(self) -> str:
        """What it is imported as."""
        parts = ["antwort", *self.path.removesuffix(".py").split("/")]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def room(self) -> str:
        """The package or module right below `antwort`."""
        return self.path.split("/")[0].removesuffix(".py")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All there is in it."""
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list["Function"]:
        """All functions, methods and closures included."""
        return [
            Function(node.name, node.lineno, (node.end_lineno or 0) - node.lineno + 1, complexity_of(node))
            for node in self.nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """All classes."""
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    @cached_property
    def import_statements(self) -> list[ast.Import | ast.ImportFrom]:
        """All statements that import, wherever they stand."""
        return [node for node in self.nodes if isinstance(node, ast.Import | ast.ImportFrom)]


@dataclass(frozen=True)
class Function:
    """A function, with its measures."""

    name: str
    line: int
    lines: int
    """From its `def` to its end."""
    complexity: int


@dataclass(frozen=True)
class Place:
    """A place behind a figure."""

    weight: int
    """How bad it is; the worst is listed first."""
    text: str


class Source:
    """All modules of a checkout but the templates of new projects."""

    def __init__(self, checkout: Path) -> None:
        package = checkout / "src" / "antwort"
        self.modules = [
            Module(path.relative_to(package).as_posix(), text := path.read_text(encoding="utf-8"), ast.parse(text))
            for path in sorted(package.rglob("*.py"))
            if "templates" not in path.parts
        ]
        self._names = {module.name for module in self.modules} - {"antwort"}  # it has the version, and lazy names

    @cached_property
    def imports(self) -> Mapping[str, frozenset[str]]:
        """The own modules that each module imports; a name from a package is the module of it if there is one."""
        return {module.name: frozenset(self._imported(module)) - {module.name} for module in self.modules}

    def _imported(self, module: Module) -> Iterator[str]:
        for node in module.import_statements:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                names = [self._origin(node.module or "", alias.name) for alias in node.names]
            yield from (name for name in names if name in self._names)

    def _origin(self, package: str, name: str) -> str:
        module = f"{package}.{name}"
        return module if module in self._names else package

    @cached_property
    def importers(self) -> Mapping[str, set[str]]:
        """By whom each module is imported."""
        found: dict[str, set[str]] = defaultdict(set)
        for name, targets in self.imports.items():
            for target in targets:
                found[target].add(name)
        return found


# --- functions and files ---------------------------------------------------------------------------------------------


def complexity_of(function: AnyFunction) -> int:
    """Return one more than the decisions in the body of a function."""
    return 1 + sum(_decisions(node) for statement in function.body for node in _counted(statement))


def _counted(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is in it, but for functions and classes, which are counted for themselves."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    yield node
    if not isinstance(node, ast.Assert):
        for child in ast.iter_child_nodes(node):
            yield from _counted(child)


def _decisions(node: ast.AST) -> int:
    match node:
        case ast.Try():
            count = len(node.handlers) + bool(node.orelse)
        case ast.BoolOp():
            count = len(node.values) - 1
        case ast.If() | ast.IfExp() | ast.Assert():
            count = 1
        case ast.Match():
            count = len(node.cases) - any(_takes_all(case.pattern) for case in node.cases)
        case ast.For() | ast.While() | ast.AsyncFor():
            count = 1 + bool(node.orelse)
        case ast.comprehension():
            count = 1 + len(node.ifs)
        case _:
            count = 0
    return count


def _takes_all(pattern: ast.pattern) -> bool:
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None


def complex_functions(source: Source) -> list[Place]:
    """Return the functions with more decisions than one can follow."""
    return [
        Place(function.complexity, f"{module.path}:{function.line} {function.name}")
        for module in source.modules
        for function in module.functions
        if function.complexity > COMPLEX_FUNCTION
    ]


def long_functions(source: Source, above: int = LONG_FUNCTION) -> list[Place]:
    """Return the functions one cannot read at once."""
    return [
        Place(function.lines, f"{module.path}:{function.line} {function.name}")
        for module in source.modules
        for function in module.functions
        if function.lines > above and not module.path.startswith(REVISIONS)
    ]


def small_files(source: Source) -> list[Place]:
    """Return the files that are hardly worth opening, with how many modules import them."""
    return [
        Place(
            SMALL_FILE - module.lines,
            f"{module.path} ({module.lines} lines, imported by {len(source.importers.get(module.name, ()))})",
        )
        for module in source.modules
        if module.lines < SMALL_FILE
    ]


def crumbs(source: Source) -> list[Place]:
    """Return the small files that one module alone imports."""
    return [
        Place(SMALL_FILE - module.lines, f"{module.path} ({module.lines} lines) → {next(iter(importers))}")
        for module in source.modules
        if module.lines < SMALL_FILE
        and not module.path.endswith("__init__.py")
        and len(importers := source.importers.get(module.name, set())) == 1
    ]


def import_share(source: Source) -> float:
    """Return which part of all lines are import statements, in percent."""
    spent = sum(
        (node.end_lineno or 0) - node.lineno + 1 for module in source.modules for node in module.import_statements
    )
    return round(100 * spent / sum(module.lines for module in source.modules), 1)


# --- classes ---------------------------------------------------------------------------------------------------------


def names_twice(source: Source) -> list[Place]:
    """Return the names that several classes have."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in source.modules:
        for node in module.classes:
            places[node.name].append(f"{module.path}:{node.lineno}")
    return [Place(len(found), f"{name}: {', '.join(found)}") for name, found in places.items() if len(found) > 1]


def protocols_of_one(source: Source) -> list[Place]:
    """Return the protocols that exactly one class implements."""
    classes = [(module, node) for module in source.modules for node in module.classes]
    by_name: dict[str, list[ast.ClassDef]] = defaultdict(list)
    for _, node in classes:
        by_name[node.name].append(node)
    protocols = [(module, node) for module, node in classes if _is_protocol(node)]
    others = [(module, node, _members(node, by_name)) for module, node in classes if not _is_protocol(node)]
    exported = _exported(source)
    found = []
    for module, protocol in protocols:
        wanted = _members(protocol, by_name)
        having = [node.name for _, node, members in others if wanted <= members]
        if wanted != {"__call__"} and len(having) == 1 and protocol.name not in exported:
            found.append(Place(1, f"{module.path}:{protocol.lineno} {protocol.name} ← {having[0]}"))
    return found


def _exported(source: Source) -> set[str]:
    """Return the names that packages pass on, and the facade of plug-ins."""
    return {
        alias.asname or alias.name
        for module in source.modules
        if module.path in {"__init__.py", "provider.py", "testing/__init__.py"}
        for node in module.import_statements
        for alias in node.names
    }


def _base_names(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).partition("[")[0] in {"Protocol", "typing.Protocol"} for base in node.bases)


def _members(node: ast.ClassDef, by_name: Mapping[str, Sequence[ast.ClassDef]]) -> set[str]:
    """Return the names of what a class has, what it inherits and what its methods assign included."""
    found: set[str] = set()
    for inner in node.body:
        match inner:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(inner.name)
                found |= set(_assigned(inner))
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign():
                found |= {target.id for target in inner.targets if isinstance(target, ast.Name)}
    for name in _base_names(node):
        for base in by_name.get(name, ()):
            if base is not node:
                found |= _members(base, by_name)
    return found - {"__init__", "__slots__"}


def _assigned(method: AnyFunction) -> Iterator[str]:
    for node in ast.walk(method):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


# --- what is there twice ---------------------------------------------------------------------------------------------

_Run = tuple[str, int, int]
"""A run of statements: the module, its first line and its last."""


def alike(source: Source) -> list[Place]:
    """Return the pairs of runs of statements that are the same, those that overlap with the one before left out."""
    runs: dict[str, list[_Run]] = defaultdict(list)
    for module in source.modules:
        for statements in _bodies(module):
            for first, last in _shortest_runs(statements):
                text = "\n".join(line.strip() for line in module.text_lines[first - 1 : last])
                runs[text].append((module.path, first, last))
    pairs = sorted((one, other) for found in runs.values() for i, one in enumerate(found) for other in found[i + 1 :])
    found: list[tuple[_Run, _Run]] = []
    for one, other in pairs:
        if not (found and _overlap(found[-1][0], one) and _overlap(found[-1][1], other)):
            found.append((one, other))
    return [Place(one[2] - one[1] + 1, f"{one[0]}:{one[1]} = {other[0]}:{other[1]}") for one, other in found]


def _bodies(module: Module) -> Iterator[list[ast.stmt]]:
    for node in module.nodes:
        for part in ("body", "orelse", "finalbody"):
            statements = getattr(node, part, None)
            if isinstance(statements, list):
                yield [each for each in statements if isinstance(each, ast.stmt) and not _says_nothing(each)]


def _says_nothing(statement: ast.stmt) -> bool:
    """Tell whether a statement is an import or a docstring."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Import | ast.ImportFrom)


def _shortest_runs(statements: Sequence[ast.stmt]) -> Iterator[tuple[int, int]]:
    """Yield the run that begins with each statement and is just long enough."""
    for i, first in enumerate(statements):
        for last in statements[i:]:
            if (last.end_lineno or 0) - first.lineno + 1 >= ALIKE:
                yield first.lineno, last.end_lineno or 0
                break


def _overlap(one: _Run, other: _Run) -> bool:
    return one[0] == other[0] and other[1] <= one[2]


# --- who imports whom ------------------------------------------------------------------------------------------------


def circles(source: Source) -> list[Place]:
    """Return the groups of modules that import each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[Place] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(source.imports[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            group = [stack.pop()]
            while group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(Place(len(group), " ↔ ".join(sorted(group))))

    for module in source.modules:
        if module.name not in index:
            visit(module.name)
    return found


def rooms(source: Source) -> list[Place]:
    """Return the packages and modules right below the package, with their lines."""
    lines: dict[str, int] = defaultdict(int)
    for module in source.modules:
        if module.room != "__init__":
            lines[module.room] += module.lines
    return [Place(count, room) for room, count in lines.items()]


def arrows(source: Source) -> list[Place]:
    """Return which room imports which, with the number of modules that do."""
    count: dict[tuple[str, str], int] = defaultdict(int)
    for module in source.modules:
        for target in {name.split(".")[1] for name in source.imports[module.name] if "." in name}:
            if module.room not in {target, "__init__"}:
                count[module.room, target] += 1
    return [Place(times, f"{room} → {target}") for (room, target), times in count.items()]


# --- the table -------------------------------------------------------------------------------------------------------

MEASURES: Mapping[str, tuple[str, Callable[[Source], list[Place]]]] = {
    "twice": ("class names twice", names_twice),
    "protocols": ("protocols of one implementation", protocols_of_one),
    "long": (f"functions over {LONG_FUNCTION} lines", long_functions),
    "complexity": (f"functions of complexity over {COMPLEX_FUNCTION}", complex_functions),
    "small": (f"files under {SMALL_FILE} lines", small_files),
    "crumbs": ("of these imported by one module, packages aside", crumbs),
    "alike": (f"runs of {ALIKE} lines alike to the letter", alike),
    "circles": ("circles of imports, those for types included", circles),
    "rooms": ("rooms at the top", rooms),
    "arrows": ("arrows between them", arrows),
}


def figures(source: Source) -> dict[str, float]:
    """Return every figure by what it counts."""
    functions = [function for module in source.modules for function in module.functions]
    return {
        "modules": len(source.modules),
        "lines": sum(module.lines for module in source.modules),
        "imports, % of lines": import_share(source),
        "longest file": max(module.lines for module in source.modules),
        "longest function": max(place.weight for place in long_functions(source, above=0)),
        "highest complexity": max(function.complexity for function in functions),
        **{title: len(find(source)) for title, find in MEASURES.values()},
    }


def _print(rows: Iterable[tuple[str, float]]) -> None:
    for title, value in rows:
        print(f"{title:<52}{value:>10,}")


def main() -> int:
    """Print the figures, or the places behind one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, default=ROOT, metavar="DIR", help="the checkout to measure")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--list", choices=MEASURES, metavar="MEASURE", help=f"list places: {', '.join(MEASURES)}")
    given = parser.parse_args()
    source = Source(given.source)
    if given.list:
        for place in sorted(MEASURES[given.list][1](source), key=lambda place: (-place.weight, place.text)):
            print(f"{place.weight:5}  {place.text}")
    elif given.json:
        print(json.dumps(figures(source), indent=2))
    else:
        _print(figures(source).items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
