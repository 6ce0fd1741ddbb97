"""The pytest plug-in: fixtures for whoever has antwort installed.

pytest imports this module in every run of such an environment, so it imports nothing of weight; `antwort.testing`
loads its parts when a fixture first asks for them.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from antwort import testing

if TYPE_CHECKING:
    from antwort.config import Config, LoadedConfig
    from antwort.testing.apps import AppFactory, ServedApp


@pytest.fixture
def antwort_app(tmp_path: Path) -> "Iterator[AppFactory]":
    """Start apps on real sockets, from a configuration, functions and providers, and stop them after the test.

    Unless the configuration says otherwise, an app keeps its data in the test's own folder.
    """
    with contextlib.ExitStack() as stack:

        def start(config: "Config | LoadedConfig | Mapping[str, Any] | None" = None, **parts: Any) -> "ServedApp":
            if config is None or isinstance(config, Mapping):
                config = {"data_dir": tmp_path, **(config or {})}
            return stack.enter_context(testing.served(config, **parts))

        yield start
