"""Tells a URL of the operator about new questions, signed as Standard Webhooks are."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Callable, Mapping

from msgspec import to_builtins

from antwort.provider import (
    APIError,
    ConfigError,
    Kept,
    NotFoundError,
    OutboundError,
    Question,
    Questions,
    Services,
)
from antwort.providers.user.failed_deliveries import FailedDeliveries, FailedDelivery, FailedTry, delivery_not_found
from antwort.providers.user.routes import QuestionObject, WebhookSettings

logger = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between two looks for questions that nobody was told of."""
_FORGET = 3600.0
"""Seconds between two looks for what was given up too long ago."""
OUTCOMES = ("delivered", "failed", "given_up")
"""What comes of a try."""
_PREFIX = "whsec_"


class Webhook:
    """Tells of questions until the other side has taken them, or they are given up.

    What is not told when the process ends is told later. `count` is told what comes of each try.
    """

    def __init__(
        self, settings: WebhookSettings, services: Services, questions: Questions, count: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._http = services.http
        self._questions = questions
        self._failed = FailedDeliveries(services.records)
        self._count = count
        self._key = signing_key(settings.secret.get_secret_value())

    async def run(self) -> None:
        """Go on until cancelled."""
        forgetting = 0.0
        while True:
            try:
                untold = await self._questions.take_untold(retry=self._settings.retry)
                await asyncio.gather(*map(self._tell, untold))
                if time.monotonic() > forgetting:
                    await self._forget()
                    forgetting = time.monotonic() + _FORGET
            except APIError as error:
                logger.warning("questions cannot be told now: %s", error.message)
            except Exception:
                logger.exception("questions could not be told")
            await asyncio.sleep(LOOK)

    async def deliver_again(self, tenant: str, name: str) -> FailedDelivery:
        """Try one that was given up once more; what gets through is in the list no more.

        A NotFoundError if there is none, or none any more, a ConflictError if somebody is at it.
        """
        kept = await self._failed.take(tenant, name, self._settings.timeout)
        question = await self._question(kept)
        if question is None:
            await self._failed.drop(tenant, name)
            raise delivery_not_found(name)
        failure = await self._send(question)
        if failure is None:
            await self._questions.told(question)
            await self._failed.drop(tenant, name)
        await self._failed.tried_again(kept, failure)
        self._count("delivered" if failure is None else "failed")
        return FailedDelivery.of(kept, delivered=failure is None)

    async def _tell(self, question: Question) -> None:
        late = time.time() - question.created_at >= self._settings.give_up_after
        if late and await self._failed.has(question):  # a crash came between giving it up and taking note of it
            await self._questions.told(question)
            return
        failure = await self._send(question)
        if failure is None:
            await self._questions.told(question)
            self._count("delivered")
        elif late or failure.final:
            logger.warning("the webhook was not told of question %s, it is given up: %s", question.id, failure.message)
            if await self._failed.give_up(question, failure):
                self._count("given_up")
            await self._questions.told(question)
        else:
            logger.warning("the webhook was not told of question %s, it is tried again: %s", question.id, failure[0])
            self._count("failed")

    async def _send(self, question: Question) -> FailedTry | None:
        """Try once; return why it failed, if it did."""
        body = event_of(question)
        headers = {"content-type": "application/json", **signed(body, question.id, int(time.time()), self._key)}
        settings = self._settings
        try:
            answer = await self._http.call(
                "POST", settings.url, headers=headers, body=body, time_limit=settings.timeout, max_bytes=65_536
            )
        except OutboundError as error:
            return FailedTry(str(error))
        if 200 <= answer.status < 300:
            return None
        return FailedTry(f"It answered with the status {answer.status}.", answer.status)

    async def _forget(self) -> None:
        """Forget what was given up too long ago, and what has lost its question."""
        oldest = time.time() - self._settings.keep_failed
        async for kept in self._failed.all():
            if kept.created_at < oldest or await self._question(kept) is None:
                await self._failed.drop(kept.tenant, kept.id)

    async def _question(self, kept: Kept) -> Question | None:
        try:
            return await self._questions.get(kept.tenant, kept.id)
        except NotFoundError:
            return None


def event_of(question: Question) -> bytes:
    """Return what the other side is sent. A question that is told twice has the same id."""
    event = {
        "id": f"evt_{question.id}",
        "object": "event",
        "type": "question.created",
        "created_at": question.created_at,
        "data": to_builtins(QuestionObject.of(question)),
    }
    return json.dumps(event, ensure_ascii=False).encode()


def signed(body: bytes, message_id: str, timestamp: int, key: bytes) -> Mapping[str, str]:
    """Return the headers by which the other side knows who has sent a message, and when."""
    content = f"{message_id}.{timestamp}.".encode() + body
    signature = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }


def signing_key(secret: str) -> bytes:
    """Return the key in a secret: after `whsec_` it is base64, else the text itself is the key."""
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise ConfigError("webhook.secret: what follows 'whsec_' is no base64") from None
