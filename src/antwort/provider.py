"""Everything a plug-in imports. Providers in this repository use nothing else.

from antwort.provider import Context, Counter, Provider, Settings, function, route
"""

from typing import Annotated

from pydantic import BaseModel, Field, SecretStr
from starlette.requests import Request
from starlette.responses import Response

from antwort.concurrency.child_processes import ChildProcess, tied
from antwort.concurrency.large_work import LargeWork
from antwort.concurrency.queues import Queue, QueueFullError, Queues
from antwort.concurrency.single_flight import SingleFlight
from antwort.concurrency.slots import Slots
from antwort.config import AgentConfig, Duration, Settings
from antwort.context import Agent, Context, Principal, Progress, Source
from antwort.context.agents import AgentInfo, AgentResult, AgentTask, SubAgents
from antwort.context.calls import CallableFunction, CallResult, FunctionCalls
from antwort.context.http_client import (
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
from antwort.context.suspension import SuspendedError, Suspension
from antwort.context.values import Place, Values
from antwort.context.variables import Reference, ValueKind, Variable, VariableScope
from antwort.context.variables import Variables as VariableView
from antwort.documents.chunking import DocumentChunk, chunked
from antwort.documents.document import Document, UnreadableError
from antwort.documents.formats.html import HtmlPage, decoded_html, html_line, read_html
from antwort.documents.parser import DocumentParser, ParsingLimits
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
    as_function_errors,
    did_you_mean,
)
from antwort.files.base import FileDetails, FileListener, Files
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
from antwort.functions.provider import Services, Signer, Workplace, WorksApart
from antwort.functions.stubs import python_name, python_stub
from antwort.sandbox import (
    BareHost,
    ConfinedFiles,
    DiskUsage,
    FileProblemError,
    Finished,
    FolderInUse,
    FoundFile,
    MissingFileError,
    Sandbox,
    SandboxLimits,
    SandboxProcess,
    SandboxPython,
    SandboxRuntime,
    TenantFolders,
    delete_tree,
    disk_usage,
    sandbox_of,
    store_file,
)
from antwort.storage import FileRecord, Kept, Page, Question, Questions, Records
from antwort.text.foreign_text import fenced, one_line, printable, steady_mark
from antwort.text.partial_reading import (
    GrepScanner,
    LineCounter,
    LineScanner,
    Scanner,
    parse_lines,
    scan,
    text_of,
    whole_characters,
)
from antwort.types import JSON
from antwort.web.downloads import asked_range, content_response, file_response, media_type
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
    "ChildProcess",
    "ConfigError",
    "ConfinedFiles",
    "ConflictError",
    "Context",
    "Counter",
    "DiskUsage",
    "Document",
    "DocumentChunk",
    "DocumentParser",
    "Duration",
    "Effect",
    "Example",
    "Field",
    "FileDetails",
    "FileListener",
    "FileProblemError",
    "FileRecord",
    "Files",
    "Finished",
    "FolderInUse",
    "FoundFile",
    "FunctionCalls",
    "FunctionError",
    "FunctionProvider",
    "FunctionSpec",
    "FunctionUnavailableError",
    "Gauge",
    "GrepScanner",
    "Histogram",
    "Hosted",
    "HtmlPage",
    "HttpAnswer",
    "HttpClient",
    "Kept",
    "LargeWork",
    "Limits",
    "LineCounter",
    "LineScanner",
    "MissingFileError",
    "NotFoundError",
    "OutboundError",
    "OutboundTimeoutError",
    "Page",
    "ParsingLimits",
    "PayloadTooLargeError",
    "PermissionDeniedError",
    "Place",
    "Principal",
    "Progress",
    "Provider",
    "Question",
    "Questions",
    "Queue",
    "QueueFullError",
    "Queues",
    "RateLimitError",
    "Records",
    "Reference",
    "Request",
    "Response",
    "Route",
    "Sandbox",
    "SandboxLimits",
    "SandboxProcess",
    "SandboxPython",
    "SandboxRuntime",
    "Scanner",
    "Scope",
    "SecretStr",
    "ServiceUnavailableError",
    "Services",
    "Settings",
    "Signer",
    "SingleFlight",
    "Slots",
    "Source",
    "SubAgents",
    "SuspendedError",
    "Suspension",
    "TenantFolders",
    "TooLargeError",
    "ToolCall",
    "ToolResult",
    "UnreachableError",
    "UnreadableError",
    "Upload",
    "ValueKind",
    "Values",
    "Variable",
    "VariableScope",
    "VariableView",
    "Workplace",
    "WorksApart",
    "as_function_errors",
    "asked_range",
    "call_again",
    "chunked",
    "content_response",
    "decoded_html",
    "delete_tree",
    "did_you_mean",
    "disk_usage",
    "fenced",
    "file_response",
    "function",
    "html_line",
    "media_type",
    "one_line",
    "open_upload",
    "parse_lines",
    "printable",
    "python_name",
    "python_stub",
    "read_html",
    "retry_after",
    "route",
    "sandbox_of",
    "scan",
    "steady_mark",
    "store_file",
    "text_of",
    "tied",
    "whole_characters",
]
