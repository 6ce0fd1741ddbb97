"""Loading: flag over environment over file over default, every problem found at once."""

import copy
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field
from pydantic import BaseModel, SecretStr, ValidationError

from antwort.config.layers import Layer, canonical_key
from antwort.config.model import Config, ProviderConfig
from antwort.config.origins import Origin, VisibleValue, nearest, visible_values
from antwort.config.problems import Problem, problems_of, raised
from antwort.config.secrets import is_secret_name
from antwort.config.settings import alternatives, is_model, types_at
from antwort.errors import ConfigError
from antwort.lazy_imports import compiled_on_use, imported_on_use

if TYPE_CHECKING:
    from antwort.config import document
else:  # without a file nothing is read, and no library for YAML is needed
    document = imported_on_use("antwort.config.document")

CONFIG_VARIABLE = "ANTWORT_CONFIG"
DEFAULT_FILE = "antwort.yaml"
_FLAGS = {"backend": ("backends", "default", "url"), "model": ("engine", "default_model")}
"""What the flags of the commands are called, where settings have other names."""
_MOST = 3
"""Settings that are named, at most: a word that fits more of them was meant for something else."""
_OF_KUBERNETES = compiled_on_use(r"service_(host|port(_\w+)?)|port_\d+_(tcp|udp)(_\w+)?")
"""What Kubernetes puts into the pods beside a service called antwort."""

_PREFIX = "ANTWORT_"
_PLUGINS = "plugins_dir"
S = TypeVar("S", bound=BaseModel)


class Override(Struct, frozen=True):
    """A value given by a flag. None means that the flag was not given."""

    key: str
    value: object
    flag: str
    """The flag as the operator types it, such as `--port`."""


def find_file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the file to read: the one given, else `$ANTWORT_CONFIG`, else `antwort.yaml` in this folder if there."""
    if path is not None:
        return path
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named)
    default = Path(DEFAULT_FILE)
    return default if default.exists() else None


def read_file(path: Path, environ: Mapping[str, str]) -> Layer:
    """Read a configuration file; raise ConfigError if it cannot be read as one."""
    name = str(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError("the configuration file does not exist", where=name) from None
    except IsADirectoryError:
        raise ConfigError("the configuration file is a directory", where=name) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(f"the configuration file cannot be read: {reason}", where=name) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError("the configuration file is not UTF-8 text", where=f"{name}:{line}") from None
    return document.read_document(text, name=name, environ=environ)


def read_environment(environ: Mapping[str, str], below: Mapping[str, Any]) -> Layer:
    """Read the variables `ANTWORT_SECTION__KEY`; an empty one counts as not set.

    `below` are the values they are laid on: names there are found whatever their case, and `_` stands for `-` too.
    A name without `__` that is no top-level key is not ours, and is warned of if it looks as if it were.
    """
    layer = Layer()
    for name in sorted(environ, key=lambda name: (name.count("__"), name)):
        if not name.upper().startswith(_PREFIX) or not environ[name]:
            continue
        parts = name[len(_PREFIX) :].lower().split("__")
        if len(parts) == 1 and parts[0] not in Config.model_fields:
            if meant := _intended_variables(parts[0], environ[name]):
                layer.warnings.append(f"environment {name}: it is not read; the name is {' or '.join(meant)}")
            continue
        origin = Origin("environment", name)
        if not all(parts):
            layer.problems.append(Problem("", "fits no key; the form is ANTWORT_SECTION__KEY", origin))
            continue
        path = _spelled(parts, below)
        value: Any = environ[name]
        if value.lstrip().startswith(("[", "{")) and not _is_text(path):
            value, problems = document.read_flow(value, key=".".join(path), origin=origin)
            layer.problems += problems
        layer.put(path, value, origin)
    return layer


def _intended_variables(name: str, value: str) -> list[str]:
    """Return the variables that may have been meant by `ANTWORT_<name>`; none if it is somebody else's.

    It is one that lacks the section, as PORT, or has `_` in the place of `__`, as SERVER_PORT.
    """
    wanted = name.lower()
    if _OF_KUBERNETES.fullmatch(wanted) or value.startswith(("tcp://", "udp://")):
        return []
    paths = [path for path in _setting_paths(Config) if wanted == "_".join(path)]
    paths = paths or [path for path in _setting_paths(Config) if wanted == path[-1]]
    if not paths and wanted in _FLAGS:
        paths = [_FLAGS[wanted]]
    names = ["ANTWORT_" + "__".join(path).upper() for path in paths]
    return names if len(names) <= _MOST else []


def _setting_paths(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the settings of the sections; what stands below names that the operator chooses is left out."""
    for name, info in model.model_fields.items():
        path = (*above, name)
        inner = [kind for kind in alternatives(info.annotation) if is_model(kind)]
        if not inner:
            yield path
        for kind in inner:
            yield from _setting_paths(kind, path)


def read_overrides(overrides: Iterable[Override]) -> Layer:
    """Read the values given by flags."""
    layer = Layer()
    for given in overrides:
        if given.value is not None:
            layer.put(given.key.split("."), copy.deepcopy(given.value), Origin("flag", given.flag))
    return layer


def _is_text(path: list[str]) -> bool:
    """Tell whether a key takes text only, so that `[::1]` or a password that starts with a bracket stays what it is."""
    kinds = types_at(Config, path)
    return {str, Path, SecretStr}.issuperset(kinds) if kinds else is_secret_name(path[-1])


def _spelled(parts: list[str], below: Mapping[str, Any]) -> list[str]:
    """Return the path with each part spelled as in the values below."""
    path: list[str] = []
    current: Any = below
    for part in parts:
        names = current if isinstance(current, Mapping) else {}
        path.append(next((name for name in names if name.lower().replace("-", "_") == part), part))
        current = names.get(path[-1])
    return path


class LoadedConfig(Struct, frozen=True):
    """A configuration that knows where each of its values came from."""

    config: Config
    path: Path | None = None
    """The file that was read."""
    warnings: tuple[str, ...] = ()
    """What works but should be changed, one line each."""
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """The origin of every key that was given; those not here have their defaults."""

    def origin(self, key: str) -> Origin:
        """Return where a dotted key was given, or else the nearest key around it."""
        return nearest(self.origins, canonical_key(key))

    def entries(self) -> list[VisibleValue]:
        """Return every value with its origin, secrets masked."""
        return visible_values(self.config, self.origins)


def load_config(
    path: Path | str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[Override] = (),
) -> LoadedConfig:
    """Load the configuration from a file, the environment and flags; raise ConfigError with all problems at once.

    Without a path the file is `$ANTWORT_CONFIG`, else `antwort.yaml` in the working folder if there is one.
    """
    file, layer = _stacked(path, os.environ if environ is None else environ, overrides)
    layer.warn_of_entries_left_off()
    return LoadedConfig(_validated(layer), file, tuple(layer.warnings), layer.origins)


def load_right_parts(
    path: Path | str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[Override] = (),
) -> LoadedConfig | None:
    """Load a configuration without what is wrong in it: sections, and of `providers` entries.

    It is there to be examined, not to be served. None if the file cannot be read, or if what is wrong decides what
    other parts mean.
    """
    try:
        file, layer = _stacked(path, os.environ if environ is None else environ, overrides)
    except ConfigError:
        return None
    wrong = [problem.key.split(".") for problem in layer.problems]
    try:
        Config.model_validate(layer.values)
    except ValidationError as error:
        wrong += [[str(part) for part in one["loc"]] for one in error.errors()]
    for section, *names in filter(None, wrong):
        entries = layer.values.get(section)
        if section == _PLUGINS:  # without it nobody knows which providers there are
            return None
        if section != "providers" or not names or not isinstance(entries, dict):
            layer.values.pop(section, None)
        else:
            entries.pop(names[0], None)
    try:
        return LoadedConfig(Config.model_validate(layer.values), file, (), layer.origins)
    except ValidationError:
        return None


def _stacked(
    path: Path | str | None, environ: Mapping[str, str], overrides: Iterable[Override]
) -> tuple[Path | None, Layer]:
    """Read the file, the environment and flags, and lay them on each other."""
    file = find_file(Path(path) if isinstance(path, str) else path, environ)
    layer = Layer() if file is None else read_file(file, environ)
    layer.canonicalise()
    for above in (read_environment(environ, layer.values), read_overrides(overrides)):
        above.canonicalise()
        layer.stack(above)
    return file, layer


def validate_settings(
    model: type[S],
    raw: Mapping[str, Any],
    *,
    key: str,
    loaded: LoadedConfig | None = None,
) -> S:
    """Turn the raw mapping at `key`, such as a provider's settings, into its model; raise ConfigError if it is bad."""
    try:
        return model.model_validate(dict(raw))
    except ValidationError as error:
        loaded = loaded or LoadedConfig(Config())
        # A mistyped `enabled` was taken for a setting, so these names are worth suggesting too.
        beside = tuple(ProviderConfig.model_fields) if key.startswith("providers.") else ()
        problems = problems_of(error, model, raw, prefix=key, origin_of=loaded.origin, also_known=beside)
        raise raised(problems) from None


def _validated(layer: Layer) -> Config:
    problems = list(layer.problems)
    try:
        config = Config.model_validate(layer.values)
    except ValidationError as error:
        # A value that could not be read is missing from its section; that is no second problem.
        reported = [f"{problem.key}." for problem in problems]
        found = problems_of(error, Config, layer.values, origin_of=partial(nearest, layer.origins))
        problems += [new for new in found if not any(known.startswith(f"{new.key}.") for known in reported)]
        raise raised(problems) from None
    if problems:
        raise raised(problems)
    return config
