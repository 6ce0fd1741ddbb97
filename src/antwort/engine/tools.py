"""The tools of a request: which functions the model is offered, whom each call is for, and what it may choose.

Custom tools are the client's and take text. Model servers only know functions, so each becomes a function with one
parameter for the text. A grammar cannot be enforced there; the model is told about it.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from antwort.context import Context
from antwort.errors import BadRequestError, FunctionError
from antwort.functions import FunctionSpec, Hosted, ToolExecutor, tool_definition
from antwort.scopes import FUNCTIONS_CALL
from antwort.types import JSON
from antwort.wire.requests import read_type

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(slots=True)
class Target:
    """Whom a call is for: a function of an executor or, without one, the client."""

    name: str
    """The name the model sees."""
    definition: JSON
    spec: FunctionSpec | None = None
    executor: ToolExecutor | None = None
    options: JSON = field(default_factory=dict)
    """The tool as the request named it."""
    is_custom: bool = False
    """A tool of the client that takes text."""

    @property
    def is_client(self) -> bool:
        """Tell whether the call is handed back to the client."""
        return self.executor is None


@dataclass(slots=True)
class Toolset:
    """The functions of one request."""

    targets: dict[str, Target] = field(default_factory=dict)
    echo: list[JSON] = field(default_factory=list)
    """The tools as the response repeats them."""
    types: dict[str, str] = field(default_factory=dict)
    """The model's name of the function behind each hosted tool type that was named."""

    def definitions(self) -> list[JSON]:
        """Return the definitions for the model server."""
        return [target.definition for target in self.targets.values()]

    def together(self, name: str) -> frozenset[str]:
        """Return a function and the others that came with the same tool of the request."""
        options = self.targets[name].options
        return frozenset(other for other, target in self.targets.items() if target.options is options)


class ToolsetBuilder:
    """Puts together, for each request, what the executors offer and what the request brings."""

    def __init__(self, executors: Sequence[ToolExecutor]) -> None:
        self._executors = executors
        self._definitions: WeakKeyDictionary[FunctionSpec, JSON] = WeakKeyDictionary()

    def build(self, tools: Sequence[JSON], ctx: Context, functions: Iterable[str] | None = None) -> Toolset:
        """Return the functions of a request.

        The request's own functions come first and hide ours of the same name. `functions`, if given, are all that is
        offered of ours besides what the request names. Callers that may not call functions are offered none of ours,
        and naming one is a PermissionDeniedError.
        """
        available = dict(self._available(ctx))
        toolset = Toolset()
        hosted: list[tuple[JSON, FunctionSpec, ToolExecutor]] = []
        permitted = ctx.grants(FUNCTIONS_CALL)
        for index, tool in enumerate(tools):
            if not permitted and _is_ours(tool, available):
                ctx.require(FUNCTIONS_CALL, param=f"tools[{index}]", purpose="to use a function of the server")
            self._add_named(toolset, hosted, tool, f"tools[{index}]", available)
        for tool, spec, executor in hosted:
            self._add_hosted(toolset, tool, spec, executor)
        if not permitted:
            return toolset
        wanted = None if functions is None else set(functions)
        for name, (spec, executor) in available.items():
            offered = spec.offer == "always" if wanted is None else name in wanted
            if offered and name not in toolset.targets and not _has(toolset, spec):
                toolset.targets[name] = Target(name, self._definition(spec), spec, executor)
        return toolset

    def _available(self, ctx: Context) -> Iterator[tuple[str, tuple[FunctionSpec, ToolExecutor]]]:
        seen: set[str] = set()
        for executor in self._executors:
            for spec in executor.discovered_tools(ctx):
                if spec.name not in seen:  # the first executor wins, as the first provider does
                    seen.add(spec.name)
                    yield spec.name, (spec, executor)

    def _definition(self, spec: FunctionSpec) -> JSON:
        found = self._definitions.get(spec)
        if found is None:
            found = self._definitions[spec] = tool_definition(spec)
        return found

    def _add_named(
        self,
        toolset: Toolset,
        hosted: list[tuple[JSON, FunctionSpec, ToolExecutor]],
        tool: JSON,
        param: str,
        available: dict[str, tuple[FunctionSpec, ToolExecutor]],
    ) -> None:
        kind = read_type(tool, param)
        if kind == "custom":
            name = _name(toolset, tool, param)
            toolset.targets[name] = Target(name, custom_definition(tool), is_custom=True)
            toolset.echo.append(custom_echo(tool))
            return
        if kind == "function":
            name = _name(toolset, tool, param)
            if tool.get("parameters") is None and name in available:
                spec, executor = available[name]
                toolset.targets[name] = Target(name, self._definition(spec), spec, executor, tool)
                toolset.echo.append(_function_echo(self._definition(spec)))
            else:
                toolset.targets[name] = Target(name, _client_definition(tool))
                toolset.echo.append(_function_echo(tool))
            return
        for spec, executor in available.values():
            if spec.hosted is not None and kind in spec.hosted.types:
                _check(spec.hosted, tool, param)
                hosted.append((tool, spec, executor))
                for companion, its in (available[name] for name in spec.hosted.companions if name in available):
                    if companion.hosted is not None and kind in companion.hosted.types:
                        hosted.append((tool, companion, its))
                toolset.echo.append({**spec.hosted.tool_defaults, **tool})
                return
        raise BadRequestError(
            f"Tools of type '{kind}' are not available here; available: {', '.join(_types(available.values()))}. "
            "If a provider has it, the operator of this server can enable that.",
            param=f"{param}.type",
            code="unsupported_tool",
        )

    def _add_hosted(self, toolset: Toolset, tool: JSON, spec: FunctionSpec, executor: ToolExecutor) -> None:
        definition = self._definition(spec)
        name = spec.name
        while name in toolset.targets:
            if toolset.targets[name].spec is spec:
                break
            name = f"hosted_{name}"[:64]  # the client's function of that name keeps it
        if name != spec.name:
            definition = {**definition, "name": name}
        toolset.targets[name] = Target(name, definition, spec, executor, tool)
        toolset.types.setdefault(str(tool["type"]), name)


def _is_ours(tool: JSON, available: Mapping[str, tuple[FunctionSpec, ToolExecutor]]) -> bool:
    """Tell whether a tool of a request names functions of the server."""
    if tool.get("type") == "function":
        return tool.get("parameters") is None and tool.get("name") in available
    return any(spec.hosted is not None and tool.get("type") in spec.hosted.types for spec, _ in available.values())


def _check(face: Hosted, tool: JSON, param: str) -> None:
    """Refuse a tool whose options cannot be used: its caller learns of it, not the model."""
    try:
        if face.check is not None:
            face.check(tool)
    except FunctionError as error:
        raise BadRequestError(str(error), param=param, code="invalid_value") from None
    except BadRequestError as error:
        where = f"{param}.{error.param}" if error.param else param
        raise BadRequestError(error.message, param=where, code=error.code or "invalid_value") from None
    except BaseException as error:
        logger.exception("the check of a tool of type '%s' has failed", tool.get("type"))
        raise BadRequestError(
            f"A tool of type '{tool.get('type')}' cannot be read as it is given. The server's log says why.",
            param=param,
            code="invalid_value",
        ) from error


def _name(toolset: Toolset, tool: JSON, param: str) -> str:
    """Return the name of a function or custom tool of the request."""
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadRequestError(
            f"Invalid value for '{param}.name': use 1 to 64 letters, digits, '_' or '-'.", param=f"{param}.name"
        )
    if name in toolset.targets:
        raise BadRequestError(f"There are two functions called '{name}'.", param=f"{param}.name")
    return name


def _has(toolset: Toolset, spec: FunctionSpec) -> bool:
    return any(target.spec is spec for target in toolset.targets.values())


def _types(available: Iterable[tuple[FunctionSpec, ToolExecutor]]) -> list[str]:
    hosted = {kind for spec, _ in available if spec.hosted for kind in spec.hosted.types}
    return ["function", "custom", *sorted(hosted)]


def _client_definition(tool: JSON) -> JSON:
    parameters = tool.get("parameters")
    definition: JSON = {
        "type": "function",
        "name": tool["name"],
        "parameters": {"type": "object", "properties": {}} if parameters is None else parameters,
    }
    if tool.get("description"):
        definition["description"] = tool["description"]
    if tool.get("strict") is not None:
        definition["strict"] = tool["strict"]
    return definition


def _function_echo(tool: JSON) -> JSON:
    """Repeat a function with every key the contracts require."""
    return {"type": "function", "description": None, "parameters": None, "strict": None, **tool}


MOST_ALLOWED = 128
"""Tools that a choice may name."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the model may and must call."""

    upstream: str | JSON | None = None
    """For the model server: `auto`, `none`, `required`, or one function."""
    allowed: frozenset[str] | None = None
    """The only names that may be called; all tools stay visible, so that the prompt can be cached."""
    echo: str | JSON = "auto"

    def relaxed(self) -> "Choice":
        """Return the choice after a call was made: what was required is satisfied."""
        if self.upstream is None or self.upstream in ("auto", "none"):
            return self
        forced = isinstance(self.upstream, dict)
        return Choice("auto", None if forced else self.allowed, self.echo)

    def permits(self, name: str) -> bool:
        """Tell whether a function may be called."""
        return self.allowed is None or name in self.allowed


def read_choice(value: str | JSON | None, toolset: Toolset) -> Choice:
    """Read a request's `tool_choice` against the functions it has."""
    if value is None or value in ("auto", "none", "required"):
        if value == "required" and not toolset.targets:
            raise BadRequestError("'tool_choice' is 'required', but there are no tools.", param="tool_choice")
        allowed: frozenset[str] | None = frozenset() if value == "none" else None
        return Choice(value if toolset.targets else None, allowed, value or "auto")
    if not isinstance(value, dict):
        raise BadRequestError(
            f"Invalid value for 'tool_choice': '{value}' is none of auto, none, required.", param="tool_choice"
        )
    kind = read_type(value, "tool_choice")
    if kind == "allowed_tools":
        return _allowed(value, toolset)
    name = _chosen_name(value, toolset, "tool_choice")
    echo = value if kind not in _NAMED else {"type": kind, "name": name}
    # Not every model server heeds the name, so another function is not let through either.
    return Choice({"type": "function", "name": name}, frozenset({name}), echo)


def _allowed(value: JSON, toolset: Toolset) -> Choice:
    tools = value.get("tools")
    if not isinstance(tools, list) or not tools:
        raise BadRequestError("'tool_choice.tools' must name at least one tool.", param="tool_choice.tools")
    if len(tools) > MOST_ALLOWED:
        raise BadRequestError(f"'tool_choice.tools' names more than {MOST_ALLOWED} tools.", param="tool_choice.tools")
    mode = value.get("mode", "auto")
    if mode not in ("auto", "required", "none"):
        raise BadRequestError(
            f"Invalid value for 'tool_choice.mode': '{mode}' is none of auto, none, required.", param="tool_choice.mode"
        )
    named = [_chosen_name(tool, toolset, f"tool_choice.tools[{index}]") for index, tool in enumerate(tools)]
    names = frozenset[str]().union(*(toolset.together(name) for name in named))
    if mode == "none":
        names = frozenset()
    return Choice(mode, names, {"type": "allowed_tools", "mode": mode, "tools": tools})


_NAMED = {"function": "function", "custom": "custom tool"}
"""Tools that a choice calls by name; the others by type."""


def _chosen_name(tool: Any, toolset: Toolset, param: str) -> str:
    if not isinstance(tool, dict):
        raise BadRequestError(f"Invalid value for '{param}': it must be an object.", param=param, code="invalid_type")
    kind = read_type(tool, param)
    name = tool.get("name") if kind in _NAMED else toolset.types.get(kind)
    target = toolset.targets.get(name) if isinstance(name, str) else None
    if target is None or not isinstance(name, str) or target.is_custom != (kind == "custom"):
        what = f"{_NAMED[kind]} '{tool.get('name')}'" if kind in _NAMED else f"tool of type '{kind}'"
        raise BadRequestError(f"'{param}' names a {what} that is not among the tools.", param=param)
    return name


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
