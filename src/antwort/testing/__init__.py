"""What tests of functions, providers and apps need; public, deterministic, strict."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antwort.testing.apps import Answer, AppFactory, ServedApp, served
    from antwort.testing.contract import ProviderContract
    from antwort.testing.dialects import Dialect
    from antwort.testing.expectations import matching
    from antwort.testing.gates import Gate
    from antwort.testing.lint import LintedStream, LintError, Violation, lint_response, lint_stream
    from antwort.testing.script import Call, Failure, ScriptError, Turn, call, fail, raw, turn
    from antwort.testing.script_server import ScriptServer
    from antwort.testing.scripted import ScriptedBackend
    from antwort.testing.server import RunningApp, running
    from antwort.testing.tokenizers import count_words

__all__ = [
    "Answer",
    "AppFactory",
    "Call",
    "Dialect",
    "Failure",
    "Gate",
    "LintError",
    "LintedStream",
    "ProviderContract",
    "RunningApp",
    "ScriptError",
    "ScriptServer",
    "ScriptedBackend",
    "ServedApp",
    "Turn",
    "Violation",
    "call",
    "count_words",
    "fail",
    "lint_response",
    "lint_stream",
    "matching",
    "raw",
    "running",
    "served",
    "turn",
]

_HOME = {
    "antwort.testing.apps": ("Answer", "AppFactory", "ServedApp", "served"),
    "antwort.testing.contract": ("ProviderContract",),
    "antwort.testing.dialects": ("Dialect",),
    "antwort.testing.gates": ("Gate",),
    "antwort.testing.lint": ("LintError", "LintedStream", "Violation", "lint_response", "lint_stream"),
    "antwort.testing.expectations": ("matching",),
    "antwort.testing.script": ("Call", "Failure", "ScriptError", "Turn", "call", "fail", "raw", "turn"),
    "antwort.testing.script_server": ("ScriptServer",),
    "antwort.testing.scripted": ("ScriptedBackend",),
    "antwort.testing.server": ("RunningApp", "running"),
    "antwort.testing.tokenizers": ("count_words",),
}
"""Where each name lives. They are imported on first use: pytest loads this package wherever antwort is installed."""


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'antwort.testing' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
