"""Finding providers: installed packages, `use:` in the configuration, files in a folder.

Nothing is imported before it is needed.
"""

import importlib.util
import inspect
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from antwort.config import Config, LoadedConfig, ProviderConfig, installed, secret_values
from antwort.errors import ConfigError, did_you_mean
from antwort.functions.absent import Declared
from antwort.functions.output import described
from antwort.functions.provider import FunctionProvider, Provider, is_check, is_function
from antwort.functions.slow_watch import SlowWatch
from antwort.functions.spec import Offer
from antwort.observability import Redactor
from antwort.storage.urls import why_one_process

GROUP = "antwort.providers"
DEFAULT_GROUP = "antwort.default_providers"
NEEDS_GROUP = "antwort.provider_needs"
PATH_GROUP = "antwort.provider_paths"
TOOL_GROUP = "antwort.provider_tools"
_ON_DEMAND = f"{DEFAULT_GROUP}."
"""What the groups begin with that name what the default set has besides; an extra follows."""
_MEMBERS = ("name", "tools", "can_execute", "execute", "routes", "collectors", "close")
logger = logging.getLogger(__name__)


class Found(Struct, frozen=True):
    """A provider type that can be had, not yet imported."""

    name: str
    origin: str
    """Where it comes from, for people: a package and version, a file, a module."""
    load: Callable[[], Any]
    """Import it and return a Provider class or a factory."""
    own: bool = False
    """Whether it comes with antwort, so that to import it costs little and cannot fail."""


class Catalogue:
    """Every provider type within reach: factories given in code, installed packages, the plug-in folder."""

    def __init__(
        self,
        *,
        plugins_dir: Path | None = None,
        factories: Mapping[str, Callable[[Mapping[str, Any]], Any]] | None = None,
    ) -> None:
        self._found: dict[str, Found] = {}
        self.conflicts: list[str] = []
        """Names of providers and extensions that are brought twice, with who brings them and which is used."""
        self._watch = SlowWatch()
        for name, factory in (factories or {}).items():
            self._add(Found(name, "register_factory", partial(_itself, factory)))
        packages = installed.packages()
        own = [package for package in packages if package.is_own]
        for package in packages:
            for point in sorted(package.points(GROUP), key=attrgetter("name")):
                self._add(Found(point.name, str(package), point.load, package.is_own))
        self.conflicts += installed.rivals(packages)
        self.plugins = tuple(self._add_plugins(plugins_dir)) if plugins_dir is not None else ()
        self.defaults = tuple(point.name for point in _points(own, DEFAULT_GROUP))
        self._on_demand = [
            (point.name, point.group.removeprefix(_ON_DEMAND))
            for package in own
            for point in package.declared
            if point.group.startswith(_ON_DEMAND)
        ]
        self._names = {point.value: point.name for point in _points(packages, GROUP)}
        """Of the providers of packages, by `module:Class`."""
        self._needs = self._declared_in(packages, NEEDS_GROUP)
        self._answered = [dict(self._declared_in(packages, group)) for group in (PATH_GROUP, TOOL_GROUP)]

    def _declared_in(self, packages: Iterable[installed.Package], group: str) -> list[tuple[str, str]]:
        """Return what a group declares, each with the name of the provider that has it."""
        points = _points(packages, group)
        return [(point.name, self._names[point.value]) for point in points if point.value in self._names]

    def declared(self, names: Collection[str]) -> Declared:
        """Return what the installed packages say that providers have, of those with these names."""
        return Declared(*({what: name for what, name in group.items() if name in names} for group in self._answered))

    def disabled(self, present: Collection[str]) -> Declared:
        """Return the same of all that are not present."""
        return self.declared({found.name for found in self} - {*present})

    @cached_property
    def on_demand(self) -> list[str]:
        """Return what the default set has besides, as soon as somebody uses it, by the extras that are installed."""
        return [name for name, extra in self._on_demand if installed.has_extra(installed.DISTRIBUTION, extra)]

    def needed_by(self, name: str, use: str | None = None) -> list[str]:
        """Return the providers without which one is of no use; `use` as with `find`."""
        known = name if use is None else self._names.get(use)
        return [needed for one, needed in self._needs if one == known]

    def _add(self, found: Found) -> None:
        first = self._found.setdefault(found.name, found)
        if first is not found:
            self.conflicts.append(
                f"provider '{found.name}' is brought by {first.origin} and again by {found.origin}; "
                "the first one is used"
            )

    def _add_plugins(self, folder: Path) -> list[str]:
        if not folder.is_dir():
            raise ConfigError(f"plugins_dir: there is no folder {folder}")
        names = []
        for path in sorted(folder.iterdir()):
            package = path / "__init__.py"
            file = package if package.is_file() else path
            name = path.stem if file.suffix == ".py" else ""
            if name.startswith(("_", "test_")) or name in {"", "conftest"}:
                continue
            if not name.isidentifier():
                logger.warning("%s is not loaded: a plug-in needs a name that can be a Python name", path)
            else:
                self._add(Found(name, str(path), partial(_from_file, file, name)))
                names.append(name)
        return names

    def __iter__(self) -> Iterator[Found]:
        return iter(self._found.values())

    def find(self, name: str, use: str | None = None) -> Found:
        """Return a provider type by name, or by the `module:Class` that `use` gives; ConfigError if there is none."""
        if use is not None:
            return Found(name, use, partial(installed.imported, use))
        found = self._found.get(name)
        if found is None:
            known = ", ".join(sorted(self._found))
            raise ConfigError(
                f"providers.{name}: unknown provider type{did_you_mean(name, self._found)} (known: {known}); "
                "install the package that brings it, or name it with use: 'module:Class'"
            )
        return found

    def make(self, name: str, config: ProviderConfig, loaded: LoadedConfig | None = None) -> FunctionProvider:
        """Import a provider and build it from its settings. Whatever goes wrong is a ConfigError that names it."""
        where = given_at(loaded, f"providers.{name}")
        try:
            found = self.find(name, config.use)
        except ConfigError as error:
            raise ConfigError(error.message, where=where) from None
        try:
            with self._watch.warn_if_slow(f"provider '{name}': to load it"):
                target = found.load()
                if inspect.isclass(target) and issubclass(target, Provider):
                    return target.from_settings(config.settings, name=name, loaded=loaded)
                provider = target(config.settings)
        except ConfigError as error:
            if error.where is not None:
                raise
            prefix = "" if error.message.startswith(f"providers.{name}.") else f"providers.{name}: "
            raise ConfigError(f"{prefix}{error.message}", where=where) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            cause = described(error, Redactor(secret_values(config)))
            raise ConfigError(f"providers.{name}: {found.origin} cannot be loaded: {cause}", where=where) from error
        if not isinstance(provider, FunctionProvider):
            missing = ", ".join(member for member in _MEMBERS if not hasattr(provider, member))
            kind = type(provider).__name__
            raise ConfigError(
                f"providers.{name}: {found.origin} gave a {kind}, not a provider (it lacks {missing})", where=where
            )
        if provider.name != name:
            raise ConfigError(
                f"providers.{name}: {found.origin} gave a provider called '{provider.name}'; the two must be the same",
                where=where,
            )
        return provider


def given_at(loaded: LoadedConfig | None, key: str) -> str | None:
    """Return where a key was given, for an error; None if it was not."""
    origin = None if loaded is None else loaded.origin(key)
    return None if origin is None or origin.kind == "default" else str(origin)


def _itself(factory: Callable[[Mapping[str, Any]], Any]) -> Any:
    return factory


def _from_file(file: Path, name: str) -> Any:
    """Import a plug-in file under a name of its own and return what it brings."""
    folder = str(file.resolve().parent) if file.name == "__init__.py" else None
    return _provider_in(installed.module_of_file(file, f"antwort_plugin_{name}", folder), name)


def _provider_in(module: ModuleType, name: str) -> Any:
    own = [value for value in vars(module).values() if getattr(value, "__module__", "").startswith(module.__name__)]
    classes = _outermost(value for value in own if inspect.isclass(value) and issubclass(value, Provider))
    functions = {value.__name__: staticmethod(value) for value in own if is_function(value)}
    if len(classes) > 1:
        names = ", ".join(one.__name__ for one in classes)
        raise ConfigError(f"the plug-in '{name}' has several providers ({names}); give each a file of its own")
    if classes and functions:
        raise ConfigError(
            f"the plug-in '{name}' has a provider ({classes[0].__name__}) and functions beside it "
            f"({', '.join(functions)}); put them into the provider, or into a file of their own"
        )
    if classes:
        return classes[0]
    if not functions:
        raise ConfigError(f"the plug-in '{name}' {_lacking(own)}")
    return type(name, (Provider,), {"name": name, "__doc__": module.__doc__, **functions})


def _lacking(own: Iterable[Any]) -> str:
    """Say why what a plug-in has makes no provider."""
    alone = next((value.__name__ for value in own if is_check(value)), None)
    if alone is None:
        return "has neither a Provider class nor a function marked with @function"
    return f"has a check, {alone}, and no Provider class; checks are methods of one"


def _outermost(classes: Iterable[type]) -> list[type]:
    """Return classes, each once, but for those that others of them inherit."""
    found = dict.fromkeys(classes)
    return [one for one in found if not any(other is not one and issubclass(other, one) for other in found)]


def _points(packages: Iterable[installed.Package], group: str) -> Iterator[EntryPoint]:
    return (point for package in packages for point in package.points(group))


_WORD = re.compile(r"[^\W\d]\w*")


def doubt_about(use: str) -> str | None:
    """Return why 'module:Class' cannot be imported, as far as that can be seen from outside; None if it may well be.

    A module that makes its names as it runs is given the benefit of the doubt.
    """
    module, _, attribute = use.partition(":")
    spec: ModuleSpec | None = None
    path: Sequence[str] | None = None
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        spec = _spec(name, path)
        if spec is None:
            return f"use: there is no module '{name}'; is it installed, and on PYTHONPATH?"
        path = spec.submodule_search_locations
        if path is None and count < len(parts):
            return f"use: '{name}' is a module, not a package, so there is no '{module}'"
    source = _source(spec)
    if source is None or "import *" in source or "__getattr__" in source or "globals()" in source:
        return None
    words = set(_WORD.findall(source))
    first = attribute.partition(".")[0]
    return None if first in words else f"use: module '{module}' has no '{first}'{did_you_mean(first, words)}"


def _spec(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Find a module; its packages, whose folders are given, are not imported as `importlib.util.find_spec` would."""
    if path is None:
        try:
            return importlib.util.find_spec(name)
        except ValueError:  # it is running, and nobody knows where from: `__main__`
            return ModuleSpec(name, None)
    return next((spec for finder in sys.meta_path if (spec := finder.find_spec(name, path)) is not None), None)


def _source(spec: ModuleSpec | None) -> str | None:
    file = Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
    if file is None or file.suffix != ".py":
        return None
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


# --- which providers there are ----------------------------------------------------------------------------------------


def enabled_providers(config: Config, catalogue: Catalogue, *, demo: bool = False) -> dict[str, ProviderConfig]:
    """Return the providers to load, in order: those of the file, or the default set, then those of the plug-in folder.

    Naming a plug-in folder enables what lies in it; the file can still disable a plug-in by name, and a provider that
    another one needs, which is enabled with it otherwise. The default set is offered to requests that name its
    functions, but to the demo model always: it can do nothing else than call them.
    """
    if config.providers is None:
        entry = ProviderConfig(enabled=True, offer=default_offer(demo=demo))
        chosen = dict.fromkeys(default_providers(config, catalogue), entry)
    else:
        chosen = dict(config.providers)
    for name, entry in [*chosen.items()]:
        for needed in catalogue.needed_by(name, entry.use) if entry.enabled else ():
            chosen.setdefault(needed, ProviderConfig(enabled=True))
    for name in catalogue.plugins:
        chosen.setdefault(name, ProviderConfig(enabled=True))
    return {name: provider for name, provider in chosen.items() if provider.enabled}


def default_offer(*, demo: bool) -> Offer:
    """Return how the default set is offered; `demo` if the demo model answers."""
    return "always" if demo else "on_request"


def default_providers(config: Config, catalogue: Catalogue) -> list[str]:
    """Return the default set: what it always has, and what was used before of that which it has on demand."""
    return [*catalogue.defaults, *(name for name, was_used in _on_demand(config, catalogue).items() if was_used)]


def sleeping_providers(config: Config, catalogue: Catalogue) -> list[str]:
    """Return what the default set has on demand, and nobody has used so far."""
    return [name for name, was_used in _on_demand(config, catalogue).items() if not was_used]


def _on_demand(config: Config, catalogue: Catalogue) -> dict[str, bool]:
    """Return which providers the default set has on demand, and of each whether it was used: it has a folder then.

    Where several processes may serve there are none: what such a provider keeps could belong to one of them.
    """
    if config.providers is not None or why_one_process(config) is None:
        return {}
    folder = config.data_dir / "providers"
    return {name: (folder / name).is_dir() for name in catalogue.on_demand if name not in catalogue.plugins}
