"""What a request for a message is answered with: the message, made of a response, and errors."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from antwort.errors import (
    APIError,
    AuthenticationError,
    GatewayTimeoutError,
    NotFoundError,
    PayloadTooLargeError,
    PermissionDeniedError,
    RateLimitError,
    ServiceUnavailableError,
)
from antwort.types import JSON
from antwort.wire.items import FunctionCall, Item, Message, OutputText, Reasoning
from antwort.wire.messages.server_tools import arguments_of, call_blocks
from antwort.wire.responses import NO_USAGE, ResponseObject, Usage

MESSAGES = "/v1/messages"
"""What the paths begin with on which everything is as at Anthropic."""
StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded"
]


class ThinkingTokens(Struct, frozen=True):
    """What the output tokens were."""

    thinking_tokens: int


class ServerToolRequests(Struct, frozen=True):
    """How often tools of the server were used that are counted."""

    web_search_requests: int
    web_fetch_requests: int = 0


class MessageUsage(Struct, kw_only=True, frozen=True):
    """Tokens of all turns of the model: those read from a cache, or written to one, are not among the input's."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0
    output_tokens_details: ThinkingTokens | UnsetType = UNSET
    server_tool_use: ServerToolRequests | UnsetType = UNSET

    @classmethod
    def of(cls, usage: Usage | None, searches: int = 0) -> "MessageUsage":
        """Return what a response has used, as messages tell it."""
        used = usage or NO_USAGE
        read, written = used.input_tokens_details.cached_tokens, used.input_tokens_details.cache_write_tokens
        thoughts = used.output_tokens_details.reasoning_tokens
        return cls(
            input_tokens=max(0, used.input_tokens - read - written),
            cache_creation_input_tokens=written,
            cache_read_input_tokens=read,
            output_tokens=used.output_tokens,
            output_tokens_details=ThinkingTokens(thoughts) if thoughts else UNSET,
            server_tool_use=ServerToolRequests(searches) if searches else UNSET,
        )


class MessageAnswer(Struct, kw_only=True):
    """A message of the model."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[JSON] = []
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage


class MessageTokens(Struct):
    """How many tokens a request has."""

    input_tokens: int


def message_id(response_id: str) -> str:
    """Return the id of the message that a response is: the response is found by the same digits."""
    return f"msg_{response_id.partition('_')[2]}"


def begun_message(response: ResponseObject) -> MessageAnswer:
    """Return a message of which nothing has been said."""
    return MessageAnswer(id=message_id(response.id), model=response.model, usage=MessageUsage())


def message_of(response: ResponseObject, stopped_by: str | None, *, thoughts: bool, omitted: bool) -> MessageAnswer:
    """Return a response that is over as a message.

    `stopped_by` is the stop sequence at which it has ended. Without `thoughts` those are left out; if they are
    `omitted`, only their signature is given.
    """
    content: list[JSON] = []
    for item in response.output:
        content += item_blocks(item, thoughts=thoughts, omitted=omitted)
    return MessageAnswer(
        id=message_id(response.id),
        model=response.model,
        content=content,
        stop_reason=stop_reason(response, stopped_by),
        stop_sequence=stopped_by,
        usage=MessageUsage.of(response.usage, searches_in(response)),
    )


# --- items ------------------------------------------------------------------------------------------------------------


def item_blocks(item: Item, *, thoughts: bool, omitted: bool) -> list[JSON]:
    """Return the blocks that show an item; none for what is nobody's business."""
    if isinstance(item, Message):
        return [
            _text_block(part.text, part.annotations) if isinstance(part, OutputText) else _text_block(part.refusal)
            for part in item.content
        ]
    if isinstance(item, FunctionCall):
        return [tool_block(item.call_id, item.name, arguments_of(item.arguments))]
    if isinstance(item, Reasoning):
        return _thought_blocks(item, omitted=omitted) if thoughts else []
    return _written_blocks(item) if isinstance(item, dict) else []


def _written_blocks(item: JSON) -> list[JSON]:
    """Return the blocks of an item that no model has written, or that is written already."""
    if item["type"] == "function_call":
        return [tool_block(item["call_id"], item["name"], arguments_of(item["arguments"]))]
    if item["type"] == "message":
        return [_text_block(part["text"]) for part in item["content"] if part.get("type") == "output_text"]
    return call_blocks(item)


def tool_block(call_id: str, name: str, arguments: JSON) -> JSON:
    """Return the block of a call that the client is to make."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _text_block(text: str, annotations: Sequence[JSON] = ()) -> JSON:
    block: JSON = {"type": "text", "text": text}
    if found := [cited for one in annotations if (cited := citation(one)) is not None]:
        block["citations"] = found
    return block


def citation(annotation: Mapping[str, Any]) -> JSON | None:
    """Return what a text cites; None for files, which have no block here."""
    if annotation.get("type") != "url_citation":
        return None
    found: JSON = {"type": "web_search_result_location", "url": annotation["url"], "title": annotation["title"]}
    return {**found, "encrypted_index": "", "cited_text": ""}


def _thought_blocks(item: Reasoning, *, omitted: bool) -> list[JSON]:
    text = thought_text(item)
    sealed = item.encrypted_content if isinstance(item.encrypted_content, str) else ""
    if text:
        return [{"type": "thinking", "thinking": "" if omitted else text, "signature": sealed}]
    return [{"type": "redacted_thinking", "data": sealed}] if sealed else []


def thought_text(item: Reasoning) -> str:
    """Return what a model has thought, or the summary of it."""
    if isinstance(item.content, list) and item.content:
        return "".join(part.text for part in item.content)
    return "\n\n".join(part.text for part in item.summary)


# --- how it ended -----------------------------------------------------------------------------------------------------


_REASONS: Mapping[str, StopReason] = MappingProxyType(
    {"content_filter": "refusal", "max_turns": "pause_turn", "deadline": "pause_turn"}
)
"""Why a message ends early, by why its response does; all others were too long for something."""


def stop_reason(response: ResponseObject, stopped_by: str | None) -> StopReason:
    """Return why a message ends."""
    if response.incomplete_details is not None:
        return _REASONS.get(response.incomplete_details.reason, "max_tokens")
    declined = False
    for item in response.output:
        if isinstance(item, Message):
            declined = declined or any(not isinstance(part, OutputText) for part in item.content)
        elif _is_client_call(item):
            return "tool_use"
    if stopped_by is not None:
        return "stop_sequence"
    return "refusal" if declined else "end_turn"


def _is_client_call(item: Item) -> bool:
    return isinstance(item, FunctionCall) or (isinstance(item, dict) and item["type"] == "function_call")


def searches_in(response: ResponseObject) -> int:
    """Return how often the web was searched."""
    calls = [item for item in response.output if isinstance(item, dict)]
    return sum(item["type"] == "web_search_call" for item in calls) if calls else 0


# --- errors -----------------------------------------------------------------------------------------------------------


THREAD_UNSUPPORTED = "thread_unsupported_request"
"""The code by which SDKs know that they have to send a whole conversation."""
_OVERLOADED = 529
_KEY_SENT = ("'Authorization: Bearer <API key>'", "'x-api-key: <API key>'")
"""How a key is sent, as errors say it, and as SDKs do it here."""
_TYPES: tuple[tuple[type[APIError], str], ...] = (
    (AuthenticationError, "authentication_error"),
    (PermissionDeniedError, "permission_error"),
    (NotFoundError, "not_found_error"),
    (PayloadTooLargeError, "request_too_large"),
    (RateLimitError, "rate_limit_error"),
    (GatewayTimeoutError, "timeout_error"),
    (ServiceUnavailableError, "overloaded_error"),
)


def error_type(error: APIError) -> str:
    """Return what kind of error one is here."""
    for kind, name in _TYPES:
        if isinstance(error, kind):
            return name
    return "invalid_request_error" if error.status < 500 else "api_error"


def error_status(kind: type[APIError], status: int | None = None) -> int:
    """Return the status of a kind of error: who is told that a server is overloaded is told so by one of its own."""
    return _OVERLOADED if issubclass(kind, ServiceUnavailableError) else status or kind.status


def error_body(error: APIError, request_id: str | None = None) -> JSON:
    """Return the body of an error."""
    message = error.message.replace(*_KEY_SENT) if isinstance(error, AuthenticationError) else error.message
    said: JSON = {"type": error_type(error), "message": message}
    if error.code == THREAD_UNSUPPORTED:
        said["details"] = {"error_code": error.code}
    body: JSON = {"type": "error", "error": said}
    return body if request_id is None else {**body, "request_id": request_id}
