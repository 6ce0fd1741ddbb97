"""The parameters of a request: those that are refused, what the others mean, and how the response repeats them."""

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from antwort.backends.models import ModelNames
from antwort.config import AgentConfig, ApprovalPolicy, RunConfig
from antwort.context.agents import RunLimits
from antwort.engine.tools.targets import Toolset
from antwort.errors import BadRequestError
from antwort.lazy_imports import imported_on_use
from antwort.types import JSON
from antwort.wire.client_tools import qualified_name
from antwort.wire.field_errors import (
    UNKNOWN_PARAMETER,
    check_shape,
    misplaced_parameter,
    missing_parameter,
    read_type,
    unknown_parameter,
    unsupported_value,
    wrong_prefix,
)
from antwort.wire.requests import (
    INCLUDES,
    ContextManagement,
    ConversationReference,
    CreateResponse,
    TextConfig,
    is_include,
)
from antwort.wire.responses import ResponseObject
from antwort.wire.strict_schemas import check_format, known_format

# --- what a model may and must call ----------------------------------------------------------------------------------


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
        return _opened_choice(value, opened, toolset)
    name = _chosen_name(value, toolset, "tool_choice")
    echo = value if kind not in _NAMED or "namespace" in value else {"type": kind, "name": name}
    # Not every model server heeds the name: so it is offered no other function, and none is let through either.
    chosen = frozenset({name})
    return Choice({"type": "function", "name": name}, chosen, echo, chosen)


def _opened_choice(value: JSON, opened: frozenset[str], toolset: Toolset) -> Choice:
    """Return the choice of what a tool stands for, or of one function of it."""
    if len(opened) == 1:
        return Choice({"type": "function", "name": next(iter(opened))}, opened, value, opened)
    if toolset.search is not None:
        opened |= {toolset.search}  # by which it gets at those that are deferred
    return Choice("required", opened, value, opened)


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


# --- parameters ------------------------------------------------------------------------------------------------------


NOTHING_INCLUDED: frozenset[str] = frozenset()
"""One for all requests: Python makes a new one each time."""
_OF_CHAT = {
    "messages": "'input', which takes a text or a list of messages",
    "max_tokens": "'max_output_tokens'",
    "max_completion_tokens": "'max_output_tokens'",
    "response_format": "'text.format'",
    "reasoning_effort": "'reasoning.effort'",
}
"""What has another name in Chat Completions, by that name."""


class Profile(msgspec.Struct, frozen=True):
    """An agent of the configuration as requests are decided by it: settings are slow to read."""

    name: str | None
    """None is what answers if no agent was asked for."""
    description: str
    instructions: str | None
    model: str | None
    functions: tuple[str, ...] | None
    agents: frozenset[str]
    """Other agents that it may start."""
    models: ModelNames
    """Other models that it may choose for those."""
    approval: ApprovalPolicy | None
    max_input: int | None
    max_window: int | None
    max_turns: int
    max_tool_calls: int | None
    max_output_tokens: int | None
    temperature: float | None

    @classmethod
    def of(cls, name: str | None, agent: AgentConfig, *, max_turns: int) -> "Profile":
        """Return the profile of an agent; `max_turns` is for those that do not say."""
        return cls(
            name,
            agent.description,
            agent.instructions,
            agent.model,
            None if agent.functions is None else tuple(agent.functions),
            frozenset(agent.agents),
            ModelNames(agent.models),
            agent.approval,
            agent.max_input,
            agent.max_window,
            agent.max_turns or max_turns,
            agent.max_tool_calls,
            agent.max_output_tokens,
            agent.temperature,
        )


def check_beyond(create: CreateResponse, taken: Collection[str], backend: str = "its backend") -> None:
    """Refuse fields beyond the API that no model server takes, as unknown ones."""
    for name in create.extra_body or ():
        if name not in taken:
            if name in _OF_CHAT:
                raise BadRequestError(
                    f"Unknown parameter: '{name}'; this is the Responses API: use {_OF_CHAT[name]}.",
                    param=name,
                    code=UNKNOWN_PARAMETER,
                )
            if name in CreateResponse.__struct_fields__:
                raise misplaced_parameter(name)
            raise unknown_parameter(
                name,
                CreateResponse.__struct_fields__,
                f"One of the model server's own is passed on if `parameters` of {backend} names it.",
            )


def check_parameters(create: CreateResponse, *, most_tools: int, beyond: Collection[str] = ()) -> None:
    """Refuse what is not served, or does not fit together; BadRequestError names the parameter.

    `beyond` are the fields beyond the API that some model server takes.
    """
    if create.extra_body:
        check_beyond(create, beyond)
    if create.moderation is not None:
        raise _unsupported("moderation")
    previous = create.previous_response_id
    if previous is not None and not previous.startswith("resp"):
        raise wrong_prefix("previous_response_id", previous, "resp")
    if create.conversation is not None and previous is not None:
        raise BadRequestError(
            "Give either 'conversation' or 'previous_response_id': both say what came before.",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    if create.input is None and previous is None and create.conversation is None:
        raise missing_parameter("input")
    if create.tools is not None and len(create.tools) > most_tools:
        raise BadRequestError(
            f"Invalid value for 'tools': it has more than {most_tools:,} entries (engine.max_tools).",
            param="tools",
            code="invalid_value",
        )
    if create.text is not None and create.text.format is not None:
        check_format(create.text.format, "text.format")
        create.text.format = known_format(create.text.format)


def _unsupported(name: str) -> BadRequestError:
    """Return the error for a parameter that would change what the request means and that is not served."""
    return BadRequestError(f"'{name}' is not supported by this server.", param=name, code="unsupported_parameter")


def read_include(values: Sequence[str], toolset: Toolset) -> frozenset[str]:
    """Return what a request wants included; BadRequestError for what nobody can include."""
    for value in values:
        if not is_include(value) and value not in toolset.includes:
            raise unsupported_value("include", value, sorted(INCLUDES | toolset.includes))
    return frozenset(values)


def _conversation(value: str | ConversationReference) -> JSON:
    """Return a conversation as responses repeat it."""
    name = value if isinstance(value, str) else value.id
    if not name.startswith("conv"):
        raise wrong_prefix("conversation", name, "conv")
    return {"id": name}


def compact_threshold(management: Sequence[ContextManagement]) -> int:
    """Return the number of tokens from which on the window is compacted."""
    return min(entry.compact_threshold or 0 for entry in management)


def joined(first: str | None, second: str | None) -> str | None:
    """Join two texts of which either may be missing."""
    return f"{first}\n\n{second}" if first and second else first or second


def least(first: int | None, second: int | None) -> int | None:
    """Return the smaller of two limits of which either may be missing."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


def new_response(create: CreateResponse, profile: Profile, response_id: str) -> ResponseObject:
    """Return the response as it is before anything has happened: every key filled."""
    # An agent named in the place of a model, and without one of its own, has the default model.
    asked = create.model if create.agent is not None or profile.name is None else None
    response = ResponseObject(  # Python is slow with more than fifteen names
        id=response_id,
        created_at=int(time.time()),
        model=profile.model or asked or "",
        background=bool(create.background),
        store=create.store is not False,
        instructions=create.instructions,
        previous_response_id=create.previous_response_id,
        max_output_tokens=least(create.max_output_tokens, profile.max_output_tokens),
        max_tool_calls=create.max_tool_calls,
        parallel_tool_calls=create.parallel_tool_calls is not False,
        prompt_cache_key=create.prompt_cache_key,
        prompt_cache_retention=create.prompt_cache_retention,
        safety_identifier=create.safety_identifier,
        truncation=create.truncation or "disabled",
        user=create.user,
    )
    if profile.name is not None:
        response.agent = profile.name
    if create.service_tier is not None and create.service_tier != "auto":
        response.service_tier = create.service_tier
    if create.conversation is not None:
        response.conversation = _conversation(create.conversation)
    if create.metadata:
        response.metadata = {name: text for name, text in create.metadata.items() if text is not None}
    if create.reasoning is not None:
        response.reasoning = {"effort": create.reasoning.effort, "summary": create.reasoning.summary}
    if create.text is not None:
        response.text = _text_echo(create.text)
    _repeat_sampling(create, profile, response)
    return response


def _repeat_sampling(create: CreateResponse, profile: Profile, response: ResponseObject) -> None:
    """Let a response say how freely the model chooses, as far as that is not as usual."""
    if create.temperature is not None:
        response.temperature = create.temperature
    elif profile.temperature is not None:
        response.temperature = profile.temperature
    if create.top_p is not None:
        response.top_p = create.top_p
    if create.presence_penalty is not None:
        response.presence_penalty = create.presence_penalty
    if create.frequency_penalty is not None:
        response.frequency_penalty = create.frequency_penalty
    if create.top_logprobs is not None:
        response.top_logprobs = create.top_logprobs


def _text_echo(options: TextConfig) -> JSON:
    """Repeat what a text is to be like with every key the contracts require."""
    return {"format": _format_echo(options.format), "verbosity": options.verbosity or "medium"}


def _format_echo(value: JSON | None) -> JSON:
    """Repeat a format with every key the contracts require."""
    if value is None:
        return {"type": "text"}
    if value["type"] != "json_schema":
        return value
    return {**value, "description": value.get("description"), "strict": bool(value.get("strict"))}


def run_limits(config: RunConfig) -> RunLimits:
    """Return the limits of runs as they are configured."""
    return RunLimits(
        depth=config.max_depth,
        agents=config.max_agents,
        in_flight=config.max_in_flight,
        tokens=config.max_tokens,
        cost=config.max_cost,
        seconds=config.max_time,
        calls=config.max_calls,
        agent_seconds=config.max_agent_time,
    )
