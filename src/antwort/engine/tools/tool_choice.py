"""What a model may and must call of the tools of a request."""

from typing import TYPE_CHECKING

import msgspec

from antwort.engine.tools.targets import Toolset
from antwort.errors import BadRequestError
from antwort.lazy_imports import imported_on_use
from antwort.types import JSON
from antwort.wire.client_tools import qualified_name
from antwort.wire.field_errors import check_shape, read_type, unsupported_value

if TYPE_CHECKING:
    from antwort.wire import tool_shapes
else:
    tool_shapes = imported_on_use("antwort.wire.tool_shapes")


class Choice(msgspec.Struct, frozen=True):
    """What the model may and must call."""

    upstream: str | JSON | None = None
    """For the model server: `auto`, `none`, `required`, or one function."""
    allowed: frozenset[str] | None = None
    """The only names that may be called."""
    echo: str | JSON = "auto"
    among: frozenset[str] | None = None
    """The names that the request chooses among (`allowed_tools`, or one): a model server needs no others."""

    def relaxed(self) -> "Choice":
        """Return the choice after a call was made: what was required is satisfied."""
        if self.upstream is None or self.upstream in ("auto", "none"):
            return self
        if isinstance(self.upstream, dict) or self.echo == "required" or self.is_one_tool:
            return Choice("auto", None, self.echo)
        return Choice("auto", self.allowed, self.echo, self.among)

    @property
    def is_one_tool(self) -> bool:
        """Whether the request names one tool, which may stand for several functions."""
        return isinstance(self.echo, dict) and self.echo.get("type") != "allowed_tools"

    def permits(self, name: str) -> bool:
        """Tell whether a function may be called."""
        return self.allowed is None or name in self.allowed

    def permitted(self, names: frozenset[str]) -> frozenset[str]:
        """Return those among some functions that may be called."""
        return names if self.allowed is None else names & self.allowed


_AUTOMATIC = Choice()


def read_choice(value: str | JSON | None, toolset: Toolset, *, listed: bool = False) -> Choice:
    """Read a request's `tool_choice` against the functions it has; `listed` tells whether it has a list of tools."""
    if value is None:
        return _AUTOMATIC
    if value == "required":
        return _required(toolset, listed=listed)
    if value in ("auto", "none"):
        allowed: frozenset[str] | None = frozenset() if value == "none" else None
        return Choice(value if toolset.targets else None, allowed, value)
    if not isinstance(value, dict):
        raise unsupported_value("tool_choice", value, ("none", "auto", "required"))
    kind = read_type(value, "tool_choice")
    if (shape := tool_shapes.CHOICE_SHAPES.get(kind)) is not None:
        check_shape(value, shape, "tool_choice")
    if kind == "allowed_tools":
        return _allowed(value, toolset)
    if opened := toolset.opened_as(value):
        only = next(iter(opened)) if len(opened) == 1 else None
        return Choice("required" if only is None else {"type": "function", "name": only}, opened, value, opened)
    name = _chosen_name(value, toolset, "tool_choice")
    echo = value if kind not in _NAMED or "namespace" in value else {"type": kind, "name": name}
    # Not every model server heeds the name: so it is offered no other function, and none is let through either.
    chosen = frozenset({name})
    return Choice({"type": "function", "name": name}, chosen, echo, chosen)


def _required(toolset: Toolset, *, listed: bool) -> Choice:
    """Return the choice of whoever wants a call: of a function that his list names, if he has one."""
    wanted = toolset.named if listed else frozenset(toolset.targets)
    if not wanted:
        raise BadRequestError("'tool_choice' is 'required', but there are no tools.", param="tool_choice")
    among = wanted if len(wanted) < len(toolset.targets) else None
    return Choice("required", among, "required", among)


def _allowed(value: JSON, toolset: Toolset) -> Choice:
    tools = value["tools"]
    mode = value.get("mode", "auto")
    names = frozenset[str]().union(
        *(_chosen_names(tool, toolset, f"tool_choice.tools[{index}]") for index, tool in enumerate(tools))
    )
    echo = {"type": "allowed_tools", "mode": mode, "tools": tools}
    return Choice(mode, frozenset(), echo) if mode == "none" else Choice(mode, names, echo, names)


_NAMED = {"function": "function", "custom": "custom tool"}
"""Tools that a choice calls by name; the others by type."""


def _chosen_names(tool: JSON, toolset: Toolset, param: str) -> frozenset[str]:
    return toolset.opened_as(tool) or toolset.together(_chosen_name(tool, toolset, param))


def _chosen_name(tool: JSON, toolset: Toolset, param: str) -> str:
    kind = read_type(tool, param)
    name = tool.get("name") if kind in _NAMED else toolset.types.get(kind)
    namespace = tool.get("namespace")
    if isinstance(namespace, str) and isinstance(name, str):
        name = qualified_name(namespace, name)
    target = toolset.targets.get(name) if isinstance(name, str) else None
    own = "function" if target is None or target.tool is None else target.tool.type
    if target is None or not isinstance(name, str) or (kind in _NAMED and own != kind):
        what = f"{_NAMED[kind]} '{tool.get('name')}'" if kind in _NAMED else f"tool of type '{kind}'"
        if tool.get("server_label") is not None:
            what += f" with the label '{tool['server_label']}'"
            what += "" if tool.get("name") is None else f" and the function '{tool['name']}'"
        raise BadRequestError(f"'{param}' names a {what} that is not among the tools.", param=param)
    return name
