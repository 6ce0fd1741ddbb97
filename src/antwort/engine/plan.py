"""From a request to a plan: everything decided that can be decided before the model is asked."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from antwort.config import AgentConfig, EngineConfig
from antwort.context import Agent, Context
from antwort.engine.tools import Choice, Offers, Toolset, read_choice
from antwort.errors import BadRequestError, did_you_mean
from antwort.storage.base import JournalEntry
from antwort.types import JSON
from antwort.wire.ids import new_id
from antwort.wire.requests import CreateResponse, read_type
from antwort.wire.responses import ResponseObject

INCLUDES = frozenset(
    {
        "message.output_text.logprobs",
        "message.input_image.image_url",
        "reasoning.encrypted_content",
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
    }
)
"""Values of `include` that belong to no function; those of hosted functions are declared by their wire faces."""

_REFUSED = ("prompt", "moderation", "image")
"""Parameters that would change what the request means and that are not served."""


@dataclass(slots=True)
class Plan:
    """A request, read and decided."""

    create: CreateResponse
    ctx: Context
    response: ResponseObject
    instructions: str | None
    toolset: Toolset
    choice: Choice
    max_turns: int
    max_tool_calls: int | None
    max_output_tokens: int | None
    include: frozenset[str]
    history: list[JournalEntry] = field(default_factory=list)
    input: list[JournalEntry] = field(default_factory=list)
    carried: list[JournalEntry] = field(default_factory=list)
    """What came before and is stored nowhere: a response that is stored takes it along, as input."""
    items: list[JSON] = field(default_factory=list)
    """History and input as the model reads them."""
    conversation: str | None = None
    """The conversation that the response belongs to."""
    compact_at: int | None = None
    """Tokens from which on the window is compacted; 0 leaves the number to the model's own size."""
    compact_only: bool = False
    """The request wants its window compacted, and no answer."""
    show_calls: bool = False
    profile: str | None = None
    """The agent of the configuration that answers, if one was asked for, by `agent` or as the model."""

    @property
    def stored(self) -> bool:
        """Tell whether the response is kept."""
        return self.response.store


class Planner:
    """Reads requests against the configuration and what the executors offer."""

    def __init__(self, engine: EngineConfig, agents: Mapping[str, AgentConfig], offers: Offers) -> None:
        self._engine = engine
        self._agents = agents
        self._offers = offers

    def plan(self, create: CreateResponse, ctx: Context, *, response_id: str | None = None) -> Plan:
        """Decide a request; BadRequestError names the parameter that cannot be served."""
        _refuse(create)
        name, profile = self._profile(create)
        response = _response(create, profile, response_id or new_id("resp"))
        if name is not None:
            response.agent = name
        deadline = None if self._engine.deadline is None else time.monotonic() + self._engine.deadline
        ctx = ctx.with_(response_id=response.id, agent=Agent(name or "root"), deadline=ctx.deadline or deadline)
        self._check_tools(create)
        toolset = self._offers.toolset(create.tools or (), ctx, profile.functions)
        choice = read_choice(create.tool_choice, toolset)
        response.tools, response.tool_choice = toolset.echo, choice.echo
        return Plan(
            create=create,
            ctx=ctx,
            response=response,
            instructions=_joined(profile.instructions, create.instructions),
            toolset=toolset,
            choice=choice,
            max_turns=profile.max_turns or self._engine.max_turns,
            max_tool_calls=_least(create.max_tool_calls, profile.max_tool_calls),
            max_output_tokens=response.max_output_tokens,
            include=_include(create.include or (), toolset),
            conversation=None if response.conversation is None else response.conversation["id"],
            compact_at=_compact_at(create),
            show_calls=self._engine.show_calls,
            profile=create.agent or (create.model if create.model in self._agents else None),
        )

    def _check_tools(self, create: CreateResponse) -> None:
        most = self._engine.max_tools
        if create.tools is not None and len(create.tools) > most:
            raise BadRequestError(
                f"Invalid value for 'tools': it has more than {most:,} entries (engine.max_tools).",
                param="tools",
                code="invalid_value",
            )

    def _profile(self, create: CreateResponse) -> tuple[str | None, AgentConfig]:
        """Return the agent a request asks for, by `agent` or in the place of a model, and its name."""
        if create.agent is not None:
            if create.agent not in self._agents:
                hint = did_you_mean(create.agent, self._agents)
                raise BadRequestError(f"There is no agent '{create.agent}'{hint or '.'}", param="agent")
            return create.agent, self._agents[create.agent]
        if create.model is not None and create.model in self._agents:
            return create.model, self._agents[create.model]
        return None, _NOBODY


_NOBODY = AgentConfig()


def _refuse(create: CreateResponse) -> None:
    for name in _REFUSED:
        if getattr(create, name) is not None:
            raise BadRequestError(
                f"'{name}' is not supported by this server.", param=name, code="unsupported_parameter"
            )
    if create.background and create.store is False:
        raise BadRequestError(
            "'background' needs 'store': a response that is not kept cannot be fetched.", param="store"
        )
    if create.conversation is not None and create.previous_response_id is not None:
        raise BadRequestError(
            "Give either 'conversation' or 'previous_response_id': both say what came before.",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    if create.input is None and create.previous_response_id is None and create.conversation is None:
        raise BadRequestError("Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
    _check_format(create.text.format if create.text else None)


def _check_format(value: JSON | None) -> None:
    if value is None:
        return
    kind = read_type(value, "text.format")
    if kind not in {"text", "json_object", "json_schema"}:
        raise BadRequestError(
            f"Invalid value for 'text.format.type': '{kind}' is none of text, json_object, json_schema.",
            param="text.format.type",
        )
    if kind == "json_schema" and not isinstance(value.get("schema"), dict):
        raise BadRequestError(
            "Missing required parameter: 'text.format.schema'.",
            param="text.format.schema",
            code="missing_required_parameter",
        )
    if kind == "json_schema" and not isinstance(value.get("name"), str):
        raise BadRequestError(
            "Missing required parameter: 'text.format.name'.",
            param="text.format.name",
            code="missing_required_parameter",
        )


def _include(values: Sequence[str], toolset: Toolset) -> frozenset[str]:
    declared = {
        value
        for target in toolset.targets.values()
        if target.spec is not None and target.spec.hosted is not None
        for value in target.spec.hosted.includes
    }
    for value in values:
        # A hosted tool that is not offered has nothing to include; clients send these values all the same.
        if value not in INCLUDES and value not in declared and "_call." not in value:
            raise BadRequestError(f"Invalid value for 'include': '{value}'.", param="include", code="invalid_value")
    return frozenset(values)


def _conversation(value: str | JSON | None) -> JSON | None:
    """Return a conversation as responses repeat it."""
    if value is None:
        return None
    name = value.get("id") if isinstance(value, dict) else value
    if not isinstance(name, str) or not name:
        raise BadRequestError(
            "Invalid value for 'conversation': give its id, or an object with its id.",
            param="conversation",
            code="invalid_value",
        )
    return {"id": name}


def _compact_at(create: CreateResponse) -> int | None:
    thresholds = [entry.compact_threshold or 0 for entry in create.context_management or ()]
    return min(thresholds, default=None)


def _joined(first: str | None, second: str | None) -> str | None:
    return f"{first}\n\n{second}" if first and second else first or second


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _response(create: CreateResponse, profile: AgentConfig, response_id: str) -> ResponseObject:
    """Return the response as it is before anything has happened: every key filled."""
    # An agent named in the place of a model, and without one of its own, has the default model.
    asked = create.model if create.agent is not None or profile is _NOBODY else None
    response = ResponseObject(
        id=response_id,
        created_at=int(time.time()),
        model=profile.model or asked or "",
        background=bool(create.background),
        store=create.store is not False,
        instructions=create.instructions,
        previous_response_id=create.previous_response_id,
        conversation=_conversation(create.conversation),
        max_output_tokens=_least(create.max_output_tokens, profile.max_output_tokens),
        max_tool_calls=create.max_tool_calls,
        parallel_tool_calls=create.parallel_tool_calls is not False,
        prompt_cache_key=create.prompt_cache_key,
        safety_identifier=create.safety_identifier,
        service_tier="default" if create.service_tier in {None, "auto"} else create.service_tier,
        truncation=create.truncation or "disabled",
        metadata=create.metadata or {},
        user=create.user,
    )
    for name in ("top_p", "presence_penalty", "frequency_penalty", "top_logprobs"):
        value = getattr(create, name)
        if value is not None:
            setattr(response, name, value)
    temperature = create.temperature if create.temperature is not None else profile.temperature
    if temperature is not None:
        response.temperature = temperature
    if create.reasoning is not None:
        response.reasoning = {"effort": create.reasoning.effort, "summary": create.reasoning.summary}
    if create.text is not None:
        response.text = {"format": _format_echo(create.text.format)}
        if create.text.verbosity is not None:
            response.text["verbosity"] = create.text.verbosity
    return response


def _format_echo(value: JSON | None) -> JSON:
    """Repeat a format with every key the contracts require."""
    if value is None:
        return {"type": "text"}
    if value["type"] != "json_schema":
        return value
    return {**value, "description": value.get("description"), "strict": bool(value.get("strict"))}
