"""How a call waits for somebody: what it waits for, and how it says so."""

from typing import Any, Literal

from msgspec import Struct

from antwort.errors import FunctionError

SuspensionKind = Literal["question", "approval", "agents", "calls"]


class Suspension(Struct, frozen=True):
    """What a call waits for. The run is parked until it is there: nothing of it stays in memory."""

    kind: SuspensionKind = "question"
    """An answer to a question, a yes or no to a call, or sub-agents or calls of its own that wait themselves."""
    body: dict[str, Any] = {}
    """What whoever answers is shown."""
    expires_in: float | None = None
    """Seconds until nobody waits any more."""


class SuspendedError(FunctionError):
    """Raised by a function that cannot go on before somebody has said something; `ctx.suspend` raises it."""

    status = "suspended"

    def __init__(self, suspension: Suspension) -> None:
        super().__init__("The call waits for an answer.")
        self.suspension = suspension
