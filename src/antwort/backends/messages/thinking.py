"""What is known of models that speak Messages, and what follows: how they are told to think, how much they write."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct
from pydantic import Field, PositiveInt

from antwort.backends.base import ModelRequest
from antwort.config import Settings
from antwort.types import JSON

DEFAULT_TOKENS = 8192
"""Tokens of an answer of which nobody has said how long it may be."""
_MOST_UNASKED = 32_000
"""Tokens that an answer may have at most if nobody has asked for so many, however many the model could write."""
_LEAST_BUDGET = 1024
"""Tokens to think with, fewer of which Anthropic refuses."""
_LOWEST_TOP_P = 0.95
"""The least that a model takes which thinks."""
_DATED = re.compile(r"(.+)-\d{8}")


class AnthropicSettings(Settings):
    """How a server is asked that speaks Anthropic's Messages API."""

    version: str = Field(default="2023-06-01", description="The `anthropic-version` of requests.")
    auth: Literal["x-api-key", "bearer"] = Field(default="x-api-key", description="How `api_key` is sent.")
    max_tokens: PositiveInt | None = Field(
        default=None,
        description="Tokens of an answer that no request limits; what the model can write, at most 32,000, if none.",
    )
    thinking: Literal["auto", "adaptive", "budget", "off"] = Field(
        default="auto",
        description="How models are told to think: as they like, within a budget, not at all; or as the list says.",
    )
    cache: Literal["off", "5m", "1h"] = Field(
        default="5m", description="How long the server is to keep what it has read of a prompt."
    )


# --- what the list of models says -------------------------------------------------------------------------------------


class ModelTraits(Struct, frozen=True):
    """What a list says of a model; None is what it does not say."""

    max_tokens: int | None = None
    """How many tokens it can write in one turn."""
    window: int | None = None
    """How many it can read."""
    thinking: frozenset[str] | None = None
    """The kinds of `thinking` that it takes."""
    efforts: frozenset[str] | None = None


UNKNOWN = ModelTraits()


def traits_in(models: Sequence[Any]) -> Iterator[tuple[str, ModelTraits]]:
    """Yield what entries of a list say, by the names of the models; one with a date goes without it, too."""
    for entry in models:
        name = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            continue
        can = entry.get("capabilities")
        traits = ModelTraits(
            _number(entry.get("max_tokens")),
            _number(entry.get("max_input_tokens")),
            _kinds(can, "thinking", "types"),
            _kinds(can, "effort"),
        )
        yield name, traits
        if dated := _DATED.fullmatch(name):
            yield dated[1], traits


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _kinds(value: Any, *path: str) -> frozenset[str] | None:
    """Return the names of what is said to be supported."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if not isinstance(value, dict):
        return None
    supported = (name for name, one in value.items() if isinstance(one, dict) and one.get("supported") is True)
    return frozenset(supported)


# --- how much a turn thinks and writes --------------------------------------------------------------------------------

_BUDGETS: Mapping[str | None, int] = MappingProxyType(
    {"minimal": 1024, "low": 2048, None: 8192, "medium": 8192, "high": 16_384, "xhigh": 32_768, "max": 65_536}
)
"""Tokens to think with, by the effort."""
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_USUAL_EFFORTS = frozenset({"low", "medium", "high", "max"})


class Measure(Struct, frozen=True):
    """How much a turn may think and write."""

    max_tokens: int
    thinking: JSON | None = None
    effort: str | None = None

    @property
    def thinks(self) -> bool:
        """Whether the model is told to think."""
        return self.thinking is not None and self.thinking["type"] != "disabled"

    def top_p(self, asked: float | None) -> float | None:
        """Return what the server can be given of what was asked for."""
        return None if asked is None or (self.thinks and asked < _LOWEST_TOP_P) else asked

    def temperature(self, asked: float | None) -> float | None:
        """Return the same for the temperature, which ends at 1 there."""
        return None if asked is None or self.thinks else min(asked, 1.0)


def measure_of(
    request: ModelRequest, settings: AnthropicSettings, traits: ModelTraits, *, may_think: bool, bare_calls: bool
) -> Measure:
    """Return how much a turn may think and write.

    `may_think` is false if the model must call: it cannot do both. `bare_calls`: the last calls were made without
    thoughts, and then Anthropic takes no budget for them until they are answered.
    """
    mode = _mode(settings, traits)
    most = _most(request, settings, traits)
    if request.effort == "none":
        can_be_off = mode != "off" and (traits.thinking is None or "disabled" in traits.thinking)
        return Measure(most, {"type": "disabled"} if can_be_off else None)
    if mode == "off" or (request.effort is None and request.summary is None):
        return Measure(most)
    effort = _effort(request.effort, traits, mode)
    if not may_think:
        return Measure(most, effort=effort)
    if mode == "adaptive":
        shown = {} if request.summary is None else {"display": "summarized"}
        return Measure(most, {"type": "adaptive", **shown}, effort)
    budget = _BUDGETS.get(request.effort, _BUDGETS[None])
    if request.max_output_tokens is None:
        most = min(most + budget, traits.max_tokens or most + budget)
    budget = min(budget, most - most // 4)  # some are left for the answer
    if bare_calls or budget < _LEAST_BUDGET:
        return Measure(most, effort=effort)
    return Measure(most, {"type": "enabled", "budget_tokens": budget}, effort)


def _mode(settings: AnthropicSettings, traits: ModelTraits) -> str:
    if settings.thinking != "auto":
        return settings.thinking
    if traits.thinking is None or "adaptive" not in traits.thinking:
        # Of what is not known, a budget is what most servers take.
        return "budget" if traits.thinking is None or "enabled" in traits.thinking else "off"
    return "adaptive"


def _most(request: ModelRequest, settings: AnthropicSettings, traits: ModelTraits) -> int:
    """Return how many tokens an answer may have: as many as were asked for, but no more than the model can write."""
    asked = request.max_output_tokens or settings.max_tokens
    if asked is None:
        asked = min(traits.max_tokens or DEFAULT_TOKENS, _MOST_UNASKED)
        if traits.max_tokens is None and traits.window is not None:
            asked = min(asked, max(1, traits.window // 2))
    return min(asked, traits.max_tokens or asked)


def _effort(wanted: str | None, traits: ModelTraits, mode: str) -> str | None:
    """Return the effort as the model knows it: the highest that is not above what is wanted."""
    if wanted is None:
        return None
    known = traits.efforts
    if known is None:
        known = _USUAL_EFFORTS if mode == "adaptive" else frozenset()
    below = _EFFORTS[: _EFFORTS.index(wanted) + 1 if wanted in _EFFORTS else 1]
    return next((effort for effort in reversed(below) if effort in known), None)
