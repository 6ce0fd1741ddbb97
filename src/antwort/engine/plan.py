"""From a request to a plan: everything decided that can be decided before the model is asked."""

import time
from collections.abc import Mapping, Sequence

import msgspec

from antwort.backends import ModelRouter
from antwort.concurrency.large_work import MANY, LargeWork, is_large
from antwort.config import AgentConfig, EngineConfig
from antwort.context import Agent, Context
from antwort.engine.history import (
    Recall,
    read_window,
    resolve_references,
    restore_sources,
    without_trigger,
)
from antwort.engine.input import read_input
from antwort.engine.links import CheckUrl, check_links, item_links
from antwort.engine.parameters import (
    NO_PROFILE,
    check_parameters,
    compact_threshold,
    joined,
    least,
    new_response,
    read_include,
)
from antwort.engine.past import History, PastResponses, past_window
from antwort.engine.tool_choice import Choice, read_choice
from antwort.engine.tools import Toolset, ToolsetBuilder
from antwort.engine.window import Seals
from antwort.errors import BadRequestError, NotFoundError, did_you_mean
from antwort.scopes import CONVERSATIONS_READ, CONVERSATIONS_WRITE, RESPONSES_READ
from antwort.sealing import Sealer
from antwort.storage.base import JournalEntry, ResponseRecord
from antwort.storage.sql.store import Store
from antwort.types import JSON
from antwort.wire.ids import new_id
from antwort.wire.requests import CreateResponse
from antwort.wire.responses import ResponseObject


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a request decides by itself, whatever came before it."""

    create: CreateResponse
    ctx: Context
    response: ResponseObject
    """The response as it is before anything has happened; whoever makes it changes it."""
    instructions: str | None
    toolset: Toolset
    choice: Choice
    max_turns: int
    max_tool_calls: int | None
    max_output_tokens: int | None
    include: frozenset[str]
    conversation: str | None
    """The conversation that the response belongs to."""
    compact_at: int | None
    """Tokens from which on the window is compacted; 0 leaves the number to the model's own size."""
    profile: str | None
    """The agent of the configuration that answers, if one was asked for, by `agent` or as the model."""


class Plan(Decision, frozen=True, kw_only=True):
    """A request, read and decided, with all that the model is to read."""

    input: list[JournalEntry]
    history: list[JournalEntry]
    carried: list[JournalEntry]
    """What came before and is stored nowhere: a response that is stored takes it along, as input."""
    window: list[JSON]
    """History and input as the model reads them."""
    compact_only: bool
    """The request wants its window compacted, and no answer."""
    show_calls: bool

    @property
    def stored(self) -> bool:
        """Tell whether the response is kept."""
        return self.response.store


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
    ) -> None:
        self._settings = settings
        self._agents = agents
        self._toolsets = toolsets
        self._models = models
        self._store = store
        self._sealer = sealer
        self._large_work = large_work
        self._check_url = check_url
        self._past = PastResponses(store, large_work)

    async def plan(
        self, create: CreateResponse, ctx: Context, *, show_calls: bool = False, recall: Recall | None = None
    ) -> Plan:
        """Read a request; BadRequestError names the parameter that cannot be served.

        `recall` has responses that are stored nowhere and can be continued all the same, by id.
        """
        decision = self._decide(create, ctx, new_id("resp"))
        large = isinstance(create.input, list) and is_large(create.input)
        items = await self._large_work.run(read_input, create.input) if large else read_input(create.input)
        history = await self._history(decision, recall)
        entries = await resolve_references(items, self._store, ctx)
        large = large or _count(history) + len(entries) >= MANY
        if history or not isinstance(create.input, str):  # a text names no URLs to fetch, and no sources
            await self._check_links(create, entries, history, large=large)
            restore_sources([*_noting(history), *entries], decision.ctx.sources)
        response = decision.response
        resolved = await self._models.resolve(response.model or None)
        response.model = response.model or resolved.model
        entries, compact_only = without_trigger(entries)
        seals = self.seals(ctx, response)
        window = await self._large_work.run_if(large, _window, history, entries, seals, decision.conversation)
        carried: list[JournalEntry] = []
        if response.store and recall is not None and create.previous_response_id in recall:
            carried, history = history, carried
        return Plan(
            **msgspec.structs.asdict(decision),
            input=entries,
            history=history,
            carried=carried,
            window=window,
            compact_only=compact_only,
            show_calls=show_calls or self._settings.show_calls,
        )

    async def plan_again(
        self, record: ResponseRecord, entries: Sequence[JournalEntry], response: ResponseObject
    ) -> Plan:
        """Decide a stored request again: functions and agents may have changed, what the response repeats has not."""
        create = msgspec.convert(record.request, CreateResponse)
        ctx = Context(record.tenant, record.subject, frozenset(record.extra.get("scopes", ())))
        decision = self._decide(create, ctx, record.id)
        profile = record.extra.get("profile")
        if decision.profile != profile:
            raise BadRequestError(f"The agent '{profile or decision.profile}' is not what it was when the run began.")
        history: list[JournalEntry] = []
        if record.previous_response_id is not None:  # of the record: a response that was deleted meanwhile is left out
            history = await self._past.history(record.tenant, record.previous_response_id)
        elif decision.conversation is not None:  # one that was deleted meanwhile is left out too
            history = await self._store.conversations.history(record.tenant, decision.conversation) or []
        restore_sources([*history, *entries], decision.ctx.sources)
        new = [entry for entry in entries if entry.direction == "input"]
        return Plan(
            **{**msgspec.structs.asdict(decision), "response": response},
            input=new,
            history=history,
            carried=[],
            window=_window(history, new, self.seals(ctx, response), decision.conversation),
            compact_only=bool(record.extra.get("compact_only")),
            show_calls=bool(record.extra.get("show_calls")),
        )

    def seals(self, ctx: Context, response: ResponseObject) -> Seals:
        """Return what opens and makes the sealed items of a response."""
        return Seals(self._sealer, ctx.tenant, response.model)

    def _decide(self, create: CreateResponse, ctx: Context, response_id: str) -> Decision:
        check_parameters(create, most_tools=self._settings.max_tools)
        name, profile = self._profile(create)
        response = new_response(create, profile, response_id)
        if name is not None:
            response.agent = name
        deadline = None if self._settings.deadline is None else time.monotonic() + self._settings.deadline
        ctx = ctx.with_(
            response_id=response.id,
            run_id=response.id,
            agent_id=response.id,
            conversation_id=response.id if response.conversation is None else response.conversation["id"],
            agent=Agent(name or "root"),
            deadline=ctx.deadline or deadline,
        )
        toolset = self._toolsets.build(create.tools or (), ctx, profile.functions)
        choice = read_choice(create.tool_choice, toolset)
        response.tools, response.tool_choice = [*toolset.echo], choice.echo
        return Decision(
            create=create,
            ctx=ctx,
            response=response,
            instructions=joined(profile.instructions, create.instructions),
            toolset=toolset,
            choice=choice,
            max_turns=profile.max_turns or self._settings.max_turns,
            max_tool_calls=least(create.max_tool_calls, profile.max_tool_calls),
            max_output_tokens=response.max_output_tokens,
            include=read_include(create.include or (), toolset),
            conversation=None if response.conversation is None else response.conversation["id"],
            compact_at=compact_threshold(create),
            profile=name,
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
        return None, NO_PROFILE

    async def _history(self, decision: Decision, recall: Recall | None) -> list[JournalEntry]:
        """Return what came before a request, if its caller may read it."""
        create, ctx = decision.create, decision.ctx
        if create.previous_response_id is not None:
            if recall is not None and create.previous_response_id in recall:
                return list(recall[create.previous_response_id])
            ctx.require(RESPONSES_READ, param="previous_response_id", purpose="to continue a stored response")
            return await self._past.history(ctx.tenant, create.previous_response_id)
        if decision.conversation is None:
            return []
        for scope in (CONVERSATIONS_READ, CONVERSATIONS_WRITE):
            ctx.require(scope, param="conversation", purpose="to continue a conversation")
        found = await self._store.conversations.history(ctx.tenant, decision.conversation)
        if found is None:
            raise conversation_not_found(decision.conversation)
        return found

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
    return 0 if isinstance(history, History) else len(history)


def _window(
    history: Sequence[JournalEntry], entries: Sequence[JournalEntry], seals: Seals, conversation: str | None
) -> list[JSON]:
    """Return what the model reads; what is read of a conversation may lack calls that were deleted."""
    if conversation is not None:
        return read_window(history, entries, seals, prune=True)
    return past_window(history, entries, seals)


def conversation_not_found(conversation_id: str) -> NotFoundError:
    """Return the error for a conversation that is not there, or not the tenant's."""
    return NotFoundError(f"Conversation with id '{conversation_id}' not found.", param="conversation")
