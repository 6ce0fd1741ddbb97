"""What tests of functions, providers and apps need; public, deterministic, strict."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antwort.testing.apps import Answer, AppFactory, ServedApp, served
    from antwort.testing.contract import ProviderContract
    from antwort.testing.server import RunningApp, running

__all__ = ["Answer", "AppFactory", "ProviderContract", "RunningApp", "ServedApp", "running", "served"]

_HOME = {
    "antwort.testing.apps": ("Answer", "AppFactory", "ServedApp", "served"),
    "antwort.testing.contract": ("ProviderContract",),
    "antwort.testing.server": ("RunningApp", "running"),
}
"""Where each name lives. They are imported on first use: pytest loads this package wherever antwort is installed."""


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'antwort.testing' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
