"""Everything a plug-in imports. Providers in this repository use nothing else.

from antwort.provider import Context, Counter, Provider, Settings, function, route
"""

from typing import Annotated

from pydantic import BaseModel, Field, SecretStr
from starlette.requests import Request
from starlette.responses import Response

from antwort.config import Settings
from antwort.context import Agent, Context, Principal, Progress, Source
from antwort.errors import (
    APIError,
    BadRequestError,
    ConfigError,
    ConflictError,
    FunctionError,
    NotFoundError,
    PermissionDeniedError,
)
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
    Route,
    Scope,
    ToolCall,
    ToolResult,
    function,
    route,
)

__all__ = [
    "APIError",
    "Agent",
    "Annotated",
    "BadRequestError",
    "BaseModel",
    "ConfigError",
    "ConflictError",
    "Context",
    "Counter",
    "Effect",
    "Field",
    "FunctionError",
    "FunctionProvider",
    "FunctionSpec",
    "Gauge",
    "Histogram",
    "Hosted",
    "Limits",
    "NotFoundError",
    "PermissionDeniedError",
    "Principal",
    "Progress",
    "Provider",
    "Request",
    "Response",
    "Route",
    "Scope",
    "SecretStr",
    "Settings",
    "Source",
    "ToolCall",
    "ToolResult",
    "function",
    "route",
]
