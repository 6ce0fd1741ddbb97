"""A model server that speaks Chat Completions."""

from typing_extensions import override

from antwort.backends.base import ModelRequest, TurnSink
from antwort.backends.chat.dialect import Dialect
from antwort.backends.chat.request import chat_body
from antwort.backends.chat.stream import Turn
from antwort.backends.chat.tokens import ChatTokens
from antwort.backends.remote import RemoteBackend
from antwort.backends.tokens import TokenEndpoint
from antwort.backends.transport import Transport
from antwort.config import BackendConfig
from antwort.large_work import is_large
from antwort.types import JSON

__all__ = ["ChatCompletions"]


class ChatCompletions(RemoteBackend):
    """One server that speaks Chat Completions."""

    path = "/chat/completions"

    def __init__(self, name: str, config: BackendConfig) -> None:
        super().__init__(name, config)
        self._dialect = Dialect.of(config, self.transport)
        self._extra = config.extra_body
        # Tokenizers are no part of the API and stand beside it.
        self._beside = Transport(name, config.model_copy(update={"url": config.url.rstrip("/").removesuffix("/v1")}))
        self._tokens = ChatTokens(TokenEndpoint(name, self._beside))

    @override
    def body(self, request: ModelRequest) -> JSON:
        return chat_body(request, self._dialect, self.name, self._extra)

    @override
    def reader(self, sink: TurnSink) -> Turn:
        return Turn(self.limits, sink)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        return await self._tokens.count(await self.large_work.run_if(is_large(request.items), self.body, request))

    @override
    async def close(self) -> None:
        await super().close()
        await self._beside.close()
