"""The provider `user`."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from pydantic import BeforeValidator
from typing_extensions import override

from antwort.provider import (
    ConflictError,
    Context,
    Counter,
    Effect,
    Field,
    FunctionError,
    Provider,
    Scope,
    function,
)
from antwort.providers.user.routes import QuestionRoutes, UserSettings
from antwort.providers.user.webhook import OUTCOMES, Webhook, signing_key
from antwort.providers.user.webhook_routes import FailedDeliveryRoutes

_MOST = 10_000_000
"""Characters of a final answer. It is the answer, so nothing of it is left out."""


def _written(result: Any) -> Any:
    """Write what is no text as JSON: programs give numbers, lists and dicts."""
    return result if result is None or isinstance(result, str) else msgspec.json.encode(result).decode()


Choices = Annotated[list[str], Field(min_length=1, max_length=100, description="The answers to choose from")]
Seconds = Annotated[float, Field(gt=0, description="Seconds after which to go on without an answer")]


class User(Provider[UserSettings]):
    """The human user. Root agents only: a sub-agent talks to its parent."""

    name = "user"
    deliveries = Counter(
        "webhook_deliveries_total", "Tries to tell the webhook of a question, by what came of it.", ["outcome"]
    )

    def __init__(self, settings: UserSettings | None = None) -> None:
        super().__init__(settings)
        for outcome in OUTCOMES:
            self.deliveries.labels(outcome)  # so that each shows from the beginning
        self.parts = (QuestionRoutes(self), FailedDeliveryRoutes(self, self._required_webhook))
        if self.settings.webhook is not None:
            signing_key(self.settings.webhook.secret.get_secret_value())

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        """Tell the webhook of questions, if there is one."""
        webhook = self._webhook()
        if webhook is None:
            yield
            return
        telling = asyncio.create_task(webhook.run(), name="webhook of questions")
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.wait({telling})

    def _webhook(self) -> Webhook | None:
        settings, questions = self.settings.webhook, self.services.questions
        if settings is None or questions is None:
            return None
        return Webhook(settings, self.services, questions, lambda outcome: self.deliveries.labels(outcome).inc())

    def _required_webhook(self) -> Webhook:
        webhook = self._webhook()
        if webhook is None:
            raise ConflictError("There is no webhook here; 'providers.user.settings.webhook' names one.")
        return webhook

    @function(scope=Scope.USER, effect=Effect.SUSPEND, attach=True)
    async def ask_user(
        self,
        ctx: Context,
        question: Annotated[str, Field(min_length=1, description="The question to ask")],
        choices: Choices | None = None,
        default: Annotated[str | None, Field(description="The answer if none comes in time")] = None,
        expires_in: Seconds | None = None,
    ) -> str:
        """Ask the human user a question.

        The user is a function in this system. Use this when you need human input or judgment. People are slow: ask
        seldom, and ask all you need to know in one turn, with several calls.
        """
        if choices is not None and default is not None and default not in choices:
            raise FunctionError("The default has to be one of the choices.")
        body = {"question": question, "choices": choices, "default": default}
        asked = {name: value for name, value in body.items() if value is not None}
        ctx.suspend(asked, expires_in=self.settings.expires_in if expires_in is None else expires_in)

    @function(scope=Scope.USER)
    async def notify_user(
        self, ctx: Context, message: Annotated[str, Field(min_length=1, description="What to tell the user")]
    ) -> str:
        """Send the human user a message without waiting for an answer, such as how far you have come."""
        await ctx.say(message)
        return "The user was told."

    @function(scope=Scope.USER, effect=Effect.END_RUN, max_output=_MOST, spill=False)
    async def final_answer(
        self,
        result: Annotated[
            str, BeforeValidator(_written), Field(description="The whole answer, as the user is to read it")
        ],
    ) -> str:
        """Present the final result to the human user and end the work, after the other calls of the turn."""
        return result
