"""A model server that speaks Anthropic's Messages API: Anthropic itself, another antwort, and others."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Sequence
from itertools import islice
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from typing_extensions import override

from antwort.backends.base import ModelInfo, ModelRequest, TurnSink
from antwort.backends.http.remote import Fields, RemoteBackend
from antwort.backends.messages.answer import MessagesAnswer, plain_message
from antwort.backends.messages.request import MessagesShape, count_body, messages_body
from antwort.backends.messages.thinking import UNKNOWN, AnthropicSettings, ModelTraits, traits_in
from antwort.backends.models import read_models
from antwort.backends.tokens import TokenEndpoint
from antwort.concurrency.large_work import is_large
from antwort.concurrency.slots import Queue
from antwort.config import BackendConfig
from antwort.types import JSON

_MOST_PAGES = 100
"""Pages of a list of models that are asked for: it may have no end."""


class MessagesBackend(RemoteBackend):
    """One server that speaks Messages.

    What its models can do is what the list of models says. It is asked for that before the first turn.
    """

    passes_through: ClassVar[bool] = False
    reads_pdf: ClassVar[bool] = True

    def __init__(
        self, settings: AnthropicSettings, name: str, config: BackendConfig, queue: Queue | None = None
    ) -> None:
        super().__init__(name, _addressed(settings, config), "/messages", queue)
        self._shape = MessagesShape(name, settings)
        self._extra = config.extra_body
        self._tokens = TokenEndpoint(name, self.transport)
        self._traits: dict[str, ModelTraits] = {}

    @override
    def run(self, request: ModelRequest, sink: TurnSink, fields: Fields | None = None) -> Coroutine[Any, Any, None]:
        if self._known.is_due():
            return self._run_informed(request, sink, fields)
        return super().run(request, sink, fields)

    async def _run_informed(self, request: ModelRequest, sink: TurnSink, fields: Fields | None) -> None:
        left = None if request.deadline is None else max(0.0, request.deadline - time.monotonic())
        with contextlib.suppress(TimeoutError):  # a list is not worth a turn
            async with asyncio.timeout(left):
                await self._known.update()
        await super().run(request, sink, fields)

    @override
    def body(self, request: ModelRequest) -> JSON:
        return messages_body(request, self._shape, self._of_model(request.model), self._extra)

    @override
    def reader(self, sink: TurnSink, alternatives: int | None) -> MessagesAnswer:
        return MessagesAnswer(self.limits, sink)

    @override
    def read_whole(self, body: bytes, sink: TurnSink, alternatives: int | None) -> None:
        turn = plain_message(body, self.limits)
        if turn is None:
            super().read_whole(body, sink, alternatives)
        else:
            sink.whole_turn(turn)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        await self._known.update()
        traits = self._of_model(request.model)
        body = await self.large_work.run_if(is_large(request.items), count_body, request, self._shape, traits)
        return await self._tokens.input_tokens("/messages/count_tokens", body, request.tenant)

    @override
    async def context_window(self, model: str) -> int | None:
        found = await super().context_window(model)
        return self._of_model(model).window if found is None else found

    @override
    async def _models(self) -> Sequence[ModelInfo]:
        found: list[ModelInfo] = []
        traits: dict[str, ModelTraits] = {}
        path, last = self.models_path, ""
        for _ in range(_MOST_PAGES):
            page, before = await self._listed(path), len(found)
            found += islice(read_models(page, self.name), self.limits.models - len(found))
            fields = page if isinstance(page, dict) else {}
            entries = fields.get("data")
            for name, said in traits_in(entries if isinstance(entries, list) else ()):
                traits.setdefault(name, said)
            seen, last = last, str(fields.get("last_id") or "")
            brings_more = before < len(found) < self.limits.models
            if not brings_more or fields.get("has_more") is not True or last in {"", seen}:
                break
            path = f"{self.models_path}?after_id={quote(last, safe='')}"
        self._traits = traits
        self._known.learn(found)
        return tuple(found)

    def _of_model(self, model: str) -> ModelTraits:
        return self._traits.get(model, UNKNOWN)


def _addressed(settings: AnthropicSettings, config: BackendConfig) -> BackendConfig:
    """Return a configuration with Anthropic's headers, and with the path that SDKs add to a URL that has none."""
    headers = {"anthropic-version": settings.version}
    changes: JSON = {"headers": headers}
    if config.api_key is not None and settings.auth == "x-api-key":
        headers["x-api-key"] = config.api_key.get_secret_value().strip()
        changes["api_key"] = None
    headers |= config.headers
    parts = urlsplit(config.url)
    if parts.path in {"", "/"}:
        changes["url"] = parts._replace(path="/v1").geturl()
    return config.model_copy(update=changes)
