"""What installed packages declare for us, and how what they name is imported."""

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, distributions
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct
from typing_extensions import override

from antwort.errors import ConfigError, did_you_mean

DISTRIBUTION = "antwort"
_OF_EXTRA = re.compile(
    r"^Requires-Dist: (?P<name>[\w.-]+)[^;\n]*;.*\bextra == ['\"](?P<extra>[\w.-]+)['\"]", re.MULTILINE
)
"""How the metadata of a package names another one that an extra asks for."""
_OF_PROVIDERS = (f"{DISTRIBUTION}.provider", f"{DISTRIBUTION}.default_providers")
"""What groups begin with that have no extensions."""


class Package(Struct, frozen=True):
    """An installed package that has something for us."""

    name: str
    version: str
    declared: Sequence[EntryPoint]

    @classmethod
    def of(cls, installed: Distribution) -> "Package":
        """Read what an installed distribution declares."""
        metadata = installed.metadata
        return cls(metadata["Name"], metadata["Version"], tuple(installed.entry_points))

    @property
    def is_own(self) -> bool:
        """Whether it is ours."""
        return self.name == DISTRIBUTION

    def points(self, group: str) -> list[EntryPoint]:
        """Return what it declares in a group."""
        return [point for point in self.declared if point.group == group]

    @override
    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def own_points(group: str) -> list[EntryPoint]:
    """Return what our own package declares in a group, without a look at the others."""
    return [point for point in distribution(DISTRIBUTION).entry_points if point.group == group]


def packages() -> list[Package]:
    """Return the packages that declare something in our groups, ours first: their order differs between machines.

    Where one is there twice, the one that would be imported counts. Those that do not name us are not parsed, as
    `importlib.metadata.entry_points` would: it takes longer to read them all than to import most libraries.
    """
    found: dict[str, Package] = {}
    for installed in distributions():
        if DISTRIBUTION in (installed.read_text("entry_points.txt") or ""):
            package = Package.of(installed)
            found.setdefault(package.name, package)
    return sorted(found.values(), key=lambda package: (not package.is_own, package.name))


def rivals(found: Iterable[Package]) -> Iterator[str]:
    """Tell of extensions that several packages bring under one name, in the order in which they are looked through."""
    first: dict[tuple[str, str], Package] = {}
    for package in found:
        for point in package.declared:
            if not point.group.startswith(f"{DISTRIBUTION}.") or point.group.startswith(_OF_PROVIDERS):
                continue
            used = first.setdefault((point.group, point.name), package)
            if used is not package:
                yield (
                    f"'{point.name}' of {point.group} is brought by {used} and again by {package}; the first one is "
                    f"used, and use: '{point.module}:{point.attr}' means the other"
                )


def has_extra(package: str, extra: str) -> bool:
    """Tell whether all that an extra of an installed package asks for is installed, whatever its version.

    `importlib.metadata.requires` would parse the whole page of the package, each time.
    """
    head = (distribution(package).read_text("METADATA") or "").partition("\n\n")[0]
    wanted = [match["name"] for match in _OF_EXTRA.finditer(head) if match["extra"] == extra]
    return bool(wanted) and all(map(_is_installed, wanted))


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def imported(use: str) -> Any:
    """Import what 'module:Class' names; a ConfigError says what is not there."""
    module_name, _, attribute = use.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"use: '{use}' is not of the form 'module:Class'")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"use: there is no module '{error.name}'; is it installed, and on PYTHONPATH?") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ConfigError(
            f"use: module '{module_name}' has no '{attribute}'{did_you_mean(attribute, vars(module))}"
        ) from None


def module_of_file(file: Path, name: str, folder: str | None = None) -> ModuleType:
    """Import a file, once, under a name that no other file has; `folder` has its submodules if it is a package."""
    file = file.resolve()
    module_name = f"{name}_{sha256(str(file).encode()).hexdigest()[:8]}"
    module = sys.modules.get(module_name)
    if module is None:
        spec = importlib.util.spec_from_file_location(
            module_name, file, submodule_search_locations=None if folder is None else [folder]
        )
        if spec is None or spec.loader is None:
            raise ConfigError(f"{file} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[module_name]
            raise
    return module
