"""Whether a call is executed: what the request, the limits and the agent's policy say."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from antwort.engine.budget import Budget
from antwort.engine.output.emitter import ModelCall
from antwort.engine.plan import Plan
from antwort.engine.tools.parameters import Choice
from antwort.engine.tools.targets import Target, needs_approval
from antwort.storage.base import JournalEntry
from antwort.storage.call_record import CallRecord
from antwort.types import JSON
from antwort.wire.responses import NO_USAGE, Usage

# --- how far a response has come: what its limits count --------------------------------------------------------------


_PATIENCE = 3
"""Turns in which a model may make the same call and get the same."""


class Repetition(msgspec.Struct, eq=False):
    """Watches the calls of one response.

    A function that was called in vain is withheld for a turn, so that the model does something else. If it then makes
    that call again, and gets the same, it is stuck.
    """

    withheld: frozenset[str] = frozenset()
    is_stuck: bool = False
    _seen: dict[tuple[str, str], tuple[int, int]] = {}
    """By name and arguments: what came of the call last, as a hash, and in how many turns in a row."""

    def note_turn(self, calls: Mapping[tuple[str, str], CallRecord]) -> None:
        """Take the calls of a turn, with what came of them, by name and arguments."""
        seen, again = self._seen, []
        for key, call in calls.items():
            output = hash(call.output)
            if key not in seen:
                seen[key] = output, 1
                continue
            before, turns = seen[key]
            if turns >= _PATIENCE and (output == before or key[0] in self.withheld):
                self.is_stuck = True
                return
            turns = turns + 1 if output == before else 1
            seen[key] = output, turns
            if turns >= _PATIENCE:
                again.append(key[0])
        if again or self.withheld:
            self.withheld = frozenset(again)


class Totals:
    """Totals of one response. They change all the time, which structs are slow at."""

    turns = 0
    tool_calls = 0
    without_tools = False
    """The limit of calls is reached: the model is offered no functions any more."""
    usage: Usage = NO_USAGE
    summarised = 0
    """Tokens written in summaries, which are in `usage` and no part of the answer."""
    loaded: Sequence[str] = ()
    """The deferred functions that the model has found, in their order; the journal says so, too."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, str], int] = {}
        """How often each call was made, by name and arguments."""
        self.repetition = Repetition()
        """Whether the model makes the same calls again and again; whoever continues watches anew."""

    @property
    def written(self) -> int:
        """Tokens of the answer so far."""
        return self.usage.output_tokens - self.summarised

    def stored(self) -> JSON:
        """Return what is kept for whoever continues; `made` can be counted in the journal."""
        return {
            "turns": self.turns,
            "tool_calls": self.tool_calls,
            "without_tools": self.without_tools,
            "summarised": self.summarised,
            "usage": msgspec.to_builtins(self.usage),
        }

    @classmethod
    def restored(cls, stored: JSON, entries: Iterable[JournalEntry]) -> "Totals":
        """Return the totals as they were stored."""
        totals = cls()
        totals.turns = stored.get("turns", 0)
        totals.tool_calls = stored.get("tool_calls", 0)
        totals.without_tools = stored.get("without_tools", False)
        totals.summarised = stored.get("summarised", 0)
        totals.usage = msgspec.convert(stored.get("usage", {}), Usage)
        for entry in entries:
            if entry.call is not None and entry.direction == "output":
                key = entry.call.name, entry.call.arguments
                totals.made[key] = totals.made.get(key, 0) + 1
        return totals


# --- admission -------------------------------------------------------------------------------------------------------


_REPEATS = 3
"""How often the same call of an idempotent function is executed before the model is told to stop."""


class Admission(msgspec.Struct, frozen=True, eq=False):
    """Admits the calls of one response, and counts them."""

    _plan: Plan
    _totals: Totals

    def refusal(
        self,
        name: str,
        arguments: str,
        target: Target | None,
        choice: Choice,
        *,
        turn: Sequence[ModelCall],
        asks: bool,
    ) -> str | None:
        """Count a call of the model that is executed; return why one is not, for the model to read.

        `turn` are all calls that it makes in the turn; `asks` tells whether this one needs an approval.
        """
        if target is None:
            return f"There is no function '{name[:64]}' here. Available: {self._available(choice)}."
        if (reason := self._unavailable(target, choice, turn)) is not None:
            return reason
        call, made = (name, arguments), self._totals.made
        times = made.get(call, 0)
        if times >= _REPEATS and target.spec is not None and target.spec.idempotent:
            return "You have made this very call before; its result does not change. Use it."
        can_carry = asks and target.opened is not None and not self._plan.stored
        refusal = self.nested_refusal(target, asks=asks, can_carry=can_carry)
        if refusal is None:
            made[call] = times + 1
        return refusal

    def _available(self, choice: Choice) -> str:
        """Return which functions the model may call, without those that it has to find."""
        toolset = self._plan.toolset
        targets, shown = toolset.targets, {*toolset.loaded, *self._totals.loaded}
        deferred = frozenset[str]().union(*(functions.names for functions in toolset.deferred)) - shown
        names = [name for name in targets if name not in deferred and choice.permits(name) and targets[name].is_direct]
        if toolset.search in names:
            return f"{', '.join(names)}; {toolset.search} finds {len(deferred):,} others"
        return ", ".join(names) or "none"

    def _unavailable(self, target: Target, choice: Choice, turn: Sequence[ModelCall]) -> str | None:
        """Return why a function cannot be called by the model now."""
        name = target.name
        if name in self._totals.repetition.withheld:
            return f"{name} is not available now: what you have called it for does not change. Do something else."
        if not choice.permits(name):
            return f"{name} may not be called now."
        if not target.is_direct:
            return f"{name} may only be called by a program."
        if target.spec is None or not target.spec.ends_agent:  # as nearly all
            return None
        return self.ending_refusal([call.name for call in turn])

    def ending_refusal(self, turn: Iterable[str]) -> str | None:
        """Return why a call may not end the agent, which it would do: somebody has to say something after its turn.

        `turn` are the functions that the model calls in it.
        """
        if self._plan.response.background:
            return None
        targets = [self._plan.toolset.targets.get(name) for name in turn]
        if not any(other is not None and (other.suspends or self.needs_approval(other)) for other in targets):
            return None
        return "The user is asked something in the same turn. Give your result when you have read the answer."

    def nested_refusal(self, target: Target, *, asks: bool, can_carry: bool = False) -> str | None:
        """Count a call that is executed, whoever makes it; return why one is not.

        `can_carry` says that the client can send back what is asked, so that nobody has to store it.
        """
        if asks or target.suspends:
            is_carried = can_carry and self._plan.parent is None
            if not is_carried and (hindrance := self._hindrance(target, asks=asks)) is not None:
                return hindrance
        totals, most, budget = self._totals, self._plan.max_tool_calls, self._plan.ctx.budget
        if (most is not None and totals.tool_calls >= most) or (isinstance(budget, Budget) and not budget.take_call()):
            totals.without_tools = True  # none is offered any more
        if totals.without_tools:
            return "The limit of function calls for this response is reached. Answer with what you have."
        totals.tool_calls += 1
        return None

    def needs_approval(self, target: Target) -> bool:
        """Tell whether a call is made only after a yes."""
        spec, plan = target.spec, self._plan
        if spec is None or target.name == plan.toolset.search:  # to search does nothing else
            return False
        if needs_approval(spec, plan.approval):
            return True
        above = plan.approvals_above
        return bool(above) and any(needs_approval(spec, said) for said in above)

    def _hindrance(self, target: Target, *, asks: bool) -> str | None:
        """Return why nobody can be waited for here, if that is so."""
        plan = self._plan
        if target.suspends and not plan.stored:
            return f"{target.name} needs a response that is stored, and this one is not. Go on without it."
        if not (plan.stored and (plan.parent is None or plan.response.background)):
            needs = "the approval" if asks else "an answer"
            return f"{target.name} needs {needs} of the user, and nobody can be asked here. Go on without it."
        return None
