"""The ways in which model servers speak Chat Completions."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from antwort.errors import DefinitionError, did_you_mean

__all__ = ["DIALECTS", "OPENAI", "Dialect"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The switches in which servers differ; `Dialect.like("ollama", done=False)` makes a variant of a known one."""

    role_chunk: bool = True
    """A first chunk with the role and an empty content."""
    call_index: bool = True
    """Tool-call deltas carry their index."""
    call_ids: bool = True
    """Tool calls carry an id."""
    whole_calls: bool = False
    """All tool calls come whole, in one chunk."""
    object_arguments: bool = False
    """Arguments are JSON objects, not JSON text; only where calls come whole and the arguments are an object."""
    usage: Literal["chunk", "finish", "after"] = "chunk"
    """In a chunk of its own without choices, in the chunk with the finish reason, or in one with an empty choice."""
    usage_unasked: bool = False
    """Usage is streamed even if the request does not ask for it."""
    done: bool = True
    """The stream ends with `[DONE]`."""
    reasoning: Literal["reasoning_content", "reasoning", "think"] = "reasoning_content"
    """The field for thoughts; `think` puts them into the content, between `<think>` tags."""

    @classmethod
    def like(cls, name: str, **switches: Any) -> "Dialect":
        """Return the dialect of a server, with some switches turned."""
        if name not in DIALECTS:
            known = ", ".join(DIALECTS)
            raise DefinitionError(
                f"there is no dialect '{name}'{did_you_mean(name, DIALECTS) or f'; use one of {known}'}"
            )
        return replace(DIALECTS[name], **switches)


OPENAI = Dialect()
DIALECTS = {
    "openai": OPENAI,
    "vllm": Dialect(usage="after", usage_unasked=True),
    "ollama": Dialect(
        role_chunk=False,
        call_index=False,
        call_ids=False,
        whole_calls=True,
        object_arguments=True,
        usage="finish",
        usage_unasked=True,
        reasoning="reasoning",
    ),
    "llamacpp": Dialect(call_ids=False, usage_unasked=True, done=False, reasoning="think"),
}
"""Harder than any one version of these servers: each shows the habits that were met in some version of it."""
