"""What a run may spend, over all its agents, and what it has spent."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from antwort.context.agents import Pause, RunLimits
from antwort.errors import FunctionError
from antwort.wire.responses import NO_USAGE, Usage

_MILLION = 1_000_000
_FOR_WORK = 0.95
"""The share of tokens, cost and time that is for work; the root agent says with the rest what was found."""


class Price(Struct, frozen=True):
    """What a model costs for a million tokens."""

    input: float = 0.0
    output: float = 0.0


class Spent(Struct):
    """What a run has spent so far."""

    agents: int = 1
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0


class Budget:
    """One for a run, whoever of its agents spends. Models are asked only between `begin` or `wait` and `settle`.

    What a call will cost is not known before: it reserves what calls have cost so far, and a call that would not fit is
    begun when those under way are settled and there is room left. So the limit is passed by one call per slot at most.
    """

    __slots__ = (
        "_began",
        "_in_flight",
        "_prices",
        "_turns",
        "_used",
        "_waiting",
        "closing",
        "limits",
        "shared",
        "spent",
    )

    def __init__(self, limits: RunLimits, prices: Mapping[str, Price] | None = None) -> None:
        self.limits = limits
        self.spent = Spent()
        self._used: list[Usage] = []
        """What turns have used, of the root agent's response and of all agents below it."""
        self.shared = False
        """Whether there are other agents than the root."""
        self.closing: dict[str, Callable[[Pause], Awaitable[None]]] = {}
        """What is to be done when nobody works on the root agent's response any more; by what it concerns."""
        self._prices = prices or {}
        self._began = time.monotonic()
        self._in_flight = 0
        self._turns = 0
        self._waiting: dict[asyncio.Future[None], None] = {}
        """Those that wait for their turn, in this order."""

    # --- models ------------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """How many calls of models are under way."""
        return self._in_flight

    def _is_spent(self) -> bool:
        """Tell whether a limit is reached, so that no model is asked any more."""
        limits, spent = self.limits, self.spent
        if limits.tokens is not None and spent.tokens >= limits.tokens:
            return True
        if limits.cost is not None and spent.cost >= limits.cost:
            return True
        return limits.seconds is not None and spent.seconds + time.monotonic() - self._began >= limits.seconds

    def is_low(self) -> bool:
        """Tell whether only the share is left that is kept for the last words of the root agent."""
        limits, spent = self.limits, self.spent
        if limits.tokens is not None and spent.tokens >= limits.tokens * _FOR_WORK:
            return True
        if limits.cost is not None and spent.cost >= limits.cost * _FOR_WORK:
            return True
        worked = spent.seconds + time.monotonic() - self._began
        return limits.seconds is not None and worked >= limits.seconds * _FOR_WORK

    def begin_last(self) -> bool:
        """Begin to ask a model for the last words of the root agent, whatever is left."""
        self._in_flight += 1
        return True

    def begin_within(self) -> bool:
        """Begin to ask a model within a call of one that is under way and waits for it; False if a limit is reached."""
        if self._is_spent():
            return False
        self._in_flight += 1
        return True

    def begin(self) -> bool:
        """Begin to ask a model, if that can be done at once."""
        if self._waiting or self._is_spent() or (self._in_flight and not self._has_room()):
            return False
        self._in_flight += 1
        return True

    async def wait(self) -> bool:
        """Begin to ask a model when it is one's turn; False if a limit is reached, at once or meanwhile."""
        while not self._is_spent():
            if self._has_room():
                self._in_flight += 1
                return True
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = None
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # the turn was given in the moment of leaving
                else:
                    self._waiting.pop(waiter, None)
                raise
        self._wake()  # the others are to see it too
        return False

    def settle(self, model: str, usage: Usage | None) -> None:
        """End a call that was begun, with what it has used."""
        self._in_flight -= 1
        if usage is not None:
            self._used.append(usage)
            self._count(model, usage)
        if self._waiting:
            self._wake()

    def count_unreported(self, model: str, estimate: Usage) -> None:
        """Count a call that was settled without what it has used: its server does not tell."""
        self._count(model, estimate)

    def _has_room(self) -> bool:
        """Tell whether another call fits beside those under way; one alone always does."""
        under_way, limits, spent = self._in_flight, self.limits, self.spent
        if under_way == 0:
            return True
        if under_way >= limits.in_flight:
            return False
        share = (under_way + 1) / (self._turns or 1)
        if limits.tokens is not None and spent.tokens * (1 + share) > limits.tokens:
            return False
        return limits.cost is None or spent.cost * (1 + share) <= limits.cost

    def _wake(self) -> None:
        while self._waiting:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            if not waiter.done():
                waiter.set_result(None)
                return

    def _count(self, model: str, usage: Usage) -> None:
        self._turns += 1
        self.spent.tokens += usage.total_tokens
        if self._prices and (price := self._prices.get(model)) is not None:
            self.spent.cost += (usage.input_tokens * price.input + usage.output_tokens * price.output) / _MILLION

    # --- functions and agents ----------------------------------------------------------------------------------------

    def take_call(self) -> bool:
        """Count a call of a function; False if there may be no more."""
        if self.limits.calls is not None and self.spent.calls >= self.limits.calls:
            return False
        self.spent.calls += 1
        return True

    def take_agents(self, number: int, depth: int) -> None:
        """Count new agents at a depth; a FunctionError says which limit they would pass."""
        limits = self.limits
        if depth > limits.depth:
            raise FunctionError(f"Agents may be nested {limits.depth} deep, and this one is. Do the work yourself.")
        left = limits.agents - self.spent.agents
        if number > left:
            raise FunctionError(f"This run may have {limits.agents} agents; {max(left, 0)} are left, not {number}.")
        if self._is_spent():
            raise FunctionError("The budget of this run is spent. Answer with what you have.")
        self.spent.agents += number
        self.shared = True

    async def close(self, pause: Pause) -> None:
        """Do what is to be done when nobody works on the root agent's response any more, or before it is parked."""
        closing, self.closing = self.closing, {}
        for close in closing.values():
            await close(pause)

    # --- what there is of it -----------------------------------------------------------------------------------------

    @property
    def usage(self) -> Usage:
        """Tokens of the response of the root agent and of all agents below it."""
        total = NO_USAGE
        for used in self._used:
            total = total.plus(used)
        return total

    @property
    def seconds(self) -> float:
        """How long the run has been worked on."""
        return self.spent.seconds + time.monotonic() - self._began

    def count_before(self, model: str, usage: Usage, calls: int, *, agents: int, here: bool) -> None:
        """Count what a response of the run has spent before; `here` if it belongs to what is being made."""
        self._count(model, usage)
        self.spent.calls += calls
        self.spent.agents += agents
        self.shared = self.shared or agents > 0
        if here:
            self._used.append(usage)

    def remaining(self) -> dict[str, Any]:
        """Return what is left, by limit; without what is not limited."""
        limits, spent = self.limits, self.spent
        left: dict[str, Any] = {"agents": max(0, limits.agents - spent.agents)}
        if limits.tokens is not None:
            left["tokens"] = max(0, limits.tokens - spent.tokens)
        if limits.cost is not None:
            left["cost"] = round(max(0.0, limits.cost - spent.cost), 6)
        if limits.seconds is not None:
            left["seconds"] = round(max(0.0, limits.seconds - self.seconds))
        if limits.calls is not None:
            left["calls"] = max(0, limits.calls - spent.calls)
        return left
