"""Loading: flag over environment over file over default, every problem found at once."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from antwort.config.layers import Layer, canonical_key
from antwort.config.model import Config, ProviderConfig
from antwort.config.origins import Origin, nearest
from antwort.config.problems import problems_of, raised
from antwort.config.show import Entry, entries
from antwort.config.sources import Override, find_file, read_environment, read_file, read_overrides

__all__ = ["LoadedConfig", "load_config", "validate_settings"]

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration that knows where each of its values came from."""

    config: Config
    path: Path | None = None
    """The file that was read."""
    warnings: tuple[str, ...] = ()
    """What works but should be changed, one line each."""
    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False)
    """The origin of every key that was given; those not here have their defaults."""

    def origin(self, key: str) -> Origin:
        """Return where a dotted key was given, or else the nearest key around it."""
        return nearest(self.origins, canonical_key(key))

    def entries(self) -> list[Entry]:
        """Return every value with its origin, secrets masked."""
        return entries(self.config, self.origins)


def load_config(
    path: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[Override] = (),
) -> LoadedConfig:
    """Load the configuration from a file, the environment and flags; raise ConfigError with all problems at once.

    Without a path the file is `$ANTWORT_CONFIG`, else `antwort.yaml` in the working folder if there is one.
    """
    environ = os.environ if environ is None else environ
    file = find_file(path, environ)
    layer = Layer() if file is None else read_file(file, environ)
    layer.canonicalise()
    for above in (read_environment(environ, layer.values), read_overrides(overrides)):
        above.canonicalise()
        layer.stack(above)
    layer.warn_of_entries_left_off()
    return LoadedConfig(_validated(layer), file, tuple(layer.warnings), layer.origins)


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
