"""What tests of functions, providers and apps need; public, deterministic, strict."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antwort.testing.apps import Answer, AppFactory, RunningApp, ServedApp, running, served
    from antwort.testing.chat import count_words
    from antwort.testing.contract import ProviderContract
    from antwort.testing.expectations import matching
    from antwort.testing.linting.lint import LintedStream, lint_response, lint_stream
    from antwort.testing.linting.report import LintError, Violation
    from antwort.testing.playback import Gate
    from antwort.testing.script import Call, Dialect, Failure, ScriptError, Turn, call, fail, raw, turn
    from antwort.testing.script_server import ScriptServer
    from antwort.testing.scripted import ScriptedBackend

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
    "antwort.testing.apps": ("Answer", "AppFactory", "RunningApp", "ServedApp", "running", "served"),
    "antwort.testing.contract": ("ProviderContract",),
    "antwort.testing.playback": ("Gate",),
    "antwort.testing.linting.lint": ("LintedStream", "lint_response", "lint_stream"),
    "antwort.testing.linting.report": ("LintError", "Violation"),
    "antwort.testing.expectations": ("matching",),
    "antwort.testing.script": ("Call", "Dialect", "Failure", "ScriptError", "Turn", "call", "fail", "raw", "turn"),
    "antwort.testing.script_server": ("ScriptServer",),
    "antwort.testing.scripted": ("ScriptedBackend",),
    "antwort.testing.chat": ("count_words",),
}
"""Where each name lives. They are imported on first use: pytest loads this package wherever antwort is installed."""


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'antwort.testing' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
