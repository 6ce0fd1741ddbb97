"""`/v1/decisions`: questions are asked in groups, as responses that nobody keeps, side by side."""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from antwort.backends.errors import BROKEN, DEADLINE
from antwort.concurrency.large_work import MUCH
from antwort.context import Context
from antwort.context.context import RESPONSES_WRITE
from antwort.engine.engine import Engine
from antwort.engine.plan import Plan
from antwort.engine.planning.checked_input import refused_input
from antwort.engine.planning.input_files import check_links, item_links
from antwort.errors import APIError, BadGatewayError, BadRequestError, GatewayTimeoutError
from antwort.lazy_imports import compiled_on_use, imported_on_use
from antwort.runs.local import LocalRuns
from antwort.server.api.description import examples
from antwort.server.decisions.questions import (
    INSTRUCTIONS,
    MOST_ALTERNATIVES,
    Asked,
    alternatives,
    answer_format,
    are_of,
    grouped,
    links,
    message_of,
    read_answers,
)
from antwort.server.http.sse import while_connected
from antwort.types import JSON
from antwort.web.answers import send_struct
from antwort.web.requests import CONTEXT, named_headers, read_body, require_json
from antwort.web.routes import AsgiRoute
from antwort.wire.decisions import Answer, CreateDecision, Decision, Question, RefusedAnswer, decode_decision
from antwort.wire.ids import new_id
from antwort.wire.items import Message, OutputText, Refusal
from antwort.wire.requests import CreateResponse, TextConfig
from antwort.wire.responses import NO_USAGE, ResponseObject, Usage

if TYPE_CHECKING:
    from antwort.backends.text_calls import backend as text_calls
else:  # few servers need it, and so few requests
    text_calls = imported_on_use("antwort.backends.text_calls.backend")

_NO_LOGPROBS = compiled_on_use(r"log_?prob", re.IGNORECASE)
_NO_FORMAT = compiled_on_use(
    r"response_?format|json_?schema|structured.?output|output_config|guided|grammar", re.IGNORECASE
)
_TOO_LONG = "context_length_exceeded"
_MOST_MODELS = 1000
_REMEMBERED = 600.0
"""Seconds after which a model may have learnt what it could not do."""


class _AnswerForm(NamedTuple):
    """What is asked of a model besides an answer; not every server has it."""

    logprobs: bool = True
    schema: bool = True

    def without(self, error: BadRequestError) -> "_AnswerForm | None":
        """Return what is left after a refusal; None if it was refused for another reason."""
        said = f"{error.param} {error.code} {error.message}"
        if error.code == _TOO_LONG:
            return None
        if self.logprobs and _NO_LOGPROBS.search(said):
            return self._replace(logprobs=False)
        if self.schema and _NO_FORMAT.search(said):
            return self._replace(schema=False)
        return None


class _GroupAnswer(NamedTuple):
    """What a model has answered to a group of questions."""

    text: str
    logprobs: Sequence[JSON]
    declined: bool


class DecisionEndpoint:
    """The endpoint of decisions."""

    def __init__(self, engine: Engine, runs: LocalRuns) -> None:
        self._engine = engine
        self._limits = runs.limits
        self._forms: OrderedDict[str, tuple[_AnswerForm, float]] = OrderedDict()

    def routes(self) -> list[AsgiRoute]:
        """Return the routes."""
        return [
            AsgiRoute(
                "POST",
                "/v1/decisions",
                self.create,
                "Answer questions about an input.",
                RESPONSES_WRITE,
                body=CreateDecision,
                returns=Decision,
                upstream=True,
                examples=examples.DECISIONS,
            )
        ]

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer questions about an input, each with probabilities: predicates, choices, scores.

        Any model is asked, in groups of questions. Nothing is kept, and no functions are offered.
        """
        require_json(named_headers(scope))
        body = await read_body(receive)
        request = await self._engine.large_work.run_if(len(body) >= MUCH, decode_decision, body)
        del body  # it may be large, and is of no use any more
        ctx: Context = scope[CONTEXT]
        plan = await self._planned(request, ctx)
        with self._limits.making(ctx.tenant):
            work = self._decide(plan, request.questions)
            decision = await while_connected(scope, receive, work, self._engine.stragglers)
        if decision is not None:
            await send_struct(scope, send, decision)

    async def _planned(self, request: CreateDecision, ctx: Context) -> Plan:
        """Return the plan of a response to the input, by which each group is asked: without functions, kept nowhere.

        Calls are words in it: no server refuses those that nobody has answered, or of functions that it is not told of.
        """
        given = request.input
        create = CreateResponse(
            model=request.model,
            input=given if isinstance(given, str) else text_calls.plain_items(given),
            instructions=INSTRUCTIONS,
            store=False,
            prompt_cache_key=request.prompt_cache_key,
            safety_identifier=request.safety_identifier,
        )
        if self._engine.check_url is not None:
            items = () if isinstance(given, str) else enumerate(given)
            said = [link for index, item in items for link in item_links(item, f"input[{index}]")]
            await check_links([*said, *links(request.questions)], self._engine.check_url)
        plan = await self._engine.plan(create, ctx.with_(scopes=frozenset({RESPONSES_WRITE})))
        if plan.refused is not None:
            raise refused_input(plan.refused)
        return plan

    async def _decide(self, plan: Plan, questions: Sequence[Question]) -> Decision:
        """Ask all questions; the groups share the deadline and the budget of one response."""
        asking = _Asking(self, self._engine, plan)
        groups = [*grouped(questions)]
        if self.form_of(plan.response.model) is None:  # what the model lacks is found out once
            await asking.ask(groups.pop(0))
        try:
            async with asyncio.TaskGroup() as tasks:
                for group in groups:
                    tasks.create_task(asking.ask(group))
        except* APIError as failed:
            raise _first(failed) from None
        answers = [asking.answers[index] for index in range(len(questions))]
        return Decision(model=plan.response.model, answers=answers, usage=asking.usage)

    def form_of(self, model: str) -> _AnswerForm | None:
        """Return what a model is known to answer; None if it was not asked lately."""
        form, until = self._forms.get(model, (None, 0.0))
        return form if time.monotonic() < until else None

    def note_form(self, model: str, form: _AnswerForm) -> None:
        """Take note of what a model answers, unless that is known."""
        if self.form_of(model) != form:
            self._forms[model] = (form, time.monotonic() + _REMEMBERED)
            self._forms.move_to_end(model)
            if len(self._forms) > _MOST_MODELS:
                self._forms.popitem(last=False)


class _Asking:
    """Asks the questions of one request, and gathers what is answered."""

    def __init__(self, endpoint: DecisionEndpoint, engine: Engine, plan: Plan) -> None:
        self._endpoint = endpoint
        self._engine = engine
        self._plan = plan
        self._model = plan.response.model
        self.answers: dict[int, Answer] = {}
        self.usage: Usage = NO_USAGE

    async def ask(self, group: Sequence[Asked]) -> None:
        """Ask some questions; those that were not answered once more. A BadGatewayError names the first of the rest."""
        left = group
        for again in (False, True):
            said = await self._said(left, again=again)
            size = len(said.text) + MOST_ALTERNATIVES * len(said.logprobs)
            read = self._engine.large_work.run_if(size >= MUCH, read_answers, left, said.text, said.logprobs)
            self.answers |= await read
            left = [asked for asked in left if asked.number not in self.answers]
            if said.declined:
                self.answers |= {one.number: RefusedAnswer(name=one.question.name) for one in left}
                return
            if not left:
                return
        number, question = left[0]
        name = f" ('{question.name}')" if question.name else ""
        raise BadGatewayError(
            f"The model '{self._model}' has twice not answered question {number + 1}{name} with any of its answers.",
            param=f"questions[{number}]",
            code=BROKEN,
        )

    async def _said(self, group: Sequence[Asked], *, again: bool) -> _GroupAnswer:
        """Return what the model answers, asked for as much as its server has."""
        form, is_of_all = self._endpoint.form_of(self._model) or _AnswerForm(), True
        while True:
            try:
                response = await self._engine.respond(self._group_plan(form, group, again=again))
            except BadRequestError as error:
                lesser = form.without(error)
                if lesser is None:
                    raise
                form = lesser
                continue
            if response.usage is not None:
                self.usage = self.usage.plus(response.usage)
            said = self._read(response)
            if not form.logprobs or said.declined or await self._has_probabilities(said):
                if is_of_all:
                    self._endpoint.note_form(self._model, form)
                return said
            if not said.text:  # there were no tokens to tell of, which says nothing of the server
                return said
            is_of_all = not said.logprobs  # tokens that are not those of the text may be so in this answer alone
            form = form._replace(logprobs=False)

    async def _has_probabilities(self, said: _GroupAnswer) -> bool:
        return await self._engine.large_work.run_if(len(said.text) >= MUCH, are_of, said.text, said.logprobs)

    def _group_plan(self, form: _AnswerForm, group: Sequence[Asked], *, again: bool) -> Plan:
        plan, sure = self._plan, not form.logprobs
        content = message_of(group, sure=sure, again=again)
        message = {"type": "message", "role": "user", "content": content, "id": new_id("msg"), "status": "completed"}
        create = replace(
            plan.create,
            text=TextConfig(format=answer_format(group, sure=sure)) if form.schema else None,
            top_logprobs=alternatives(group) if form.logprobs else None,
        )
        response = replace(plan.response, id=new_id("resp"), output=[])
        return replace(plan, create=create, response=response, window=[*plan.window, message], short=False)

    def _read(self, response: ResponseObject) -> _GroupAnswer:
        """Return what a response says; one that ended for a reason of the server's own is an APIError."""
        reason = None if response.incomplete_details is None else response.incomplete_details.reason
        if reason == "deadline":
            raise GatewayTimeoutError(
                "Not all questions were answered in time (`engine.deadline`). Ask fewer at once.", code=DEADLINE
            )
        if reason == "budget":
            raise BadRequestError(
                "The budget of a request (`engine.run`) was spent before all questions were answered. Ask fewer at"
                " once.",
                param="questions",
                code="budget_exceeded",
            )
        parts = [part for item in response.output if isinstance(item, Message) for part in item.content]
        texts = [part for part in parts if isinstance(part, OutputText)]
        declined = reason == "content_filter" or any(isinstance(part, Refusal) for part in parts)
        logprobs = [entry for part in texts for entry in part.logprobs]
        return _GroupAnswer("".join(part.text for part in texts), logprobs, declined)


def _first(failed: BaseExceptionGroup[APIError]) -> APIError:
    """Return one of the failures of groups: the others were broken off for it, or failed for the same reason."""
    error = failed.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
