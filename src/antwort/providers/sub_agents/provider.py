"""The provider `sub_agents`."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar

import msgspec
from typing_extensions import override

from antwort.provider import (
    AgentConfig,
    AgentResult,
    AgentTask,
    BaseModel,
    Context,
    Counter,
    Field,
    FunctionError,
    FunctionUnavailableError,
    HostedCall,
    HostedTool,
    ItemEnd,
    Provider,
    Reference,
    Settings,
    ToolResult,
    Variable,
    function,
)
from antwort.providers.sub_agents import results
from antwort.providers.sub_agents.contexts import Contexts, Given, read_out
from antwort.providers.sub_agents.references import cut, keep


class SubAgentsSettings(Settings):
    """Which model is asked, and how much of what agents give each other stands in their windows."""

    call_model: str | None = Field(
        default=None,
        min_length=1,
        description="The model that `call_llm` and `call_llm_many` ask, such as a small one; the agent's if none.",
    )

    max_inline: int = Field(
        default=2000,
        ge=200,
        le=100_000,
        description="Characters of an answer, or of a text given to an agent, above which a variable is made of it.",
    )
    max_results: int = Field(
        default=1200,
        ge=200,
        le=100_000,
        description="Characters that the answers of many agents may have together; above, they become one variable.",
    )
    max_read: int = Field(
        default=100_000,
        ge=1000,
        description="Bytes of a referenced value that a model is given to read at once, where it has no functions.",
    )
    max_schema: int = Field(
        default=1500, ge=100, le=100_000, description="Characters of a schema that the result of an agent has to fit."
    )


_INSTRUCTIONS = """\
Your input may be far larger than what you can read at once. Long input and long results are kept as variables: you \
see the key, reference, size, type and head.
- A program is your first means (run_program). Look into the variable (`v = await variable(key)`, then read slices or \
grep), split what matters into parts of some 5,000 characters, ask call_llm about each, all in one gather, put \
together what comes back, and end with `await final_answer(text)`. Print little.
- For a look at one place: store_get by lines, grep, offset or json_path.
- Parts that need functions are for sub-agents: spawn_agent, many at once. Each knows only its prompt and context: say \
what to do and what to return.
- Hand values on as {"$ref": id} in any argument, instead of repeating them.
- Answer as soon as you know enough, with final_answer; a sub-agent with return_result."""

RECURSIVE = AgentConfig(
    description="Works on input of any size, by programs, variables and sub-agents.",
    instructions=_INSTRUCTIONS,
    functions=[
        "run_program",
        "final_answer",
        "store_get",
        "call_llm",
        "spawn_agent",
    ],
    max_input=2000,
    max_window=8000,
)


_LONGEST_ANSWER = 50_000
"""Characters that an agent can give back as its result; a longer one becomes a variable."""

_LOOPING = ("$ref", "$dynamicRef", "$recursiveRef")
"""What schemas refer to themselves by: a few lines of it can be more to check than there is time."""

_LONGEST_SHOWN = 9 * _LONGEST_ANSWER
"""Bytes of a value that the root agent answers with."""


def _or_left_out(schema: dict[str, Any]) -> None:
    """Say nothing of null in a schema: an option is left out, and each of them is told in every request."""
    kind, _null = schema.pop("anyOf")
    schema.pop("default", None)
    schema.update(kind)


_option = partial(Field, json_schema_extra=_or_left_out)
Prompt = Annotated[str, Field(description="All that it is to do: it knows nothing else.")]
Profile = Annotated[str | None, _option(description="Profile; default: yours.")]
Functions = Annotated[list[str] | None, _option(description="All that it may call; default: what you may.")]
Model = Annotated[str | None, _option(description="Default: its profile's, or yours.")]
Schema = Annotated[dict[str, Any] | None, _option(description="JSON Schema of its result.")]
Turns = Annotated[int | None, _option(ge=1, description="Most turns.")]
Timeout = Annotated[float | None, _option(gt=0, description="Seconds.")]
AgentId = Annotated[str, Field(min_length=1, description="Id of an agent.")]
Prompts = Annotated[list[str], Field(min_length=1)]


class AgentTool(HostedTool):
    """A function that OpenAI's multi-agent beta has too; a request names all by their type."""

    types = ("multi_agent",)
    item = "multi_agent_call"
    output_items = ("multi_agent_call_output",)
    offered_with = ("wait_agent", "list_agents", "interrupt_agent", "followup_task")
    only_named = True

    def __init__(self, action: str) -> None:
        self._action = action

    @override
    def begin(self, call: HostedCall) -> Mapping[str, Any]:
        return {"arguments": call.arguments, "action": self._action}

    @override
    def end(self, call: HostedCall, result: ToolResult) -> ItemEnd:
        part = {"type": "output_text", "text": result.output, "annotations": [], "logprobs": []}
        output = {"type": self.output_items[0], "output": [part], "action": self._action}
        return ItemEnd(result.item, events=(), items=(output,))

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if item.get("action") != self._action:
            return None
        try:
            return msgspec.json.decode(str(item.get("arguments")), type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeError):
            return {}


class AgentWork(BaseModel):
    """As with one agent."""

    prompt: str
    context: Any = None
    agent: Annotated[str | None, _option()] = None
    functions: Annotated[list[str] | None, _option()] = None
    model: Annotated[str | None, _option()] = None
    output_schema: Annotated[dict[str, Any] | None, _option()] = None
    max_turns: Annotated[int | None, _option(ge=1)] = None
    timeout: Annotated[float | None, _option(gt=0)] = None


class SubAgentsProvider(Provider[SubAgentsSettings]):
    """Functions with which agents start others, wait for them, ask a model, and give back results.

    All are offered on request: they are for agents that are told how to use them, by a profile, or by a request that
    names them. Calls that wait for agents find them again after a crash, and take as long as they do.
    """

    name = "sub_agents"
    profiles: ClassVar[Mapping[str, AgentConfig]] = {"recursive": RECURSIVE}
    started_agents = Counter("started_total", "Agents that were asked for, by how.", ["how"])

    def __init__(self, settings: SubAgentsSettings | None = None) -> None:
        super().__init__(settings)
        for how in ("waiting", "not_waiting", "many", "model"):
            self.started_agents.labels(how)  # so that each shows from the beginning

    @property
    @override
    def named_models(self) -> Mapping[str, str | None]:
        return {"call_model": self.settings.call_model}

    @function(
        scope="agent",
        attach=True,
        references=("context",),
        spill=False,
        timeout=math.inf,
        offer="on_request",
        hosted=AgentTool("spawn_agent"),
    )
    async def spawn_agent(
        self,
        ctx: Context,
        prompt: Prompt,
        context: Given = None,
        *,
        agent: Profile = None,
        functions: Functions = None,
        model: Model = None,
        output_schema: Schema = None,
        max_turns: Turns = None,
        timeout: Timeout = None,  # noqa: ASYNC109 - of the agent
        wait: Annotated[bool, Field(description="False: returns its id at once.")] = True,
    ) -> dict[str, Any]:
        """Let a sub-agent with a window of its own do a task, and return its result."""
        work = AgentWork(
            prompt=prompt,
            context=context,
            agent=agent,
            functions=functions,
            model=model,
            output_schema=output_schema,
            max_turns=max_turns,
            timeout=timeout,
        )
        task = await self._task(ctx, work, Contexts(ctx, max_inline=self.settings.max_inline))
        if wait:
            self.started_agents.labels("waiting").inc()
            [result] = await ctx.run_agents([task])
            return await self._one(ctx, result)
        self.started_agents.labels("not_waiting").inc()
        [agent_id] = await ctx.agents.start([task])
        return {"agent": agent_id, "status": "in_progress"}

    @function(scope="agent", attach=True, references=("context",), spill=False, timeout=math.inf, offer="on_request")
    async def spawn_many(self, ctx: Context, configs: Annotated[list[AgentWork], Field(min_length=1)]) -> Any:
        """Let sub-agents work at the same time; returns a status and result for each, in order."""
        _check_number(ctx, len(configs))
        contexts = Contexts(ctx, max_inline=self.settings.max_inline)
        tasks = [await self._task(ctx, config, contexts) for config in configs]
        self.started_agents.labels("many").inc(len(tasks))
        return await results.many(ctx, await ctx.run_agents(tasks), most=self.settings.max_results)

    async def _task(self, ctx: Context, work: AgentWork, contexts: Contexts) -> AgentTask:
        """Return what an agent is to do, with what its parent may choose for it."""
        if work.model is not None:
            ctx.agents.check_model(work.model)
        if work.output_schema is not None:
            _check_schema(work.output_schema, self.settings.max_schema)
        return AgentTask(
            await contexts.prompt(work.prompt, work.context),
            work.agent,
            work.model,
            functions=work.functions,
            max_turns=work.max_turns,
            output_schema=work.output_schema,
            timeout=work.timeout,
        )

    @function(
        effect="end_agent", references=("value",), spill=False, max_output=10 * _LONGEST_ANSWER, offer="on_request"
    )
    async def return_result(
        self, ctx: Context, value: Annotated[Any, Field(description="Text, JSON, or a reference, which stays one.")]
    ) -> ToolResult:
        """Give back your result and end."""
        if isinstance(value, Reference):
            variable = await ctx.variables.find(value.name)
            return ToolResult(await _shown_whole(ctx, variable)) if ctx.agent.is_root else _returned(variable)
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if ctx.agent.is_root or len(text) <= _LONGEST_ANSWER:
            return ToolResult(text)
        kept = await keep(ctx, f"answer_{ctx.call_id}", text)
        return ToolResult(cut(text, _LONGEST_ANSWER)) if kept is None else _returned(kept)

    @function(attach=True, references=("context",), spill=False, timeout=math.inf, offer="on_request")
    async def call_llm(self, ctx: Context, prompt: Prompt, context: Given = None) -> Any:
        """Ask a language model once, without functions; referenced context is read to it whole."""
        known = await read_out(ctx, context, most=self.settings.max_read)
        self.started_agents.labels("model").inc()
        said = await ctx.call_model(prompt + known, model=self.settings.call_model)
        return await results.answer(ctx, said, most=self.settings.max_inline)

    @function(attach=True, references=("context",), spill=False, timeout=math.inf, offer="on_request")
    async def call_llm_many(self, ctx: Context, prompts: Prompts, context: Given = None) -> Any:
        """Ask a language model many things at the same time, each by itself, with the same context."""
        _check_number(ctx, len(prompts))
        known = await read_out(ctx, context, most=self.settings.max_read)
        tasks = [AgentTask(prompt + known, model=self.settings.call_model, only_answers=True) for prompt in prompts]
        self.started_agents.labels("model").inc(len(tasks))
        return await results.many(ctx, await ctx.run_agents(tasks), most=self.settings.max_results)

    # --- agents that were started without waiting --------------------------------------------------------------------

    @function(scope="agent", offer="on_request", hosted=AgentTool("list_agents"))
    async def list_agents(self, ctx: Context) -> dict[str, Any]:
        """List your sub-agents with their status."""
        return results.listed(await ctx.agents.list())

    @function(
        scope="agent",
        attach=True,
        spill=False,
        timeout=math.inf,
        offer="on_request",
        hosted=AgentTool("wait_agent"),
    )
    async def wait_agent(
        self,
        ctx: Context,
        agents: Annotated[list[str], Field(min_length=1, description="Ids.")],
        seconds: Annotated[float | None, Field(ge=0, description="How long; until all are done if not given.")] = None,
    ) -> Any:
        """Wait for sub-agents, and return their results."""
        found = await ctx.agents.wait(agents, seconds=seconds)
        if len(found) == 1:
            return await results.one(ctx, found[0], most=self.settings.max_inline)
        return await results.many(ctx, found, most=self.settings.max_results)

    @function(scope="agent", offer="on_request", hosted=AgentTool("interrupt_agent"))
    async def interrupt_agent(self, ctx: Context, agent: AgentId) -> dict[str, Any]:
        """Stop what a sub-agent is doing. It can get a follow-up."""
        return await results.one(ctx, await ctx.agents.interrupt(agent), most=self.settings.max_inline)

    @function(
        scope="agent",
        attach=True,
        references=("context",),
        spill=False,
        timeout=math.inf,
        offer="on_request",
        hosted=AgentTool("followup_task"),
    )
    async def followup_task(
        self,
        ctx: Context,
        agent: AgentId,
        prompt: Annotated[str, Field(min_length=1)],
        context: Given = None,
        *,
        wait: bool = True,
    ) -> dict[str, Any]:
        """Give a sub-agent that is done or interrupted a further task; it remembers the ones before."""
        contexts = Contexts(ctx, max_inline=self.settings.max_inline)
        task = AgentTask(await contexts.prompt(prompt, context), continues=agent)
        if wait:
            [result] = await ctx.run_agents([task])
            return await self._one(ctx, result)
        [agent_id] = await ctx.agents.start([task])
        return {"agent": agent_id, "status": "in_progress"}

    @function(scope="agent", offer="on_request")
    async def close_agent(self, ctx: Context, agent: AgentId) -> dict[str, Any]:
        """Stop a sub-agent for good."""
        return await results.one(ctx, await ctx.agents.close(agent), most=self.settings.max_inline)

    @function(offer="on_request")
    async def budget_remaining(self, ctx: Context) -> dict[str, Any]:
        """Tell what this run may still spend, over all its agents."""
        if ctx.budget is None:
            raise FunctionUnavailableError("There is no budget here: that needs a run. Go on without it.")
        return {**ctx.budget.remaining(), "depth": max(0, ctx.budget.limits.depth - ctx.agent.depth)}

    async def _one(self, ctx: Context, result: AgentResult) -> dict[str, Any]:
        if not result.id:  # it was not even begun
            raise FunctionError(result.reason or "The agent could not be started.")
        return await results.one(ctx, result, most=self.settings.max_inline)


async def _shown_whole(ctx: Context, variable: Variable) -> str:
    """Return a value as the answer to the user, who cannot follow a reference; how it begins if it is very long."""
    chunks = [chunk async for chunk in ctx.variables.read(variable, 0, _LONGEST_SHOWN)]
    text = b"".join(chunks).decode(errors="ignore")
    left = variable.size - _LONGEST_SHOWN
    return text if left <= 0 else f"{text}\n[… {left} bytes left out: {variable.id} …]"


def _returned(variable: Variable) -> ToolResult:
    """Return a variable as the result of an agent: whoever reads that knows it by its type, and not by its text."""
    return ToolResult(msgspec.json.encode(variable.reference).decode(), value=variable)


def _check_schema(schema: Mapping[str, Any], most: int) -> None:
    """Raise a FunctionError for a schema that is too long to be told, or that may take for ever to check."""
    text = msgspec.json.encode(schema).decode()
    if len(text) > most:
        raise FunctionError(f"output_schema has {len(text):,} characters; at most {most:,} can be given. Ask for less.")
    for word in _LOOPING:
        if f'"{word}":' in text:
            raise FunctionError(f"output_schema has '{word}': write out what it stands for.")


def _check_number(ctx: Context, number: int) -> None:
    """Raise a FunctionError for more agents than there may ever be, before anything is read or kept for them."""
    if ctx.budget is not None and number >= ctx.budget.limits.agents:
        most = ctx.budget.limits.agents
        raise FunctionError(f"This run may have {most} agents, you included; {number} are too many. Ask for fewer.")
