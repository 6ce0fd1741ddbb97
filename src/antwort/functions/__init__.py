"""The heart: functions, providers and the registry. Usable on its own, without server or engine."""

from antwort.functions.collectors import Counter, Gauge, Histogram
from antwort.functions.definitions import Shape, tool_definition
from antwort.functions.discovery import Catalogue
from antwort.functions.executor import ToolExecutor
from antwort.functions.provider import FunctionProvider, Provider, function, route
from antwort.functions.registry import FunctionRegistry
from antwort.functions.result import ToolCall, ToolResult
from antwort.functions.routes import Example, Route
from antwort.functions.spec import Effect, FunctionSpec, Hosted, Limits, Scope

__all__ = [
    "Catalogue",
    "Counter",
    "Effect",
    "Example",
    "FunctionProvider",
    "FunctionRegistry",
    "FunctionSpec",
    "Gauge",
    "Histogram",
    "Hosted",
    "Limits",
    "Provider",
    "Route",
    "Scope",
    "Shape",
    "ToolCall",
    "ToolExecutor",
    "ToolResult",
    "function",
    "route",
    "tool_definition",
]
