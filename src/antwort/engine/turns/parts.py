"""What a loop is given: the parts of the engine, and what there is of its response before."""

from collections.abc import Mapping, Sequence

import msgspec

from antwort.backends import ModelRouter
from antwort.concurrency.deadline import Stragglers
from antwort.concurrency.large_work import LargeWork, Pace
from antwort.config import EngineConfig
from antwort.context.values import Values
from antwort.engine.calls.answers import QuestionAnswer
from antwort.engine.sealing import Sealer
from antwort.engine.turns.agent_events import RunStreams
from antwort.engine.turns.telemetry import TurnMetrics
from antwort.functions.checking import CheckBook
from antwort.observability import Tracer
from antwort.storage.sql.store import Store


class EngineParts(msgspec.Struct, frozen=True):
    """What all responses of an engine are made with."""

    models: ModelRouter
    store: Store
    settings: EngineConfig
    metrics: TurnMetrics
    tracer: Tracer
    sealer: Sealer
    large_work: LargeWork
    agents_pace: Pace
    """The pace of sub-agents' turns: there may be thousands."""
    parallel_calls: int
    """Calls of one turn that run at the same time; of the settings, like what follows: those are slow to read."""
    thoughts_as_summary: bool
    """Whether thoughts are given as their own summary to whoever asks for one."""
    thoughts: str
    """What the events of thoughts are called."""
    longest_answer: int
    """Characters that a model may say in one turn."""
    values: Values | None
    """Where what leaves a window is kept."""
    longest_arguments: int | None
    """Characters of a call's arguments that stay in the window once it is over, if the model can read them on."""
    checks: CheckBook = msgspec.field(default_factory=CheckBook)
    """What providers check of inputs, outputs, calls and results."""
    stragglers: Stragglers = msgspec.field(default_factory=Stragglers)
    """What takes longer than a moment: deadlines, and clients that may leave."""
    streams: RunStreams = msgspec.field(default_factory=RunStreams)
    """The streams that show sub-agents."""


class Earlier(msgspec.Struct, frozen=True, eq=False):
    """What there is of a response before a loop makes it, or goes on with it.

    That is nothing, unless readers know of it, or another process began it.
    """

    sequence: int = 0
    """How many events readers were told."""
    positions: Sequence[int] = ()
    """Where the items that they were told of stand in the output; -1 for those that are no part of it."""
    resumed: bool = False
    """Whether it goes on, from what is stored."""
    answers: Mapping[str, QuestionAnswer] = {}
    """What was said to calls that wait, by question."""


NOTHING = Earlier()
