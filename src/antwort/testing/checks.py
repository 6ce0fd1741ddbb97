"""What the author of a check needs to try it: one look at a text or a call, and an answer as it would be streamed."""

from collections.abc import Iterable

from msgspec import Struct

from antwort.context import ANONYMOUS_TENANT, Context
from antwort.engine.output.checked_turn import AnswerRefusedError, CheckedTurn
from antwort.engine.output.emitter import Emitter, EmitterOptions
from antwort.errors import DefinitionError
from antwort.functions import Allow, CheckedCall, CheckStage, FunctionProvider, FunctionRegistry, Verdict
from antwort.functions.checking import RegisteredCheck
from antwort.functions.checks import check_stages
from antwort.wire.ids import new_id
from antwort.wire.responses import ResponseObject

_LONGEST = 10_000_000


class PassedAnswer(Struct, frozen=True):
    """What clients are shown of an answer."""

    text: str
    refusal: str | None = None
    """Why it ends there, if a check refuses the rest."""


async def verdict_of(
    provider: FunctionProvider, stage: CheckStage, subject: str | CheckedCall, ctx: Context | None = None
) -> Verdict:
    """Return what the checks of a provider say of a text or a call at a stage: the first that is no plain yes.

    They are made as the server makes them: one that fails, takes too long or returns no verdict refuses, and the log
    says why. A `subject` of the stage `call` is a CheckedCall, of any other a text.
    """
    check_stages([stage])
    if isinstance(subject, CheckedCall) != (stage == "call"):
        raise DefinitionError(f"the stage '{stage}' looks at {'a CheckedCall' if stage == 'call' else 'a text'}")
    ctx = ctx or Context(ANONYMOUS_TENANT)
    async with FunctionRegistry() as registry:
        verdicts = [await check.verdict(subject, ctx) for check in _checks(registry, provider, stage)]
    return next((verdict for verdict in verdicts if not isinstance(verdict, Allow)), Allow())


async def passed_answer(provider: FunctionProvider, pieces: Iterable[str], ctx: Context | None = None) -> PassedAnswer:
    """Return what clients are shown of an answer that a model says in pieces, each of which comes by itself."""
    response = ResponseObject(id=new_id("resp"), created_at=0, model="")
    emitter, refusal = Emitter(response, None, EmitterOptions()), None
    async with FunctionRegistry() as registry:
        checks = _checks(registry, provider, "output")
        turn = CheckedTurn(checks, ctx or Context(ANONYMOUS_TENANT), emitter, _LONGEST)
        try:
            for piece in pieces:
                turn.text(piece)
                await turn.flush()
            await turn.end()
        except AnswerRefusedError as refused:
            refusal = refused.reason
    emitter.end_turn()
    return PassedAnswer(response.output_text, refusal)


def _checks(registry: FunctionRegistry, provider: FunctionProvider, stage: CheckStage) -> list[RegisteredCheck]:
    registry.register(provider)
    found: list[RegisteredCheck] = [*getattr(registry.checks.current, stage)]
    if not found:
        raise DefinitionError(f"provider '{provider.name}' has no check at the stage '{stage}'")
    return found
