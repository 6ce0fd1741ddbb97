"""Whoever performs model turns, as the engine sees them."""

from typing import Protocol

from antwort.backends.base import ModelRequest, TurnSink

__all__ = ["TOO_LONG", "Models"]

TOO_LONG = "context_length_exceeded"
"""The code of an error that says that a window does not fit the model."""


class Models(Protocol):
    """Whoever performs model turns."""

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        """Perform one turn."""

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Count the input tokens of a turn; None if nobody can."""

    async def context_window(self, model: str) -> int | None:
        """Return how many tokens a model takes, None if that is not known."""
