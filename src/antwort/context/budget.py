"""What a run may spend, as the calls of its agents see it."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

from msgspec import Struct

Pause = Literal["over", "parked", "broken_off"]
"""Why nobody works on a response: it is over, waits for somebody, or goes on later, as after an outage."""


class RunLimits(Struct, frozen=True):
    """What all agents of one run may take together; None is no limit."""

    depth: int = 5
    """How deep agents may be nested below the root."""
    agents: int = 1000
    in_flight: int = 16
    """Calls of models at the same time."""
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    """Time that it is being worked on; waiting for an answer does not count."""
    calls: int | None = None
    """Calls of functions."""
    agent_seconds: float | None = None
    """Time that an agent below the root may take."""


class RunBudget(Protocol):
    """The budget of a run, as a call has it: it can read what is left, but not spend it."""

    @property
    def limits(self) -> RunLimits:
        """What all agents of the run may take together."""

    @property
    def closing(self) -> dict[str, Callable[[Pause], Awaitable[None]]]:
        """What is to be done when nobody works on the root agent's response any more; by what it concerns."""

    def remaining(self) -> dict[str, Any]:
        """Return what is left, by limit; without what is not limited."""
