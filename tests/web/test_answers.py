"""Answers that are written already, in plain ASGI."""

import pytest
from starlette.types import Message, Scope

from antwort.web.answers import send_json
from antwort.web.requests import EXCHANGE, WHOLE_BODY


@pytest.mark.parametrize(("scope", "messages"), [({}, 2), ({EXCHANGE: object()}, 1)])
async def test_only_our_own_server_is_sent_an_answer_in_one_message(scope: Scope, messages: int) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await send_json(scope, send, b'{"ok":true}')
    assert len(sent) == messages
    length = [(b"content-length", b"11")] if messages > 1 else []  # our own server sees it, and says it
    assert sent[0]["headers"] == [(b"content-type", b"application/json"), *length]
    assert sent[-1].get("body", sent[0].get(WHOLE_BODY)) == b'{"ok":true}'
