"""One source of values with the origin of each, and the stacking of several."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from antwort.config.model import ProviderConfig, fold_entry
from antwort.config.origins import Origin, join, move, nearest
from antwort.config.problems import Problem
from antwort.config.secrets import is_secret_name
from antwort.errors import near_names

_ENTRY_DEPTH = 3
"""The parts of `providers.<name>.<key>`."""


class Layer(Struct):
    """The values of one source, or of several stacked on each other."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def put(self, path: list[str], value: Any, origin: Origin) -> None:
        """Set one value and make the mappings on the way to it."""
        target = self.values
        for depth, part in enumerate(path[:-1], start=1):
            if not isinstance(target.get(part), dict):
                move(self.origins, join(*path[:depth]), None)
                target[part] = {}
            target = target[part]
        target[path[-1]] = value
        move(self.origins, join(*path), None)
        self._mark(join(*path), value, origin)

    def _mark(self, key: str, value: Any, origin: Origin) -> None:
        self.origins[key] = origin
        parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        for part, inner in parts:
            self._mark(join(key, part), inner, origin)

    def stack(self, over: "Layer") -> None:
        """Lay a source of higher precedence on this one: mappings are merged, everything else is replaced."""
        self._merge(self.values, over.values, "")
        self.origins |= over.origins
        self.problems += over.problems
        self.warnings += over.warnings

    def _merge(self, below: dict[str, Any], above: dict[str, Any], prefix: str) -> None:
        for name, value in above.items():
            key = join(prefix, name)
            rival = _rival(name)
            if rival in below and rival not in above:
                del below[rival]
                move(self.origins, join(prefix, rival), None)
            if isinstance(below.get(name), dict) and isinstance(value, dict):
                self._merge(below[name], value, key)
            else:
                below[name] = value
                move(self.origins, key, None)

    def canonicalise(self) -> None:
        """Bring the providers into their one form: `providers.<name>.settings.<key>`."""
        self._rename_builtins()
        providers = self.values.get("providers")
        if not isinstance(providers, dict):
            return
        for name, entry in providers.items():
            if entry is None:
                providers[name] = {}
            elif isinstance(entry, dict):
                providers[name] = self._fold(f"providers.{name}", entry)

    def _rename_builtins(self) -> None:
        if "builtins" not in self.values:
            return
        origin = nearest(self.origins, "builtins")
        builtins = self.values.pop("builtins")
        if "providers" in self.values:
            other = nearest(self.origins, "providers")
            message = f"the same section as 'providers' ({other}) under its old name; keep 'providers' only"
            self.problems.append(Problem("builtins", message, origin))
            return
        self.values["providers"] = builtins
        move(self.origins, "builtins", "providers")
        self.warnings.append(f"{origin}: the section 'builtins' is deprecated; rename it to 'providers'")

    def _fold(self, key: str, entry: dict[str, Any]) -> dict[str, Any]:
        folded, twice = fold_entry(entry)
        for name in twice:
            origin = nearest(self.origins, f"{key}.{name}")
            other = nearest(self.origins, f"{key}.settings.{name}")
            message = f"given twice, here and below 'settings' ({other})"
            self.problems.append(Problem(f"{key}.{name}", message, origin))
        for name in [name for name in entry if name not in folded]:
            move(self.origins, f"{key}.{name}", f"{key}.settings.{name}")
        return folded

    def warn_of_entries_left_off(self) -> None:
        """Warn of providers that have settings and stay off because nobody says `enabled`; for the layer of all."""
        providers = self.values.get("providers")
        for name, entry in providers.items() if isinstance(providers, dict) else ():
            if not isinstance(entry, dict) or "enabled" in entry or not any(entry.values()):
                continue
            key, settings = f"providers.{name}", entry.get("settings")
            known = settings if isinstance(settings, dict) else {}
            typo = next((given for given in known if _resembles_enabled(given)), None)
            if typo is None:
                origin = nearest(self.origins, key)
                self.warnings.append(f"{origin}: {key} has settings but is not enabled; add 'enabled: true'")
            else:
                origin = nearest(self.origins, f"{key}.settings.{typo}")
                self.warnings.append(f"{origin}: {key}.{typo}: read as a setting; did you mean 'enabled'?")


def canonical_key(key: str) -> str:
    """Return the key under which a setting is kept that was written beside `enabled`."""
    parts = key.split(".")
    if len(parts) >= _ENTRY_DEPTH and parts[0] == "providers" and parts[2] not in ProviderConfig.model_fields:
        parts.insert(2, "settings")
    return ".".join(parts)


def _resembles_enabled(name: str) -> bool:
    return bool(near_names(name.lower(), ["enabled"], likeness=0.8))


def _rival(name: str) -> str:
    """Return the other way to give a secret, which a source of higher precedence replaces too: `x_file` for `x`."""
    base = name.removesuffix("_file")
    if base != name:
        return base if is_secret_name(base) else ""
    return f"{name}_file" if is_secret_name(name) else ""
