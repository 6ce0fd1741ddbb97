"""A call that the server executes, as it is kept: what was asked for, how far it has come, and what came of it."""

import time
from enum import Enum
from typing import Literal, TypeAlias

from msgspec import Struct

from antwort.context.calls import Suspension
from antwort.types import JSON

_FOR_EVER = 100 * 365.25 * 86_400
"""Seconds. What waits longer has no end that anybody has to store."""


CallOutcome: TypeAlias = Literal["begun", "waiting", "approved", "ended", "interrupted"]


class CallState(Enum):
    """How far a call has come."""

    BEGUN = "begun"
    WAITING = "waiting"
    APPROVED = "approved"
    """It may be made now, and is not yet."""
    ENDED = "ended"
    INTERRUPTED = "interrupted"
    """Nobody knows what came of it."""


# To look up a member of an enum takes some hundred nanoseconds in Python 3.11.
_BEGUN, _WAITING, _APPROVED = CallState.BEGUN, CallState.WAITING, CallState.APPROVED
_ENDED, _INTERRUPTED = CallState.ENDED, CallState.INTERRUPTED
_FOR_OTHERS = ("agents", "calls")
"""What a call waits for that nobody is asked about."""


class GivenAnswer(Struct, frozen=True):
    """What a function that ends the agent has given as the answer."""

    text: str
    reference: str | None = None
    """The id of the variable that it gives back, if it gives one."""


class CallRecord(Struct, omit_defaults=True):
    """A call that the server executes. It is changed as the call goes on, and stored with its entry."""

    call_id: str
    name: str
    arguments: str
    turn: int = 0
    """Calls of one turn are parallel."""
    parent: str | None = None
    """The id of the call that makes it, if another one does."""
    references: tuple[str, ...] = ()
    """The ids in its arguments that are references; all else is data."""
    masked: bool = False
    """Whether its arguments are other than it was made with, because a check wants them so."""
    said_before: bool = False
    """Whether the model has made it in an earlier response: only its output is new."""

    # --- when: milliseconds since 1970; 0 is not yet ------------------------------------------------------------------
    began: int = 0
    ended: int = 0
    waited: int = 0
    """Seconds for which it has waited and does no more."""

    # --- how far it has come ------------------------------------------------------------------------------------------
    waiting: Suspension | None = None
    """What it waits for."""
    waiting_since: int | None = None
    expires_at: int | None = None
    """When it waits no longer; None is for ever."""
    question: str | None = None
    """The id of what somebody has to answer."""
    asked: dict[str, str] | None = None
    """Of one that waits for calls of its own: the ids of those calls, by the ids of their questions."""
    approved: bool = False
    interrupted: bool = False
    told: bool = False
    """Whether its item is whole though it is under way: it says what was asked for, not what came of it."""

    # --- what came of it ----------------------------------------------------------------------------------------------
    output: str | None = None
    status: str | None = None
    json: bool = False
    """Whether the output is JSON."""
    images: list[JSON] | None = None
    """Pictures that the model sees with the output, as parts of content."""
    sources: JSON | None = None
    """What an answer may cite of it, by number."""
    unasked: JSON | None = None
    """Fields of its item that only those see who ask for them, by what they ask for."""
    gives: GivenAnswer | None = None
    """What it has given as the answer, which counts when the call that makes it is over."""
    answer: str | None = None
    """What it has given as the answer."""
    returned: str | None = None
    """The id of the variable that it gives back, if it has ended its agent with one."""

    # --- what the model reads of it -----------------------------------------------------------------------------------
    shown: JSON | None = None
    """What stands in the place of its arguments or its output, if that took too much room."""
    left: str | None = None
    """If the model reads neither it nor anything said before it any more: what it is told instead, or nothing."""

    @property
    def state(self) -> CallState:
        """How far it has come."""
        if self.output is not None:
            return _INTERRUPTED if self.interrupted else _ENDED
        if self.waiting is not None:
            return _WAITING
        return _APPROVED if self.approved else _BEGUN

    @property
    def began_at(self) -> float | None:
        """When it began, in seconds since 1970."""
        return self.began / 1000 if self.began else None

    @property
    def seconds(self) -> float | None:
        """How long it took, waiting included; None if it is not over, or nobody knows."""
        return (self.ended - self.began) / 1000 if self.began and self.ended else None

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in whichever way."""
        return self.output is not None

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for somebody, or something."""
        return self.output is None and self.waiting is not None

    @property
    def asks(self) -> bool:
        """Whether it waits for what somebody has to say, and not for agents or calls that wait themselves."""
        return self.output is None and self.waiting is not None and self.waiting.kind not in _FOR_OTHERS

    # --- how it goes on: nothing else changes the state ---------------------------------------------------------------

    def wait(self, suspension: Suspension) -> None:
        """Wait for something: since now, and until its time is up if not for ever."""
        now, seconds = time.time(), suspension.expires_in
        self.waiting, self.waiting_since, self.approved = suspension, int(now), False
        self.expires_at = int(now + seconds) if seconds is not None and seconds < _FOR_EVER else None

    def approve(self) -> None:
        """Wait no longer: it may be made now."""
        self._note_waited()
        self.waiting, self.approved = None, True

    def begin(self) -> None:
        """Begin, as a call that was approved. If the process ends meanwhile, it was begun like any other."""
        self.waiting, self.approved = None, False

    def end(self, output: str, status: str, *, json: bool = False) -> None:
        """End with an output."""
        if self.waiting is not None:
            self._note_waited()
        self.waiting, self.approved, self.ended = None, False, now()
        self.output, self.status, self.json = output, status, json

    def interrupt(self, output: str) -> None:
        """End without anybody knowing what has come of it, with what the model reads then."""
        self.end(output, "error")
        self.interrupted = True

    def give(self, answer: GivenAnswer) -> None:
        """Give the answer of the agent, or of the run."""
        self.answer, self.returned = answer.text, answer.reference

    def _note_waited(self) -> None:
        if self.waiting is not None and self.waiting_since is not None:
            self.waited += max(0, int(time.time()) - self.waiting_since)


def now() -> int:
    """Return the time as calls note it: milliseconds since 1970."""
    return int(time.time() * 1000)
