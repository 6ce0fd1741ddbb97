"""A model server that speaks the Responses API."""

import logging
from typing import Self

from typing_extensions import override

from antwort.backends.base import ModelRequest, TurnSink
from antwort.backends.http.remote import Fields, RemoteBackend
from antwort.backends.responses.answer import ResponsesAnswer
from antwort.backends.responses.request import SEALED_THOUGHTS, count_body, responses_body
from antwort.backends.tokens import TokenEndpoint
from antwort.concurrency.large_work import is_large
from antwort.concurrency.slots import Queue
from antwort.config import BackendConfig, Settings
from antwort.errors import BadRequestError
from antwort.types import JSON

logger = logging.getLogger(__name__)


class ResponsesBackend(RemoteBackend):
    """One server that speaks the Responses API. It is asked to store nothing: what is kept, we keep."""

    reads_any_file = True

    def __init__(self, name: str, config: BackendConfig, queue: Queue | None = None) -> None:
        super().__init__(name, config, "/responses", queue)
        self._extra = config.extra_body
        self._tokens = TokenEndpoint(name, self.transport)
        self._unsealed: set[str] = set()
        """Models that were refused sealed thoughts: they have none."""

    @classmethod
    def of(cls, settings: Settings, name: str, config: BackendConfig, queue: Queue | None) -> Self:  # noqa: ARG003
        """Make it; all its settings are those of the backend."""
        return cls(name, config, queue)

    @override
    def body(self, request: ModelRequest) -> JSON:
        return responses_body(request, self._extra, sealed_thoughts=request.model not in self._unsealed)

    def _body_without_thoughts(self, request: ModelRequest) -> JSON:
        return responses_body(request, self._extra, sealed_thoughts=False)

    @override
    def reader(self, sink: TurnSink, alternatives: int | None) -> ResponsesAnswer:
        return ResponsesAnswer(self.limits, sink, alternatives)

    @override
    async def run(self, request: ModelRequest, sink: TurnSink, fields: Fields | None = None) -> None:
        try:
            await super().run(request, sink, fields)
        except BadRequestError as error:
            # OpenAI refuses to be asked for the thoughts of a model that has none, and nothing tells which have.
            if not _is_about_sealing(error) or request.model in self._unsealed:
                raise
            await super().run(request, sink, self._body_without_thoughts)
            # Only now it is known that it was about that: what a refusal says may be a client's own words.
            logger.info("The model '%s' of the backend '%s' gives no sealed thoughts.", request.model, self.name)
            self._unsealed.add(request.model)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        body = await self.large_work.run_if(is_large(request.items), count_body, request)
        answer = await self._tokens.ask("/responses/input_tokens", body, request.tenant)
        if answer is None:
            return None
        count = answer.get("input_tokens")
        if isinstance(count, int):
            return count
        self._tokens.is_missing()
        return None


def _is_about_sealing(error: BadRequestError) -> bool:
    message = error.message.lower()
    return "encrypted content is not supported" in message or SEALED_THOUGHTS in message
