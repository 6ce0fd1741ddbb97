"""Tools that clients execute. Model servers know functions only, so each of these tools is one to the model.

To the client it is what the API calls it: `custom` takes text, `namespace` puts functions under a name of their own,
`shell`, `local_shell`, `apply_patch`, `computer` and `tool_search` have items of their own. A grammar of a custom tool
cannot be enforced by a model server; the model is told about it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Struct

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.items import (
    ApplyPatchCall,
    ClientCall,
    ComputerCall,
    CustomToolCall,
    LocalShellCall,
    ShellCall,
    ToolSearchCall,
)

TOOL_SEARCH = "tool_search"
"""The type of the tool that finds others. Who executes it, it says itself."""
LONGEST_NAME = 64
"""Characters of the name of a function."""
SECRETS: Mapping[str, tuple[str, ...]] = MappingProxyType({"mcp": ("authorization", "headers")})
"""Fields of tools, by their types, that nobody may keep in the open, whether somebody here has such a tool or not."""
SECRET_URLS: Mapping[str, str] = MappingProxyType({"mcp": "server_url"})
"""Fields of tools, by their types, that are URLs of which only where they lead is kept in the open."""


class ClientTool(Struct, frozen=True):
    """A tool of the client whose calls are not plain calls of a function."""

    type: str
    """Of the tool: `function`, which is in a namespace then, `custom`, or one with items of its own."""
    name: str
    """By which the client knows it."""
    namespace: str | None = None

    @property
    def is_function(self) -> bool:
        """Tell whether its arguments are passed on as they come."""
        return self.type == "function"

    @property
    def item_prefix(self) -> str:
        """What the ids of its calls begin with."""
        return "ctc" if self.type == "custom" else _KINDS[self.type].prefix

    @property
    def call_type(self) -> str:
        """The type of the items that its calls are."""
        if self.is_function:
            return "function_call"
        return "custom_tool_call" if self.type == "custom" else _KINDS[self.type].call

    def item(self, item_id: str, call_id: str, arguments: str) -> ClientCall:
        """Return the item of a call that a model has made."""
        if self.type == "custom":
            text = custom_input(arguments)
            return CustomToolCall(item_id, call_id, self.name, text, "completed", self.namespace or UNSET)
        return _KINDS[self.type].item(item_id, call_id, _decoded(arguments))


class _Kind(Struct, frozen=True):
    """A type of tool with items of its own: how they are written, and what a model reads of them."""

    prefix: str
    call: str
    function: str
    """The name of the function that stands for it."""
    description: str
    parameters: JSON
    item: Callable[[str, str, JSON], ClientCall]
    """Makes the item of a call of its id, the call's, and the function's arguments."""
    arguments: Callable[[JSON], JSON]
    """Makes the function's arguments of a call's item."""
    output: Callable[[JSON], Any]
    """Makes what the model reads of the item with the output."""
    result: str = ""
    """The type of the item with the output, if it is not that of the call with `_output`."""

    @property
    def output_type(self) -> str:
        """The type of the item with the output."""
        return self.result or f"{self.call}_output"


# --- what the model is told ------------------------------------------------------------------------------------------


def client_definition(tool: JSON) -> JSON | None:
    """Return the function that stands for a tool with items of its own; None if the server would have to execute it."""
    kind = _KINDS.get(str(tool.get("type")))
    if kind is None or not _is_local(tool):
        return None
    definition: JSON = {"type": "function", "name": kind.function}
    described: JSON = {"description": kind.description, "parameters": kind.parameters}
    if kind.call == _SEARCH_CALL:  # whoever searches says how
        described |= {name: tool[name] for name in described if tool.get(name)}
    return definition | described


def public_tool(tool: JSON, secrets: Iterable[str]) -> JSON:
    """Return a tool as anybody may see it: without its secrets, and of URLs that may have some only where they lead."""
    shown = {name: value for name, value in tool.items() if name not in secrets}
    name = SECRET_URLS.get(str(tool.get("type")), "")
    if isinstance(url := shown.get(name), str):
        shown[name] = _origin(url)
    return shown


def _origin(url: str) -> str:
    """Return the scheme, host and port of a URL; nothing of what is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else ""


def _is_local(tool: JSON) -> bool:
    if tool.get("type") == TOOL_SEARCH:
        return tool.get("execution") == "client"
    environment = tool.get("environment")
    return not isinstance(environment, dict) or environment.get("type") == "local"


def custom_definition(tool: JSON) -> JSON:
    """Return the function that stands for a custom tool."""
    words = [str(tool["description"])] if tool.get("description") else []
    described: JSON = {"type": "string", "description": "The text for the tool, as it is."}
    form = tool.get("format")
    if isinstance(form, dict) and form.get("type") == "grammar":
        described["description"] = "The text for the tool. It must follow the grammar."
        words.append(f"The input must follow this {form.get('syntax')} grammar:\n{form.get('definition')}")
    return {
        "type": "function",
        "name": tool["name"],
        "description": "\n\n".join(words) or "Takes text.",
        "parameters": {
            "type": "object",
            "properties": {"input": described},
            "required": ["input"],
            "additionalProperties": False,
        },
    }


def custom_echo(tool: JSON) -> JSON:
    """Repeat a custom tool as responses do."""
    return {"format": {"type": "text"}, **tool}


def custom_input(arguments: str) -> str:
    """Return the text in the arguments of such a function; a model that wrote the text alone is understood too."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments
    if isinstance(value, dict) and isinstance(value.get("input"), str):
        return str(value["input"])
    return value if isinstance(value, str) else arguments


def qualified_name(namespace: str, name: str) -> str:
    """Return the name that a model sees of a function in a namespace. One that would be too long is cut."""
    joined = f"{namespace}__{name}"
    if len(joined) <= LONGEST_NAME:
        return joined
    return f"{joined[: LONGEST_NAME - 9]}_{sha256(joined.encode()).hexdigest()[:8]}"


# --- what the model reads of earlier calls ---------------------------------------------------------------------------


def as_function(item: JSON) -> JSON:
    """Return a call of a tool of the client, or its output, as that of the function that stood for it; others as is."""
    kind = item.get("type")
    if kind == "function_call":
        namespace = item.get("namespace")
        if not isinstance(namespace, str) or not namespace:
            return item
        return {**item, "name": qualified_name(namespace, str(item.get("name")))}
    convert = _CONVERTED.get(kind) if isinstance(kind, str) else None
    return item if convert is None else convert(item)


def _custom_call(item: JSON) -> JSON:
    name, namespace = item.get("name"), item.get("namespace")
    if isinstance(namespace, str) and namespace:
        name = qualified_name(namespace, str(name))
    return _function_call(item, name, {"input": item.get("input") or ""})


def _function_call(item: JSON, name: Any, arguments: JSON) -> JSON:
    try:
        encoded = msgspec.json.encode(arguments).decode()
    except UnicodeEncodeError:
        raise BadRequestError("The request holds text that is not valid Unicode.", param="input") from None
    return {"type": "function_call", "call_id": item.get("call_id"), "name": name, "arguments": encoded}


def _function_output(item: JSON, output: Any) -> JSON:
    return {"type": "function_call_output", "call_id": item.get("call_id"), "output": output}


def _decoded(arguments: str) -> JSON:
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = arguments
    return value if isinstance(value, dict) else {"value": value}


# --- the tools with items of their own -------------------------------------------------------------------------------


def _texts(value: Any) -> list[str]:
    """Return a list of texts, whether a model has written one or several."""
    if isinstance(value, str):
        return [value]
    return [str(entry) for entry in value] if isinstance(value, list) else []


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and value > 0 else None


def _without_none(fields: JSON) -> JSON:
    return {name: value for name, value in fields.items() if value is not None}


def _shell_call(item_id: str, call_id: str, arguments: JSON) -> ShellCall:
    commands = _texts(arguments.get("commands", arguments.get("command", arguments.get("value"))))
    limits = {name: _number(arguments.get(name)) for name in ("timeout_ms", "max_output_length")}
    return ShellCall(item_id, call_id, {"commands": commands, **limits}, {"type": "local"})


def _shell_output(item: JSON) -> str:
    """Return what commands have written, each with how it ended."""
    output = item.get("output")
    if not isinstance(output, list):
        return str(output or "")
    return "\n".join(_command_output(chunk) for chunk in output if isinstance(chunk, Mapping))


def _command_output(chunk: Mapping[str, Any]) -> str:
    outcome = chunk.get("outcome")
    outcome = outcome if isinstance(outcome, Mapping) else {}
    ended = "timed out" if outcome.get("type") == "timeout" else f"exit code {outcome.get('exit_code', 0)}"
    parts = [str(chunk.get("stdout") or "").rstrip("\n")]
    if chunk.get("stderr"):
        parts.append("stderr:\n" + str(chunk["stderr"]).rstrip("\n"))
    return "\n".join([*filter(None, parts), f"({ended})"])


def _action(item: JSON) -> JSON:
    action = item.get("action")
    return action if isinstance(action, dict) else {}


def _local_shell_call(item_id: str, call_id: str, arguments: JSON) -> LocalShellCall:
    command = arguments.get("command", arguments.get("value"))
    argv = ["bash", "-lc", command] if isinstance(command, str) else _texts(command)
    action: JSON = {"type": "exec", "command": argv, "env": {}}
    action["timeout_ms"] = _number(arguments.get("timeout_ms"))
    folder = arguments.get("working_directory")
    action["working_directory"] = folder if isinstance(folder, str) else None
    return LocalShellCall(item_id, call_id, action)


_OPERATIONS = ("create_file", "update_file", "delete_file")


def _patch_call(item_id: str, call_id: str, arguments: JSON) -> ApplyPatchCall:
    kind = arguments.get("type")
    operation: JSON = {"type": kind if kind in _OPERATIONS else "update_file", "path": str(arguments.get("path") or "")}
    if operation["type"] != "delete_file":
        operation["diff"] = str(arguments.get("diff") or "")
    return ApplyPatchCall(item_id, call_id, operation)


def _patch_arguments(item: JSON) -> JSON:
    operation = item.get("operation")
    return operation if isinstance(operation, dict) else {}


def _patch_output(item: JSON) -> str:
    status, output = str(item.get("status") or "completed"), item.get("output")
    return f"{status}: {output}" if output else status


def _screenshot(item: JSON) -> Any:
    output = item.get("output")
    if not isinstance(output, dict):
        return str(output or "")
    return [{**output, "type": "input_image"}]


def _computer_call(item_id: str, call_id: str, arguments: JSON) -> ComputerCall:
    actions = arguments.get("actions")
    if not isinstance(actions, list):
        actions = [arguments]
    return ComputerCall(item_id, call_id, actions=[action for action in actions if isinstance(action, dict)])


def _preview_call(item_id: str, call_id: str, arguments: JSON) -> ComputerCall:
    return ComputerCall(item_id, call_id, action=arguments)


def _computer_arguments(item: JSON) -> JSON:
    return {"actions": item["actions"]} if isinstance(item.get("actions"), list) else _action(item)


def _search_call(item_id: str, call_id: str, arguments: JSON) -> ToolSearchCall:
    return ToolSearchCall(item_id, call_id, arguments)


def _search_arguments(item: JSON) -> JSON:
    arguments = item.get("arguments")
    return arguments if isinstance(arguments, dict) else _decoded(str(arguments or ""))


def found_names(item: JSON) -> Iterator[tuple[str | None, str]]:
    """Yield the functions that a search has found: their namespaces, or the labels of their servers, and names."""
    for tool in item.get("tools") or ():
        kind = tool.get("type")
        if kind == "namespace":
            yield from ((str(tool["name"]), str(inner["name"])) for inner in tool["tools"])
        elif kind == "mcp" and isinstance(allowed := tool.get("allowed_tools"), list):
            yield from ((str(tool.get("server_label")), str(name)) for name in allowed)
        else:
            yield None, str(tool.get("name") or kind)


def _found_tools(item: JSON) -> str:
    """Return the names of the tools that a search has found; they are offered from then on."""
    names = [name if group is None else qualified_name(group, name) for group, name in found_names(item)]
    return f"These tools can be called now: {', '.join(names)}." if names else "No tools were found."


def _object(required: list[str], **properties: JSON) -> JSON:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_MILLISECONDS: JSON = {"type": "integer", "description": "After how many milliseconds to give up."}
_INTEGER: JSON = {"type": "integer"}
_STRINGS: JSON = {"type": "array", "items": {"type": "string"}}
_COMPUTER_ACTION: JSON = {
    "type": "object",
    "properties": {
        "type": {
            "type": "string",
            "enum": ["click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait"],
        },
        "x": _INTEGER,
        "y": _INTEGER,
        "button": {"type": "string", "enum": ["left", "right", "wheel", "back", "forward"]},
        "scroll_x": _INTEGER,
        "scroll_y": _INTEGER,
        "keys": _STRINGS,
        "text": {"type": "string"},
        "path": {"type": "array", "items": _object(["x", "y"], x=_INTEGER, y=_INTEGER), "description": "Of a drag."},
    },
    "required": ["type"],
}

_SEARCH_CALL = "tool_search_call"
_KINDS = {
    "shell": _Kind(
        prefix="sh",
        call="shell_call",
        function="shell",
        description="Run shell commands on the user's computer; returns what each writes, and how it ends.",
        parameters=_object(
            ["commands"],
            commands={**_STRINGS, "description": "The commands, in order."},
            timeout_ms=_MILLISECONDS,
            max_output_length={"type": "integer", "description": "How many characters of output are wanted."},
        ),
        item=_shell_call,
        arguments=lambda item: _without_none(_action(item)),
        output=_shell_output,
    ),
    "local_shell": _Kind(
        prefix="lsh",
        call="local_shell_call",
        function="local_shell",
        description="Run a program on the user's computer.",
        parameters=_object(
            ["command"],
            command={**_STRINGS, "description": 'The program and its arguments, such as ["bash", "-lc", "ls"].'},
            working_directory={"type": "string"},
            timeout_ms=_MILLISECONDS,
        ),
        item=_local_shell_call,
        arguments=lambda item: _without_none(
            {name: value for name, value in _action(item).items() if name not in {"type", "env"}}
        ),
        output=lambda item: str(item.get("output") or ""),
    ),
    "apply_patch": _Kind(
        prefix="apc",
        call="apply_patch_call",
        function="apply_patch",
        description=(
            "Create, change or delete a file on the user's computer. The diff of a new file is its lines, each after a "
            "'+'. The diff of a change has sections that begin with '@@' and a line of the file above them, if that "
            "is needed to find the place; then lines after ' ' that stay, after '-' that go, after '+' that come."
        ),
        parameters=_object(
            ["type", "path", "diff"],
            type={"type": "string", "enum": list(_OPERATIONS)},
            path={"type": "string"},
            diff={"type": "string", "description": "Empty for delete_file."},
        ),
        item=_patch_call,
        arguments=_patch_arguments,
        output=_patch_output,
    ),
    "computer": _Kind(
        prefix="cu",
        call="computer_call",
        function="computer",
        description="Use the user's computer by mouse and keyboard, and see the screen afterwards.",
        parameters=_object(["actions"], actions={"type": "array", "items": _COMPUTER_ACTION}),
        item=_computer_call,
        arguments=_computer_arguments,
        output=_screenshot,
    ),
    "computer_use_preview": _Kind(
        prefix="cu",
        call="computer_call",
        function="computer",
        description="Use the user's computer by mouse or keyboard, one action at a time, and see the screen then.",
        parameters=_COMPUTER_ACTION,
        item=_preview_call,
        arguments=_computer_arguments,
        output=_screenshot,
    ),
    TOOL_SEARCH: _Kind(
        prefix="tsc",
        call=_SEARCH_CALL,
        function=TOOL_SEARCH,
        description="Search for tools that are not offered yet; those that are found can be called then.",
        parameters=_object(["query"], query={"type": "string", "description": "What the tools are to do."}),
        item=_search_call,
        arguments=_search_arguments,
        output=_found_tools,
        result="tool_search_output",
    ),
}
"""By the type of the tool."""


def _call_of(kind: _Kind) -> Callable[[JSON], JSON]:
    return lambda item: _function_call(item, kind.function, kind.arguments(item))


def _output_of(kind: _Kind) -> Callable[[JSON], JSON]:
    return lambda item: _function_output(item, kind.output(item))


CLIENT_TYPES = ("function", "custom", "namespace", *_KINDS)
"""The types of tools that clients execute."""
CALLS = frozenset({"function_call", "custom_tool_call", *(kind.call for kind in _KINDS.values())})
"""Items that a client answers, each with an output of the same call id."""
OUTPUTS = frozenset(
    {"function_call_output", "custom_tool_call_output", *(kind.output_type for kind in _KINDS.values())}
)
CALLS_OF_THEIR_OWN = frozenset(kind.call for kind in _KINDS.values())
ITEM_PREFIXES = {kind.call: kind.prefix for kind in _KINDS.values()} | {
    kind.output_type: f"{kind.prefix}o" for kind in _KINDS.values()
}
"""What the ids of such items begin with."""

_CONVERTED: dict[str, Callable[[JSON], JSON]] = {
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": lambda item: _function_output(item, item.get("output")),
    **{kind.call: _call_of(kind) for kind in _KINDS.values()},
    **{kind.output_type: _output_of(kind) for kind in _KINDS.values()},
}
