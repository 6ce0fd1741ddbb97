"""Configurations of antwort that come in other files."""

import re
from pathlib import Path

from antwort import Antwort
from antwort.config import Config, load_config

SECRET = "a-secret-of-more-than-32-characters"


def variables_in(text: str) -> set[str]:
    """Return the variables that a configuration cannot do without."""
    return set(re.findall(r"(?<!\$)\$\{(\w+)\}", text))


def loaded(text: str, folder: Path) -> Config:
    """Load a configuration as a server does, build the server that it is of, and return it."""
    file = folder / "antwort.yaml"
    file.write_text(text)
    # An address where one is wanted, and a long random text everywhere else.
    environ = {name: "http://model/v1" if name.endswith("_URL") else SECRET for name in variables_in(text)}
    found = load_config(file, environ=environ)
    assert found.warnings == ()
    Antwort(found)
    return found.config


def seconds_to_stop(config: Config) -> float:
    """Return the time in which a server is gone that was told to stop: docs/operations.md."""
    assert config.functions.close_timeout is not None
    return config.server.shutdown_timeout + config.functions.close_timeout + 15
