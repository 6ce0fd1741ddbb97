"""Requests that name a prompt instead of sending instructions, and those that continue one which did."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from antwort.context import Context
from antwort.context.context import PROMPTS_READ
from antwort.engine.plan import Plan, Shown
from antwort.engine.planning.past import History
from antwort.engine.planning.planner import Planner
from antwort.engine.tools.opened_tools import Opening
from antwort.engine.tools.parameters import joined
from antwort.engine.window import Recall
from antwort.errors import BadRequestError, NotFoundError
from antwort.storage.prompts import Prompts, PromptVersion, filled_in
from antwort.storage.sql.store import Store
from antwort.types import JSON
from antwort.wire.requests import CreateResponse, PromptReference

_PARTS = {"input_text", "input_image", "input_file"}
_LONGEST = 1_000_000
"""Characters of instructions that a prompt may become with its variables."""


class PromptedPlanner:
    """Reads requests whose instructions come from a prompt: in part, for what they say themselves comes after it."""

    def __init__(self, planner: Planner, prompts: Prompts, store: Store) -> None:
        self._planner = planner
        self._prompts = prompts
        self._store = store

    async def plan(
        self, create: CreateResponse, ctx: Context, *, shown: Shown, recall: Recall | None, opening: Opening | None
    ) -> Plan:
        """Read a request, as `Planner.plan` does."""
        reference, version = create.prompt, None
        if reference is not None:
            version = await self._named(reference, ctx)
            create = _with_prompt(create, reference, version)
        plan = await self._planner.plan(create, ctx, shown=shown, recall=recall, opening=opening)
        if reference is not None and version is not None:
            plan.response.prompt = _echo(reference, version)
        elif isinstance(plan.history, History) and plan.history.prompted:
            plan = await self._continued(plan)
        return plan

    async def _named(self, reference: PromptReference, ctx: Context) -> PromptVersion:
        ctx.require(PROMPTS_READ, param="prompt", purpose="to use a prompt")
        try:
            prompt = await self._prompts.get(ctx.tenant, reference.id)
            return await self._prompts.version(ctx.tenant, prompt, reference.version)
        except NotFoundError as error:
            raise NotFoundError(error.message, param="prompt") from None

    async def _continued(self, plan: Plan) -> Plan:
        """Return a plan that has the instructions of the response before it, if they come from a prompt."""
        record = await self._store.get(plan.ctx.tenant, plan.create.previous_response_id or "")
        body = {} if record is None else record.json
        if not (prompt := body.get("prompt")):
            return plan
        said = body["instructions"]
        plan.response.prompt, plan.response.instructions = prompt, said
        create = replace(plan.create, instructions=said)
        return replace(plan, create=create, instructions=joined(plan.instructions, said))


def _with_prompt(create: CreateResponse, reference: PromptReference, version: PromptVersion) -> CreateResponse:
    """Return a request with the text of a prompt in its instructions, and images and files for it in its input."""
    values: dict[str, str] = {}
    shown: list[JSON] = []
    known = frozenset(version.variables)  # there may be many, of both
    for name, value in (reference.variables or {}).items():
        text = value if isinstance(value, str) else _text_of(name, value)
        values[name] = name if text is None else text
        if text is None and not isinstance(value, str) and name in known:
            shown += [{"type": "input_text", "text": f"{name}:"}, value]
    text = filled_in(version.template, values, _LONGEST)
    if text is None:
        raise BadRequestError(
            f"The prompt has more than {_LONGEST:,} characters with these variables.", param="prompt.variables"
        )
    given = create.input
    if shown:
        said = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
        given = [{"role": "user", "content": shown}, *said]
    elif given is None and create.previous_response_id is None and create.conversation is None:
        given = []
    return replace(create, prompt=None, instructions=joined(text, create.instructions), input=given)


def _text_of(name: str, value: Mapping[str, object]) -> str | None:
    """Return the text of a part of content; None if it is an image or a file."""
    kind = value.get("type")
    if kind == "input_text" and isinstance(text := value.get("text"), str):
        return text
    if not isinstance(kind, str) or kind not in _PARTS or kind == "input_text":
        raise BadRequestError(
            f"The variable '{name[:64]}' is neither a text nor one of {', '.join(sorted(_PARTS))}.",
            param=f"prompt.variables.{name[:64]}",
        )
    return None


def _echo(reference: PromptReference, version: PromptVersion) -> JSON:
    """Return what a response says of its prompt; the version is the one that it has, as OpenAI's clients expect it."""
    variables = {
        name: {"detail": "auto", **value} if isinstance(value, dict) and value.get("type") == "input_image" else value
        for name, value in (reference.variables or {}).items()
    }
    shown = PromptReference(id=reference.id, version=str(version.version), variables=variables)
    echo: JSON = msgspec.to_builtins(shown)
    return echo
