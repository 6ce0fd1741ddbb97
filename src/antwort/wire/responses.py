"""The response resource: every key always present, as both contracts want it."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, field

from antwort.types import JSON
from antwort.wire.items import AnyItem, AnyTool, Item, Message, OutputText, Refusal

ResponseStatus = Literal["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]


class ResponseError(Struct):
    """Why a response failed; `code` is one of those the SDKs know."""

    code: str
    message: str


class IncompleteDetails(Struct):
    """Why a response ended early, truthfully."""

    reason: str


class InputTokensDetails(Struct, frozen=True, gc=False):
    """What the input tokens were."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0

    def plus(self, other: "InputTokensDetails") -> "InputTokensDetails":
        """Return both together."""
        return InputTokensDetails(
            self.cached_tokens + other.cached_tokens, self.cache_write_tokens + other.cache_write_tokens
        )


class OutputTokensDetails(Struct, frozen=True, gc=False):
    """What the output tokens were."""

    reasoning_tokens: int = 0

    def plus(self, other: "OutputTokensDetails") -> "OutputTokensDetails":
        """Return both together."""
        return OutputTokensDetails(self.reasoning_tokens + other.reasoning_tokens)


PLAIN_INPUT = InputTokensDetails()
"""Of a turn for which nothing was cached, as of most; likewise the other."""
PLAIN_OUTPUT = OutputTokensDetails()


class Usage(Struct, frozen=True, gc=False):
    """Tokens of one model turn, or summed over the turns of a response."""

    input_tokens: int = 0
    input_tokens_details: InputTokensDetails = PLAIN_INPUT
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails = PLAIN_OUTPUT
    total_tokens: int = 0

    def plus(self, other: "Usage") -> "Usage":
        """Return both together."""
        if self is NO_USAGE:
            return other
        read, written = other.input_tokens_details, other.output_tokens_details
        return Usage(
            self.input_tokens + other.input_tokens,
            self.input_tokens_details if read is PLAIN_INPUT else self.input_tokens_details.plus(read),
            self.output_tokens + other.output_tokens,
            self.output_tokens_details if written is PLAIN_OUTPUT else self.output_tokens_details.plus(written),
            self.total_tokens + other.total_tokens,
        )


NO_USAGE = Usage()


class ResponseObject(Struct, kw_only=True):
    """A response, at any moment of its life."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Annotated[ResponseStatus, Meta(description="Where it stands.")] = "in_progress"
    background: bool = False
    error: Annotated[ResponseError | None, Meta(description="Why it failed.")] = None
    incomplete_details: Annotated[IncompleteDetails | None, Meta(description="Why it ended early.")] = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    model: str
    output: Annotated[list[Item], Meta(description="What the model and the server's tools made of it.")] = field(
        default_factory=list
    )
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    conversation: JSON | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning: JSON = field(default_factory={"effort": None, "summary": None}.copy)
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool = True
    temperature: float = 1.0
    text: JSON = field(default_factory={"format": {"type": "text"}, "verbosity": "medium"}.copy)
    tool_choice: str | JSON = "auto"
    tools: list[AnyTool] = field(default_factory=list)
    top_logprobs: int = 0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    truncation: str = "disabled"
    usage: Annotated[Usage | None, Meta(description="What it cost in tokens.")] = None
    user: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    prompt: JSON | UnsetType = UNSET
    """The prompt that its instructions come from, if one was named."""
    agent: str | UnsetType = UNSET
    """The agent profile that answered, if one was asked for; ours. It is the last field: filters of runs look there."""

    @property
    def is_kept(self) -> bool:
        """Tell whether the server keeps it: in the background for a while even if it is not to be stored."""
        return self.store or self.background

    @property
    def output_text(self) -> str:
        """The text of all messages of the model, without what functions have said to the user."""
        return "".join(map(_text, self.output))

    @property
    def last_text(self) -> str:
        """The text of the last message of the model that has one."""
        return next(filter(None, map(_text, reversed(self.output))), "")

    @property
    def refusal(self) -> str:
        """Why an answer was declined; empty if it was not."""
        messages = [item for item in self.output if isinstance(item, Message)]
        return "".join(part.refusal for item in messages for part in item.content if isinstance(part, Refusal))


def _text(item: Item) -> str:
    """Return the text of a message, be it new or out of the store; of other items none."""
    if isinstance(item, Message):
        return "".join(part.text for part in item.content if isinstance(part, OutputText))
    if isinstance(item, dict) and item.get("type") == "message":
        if item.get("phase") == "commentary":
            return ""
        return "".join(part["text"] for part in item["content"] if part.get("type") == "output_text")
    return ""


def stored_response(body: JSON) -> ResponseObject:
    """Return what a body is of that was stored, today or by an earlier release: what it lacks is as by default."""
    try:
        return convert(body, ResponseObject)
    except ValidationError:
        # Fields that are null were once more than they are now. Where null is still known, it is the default.
        return convert({name: value for name, value in body.items() if value is not None}, ResponseObject)


class CompactedResponse(Struct, kw_only=True):
    """A compacted window: what to send as `input` in place of what was compacted."""

    id: str
    object: Literal["response.compaction"] = "response.compaction"
    created_at: int
    output: list[AnyItem]
    usage: Usage
