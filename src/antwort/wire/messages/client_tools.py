"""Tools of clients whose schema Anthropic's models know: other models are told of them as functions."""

from collections.abc import Mapping
from types import MappingProxyType

from antwort.lazy_imports import compiled_on_use
from antwort.types import JSON
from antwort.wire.field_errors import unsupported_value

_DATED = compiled_on_use(r"(.+)_\d{8}\Z")


def _schema(required: str, **properties: JSON) -> JSON:
    return {"type": "object", "properties": properties, "required": required.split()}


_PATH: JSON = {"type": "string", "description": "The path of the file or folder."}
_LINES: JSON = {
    "type": "array",
    "items": {"type": "integer"},
    "description": "The first and the last line to view; -1 is the end of the file.",
}


def _commands(*names: str) -> JSON:
    return {"type": "string", "enum": [*names], "description": "What to do."}


def _text(description: str) -> JSON:
    return {"type": "string", "description": description}


_EDITING: JSON = {
    "path": _PATH,
    "file_text": _text("The content of a file to create."),
    "old_str": _text("The text to replace; it must stand in the file once."),
    "new_str": _text("What to put in its place."),
    "insert_line": {"type": "integer", "description": "The line after which to insert; 0 is the beginning."},
    "insert_text": _text("The text to insert."),
    "view_range": _LINES,
}
_KNOWN: Mapping[str, tuple[str, JSON]] = MappingProxyType(
    {
        "bash": (
            "Run a command in a shell that stays open between calls.",
            _schema(
                "",
                command=_text("The command to run."),
                restart={"type": "boolean", "description": "Start the shell anew."},
            ),
        ),
        "text_editor": (
            "View, create and edit text files.",
            _schema("command path", command=_commands("view", "create", "str_replace", "insert"), **_EDITING),
        ),
        "memory": (
            "Keep notes in files below /memories, which last beyond this conversation. Look there first.",
            _schema(
                "command",
                command=_commands("view", "create", "str_replace", "insert", "delete", "rename"),
                **_EDITING,
                old_path=_text("The path of what to rename."),
                new_path=_text("Its new path."),
            ),
        ),
    }
)
_NAMES: Mapping[str, str] = MappingProxyType({"bash": "bash", "text_editor": "str_replace_based_edit_tool"})


def known_tool(tool: JSON, kind: str, param: str) -> JSON:
    """Return a tool of the client as the function that a model can be told of; BadRequestError for another type."""
    found = _DATED.match(kind)
    name = found[1] if found else kind
    if name not in _KNOWN:
        supported = ("custom", "mcp_toolset", "web_search_20250305", "code_execution_20250825")
        raise unsupported_value(f"{param}.type", kind, (*supported, *(f"{one}_…" for one in _KNOWN)))
    description, parameters = _KNOWN[name]
    return {
        "type": "function",
        "name": tool.get("name") or _NAMES.get(name, name),
        "description": description,
        "parameters": parameters,
    }
