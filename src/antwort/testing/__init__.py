"""What tests of functions, providers and apps need; public, deterministic, strict."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antwort.testing.apps import Answer, AppFactory, RunningApp, ServedApp, running, served
    from antwort.testing.chat import count_words
    from antwort.testing.checks import PassedAnswer, passed_answer, verdict_of
    from antwort.testing.contract import ProviderContract
    from antwort.testing.linting.lint import LintedStream, lint_response, lint_stream
    from antwort.testing.linting.report import LintError, Violation
    from antwort.testing.part_contracts import BlobStoreContract, DialectContract, SandboxContract
    from antwort.testing.playback import Gate
    from antwort.testing.prefix_cache import PrefixCache
    from antwort.testing.script import Call, Dialect, Failure, ScriptError, Turn, call, fail, matching, raw, turn
    from antwort.testing.script_server import ScriptServer
    from antwort.testing.scripted import ScriptedBackend
    from antwort.testing.search_contracts import (
        EmbeddingContract,
        RerankerContract,
        SearchEngineContract,
        VectorDatabaseContract,
    )

__all__ = [
    "Answer",
    "AppFactory",
    "BlobStoreContract",
    "Call",
    "Dialect",
    "DialectContract",
    "EmbeddingContract",
    "Failure",
    "Gate",
    "LintError",
    "LintedStream",
    "PassedAnswer",
    "PrefixCache",
    "ProviderContract",
    "RerankerContract",
    "RunningApp",
    "SandboxContract",
    "ScriptError",
    "ScriptServer",
    "ScriptedBackend",
    "SearchEngineContract",
    "ServedApp",
    "Turn",
    "VectorDatabaseContract",
    "Violation",
    "call",
    "count_words",
    "fail",
    "lint_response",
    "lint_stream",
    "matching",
    "passed_answer",
    "raw",
    "running",
    "served",
    "turn",
    "verdict_of",
]

_HOME = {
    "antwort.testing.apps": ("Answer", "AppFactory", "RunningApp", "ServedApp", "running", "served"),
    "antwort.testing.checks": ("PassedAnswer", "passed_answer", "verdict_of"),
    "antwort.testing.contract": ("ProviderContract",),
    "antwort.testing.part_contracts": ("BlobStoreContract", "DialectContract", "SandboxContract"),
    "antwort.testing.playback": ("Gate",),
    "antwort.testing.search_contracts": (
        "EmbeddingContract",
        "RerankerContract",
        "SearchEngineContract",
        "VectorDatabaseContract",
    ),
    "antwort.testing.linting.lint": ("LintedStream", "lint_response", "lint_stream"),
    "antwort.testing.linting.report": ("LintError", "Violation"),
    "antwort.testing.script": (
        "Call",
        "Dialect",
        "Failure",
        "ScriptError",
        "Turn",
        "call",
        "fail",
        "matching",
        "raw",
        "turn",
    ),
    "antwort.testing.prefix_cache": ("PrefixCache",),
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
