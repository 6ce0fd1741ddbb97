"""Tells a URL of the operator about new questions, signed as Standard Webhooks are."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Mapping

from msgspec import to_builtins

from antwort.provider import APIError, ConfigError, HttpClient, OutboundError, Question, Questions
from antwort.providers.user.routes import QuestionObject, WebhookSettings

logger = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between two looks for questions that nobody was told of."""
_PREFIX = "whsec_"


class Webhook:
    """Tells of questions until the other side has taken them. What is not told when the process ends is told later."""

    def __init__(self, settings: WebhookSettings, http: HttpClient, questions: Questions) -> None:
        self._settings = settings
        self._http = http
        self._questions = questions
        self._key = signing_key(settings.secret.get_secret_value())

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            try:
                untold = await self._questions.take_untold(retry=self._settings.retry)
                await asyncio.gather(*(self._tell(question) for question in untold))
            except APIError as error:
                logger.warning("questions cannot be told now: %s", error.message)
            except Exception:
                logger.exception("questions could not be told")
            await asyncio.sleep(LOOK)

    async def _tell(self, question: Question) -> None:
        body = event_of(question)
        headers = {"content-type": "application/json", **signed(body, question.id, int(time.time()), self._key)}
        settings = self._settings
        try:
            answer = await self._http.call(
                "POST", settings.url, headers=headers, body=body, time_limit=settings.timeout, max_bytes=65_536
            )
        except OutboundError as error:
            logger.warning("the webhook was not told of question %s, it is tried again: %s", question.id, error)
            return
        if 200 <= answer.status < 300:
            await self._questions.told(question)
        else:
            logger.warning("the webhook answered %d to question %s; it is tried again", answer.status, question.id)


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
