"""Tools of MCP servers, as functions of a request."""

from antwort.providers.mcp.provider import Mcp
from antwort.providers.mcp.settings import McpSettings

__all__ = ["Mcp", "McpSettings"]
