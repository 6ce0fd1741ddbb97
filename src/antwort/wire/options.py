"""What the objects in the body of a request say: how the answer is written, thought about, cached, compacted."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from antwort.types import JSON

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Summary = Literal["auto", "concise", "detailed"]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
CacheRetention = Literal["in_memory", "in-memory", "24h"]
"""How long a prompt stays cached; the second is how the first was spelt before."""

INCLUDES = frozenset(
    {
        "message.output_text.logprobs",
        "message.input_image.image_url",
        "reasoning.encrypted_content",
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
    }
)
"""Values of `include` that belong to no function; those of hosted tools are declared by them."""


def is_include(value: str) -> bool:
    """Tell whether a request may ask for something to be included.

    A hosted tool that is not offered has nothing to include; clients send its values all the same.
    """
    return value in INCLUDES or "_call." in value


IGNORED = Meta(description="Taken and ignored.")


class Options(Struct, kw_only=True, forbid_unknown_fields=True):
    """An object of a request. Whatever may be left out may be null."""


class TextConfig(Options):
    """How the answer's text is to be written."""

    format: Annotated[
        JSON | None,
        Meta(description='`{"type": "text"}`, `json_object`, or `json_schema` with `name`, `schema` and `strict`.'),
    ] = None
    verbosity: Annotated[Literal["low", "medium", "high"] | None, Meta(description="How much the model says.")] = None


class ReasoningOptions(Options):
    """How much the model should think, and what it shows of it."""

    effort: Annotated[Effort | None, Meta(description="How much it thinks.")] = None
    summary: Annotated[Summary | None, Meta(description="How its thoughts are summed up.")] = None
    generate_summary: Annotated[Summary | None, Meta(description="The older name of `summary`.")] = None
    context: Annotated[Literal["auto", "current_turn", "all_turns"] | None, IGNORED] = None
    mode: Annotated[str | None, IGNORED] = None


class StreamOptions(Options):
    """Options of a stream."""

    include_obfuscation: Annotated[bool | None, IGNORED] = None


class CacheOptions(Options):
    """How prompts are cached; the model server does as it does."""

    mode: Annotated[Literal["implicit", "explicit"] | None, IGNORED] = None
    ttl: Annotated[Literal["30m", "12h"] | None, IGNORED] = None
    prewarm: Annotated[bool | None, IGNORED] = None
    comparison_response_id: Annotated[str | None, IGNORED] = None


class AccessPrograms(Options):
    """Programs of OpenAI that an account takes part in."""

    cyber: Annotated[Literal["standard", "daybreak_blue", "daybreak_red"] | None, IGNORED] = None


class ImageOptions(Options):
    """How images in the window are kept small."""

    context_compression: Annotated[Literal["auto", "enabled", "disabled"] | None, IGNORED] = None


class ContextManagement(Options):
    """When the window is to be compacted."""

    type: Annotated[Literal["compaction"], Meta(description="Always `compaction`.")]
    compact_threshold: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="How many tokens in the window are too many.")
    ] = None


class ConversationReference(Options):
    """A conversation by its id."""

    id: str


class MultiAgent(Struct, forbid_unknown_fields=True):
    """Whether the model may start sub-agents, shown as the items of OpenAI's beta."""

    enabled: bool
    max_concurrent_subagents: Annotated[int, Meta(ge=1)] | None = None
