"""Tools that the server executes, as Messages know them: how they are named, and what calls of them look like.

What a client was shown of a call it sends back, and the model reads the call and its result again.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.messages.blocks import (
    CodeResultInput,
    McpToolResultInput,
    McpToolUseInput,
    ResultInput,
    UseInput,
    WebSearchResultInput,
)
from antwort.wire.messages.requests import McpServer

_SEARCH, _CODE = "web_search", "code_execution"
INCLUDED: Mapping[str, str] = MappingProxyType(
    {_SEARCH: "web_search_call.results", "code_interpreter": "code_interpreter_call.outputs"}
)
"""What is asked for beside the items of calls, by the types of their tools."""


# --- as they are named ------------------------------------------------------------------------------------------------


def search_tool(tool: JSON) -> JSON:
    """Return the tool that a `web_search_…` stands for."""
    found: JSON = {"type": _SEARCH}
    domains = {name: tool[name] for name in ("allowed_domains", "blocked_domains") if tool.get(name)}
    if domains:
        found["filters"] = domains
    if tool.get("user_location") is not None:
        found["user_location"] = tool["user_location"]
    return found


def code_tool(_tool: JSON) -> JSON:
    """Return the tool that a `code_execution_…` stands for."""
    return {"type": "code_interpreter", "container": {"type": "auto"}}


def mcp_tool(tool: JSON, servers: Mapping[str, McpServer], param: str) -> JSON:
    """Return the tool that an `mcp_toolset` stands for; BadRequestError for one that names no server of the request."""
    name = tool.get("mcp_server_name")
    server = servers.get(name) if isinstance(name, str) else None
    if server is None:
        raise BadRequestError(
            f"'{param}.mcp_server_name' names no server of 'mcp_servers'.",
            param=f"{param}.mcp_server_name",
            code="invalid_value",
        )
    # Whoever lists a server here expects its tools to be called: there is no block to ask for an approval with.
    found: JSON = {"type": "mcp", "server_label": name, "server_url": server.url, "require_approval": "never"}
    if server.authorization_token is not None:
        found["authorization"] = server.authorization_token
    allowed = _allowed(tool, server, param)
    if allowed is not None:
        found["allowed_tools"] = allowed
    return found


def _allowed(tool: JSON, server: McpServer, param: str) -> list[str] | None:
    """Return the names of the tools that there are; None for all."""
    default, configs = tool.get("default_config") or {}, tool.get("configs") or {}
    if not isinstance(default, dict) or not isinstance(configs, dict):
        raise BadRequestError(
            f"'{param}.default_config' and '{param}.configs' must be objects.", param=param, code="invalid_type"
        )
    switched = {
        name: config.get("enabled") is not False for name, config in configs.items() if isinstance(config, dict)
    }
    own = server.tool_configuration
    if default.get("enabled") is False or (own is not None and own.enabled is False):
        return [name for name, enabled in switched.items() if enabled]
    if not all(switched.values()):
        raise BadRequestError(
            f"'{param}.configs' switches single tools off, which is not served: set 'default_config.enabled' to false "
            "and name those that there are.",
            param=f"{param}.configs",
            code="unsupported_parameter",
        )
    return None if own is None else own.allowed_tools


# --- calls, as clients see them ---------------------------------------------------------------------------------------


def call_blocks(item: JSON) -> list[JSON]:
    """Return the blocks that show a call of the server, with what came of it; none for what Messages have no word for.

    The names of MCP tools are those of the server; a call that waits for an approval cannot be given one here.
    """
    write = _WRITERS.get(item["type"])
    return [] if write is None else write(item)


def _use_id(item: JSON, prefix: str) -> str:
    return f"{prefix}_{str(item['id']).partition('_')[2]}"


def _search_blocks(item: JSON) -> list[JSON]:
    action = item.get("action") or {}
    use_id = _use_id(item, "srvtoolu")
    asked = {"query": action.get("query") or action.get("url") or ""}
    if action.get("type") != "search":  # a page, which is a result of its own
        asked = {"query": " ".join(str(action[name]) for name in ("url", "pattern") if action.get(name))}
    use = {"type": "server_tool_use", "id": use_id, "name": _SEARCH, "input": asked}
    content: Any = [_found(one) for one in item.get("results") or ()]
    if item.get("status") == "failed":
        content = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    return [use, {"type": "web_search_tool_result", "tool_use_id": use_id, "content": content}]


def _found(one: Mapping[str, Any]) -> JSON:
    snippet = base64.b64encode(str(one.get("snippet") or "").encode(errors="replace")).decode()
    title, url = str(one.get("title") or ""), str(one.get("url") or "")
    return {"type": "web_search_result", "title": title, "url": url, "encrypted_content": snippet, "page_age": None}


def _code_blocks(item: JSON) -> list[JSON]:
    use_id = _use_id(item, "srvtoolu")
    use = {"type": "server_tool_use", "id": use_id, "name": _CODE, "input": {"code": item.get("code") or ""}}
    logs = "".join(str(one.get("logs") or "") for one in item.get("outputs") or () if one.get("type") == "logs")
    failed = item.get("status") != "completed"
    result: JSON = {"type": "code_execution_result", "stdout": "" if failed else logs, "stderr": logs if failed else ""}
    result |= {"return_code": int(failed), "content": []}
    return [use, {"type": "code_execution_tool_result", "tool_use_id": use_id, "content": result}]


def _mcp_blocks(item: JSON) -> list[JSON]:
    use_id = _use_id(item, "mcptoolu")
    use = {"type": "mcp_tool_use", "id": use_id, "name": item["name"], "server_name": item["server_label"]}
    use["input"] = arguments_of(item.get("arguments"))
    error = item.get("error")
    text = item.get("output") if error is None else _error_text(error)
    result: JSON = {"type": "mcp_tool_result", "tool_use_id": use_id, "is_error": item.get("status") != "completed"}
    result["content"] = [{"type": "text", "text": str(text or "")}]
    return [use, result]


def _error_text(error: Any) -> str:
    if isinstance(error, Mapping):
        parts = error.get("content")
        if isinstance(parts, list):
            return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))
        return str(error.get("message") or "")
    return str(error)


def _approval_blocks(item: JSON) -> list[JSON]:
    text = (
        f"[The tool '{item.get('name')}' of '{item.get('server_label')}' is called only after an approval, "
        "which Messages cannot give. Use /v1/responses for it.]"
    )
    return [{"type": "text", "text": text}]


_WRITERS: Mapping[str, Callable[[JSON], list[JSON]]] = MappingProxyType(
    {
        "web_search_call": _search_blocks,
        "code_interpreter_call": _code_blocks,
        "mcp_call": _mcp_blocks,
        "mcp_approval_request": _approval_blocks,
    }
)


def arguments_of(text: Any) -> JSON:
    """Return the arguments of a call as an object; an empty one for what was cut off, or is none."""
    try:
        found = msgspec.json.decode(text or "{}")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --- calls, as clients send them back ---------------------------------------------------------------------------------


def call_item(use: UseInput, result: ResultInput | None, param: str) -> JSON:
    """Return the item of a server's call that was sent back; BadRequestError for one of a tool that is not here."""
    if isinstance(use, McpToolUseInput):
        return _mcp_item(use, result)
    if use.name == _SEARCH:
        return _search_item(use.input, result)
    if use.name == _CODE:
        return _code_item(use.input, result)
    raise BadRequestError(
        f"Invalid value for '{param}.name': '{use.name}'. Supported values are: '{_CODE}' and '{_SEARCH}'.",
        param=f"{param}.name",
        code="invalid_value",
    )


def _mcp_item(use: McpToolUseInput, result: ResultInput | None) -> JSON:
    item: JSON = {"type": "mcp_call", "server_label": use.server_name, "name": use.name}
    item |= {"arguments": msgspec.json.encode(use.input).decode(), "status": "completed"}
    if isinstance(result, McpToolResultInput):
        content = result.content or ""
        text = content if isinstance(content, str) else "\n".join(block.text for block in content)
        item |= {"status": "failed", "error": text} if result.is_error else {"output": text}
    return item


def _search_item(asked: JSON, result: ResultInput | None) -> JSON:
    query = str(asked.get("query") or "")
    item: JSON = {"type": "web_search_call", "action": {"type": "search", "query": query}, "status": "completed"}
    if isinstance(result, WebSearchResultInput):
        found = result.content
        item["results"] = [_result(one) for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return item


def _result(block: JSON) -> JSON:
    title, url = str(block.get("title") or ""), str(block.get("url") or "")
    return {"type": "url", "title": title, "url": url, "snippet": _snippet(block.get("encrypted_content"))}


def _snippet(sealed: Any) -> str:
    """Return what a result says; nothing if it is not one of ours: then only its maker can read it."""
    try:
        return base64.b64decode(str(sealed or ""), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _code_item(asked: JSON, result: ResultInput | None) -> JSON:
    item: JSON = {"type": "code_interpreter_call", "code": str(asked.get("code") or ""), "status": "completed"}
    if isinstance(result, CodeResultInput):
        said = [result.content.get(name) for name in ("stdout", "stderr", "error_code")]
        item["outputs"] = [{"type": "logs", "logs": text} for text in said if isinstance(text, str) and text]
    return item
