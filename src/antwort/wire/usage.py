"""Tokens used."""

from msgspec import Struct, field

__all__ = ["InputTokensDetails", "OutputTokensDetails", "Usage"]


class InputTokensDetails(Struct, gc=False):
    """What the input tokens were."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct, gc=False):
    """What the output tokens were."""

    reasoning_tokens: int = 0


class Usage(Struct):
    """Tokens of one model turn, or summed over the turns of a response."""

    input_tokens: int = 0
    input_tokens_details: InputTokensDetails = field(default_factory=InputTokensDetails)
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails = field(default_factory=OutputTokensDetails)
    total_tokens: int = 0

    def add(self, other: "Usage") -> None:
        """Count another turn."""
        self.input_tokens += other.input_tokens
        self.input_tokens_details.cached_tokens += other.input_tokens_details.cached_tokens
        self.input_tokens_details.cache_write_tokens += other.input_tokens_details.cache_write_tokens
        self.output_tokens += other.output_tokens
        self.output_tokens_details.reasoning_tokens += other.output_tokens_details.reasoning_tokens
        self.total_tokens += other.total_tokens
