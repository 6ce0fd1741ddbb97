"""antwort: any OpenAI SDK in front, any model behind, and a function registry at the heart."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antwort.app import Antwort
    from antwort.config import load_config
    from antwort.context import Agent, Context, Principal, Progress
    from antwort.errors import AntwortError, APIError, ConfigError, FunctionError
    from antwort.functions import (
        FunctionProvider,
        FunctionRegistry,
        FunctionSpec,
        Provider,
        ToolResult,
        function,
        route,
    )

__version__ = "0.1.0"

__all__ = [
    "APIError",
    "Agent",
    "Antwort",
    "AntwortError",
    "ConfigError",
    "Context",
    "FunctionError",
    "FunctionProvider",
    "FunctionRegistry",
    "FunctionSpec",
    "Principal",
    "Progress",
    "Provider",
    "ToolResult",
    "__version__",
    "function",
    "load_config",
    "route",
]

_HOME = {
    "antwort.app": ("Antwort",),
    "antwort.config": ("load_config",),
    "antwort.context": ("Agent", "Context", "Principal", "Progress"),
    "antwort.errors": ("APIError", "AntwortError", "ConfigError", "FunctionError"),
    "antwort.functions": (
        "FunctionProvider",
        "FunctionRegistry",
        "FunctionSpec",
        "Provider",
        "ToolResult",
        "function",
        "route",
    ),
}
"""Where each public name lives. They are imported on first use, so that `import antwort` stays quick."""


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'antwort' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
