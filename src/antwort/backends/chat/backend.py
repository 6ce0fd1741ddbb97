"""A model server that speaks Chat Completions, and how it counts tokens."""

from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta, Struct
from typing_extensions import override

from antwort.backends.base import ModelRequest, TurnSink, WholeCall, WholeTurn
from antwort.backends.chat.answer import UNREADABLE, ChatAnswer, may_be_tagged, settled_reason
from antwort.backends.chat.request import ChatDialect, chat_body
from antwort.backends.dialects import ChatUsage, chat_usage
from antwort.backends.http.remote import RemoteBackend
from antwort.backends.http.transport import AnswerLimits, Transport
from antwort.backends.tokens import TokenEndpoint
from antwort.concurrency.large_work import is_large
from antwort.concurrency.slots import Queue
from antwort.config import BackendConfig, Settings
from antwort.types import JSON


class _PlainFunction(Struct, gc=False):
    name: Annotated[str, Meta(min_length=1)]
    arguments: str


class _PlainCall(Struct, gc=False):
    function: _PlainFunction
    id: str | None = None


class _PlainMessage(Struct, gc=False):
    content: str | None = None
    tool_calls: list[_PlainCall] | None = None
    reasoning_content: None = None
    reasoning: None = None
    reasoning_details: None = None
    refusal: None = None
    function_call: None = None


class _PlainChoice(Struct, gc=False):
    message: _PlainMessage
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]
    delta: None = None
    logprobs: None = None


class _PlainAnswer(Struct, gc=False):
    """An answer that has a text, calls, the tokens used and nothing else, all as the API says."""

    choices: Annotated[list[_PlainChoice], Meta(min_length=1)]
    usage: ChatUsage | None = None
    error: None = None


_decode = msgspec.json.Decoder(_PlainAnswer).decode


def plain_turn(body: bytes, limits: AnswerLimits) -> WholeTurn | None:
    """Read a plain answer; None for any other, which has to be read with more care."""
    try:
        answer = _decode(body)
    except UNREADABLE:
        return None
    choice = answer.choices[0]
    message = choice.message
    text = message.content
    if text and may_be_tagged(text):
        return None
    calls: list[WholeCall] = []
    if said := message.tool_calls:
        if len(said) > limits.calls:
            return None
        calls = [WholeCall(call.id or None, call.function.name, call.function.arguments or "{}") for call in said]
    usage = None if answer.usage is None else chat_usage(answer.usage)
    return WholeTurn(text, calls, usage, settled_reason(choice.finish_reason, calls))


class ChatBackend(RemoteBackend):
    """One server that speaks Chat Completions."""

    def __init__(self, name: str, config: BackendConfig, queue: Queue | None = None) -> None:
        super().__init__(name, config, "/chat/completions", queue)
        self._dialect = ChatDialect.of(config, self.transport)
        self._extra = config.extra_body
        # Tokenizers are no part of the API and stand beside it.
        self._beside = Transport(name, config.model_copy(update={"url": config.url.rstrip("/").removesuffix("/v1")}))
        self._tokens = ChatTokens(TokenEndpoint(name, self._beside))

    @classmethod
    def of(cls, settings: Settings, name: str, config: BackendConfig, queue: Queue | None) -> Self:  # noqa: ARG003
        """Make it; all its settings are those of the backend."""
        return cls(name, config, queue)

    @override
    def body(self, request: ModelRequest) -> JSON:
        return chat_body(request, self._dialect, self.name, self._extra)

    @override
    def reader(self, sink: TurnSink, alternatives: int | None) -> ChatAnswer:
        return ChatAnswer(self.limits, sink, alternatives)

    @override
    def read_whole(self, body: bytes, sink: TurnSink, alternatives: int | None) -> None:
        turn = plain_turn(body, self.limits)
        if turn is None:
            super().read_whole(body, sink, alternatives)
        else:
            sink.whole_turn(turn)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        body = await self.large_work.run_if(is_large(request.items), self.body, request)
        return await self._tokens.count(body, request.tenant)

    @override
    async def close(self) -> None:
        await super().close()
        await self._beside.close()


# --- token counts -----------------------------------------------------------------------------------------------------

_PROMPT = ("messages", "tools", "chat_template", "chat_template_kwargs")
"""Fields of a request that become part of what the model reads."""


class ChatTokens:
    """Counts the tokens of a request the way its server does.

    vLLM counts messages at `/tokenize`. llama.cpp has an endpoint of the same name that only knows text, and another
    that makes text of messages. Which of them a server is, its first answer tells.
    """

    def __init__(self, endpoint: TokenEndpoint) -> None:
        self._endpoint = endpoint
        self._by_text = False

    async def count(self, body: JSON, tenant: str) -> int | None:
        """Return the tokens of what a request gives to read; None if the server does not count."""
        prompt = {name: body[name] for name in _PROMPT if name in body}
        if not self._by_text:
            asked = {"model": body.get("model"), **prompt, "add_generation_prompt": True}
            answer = await self._endpoint.ask("/tokenize", asked, tenant)
            if answer is None:
                return None
            if isinstance(count := answer.get("count"), int):
                return count
            self._by_text = isinstance(answer.get("tokens"), list)
        return await self._count_text(prompt, tenant) if self._by_text else self._unknown()

    async def _count_text(self, prompt: JSON, tenant: str) -> int | None:
        answer = await self._endpoint.ask("/apply-template", prompt, tenant)
        if answer is None:
            return None
        text = answer.get("prompt")
        if not isinstance(text, str):
            return self._unknown()
        asked = {"content": text, "add_special": True, "parse_special": True}
        answer = await self._endpoint.ask("/tokenize", asked, tenant)
        if answer is None:
            return None
        tokens = answer.get("tokens")
        return len(tokens) if isinstance(tokens, list) else self._unknown()

    def _unknown(self) -> int | None:
        self._by_text = False
        self._endpoint.is_missing()
        return None
