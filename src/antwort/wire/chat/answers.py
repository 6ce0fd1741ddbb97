"""What a request for a chat completion is answered with, made of a response."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from antwort.types import JSON
from antwort.wire.items import CustomToolCall, FunctionCall, Item, Message, OutputText, Reasoning
from antwort.wire.messages.answers import thought_text
from antwort.wire.responses import NO_USAGE, ResponseObject, Usage

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
BETWEEN = "\n\n"
"""What stands between two messages of a response, which are one here."""


class PromptDetails(Struct, frozen=True):
    """What the tokens of a prompt were."""

    cached_tokens: int = 0
    audio_tokens: int = 0


class CompletionDetails(Struct, frozen=True):
    """What the tokens of a completion were."""

    reasoning_tokens: int = 0
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class CompletionUsage(Struct, frozen=True):
    """Tokens of all turns of the model."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails

    @classmethod
    def of(cls, usage: Usage | None) -> "CompletionUsage":
        """Return what a response has used."""
        used = usage or NO_USAGE
        return cls(
            used.input_tokens,
            used.output_tokens,
            used.total_tokens,
            PromptDetails(used.input_tokens_details.cached_tokens),
            CompletionDetails(used.output_tokens_details.reasoning_tokens),
        )


class AnsweredMessage(Struct, kw_only=True):
    """What the model says."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: str | None
    annotations: Annotated[Sequence[JSON], Meta(description="The URLs that it cites.")]
    tool_calls: Annotated[Sequence[JSON] | UnsetType, Meta(description="The calls that the client is to make.")] = UNSET
    reasoning_content: Annotated[str | UnsetType, Meta(description="What it has thought, if that is shown.")] = UNSET


class ChatChoice(Struct, kw_only=True):
    """The answer."""

    index: int = 0
    message: AnsweredMessage
    logprobs: JSON | None
    finish_reason: FinishReason


class CompletedChat(Struct, kw_only=True):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: Sequence[ChatChoice]
    usage: CompletionUsage
    service_tier: str
    system_fingerprint: str | None = None
    metadata: dict[str, str]


def chat_id(response_id: str) -> str:
    """Return the id of the completion that a response is: the response is found by the same digits."""
    return f"chatcmpl-{response_id.partition('_')[2]}"


def chat_of(response: ResponseObject) -> CompletedChat:
    """Return a response that is over as a completion."""
    said = _Said()
    for item in response.output:
        said.add(item)
    return CompletedChat(
        id=chat_id(response.id),
        created=response.created_at,
        model=response.model,
        choices=[said.choice(finish_reason(response))],
        usage=CompletionUsage.of(response.usage),
        service_tier=response.service_tier,
        metadata=response.metadata,
    )


class _Said:
    """Puts the items of a response together."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._length = 0
        self._refusals: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[JSON] = []
        self._annotations: list[JSON] = []
        self._logprobs: list[JSON] = []

    def add(self, item: Item) -> None:
        """Take an item."""
        if isinstance(item, Message):
            self._end()
            for part in item.content:
                if isinstance(part, OutputText):
                    self._cite(part.annotations)
                    self._say(part.text)
                    self._logprobs += part.logprobs
                else:
                    self._refusals.append(part.refusal)
        elif isinstance(item, Reasoning):
            self._thoughts.append(thought_text(item))
        elif (call := client_call(item)) is not None:
            self._calls.append(call)
        elif text := written_text(item):
            self._end()
            self._say(text)

    def _end(self) -> None:
        """Let what comes be a message of its own."""
        if self._length:
            self._say(BETWEEN)

    def _say(self, text: str) -> None:
        self._texts.append(text)
        self._length += len(text)

    def _cite(self, annotations: Sequence[JSON]) -> None:
        self._annotations += [cited for one in annotations if (cited := citation(one, self._length)) is not None]

    def choice(self, finish: FinishReason) -> ChatChoice:
        """Return the answer."""
        thoughts = BETWEEN.join(filter(None, self._thoughts))
        message = AnsweredMessage(
            content="".join(self._texts) if self._texts else None,
            refusal="".join(self._refusals) if self._refusals else None,
            annotations=self._annotations,
            tool_calls=self._calls or UNSET,
            reasoning_content=thoughts or UNSET,
        )
        logprobs = {"content": self._logprobs, "refusal": None} if self._logprobs else None
        return ChatChoice(message=message, logprobs=logprobs, finish_reason=finish)


# --- items ------------------------------------------------------------------------------------------------------------


def client_call(item: Item) -> JSON | None:
    """Return a call that the client is to make; None for all else."""
    if isinstance(item, FunctionCall):
        return _call(item.call_id, "function", item.name, "arguments", item.arguments)
    if isinstance(item, CustomToolCall):
        return _call(item.call_id, "custom", item.name, "input", item.input)
    if not isinstance(item, dict):
        return None
    if item["type"] == "function_call":
        return _call(item["call_id"], "function", item["name"], "arguments", item["arguments"])
    if item["type"] == "custom_tool_call":
        return _call(item["call_id"], "custom", item["name"], "input", item["input"])
    return None


def _call(call_id: str, kind: str, name: str, field: str, given: str) -> JSON:
    return {"id": call_id, "type": kind, kind: {"name": name, field: given}}


def written_text(item: Item) -> str:
    """Return the text of an item that no model has written: what a function says to the user, or asks them."""
    if not isinstance(item, dict):
        return ""
    if item["type"] == "message":
        return "".join(part["text"] for part in item["content"] if part.get("type") == "output_text")
    if item["type"] == "mcp_approval_request":
        return (
            f"[The tool '{item.get('name')}' of '{item.get('server_label')}' is called only after an approval, which "
            "chat completions cannot give. Use /v1/responses for it.]"
        )
    return ""


def citation(annotation: Mapping[str, Any], offset: int = 0) -> JSON | None:
    """Return what a text cites, which begins at an offset; None for files, for which there is no word here."""
    if annotation.get("type") != "url_citation":
        return None
    cited = {name: annotation[name] for name in ("url", "title")}
    cited |= {name: annotation[name] + offset for name in ("start_index", "end_index")}
    return {"type": "url_citation", "url_citation": cited}


# --- how it ended -----------------------------------------------------------------------------------------------------


_REASONS: Mapping[str, FinishReason] = MappingProxyType({"content_filter": "content_filter"})
"""Why a completion ends early, by why its response does; all others were too long for something."""


def finish_reason(response: ResponseObject) -> FinishReason:
    """Return why a completion ends."""
    if response.incomplete_details is not None:
        return _REASONS.get(response.incomplete_details.reason, "length")
    return "tool_calls" if any(client_call(item) is not None for item in response.output) else "stop"
