"""The heart: functions, providers and the registry. Usable on its own, without server or engine."""

from antwort.functions.arguments import ForeignArguments
from antwort.functions.calls import ToolCall, ToolExecutor
from antwort.functions.checks import Allow, Ask, CheckedCall, CheckSpec, CheckStage, Mask, MaskedSpan, Refuse, Verdict
from antwort.functions.discovery import Catalogue
from antwort.functions.hosted_tool import (
    Hosted,
    HostedCall,
    HostedTool,
    ItemEnd,
    ItemEvent,
    OpenedFunction,
    OpenedItem,
    OpenedTool,
)
from antwort.functions.metrics import Counter, Gauge, Histogram
from antwort.functions.provider import FunctionProvider, Provider, check, function, route
from antwort.functions.registry import FunctionRegistry
from antwort.functions.resources import Resource, ResourceContent, ResourceSource
from antwort.functions.results import Image, ToolResult
from antwort.functions.spec import Effect, FunctionSpec, Limits, Scope, Shape, tool_definition

__all__ = [
    "Allow",
    "Ask",
    "Catalogue",
    "CheckSpec",
    "CheckStage",
    "CheckedCall",
    "Counter",
    "Effect",
    "ForeignArguments",
    "FunctionProvider",
    "FunctionRegistry",
    "FunctionSpec",
    "Gauge",
    "Histogram",
    "Hosted",
    "HostedCall",
    "HostedTool",
    "Image",
    "ItemEnd",
    "ItemEvent",
    "Limits",
    "Mask",
    "MaskedSpan",
    "OpenedFunction",
    "OpenedItem",
    "OpenedTool",
    "Provider",
    "Refuse",
    "Resource",
    "ResourceContent",
    "ResourceSource",
    "Scope",
    "Shape",
    "ToolCall",
    "ToolExecutor",
    "ToolResult",
    "Verdict",
    "check",
    "function",
    "route",
    "tool_definition",
]
