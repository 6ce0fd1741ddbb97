"""From a request to a plan: everything decided that can be decided before the model is asked."""

import time
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from antwort.backends import ModelRouter
from antwort.backends.base import FileReading
from antwort.concurrency.large_work import MANY, MUCH, LargeWork, is_large
from antwort.config import AgentConfig, EngineConfig
from antwort.context import Agent, Context
from antwort.context.agents import AgentTask
from antwort.context.context import CONVERSATIONS_READ, CONVERSATIONS_WRITE, FUNCTIONS_CALL, RESPONSES_READ
from antwort.context.values import Values
from antwort.engine.budget import Budget, Price
from antwort.engine.plan import AS_USUAL, ChildWork, Plan, Shown, child_request
from antwort.engine.planning.continuing import Continued, answer_waiting, load_continued, resumed_calls
from antwort.engine.planning.input import LongInput, read_input, read_text
from antwort.engine.planning.input_files import CheckUrl, InputFiles, check_links, item_links
from antwort.engine.planning.past import History, Past, past_window
from antwort.engine.planning.resent_calls import check_repeated_ids, with_resent_calls, without_repeated_calls
from antwort.engine.sealing import Sealer
from antwort.engine.tools.deferred import Key
from antwort.engine.tools.opened_tools import Opening, open_tools, prepared_tools, unsealed_request
from antwort.engine.tools.parameters import (
    NOTHING_INCLUDED,
    Choice,
    Profile,
    check_beyond,
    check_parameters,
    compact_threshold,
    joined,
    least,
    new_response,
    read_choice,
    read_include,
    run_limits,
)
from antwort.engine.tools.targets import ResumedCall, Target, Toolset, approved_calls
from antwort.engine.tools.tool_search import found_keys, loading_chosen, loading_found
from antwort.engine.tools.toolsets import (
    CHANGING,
    ToolsetBuilder,
    brought_tools,
    changing,
    changing_entries,
    configured,
)
from antwort.engine.window import (
    Recall,
    Seals,
    read_window,
    resolve_references,
    restore_sources,
    without_trigger,
)
from antwort.errors import BadRequestError, FunctionError, NotFoundError, did_you_mean
from antwort.functions import FunctionSpec
from antwort.functions.absent import ProviderAsleepError
from antwort.storage.base import JournalEntry, ResponseRecord
from antwort.storage.sql.store import Store
from antwort.types import JSON
from antwort.wire.ids import new_id
from antwort.wire.requests import CreateResponse, implied_tools
from antwort.wire.responses import ResponseObject, Usage


class Planner:
    """Reads requests against the configuration, what the executors offer, and what is stored.

    `check_url` is asked about each URL that a model server would fetch; None lets all pass.
    """

    def __init__(
        self,
        settings: EngineConfig,
        agents: Mapping[str, AgentConfig],
        toolsets: ToolsetBuilder,
        *,
        models: ModelRouter,
        store: Store,
        sealer: Sealer,
        large_work: LargeWork,
        check_url: CheckUrl | None = None,
        values: Values | None = None,
        input_files: InputFiles | None = None,
    ) -> None:
        self._values = values
        self._input_files = input_files
        self._show_calls = settings.show_calls
        self._max_tools = settings.max_tools
        self._deadline = settings.deadline
        self._profiles: dict[str | None, Profile] = {
            name: Profile.of(name, agent, max_turns=settings.max_turns) for name, agent in agents.items()
        }
        unnamed = AgentConfig(agents=settings.run.agents, models=settings.run.models)
        self._no_profile = Profile.of(None, unnamed, max_turns=settings.max_turns)
        self._toolsets = toolsets
        self._models = models
        self._store = store
        self._sealer = sealer
        self._large_work = large_work
        self._check_url = check_url
        self._past = Past(store, large_work)
        self._limits = run_limits(settings.run)
        self._has_run_time = "max_time" in settings.run.model_fields_set
        if self._has_run_time and self._limits.agent_seconds is None:
            self._limits = replace(self._limits, agent_seconds=settings.deadline)
        self._root_agent = Agent("root", can_spawn=self._limits.depth > 0)
        self._prices = {name: Price(price.input, price.output) for name, price in settings.prices.items()}

    async def plan(
        self,
        create: CreateResponse,
        ctx: Context,
        *,
        shown: Shown = AS_USUAL,
        recall: Recall | None = None,
        opening: Opening | None = None,
    ) -> Plan:
        """Read a request; BadRequestError names the parameter that cannot be served.

        `recall` has responses that are stored nowhere and can be continued all the same, by id. A provider that sleeps
        and whose tools are named is started for it. `opening` waits for tools that have to be asked elsewhere what they
        stand for, which may take long.
        """
        if self._show_calls:
            shown = replace(shown, calls=True)
        while True:
            try:
                text = _only_text(create)
                plan = None if text is None else self._decide(create, ctx, new_id("resp"), shown, text=text)
                if plan is None or plan.max_input is not None:
                    return await self._read(create, ctx, shown, recall, plan, opening=opening)
                if not self._is_named(create, plan.response):
                    await self._name_model(create, plan.response)
                return (
                    await self._prepared(plan, opening=opening) if plan.toolset.types or plan.toolset.unopened else plan
                )
            except ProviderAsleepError as error:
                await error.wake()

    @property
    def described_agents(self) -> dict[str, str]:
        """What the agents are for that a request can ask for, by their names."""
        return {profile.name: profile.description for profile in self._profiles.values() if profile.name is not None}

    @property
    def agents(self) -> list[str]:
        """The names of the agents that a request can ask for."""
        return [name for name in self._profiles if name is not None]

    def functions(self, ctx: Context) -> dict[str, FunctionSpec]:
        """Return our functions that a caller may have called, by name."""
        return self._toolsets.callable_by(ctx.with_(agent=self._root_agent))

    def plan_call(self, name: str, ctx: Context) -> tuple[Plan, Target] | None:
        """Plan a call of a function that no model makes; None if there is none for the caller. No model is named."""
        ctx = ctx.with_(agent=self._root_agent)
        target = self._toolsets.find(name, ctx) if ctx.grants(FUNCTIONS_CALL) else None
        if target is None:
            return None
        named: JSON = {"type": "function", "name": name}
        create = CreateResponse(input="", tools=[named], store=False)
        plan = self._decide(create, ctx, new_id("resp"), AS_USUAL, text="")
        return plan, plan.toolset.targets[name]

    def bare_plan(self, create: CreateResponse, ctx: Context) -> Plan:
        """Plan a request that reads nothing yet, for whoever has to ask models before it is planned."""
        plain = CreateResponse(model=create.model, agent=create.agent, multi_agent=create.multi_agent, store=False)
        return self._decide(replace(plain, input=""), ctx, new_id("resp"), AS_USUAL, text="")

    async def _read(
        self,
        create: CreateResponse,
        ctx: Context,
        shown: Shown,
        recall: Recall | None,
        plan: Plan | None,
        *,
        opening: Opening | None,
    ) -> Plan:
        """Read a request that has more than a short text; of a long text there is a plan."""
        large = False
        items: list[JSON] | None = None
        changes: Sequence[tuple[str, JSON]] = ()
        if plan is None and isinstance(create.input, list):
            large = is_large(create.input)
            if _may_change(create.input):
                items = await self._large_work.run_if(large, read_input, create.input)
                changes = changing(items)
        if plan is None:
            plan = self._decide(create, ctx, new_id("resp"), shown, changes=changes)
        if items is None:
            items = await self._large_work.run_if(large, read_input, create.input)
        history = await self._history(plan, recall)
        if earlier := _changes(history):
            plan = self._decide(create, ctx, plan.response.id, shown, changes=[*earlier, *changes])
        create = plan.create
        entries = await resolve_references(items, self._store, ctx)
        check_repeated_ids(create.input, history, entries)
        entries = without_repeated_calls(history, entries)
        # Before anything is answered: it may be refused.
        plan = await self._prepared(plan, history, entries, opening=opening)
        plan, entries = await self._continuing(plan, history, entries)
        history = await self._with_files(plan, history)
        entries, history = self._calls_read(plan, entries, history)
        long_input: LongInput | None = None
        if plan.max_input is not None and self._values is not None:
            long_input = LongInput(self._values.of(plan.ctx), plan.max_input, self._large_work)
        if self._input_files is not None:
            reading = partial(self._files_read, plan.response.model)
            entries = await self._input_files.resolved(entries, ctx, reading, kept=long_input is not None)
        if long_input is not None:
            entries = await long_input.shortened(entries)
        large = large or _count(history) + len(entries) >= MANY
        await self._check_links(create, entries, history, large=large)
        restore_sources([*_noting(history), *entries], plan.ctx.sources)
        response = plan.response
        await self._name_model(create, response)
        entries, compact_only = without_trigger(entries)
        seals = self.seals(ctx, response)
        window = await self._large_work.run_if(large, _window, history, entries, seals, plan)
        carried: list[JournalEntry] = []
        if response.store and recall is not None and create.previous_response_id in recall:
            carried, history = history, carried
        return replace(plan, input=entries, window=window, history=history, carried=carried, compact_only=compact_only)

    async def _files_read(self, model: str) -> FileReading:
        return (await self._models.resolve(model or None)).route.files

    def _is_named(self, create: CreateResponse, response: ResponseObject) -> bool:
        """Tell whether the model that answers is named, and known, and there is nothing about it to be checked."""
        return bool(response.model) and not create.extra_body and self._models.is_known(response.model)

    async def _name_model(self, create: CreateResponse, response: ResponseObject) -> None:
        """Name the model that answers; one that cannot be anywhere is a NotFoundError.

        Fields beyond the API that its backend does not take are a BadRequestError.
        """
        if self._is_named(create, response):
            return
        resolved = await self._models.resolve(response.model or None)
        response.model = response.model or resolved.model
        check_beyond(create, resolved.route.parameters, f"backends.{resolved.backend.name}")

    async def _continuing(
        self, plan: Plan, history: Sequence[JournalEntry], entries: Sequence[JournalEntry]
    ) -> tuple[Plan, list[JournalEntry]]:
        """Return a plan as part of the conversation and the run that it continues, and what the model is to read.

        Whatever the input answers is answered then.
        """
        plan = _in_chain(plan, history)
        sign = self.seals(plan.ctx, plan.response).sign_approval
        continued = await answer_waiting(self._store, plan.ctx, plan.response, history, entries, sign=sign)
        run_id = continued.run_id
        if run_id is not None:
            ctx = plan.ctx.with_(run_id=run_id, agent_id=run_id)
            plan = replace(plan, ctx=ctx, answered=continued.answered)
            plan = await self._with_calls(plan, continued, history)
            await self._count_spent(plan, run_id)
        elif continued.carried:
            plan = await self._with_calls(plan, continued, history)
        return plan, [*continued.entries, *entries]

    async def _with_files(self, plan: Plan, history: list[JournalEntry]) -> list[JournalEntry]:
        """Return a history with the content of the files that clients have given to a conversation."""
        if self._input_files is None or not (isinstance(history, History) and history.names_files):
            return history
        reading = partial(self._files_read, plan.response.model)
        return await self._input_files.resolved_history(history, plan.ctx, reading)

    def _calls_read(
        self, plan: Plan, entries: list[JournalEntry], history: list[JournalEntry]
    ) -> tuple[list[JournalEntry], list[JournalEntry]]:
        """Return an input and a history with the calls in them that clients have sent back as items.

        Of responses that are continued these are known since they were made: only conversations are given items.
        """
        showing = partial(self._toolsets.showing, toolset=plan.toolset, ctx=plan.ctx)
        if plan.conversation is not None and not (isinstance(history, History) and history.is_read):
            history = with_resent_calls(history, showing)
        return with_resent_calls(entries, showing), history

    async def _with_calls(self, plan: Plan, continued: Continued, history: Sequence[JournalEntry]) -> Plan:
        """Return a plan with the calls of the response before that can be made, or go on, now."""

        def find(name: str) -> Target | None:
            return self._toolsets.find(name, plan.ctx)

        approvals = approved_calls(continued.approvals, plan.toolset, find)
        approvals += approved_calls(continued.carried, plan.toolset, find, carried=True)
        resumed = [
            ResumedCall(record, plan.toolset.targets.get(record.name) or find(record.name), nested)
            for record, nested in await resumed_calls(self._store, plan.ctx.tenant, history, continued.nested)
        ]
        return replace(plan, approvals=approvals, resumed=resumed)

    async def plan_child(self, work: ChildWork, *, recall: Recall | None = None) -> Plan:
        """Plan the response of a sub-agent: with the run, budget, deadline and functions of its parent.

        `recall` as with `plan`.
        """
        parent, previous = work.parent, work.previous
        create = child_request(work)
        history: list[JournalEntry] = []
        if previous is not None:
            if recall is not None and previous in recall:
                history = [*recall[previous]]
            else:
                history = await self._past.history(parent.ctx.tenant, previous, of_run=True)
        plan = self._decide(create, parent.ctx, new_id("resp"), parent.shown, work, changes=_changes(history))
        entries = [JournalEntry("input", item) for item in read_input(create.input)]
        if plan.max_input is not None and self._values is not None and not work.task.only_answers:
            variables = self._values.of(plan.ctx)
            most = max(1, plan.max_input - len(create.instructions or ""))  # its task has both
            entries = await LongInput(variables, most, self._large_work, "agent").shortened(entries)
        response = plan.response
        await self._name_model(create, response)
        plan = await self._prepared(plan, parent.history, parent.input, refuses=False)
        window = read_window(history, entries, self.seals(parent.ctx, response), False)
        return replace(plan, input=entries, window=window, history=history)

    async def plan_again(
        self,
        record: ResponseRecord,
        entries: Sequence[JournalEntry],
        response: ResponseObject,
        work: ChildWork | None = None,
    ) -> Plan:
        """Decide a stored request again: functions and agents may have changed, what the response repeats has not.

        `work` is what a sub-agent is to do.
        """
        create = unsealed_request(record.request, self._sealer, record.tenant)
        new = [entry for entry in entries if entry.direction == "input"]
        history: list[JournalEntry] = []
        if record.previous_response_id is not None:  # of the record: a response that was deleted meanwhile is left out
            history = await self._past.history(record.tenant, record.previous_response_id, of_run=True)
        elif response.conversation is not None:  # one that was deleted meanwhile is left out too
            history = await self._past.conversation(record.tenant, response.conversation["id"]) or []
        if work is None:
            ctx = Context(record.tenant, record.subject, frozenset(record.extra.get("scopes", ())))
            shown = msgspec.convert(record.extra.get("shown", {}), Shown)
            changes = [*_changes(history), *_changes(new)]
            plan = self._decide(create, ctx, record.id, shown, changes=changes, again=True)
            run_id = record.run_id or record.id
            plan = replace(plan, ctx=plan.ctx.with_(run_id=run_id, agent_id=run_id))
            await self._count_spent(plan, run_id)
        else:
            ctx = work.parent.ctx
            work = replace(work, task=msgspec.convert(record.extra["task"], AgentTask))
            shown, changes = work.parent.shown, _changes(history)
            plan = self._decide(create, ctx, record.id, shown, work, changes=changes, again=True)
        profile = record.extra.get("profile")
        if plan.profile != profile:
            raise BadRequestError(f"The agent '{profile or plan.profile}' is not what it was when the run began.")
        if plan.toolset.unopened:
            plan = await self._opened(plan, (history, entries), refuses=False)
        if work is None:
            plan = _in_chain(plan, history)
            continued = await load_continued(self._store, record.tenant, record.id, history)
            plan = await self._with_calls(plan, continued, history)
        history = await self._with_files(plan, history)
        _, history = self._calls_read(plan, [], history)
        restore_sources([*history, *entries], plan.ctx.sources)
        plan = await self._prepared(plan, history, new, refuses=False)
        return replace(
            plan,
            response=response,
            input=new,
            window=_window(history, new, self.seals(ctx, response), plan),
            history=history,
            compact_only=bool(record.extra.get("compact_only")),
            refused=record.extra.get("refused"),
        )

    def in_background(self, plan: Plan) -> Plan:
        """Return the plan of a response that nobody holds a connection for: it has the time of its run, if one is set.

        The deadline of responses holds for each agent below it.
        """
        ctx, budget = plan.ctx, plan.ctx.budget
        if not self._has_run_time or ctx.deadline is None or not isinstance(budget, Budget):
            return plan
        seconds = budget.limits.seconds
        deadline = None if seconds is None else max(ctx.deadline, time.monotonic() + seconds - budget.seconds)
        return replace(plan, ctx=ctx.with_(deadline=deadline))

    def seals(self, ctx: Context, response: ResponseObject) -> Seals:
        """Return what opens and makes the sealed items of a response."""
        return Seals(self._sealer, ctx.tenant, response.model)

    async def _count_spent(self, plan: Plan, run_id: str) -> None:
        """Count what was spent before by a run that goes on."""
        budget = plan.ctx.budget
        if not isinstance(budget, Budget):
            return
        here = {plan.response.id}
        for record in await self._store.of_run(plan.ctx.tenant, run_id):
            totals = record.extra.get("totals", {})
            usage = msgspec.convert(totals.get("usage", {}), Usage)
            if record.parent_id in here:
                here.add(record.id)
            agents = 1 if record.parent_id is not None else 0
            calls = int(totals.get("tool_calls", 0))
            budget.spent.seconds = max(budget.spent.seconds, float(totals.get("seconds", 0)))  # of the run so far
            budget.count_before(record.model, usage, calls, agents=agents, here=record.id in here)

    def _decide(
        self,
        create: CreateResponse,
        ctx: Context,
        response_id: str,
        shown: Shown,
        work: ChildWork | None = None,
        *,
        text: str | None = None,
        changes: Sequence[tuple[str, JSON]] = (),
        again: bool = False,
    ) -> Plan:
        """Return what a request decides by itself, whatever came before it, as a plan that reads a text or nothing.

        `changes` are the items that bring tools, or change settings, with the parameters that have them. One that is
        decided `again` is not refused for what was switched off since.
        """
        check_parameters(create, most_tools=self._max_tools, beyond=self._models.parameters)
        if changes:
            create = configured(create, changes)
        profile = self._profile(create)
        response = new_response(create, profile, response_id)
        wanted: Sequence[str] | None = profile.functions
        tools: Sequence[JSON] = create.tools or ()
        implied: Sequence[JSON] = ()
        if create.multi_agent is not None:
            implied = implied_tools(create)
            tools = [*tools, *implied]
        if work is None:
            ctx = self._root(ctx, profile.name, response, create)
        else:
            ctx, wanted, tools = self._below(work, profile, response, tools)
        brought = brought_tools(changes, tools, most=self._max_tools) if changes else ()
        listed = create.tools is not None or bool(brought)
        if work is not None and work.task.only_answers:
            toolset = Toolset()
        else:
            waits = response.background
            toolset = self._toolsets.build(tools, ctx, wanted, waits=waits, listed=listed, brought=brought, again=again)
        if changes and (toolset.deferred or toolset.unopened):
            toolset = _with_found(toolset, found_keys(item for _, item in changes))
        choice = _choose(create, toolset, response, implied, listed=listed)
        if toolset.deferred:
            toolset = loading_chosen(toolset, choice.among)
        plan = _decided(create, ctx, response, profile, toolset, choice=choice, shown=shown, text=text)
        return plan if work is None else work.under_parent(plan)

    def _below(
        self, work: ChildWork, profile: Profile, response: ResponseObject, tools: Sequence[JSON]
    ) -> tuple[Context, Sequence[str] | None, Sequence[JSON]]:
        """Return the context of a sub-agent, the functions that it may call, and those tools of a request it has."""
        ctx = work.context(profile.name, response.id)
        if work.task.model is not None and work.task.model != profile.name:
            response.model = work.task.model
        is_other = self._is_other(profile, work.parent)
        wanted = work.functions(profile.functions, is_other=is_other)
        # The profile of another agent says what it has instead.
        return ctx, wanted, () if is_other and wanted is not None else work.among(tools)

    def _is_other(self, profile: Profile, parent: Plan) -> bool:
        """Tell whether a sub-agent is another agent than its parent; a FunctionError if it may not be started."""
        if profile.name == parent.profile:
            return False
        permitted = self._profiles.get(parent.profile, self._no_profile).agents
        if profile.name not in permitted:
            names = ", ".join(f"'{name}'" for name in sorted(permitted)) or "none"
            raise FunctionError(
                f"You may not start the agent '{profile.name}'. Others that you may: {names}. Without a name an agent "
                "is as you are."
            )
        return True

    def check_model(self, parent: Plan, model: str) -> None:
        """Raise a FunctionError if an agent may not choose a model for those that it starts."""
        profile = self._profiles.get(parent.profile, self._no_profile)
        if model in {parent.response.model, profile.model} or profile.models.find(model) is not None:
            return
        names = ", ".join(f"'{name}'" for name in profile.models) or "none"
        raise FunctionError(
            f"You may not choose the model '{model[:64]}'. Others than yours that you may: {names}. Without a name an "
            "agent has the model of its profile, or yours."
        )

    def _root(self, ctx: Context, name: str | None, response: ResponseObject, create: CreateResponse) -> Context:
        """Return the context of a root agent that begins a run."""
        limits = self._limits
        asked = None if create.multi_agent is None else create.multi_agent.max_concurrent_subagents
        if asked is not None:
            limits = replace(limits, in_flight=min(asked, limits.in_flight))
        deadline = None if self._deadline is None else time.monotonic() + self._deadline
        return replace(
            ctx,
            response_id=response.id,
            run_id=response.id,
            agent_id=response.id,
            conversation_id=response.id if response.conversation is None else response.conversation["id"],
            agent=self._root_agent if name is None else replace(self._root_agent, name=name),
            deadline=ctx.deadline or deadline,
            budget=ctx.budget or Budget(limits, self._prices),
        )

    def _profile(self, create: CreateResponse) -> Profile:
        """Return the agent a request asks for, by `agent` or in the place of a model."""
        if create.agent is None:
            return self._profiles.get(create.model, self._no_profile)
        profile = self._profiles.get(create.agent)
        if profile is None:
            hint = did_you_mean(create.agent, [name for name in self._profiles if name is not None])
            raise BadRequestError(f"There is no agent '{create.agent}'{hint or '.'}", param="agent")
        return profile

    async def _history(self, plan: Plan, recall: Recall | None) -> list[JournalEntry]:
        """Return what came before a request, if its caller may read it."""
        create, ctx = plan.create, plan.ctx
        if create.previous_response_id is not None:
            if recall is not None and create.previous_response_id in recall:
                return list(recall[create.previous_response_id])
            ctx.require(RESPONSES_READ, param="previous_response_id", purpose="to continue a stored response")
            return await self._past.history(ctx.tenant, create.previous_response_id)
        if plan.conversation is None:
            return []
        for scope in (CONVERSATIONS_READ, CONVERSATIONS_WRITE):
            ctx.require(scope, param="conversation", purpose="to continue a conversation")
        found = await self._past.conversation(ctx.tenant, plan.conversation)
        if found is None:
            raise conversation_not_found(plan.conversation)
        return found

    async def _prepared(
        self, plan: Plan, *past: Sequence[JournalEntry], refuses: bool = True, opening: Opening | None = None
    ) -> Plan:
        """Return a plan with its hosted tools as those who execute them want them, or with what they stand for."""
        if plan.toolset.unopened:
            plan = await self._opened(plan, past, refuses=refuses, opening=opening)
        if not plan.toolset.types:
            return plan
        tools = plan.create.tools or ()
        prepared = await prepared_tools(plan.toolset, plan.ctx, tools, past, refuses=refuses)
        return replace(plan, prepared=prepared)

    async def _opened(
        self, plan: Plan, past: Sequence[Sequence[JournalEntry]], *, refuses: bool, opening: Opening | None = None
    ) -> Plan:
        """Return a plan with the functions that its tools stand for, and with what the model may call of all."""
        work = open_tools(plan.toolset, plan.ctx, past, self._toolsets.deferral, refuses=refuses)
        toolset, items = await (work if opening is None else opening(work))
        create, response = plan.create, plan.response
        try:
            choice = read_choice(create.tool_choice, toolset, listed=True)
        except BadRequestError:
            if refuses:
                raise
            choice = plan.choice
        if create.tool_choice is not None:
            response.tool_choice = choice.echo
        if toolset.deferred:
            toolset = loading_chosen(toolset, choice.among)
        return replace(plan, toolset=toolset, choice=choice, opened=items)

    async def _check_links(
        self, create: CreateResponse, entries: list[JournalEntry], history: list[JournalEntry], *, large: bool
    ) -> None:
        """Check the URLs that the model server would fetch; what was stored once is checked again, as names change."""
        if self._check_url is None:
            return
        before = "conversation" if create.previous_response_id is None else "previous_response_id"
        links = await self._large_work.run_if(large, _links, entries, history, before)
        if links:
            await check_links(links, self._check_url)


def _decided(
    create: CreateResponse,
    ctx: Context,
    response: ResponseObject,
    profile: Profile,
    toolset: Toolset,
    *,
    choice: Choice,
    shown: Shown,
    text: str | None,
) -> Plan:
    """Return the plan of a request, which reads a text or nothing."""
    # It has one such text, whose id need not be another one but for what it begins with.
    item = None if text is None else read_text(text, "msg" + response.id[4:])
    return Plan(  # ten by position: Python makes a dictionary of so many names, which takes as long as all the rest
        create,
        ctx,
        response,
        joined(profile.instructions, create.instructions),
        toolset,
        choice,
        profile.max_turns,
        least(create.max_tool_calls, profile.max_tool_calls),
        response.max_output_tokens,
        profile.max_input,
        include=read_include(create.include, toolset) if create.include else NOTHING_INCLUDED,
        conversation=None if response.conversation is None else response.conversation["id"],
        compact_at=compact_threshold(create.context_management) if create.context_management else None,
        profile=profile.name,
        approval=profile.approval,
        shown=shown,
        input=[] if item is None else [JournalEntry("input", item)],
        window=[] if item is None else [item],
        short=text is not None and len(text) < MUCH,
        max_window=profile.max_window,
    )


def _with_found(toolset: Toolset, keys: list[Key]) -> Toolset:
    """Return a toolset with what was found before; among tools that are not opened yet, nobody knows that."""
    return replace(toolset, found=keys) if toolset.unopened else loading_found(toolset, keys)


def _choose(
    create: CreateResponse, toolset: Toolset, response: ResponseObject, implied: Sequence[JSON], *, listed: bool
) -> Choice:
    """Return what the model may and must call, and have the response repeat that and its tools."""
    # What is among tools that are not opened yet, nobody knows.
    choice = Choice() if toolset.unopened else read_choice(create.tool_choice, toolset, listed=listed)
    if create.tool_choice is not None:
        response.tool_choice = choice.echo
    if toolset.echo:
        response.tools = _named(toolset.echo, implied)
    return choice


def _named(tools: Sequence[JSON], implied: Sequence[JSON]) -> list[JSON]:
    """Return the tools of a request without those that it only implies."""
    if not implied:
        return [*tools]
    types = {tool["type"] for tool in implied}
    return [tool for tool in tools if tool["type"] not in types]


def _may_change(items: Sequence[JSON]) -> bool:
    """Tell whether an input has items that bring tools, or change settings."""
    return any(item.get("type") in CHANGING for item in items if isinstance(item.get("type"), str))


def _changes(entries: Sequence[JournalEntry]) -> list[tuple[str, JSON]]:
    """Return those items of entries that bring tools, or change settings, as parts of the input."""
    found = entries.changing if isinstance(entries, History) else changing_entries(entries)
    return changing(found, "input")


def _only_text(create: CreateResponse) -> str | None:
    """Return the text of a request that continues nothing: it answers nobody, and names neither URLs nor sources."""
    continues = create.previous_response_id is not None or create.conversation is not None
    return create.input if isinstance(create.input, str) and not continues else None


def _in_chain(plan: Plan, history: Sequence[JournalEntry]) -> Plan:
    """Return a plan as part of the conversation that responses make which continue each other."""
    if not isinstance(history, History):
        return plan
    return replace(plan, ctx=plan.ctx.with_(conversation_id=history.ids[0]))


def _links(entries: Sequence[JournalEntry], history: Sequence[JournalEntry], before: str) -> list[tuple[str, str]]:
    """Return the URLs in what a response reads, with the parameters that bring them."""
    links = [link for index, new in enumerate(entries) for link in item_links(new.item, f"input[{index}]")]
    if isinstance(history, History):
        return links + [(before, url) for url in history.links]
    return links + [(before, url) for old in history for _, url in item_links(old.item, "")]


def _noting(history: Sequence[JournalEntry]) -> Sequence[JournalEntry]:
    """Return at least those entries of a history that have noted sources."""
    return history.noting if isinstance(history, History) else history


def _count(history: Sequence[JournalEntry]) -> int:
    """Return how many entries have to be looked at one by one."""
    return 0 if isinstance(history, History) and history.passage.items else len(history)


def _window(history: Sequence[JournalEntry], entries: Sequence[JournalEntry], seals: Seals, plan: Plan) -> list[JSON]:
    """Return what the model reads; what is read of a conversation may lack calls that were deleted."""
    return past_window(history, entries, seals, plan.pending, prune=plan.conversation is not None)


def conversation_not_found(conversation_id: str) -> NotFoundError:
    """Return the error for a conversation that is not there, or not the tenant's."""
    return NotFoundError(f"Conversation with id '{conversation_id}' not found.")
