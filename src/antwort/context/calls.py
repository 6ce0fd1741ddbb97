"""What a call can do with calls, as functions see it: make others, and wait for somebody."""

from collections.abc import Collection, Mapping
from typing import Any, Literal, Protocol

from msgspec import DecodeError, Struct, json

from antwort.errors import FunctionError

# --- how a call waits for somebody -----------------------------------------------------------------------------------


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


# --- calls that one call makes itself --------------------------------------------------------------------------------


class CallableFunction(Struct, frozen=True):
    """A function that a call can call itself."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON Schema of an object."""


class CallResult(Struct, frozen=True):
    """What came of a call that a call has made itself. An error is a result, too."""

    output: str
    """What a model would read."""
    is_error: bool = False
    status: str = "success"
    is_json: bool = False
    """Whether the output is JSON, and no text."""

    @property
    def value(self) -> Any:
        """What the function has returned, as far as JSON can say it."""
        if not self.is_json:
            return self.output
        try:
            return json.decode(self.output)
        except DecodeError:  # its middle was left out
            return self.output


class FunctionCalls(Protocol):
    """Calls that one call makes itself, of the functions that its agent has, on the one path of execution.

    They have the caller's rights, and count for the limits of the response and the run. Each is kept with its key
    before its result is given: a function that attaches and makes the same calls again, after a crash or when it goes
    on after waiting, gets the results that there were, and nothing that was done is done twice.
    """

    @property
    def functions(self) -> Mapping[str, CallableFunction]:
        """What can be called, by name."""

    async def call(
        self, name: str, arguments: Mapping[str, Any], *, key: str | None = None, references: Collection[str] = ()
    ) -> CallResult:
        """Call a function, and wait for what comes of it; calls have turns, if there are many at once.

        `key` names the call within the caller's; without one, calls are numbered in the order in which they are made.
        `references` are the ids of variables that are handed on: `{"$ref": id}` stands for them in the arguments. All
        else that reads like a reference is data.
        A function that ends the agent ends it when the call that calls it is over, unless that fails.
        If the call waits for somebody, SuspendedError is raised: let it pass, when other calls are done.
        """
