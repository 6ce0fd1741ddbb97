"""Everything a plug-in imports. Providers in this repository use nothing else.

from antwort.provider import Context, Counter, Provider, Settings, function, route
"""

from typing import Annotated

from pydantic import BaseModel, Field, SecretStr
from starlette.requests import Request
from starlette.responses import Response

from antwort.agents import AgentInfo, AgentResult, AgentTask, SubAgents
from antwort.concurrency.large_work import LargeWork
from antwort.concurrency.single_flight import SingleFlight
from antwort.config import AgentConfig, Duration, Settings
from antwort.context import Agent, Context, Principal, Progress, Source
from antwort.errors import (
    APIError,
    BadRequestError,
    ConfigError,
    ConflictError,
    FunctionError,
    FunctionUnavailableError,
    NotFoundError,
    PayloadTooLargeError,
    PermissionDeniedError,
    RateLimitError,
    ServiceUnavailableError,
    did_you_mean,
)
from antwort.foreign_text import fenced, one_line, printable
from antwort.functions import (
    Counter,
    Effect,
    FunctionProvider,
    FunctionSpec,
    Gauge,
    Histogram,
    Hosted,
    Limits,
    Provider,
    Scope,
    ToolCall,
    ToolResult,
    function,
    route,
)
from antwort.functions.provider import Services, Signer
from antwort.functions.stubs import python_name, python_stub
from antwort.http_client import (
    BlockedError,
    HttpAnswer,
    HttpClient,
    OutboundError,
    OutboundTimeoutError,
    TooLargeError,
    UnreachableError,
    call_again,
    retry_after,
)
from antwort.partial_reading import (
    GrepScanner,
    LineCounter,
    LineScanner,
    Scanner,
    parse_lines,
    scan,
    text_of,
    whole_characters,
)
from antwort.run_services import (
    CallableFunction,
    CallResult,
    FunctionCalls,
    Place,
    ValueKind,
    Values,
    Variable,
    VariableScope,
)
from antwort.run_services import Variables as VariableView
from antwort.sandbox import (
    BareHost,
    DiskUsage,
    Finished,
    Sandbox,
    SandboxLimits,
    SandboxProcess,
    delete_tree,
    disk_usage,
)
from antwort.storage import Kept, Page, Question, Questions, Records
from antwort.suspension import SuspendedError, Suspension
from antwort.types import JSON
from antwort.web.routes import Example, Route
from antwort.web.uploads import Upload, open_upload

__all__ = [
    "JSON",
    "APIError",
    "Agent",
    "AgentConfig",
    "AgentInfo",
    "AgentResult",
    "AgentTask",
    "Annotated",
    "BadRequestError",
    "BareHost",
    "BaseModel",
    "BlockedError",
    "CallResult",
    "CallableFunction",
    "ConfigError",
    "ConflictError",
    "Context",
    "Counter",
    "DiskUsage",
    "Duration",
    "Effect",
    "Example",
    "Field",
    "Finished",
    "FunctionCalls",
    "FunctionError",
    "FunctionProvider",
    "FunctionSpec",
    "FunctionUnavailableError",
    "Gauge",
    "GrepScanner",
    "Histogram",
    "Hosted",
    "HttpAnswer",
    "HttpClient",
    "Kept",
    "LargeWork",
    "Limits",
    "LineCounter",
    "LineScanner",
    "NotFoundError",
    "OutboundError",
    "OutboundTimeoutError",
    "Page",
    "PayloadTooLargeError",
    "PermissionDeniedError",
    "Place",
    "Principal",
    "Progress",
    "Provider",
    "Question",
    "Questions",
    "RateLimitError",
    "Records",
    "Request",
    "Response",
    "Route",
    "Sandbox",
    "SandboxLimits",
    "SandboxProcess",
    "Scanner",
    "Scope",
    "SecretStr",
    "ServiceUnavailableError",
    "Services",
    "Settings",
    "Signer",
    "SingleFlight",
    "Source",
    "SubAgents",
    "SuspendedError",
    "Suspension",
    "TooLargeError",
    "ToolCall",
    "ToolResult",
    "UnreachableError",
    "Upload",
    "ValueKind",
    "Values",
    "Variable",
    "VariableScope",
    "VariableView",
    "call_again",
    "delete_tree",
    "did_you_mean",
    "disk_usage",
    "fenced",
    "function",
    "one_line",
    "open_upload",
    "parse_lines",
    "printable",
    "python_name",
    "python_stub",
    "retry_after",
    "route",
    "scan",
    "text_of",
    "whole_characters",
]
