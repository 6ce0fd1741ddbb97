"""Stop sequences: texts at which an answer ends, which the answer does not have.

They are looked for here and not by model servers: most of these do not tell which one it was, or that it was one.
"""

import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from antwort.backends.base import TurnSink, WholeTurn, quick_flush
from antwort.types import JSON
from antwort.wire.responses import Usage


class AnswerStoppedError(Exception):
    """A turn has come to a stop sequence; what it has said until then is there."""


class StopSequences:
    """A turn sink that passes on a turn up to a stop sequence.

    The end of a text that may be the beginning of one is held back until it is clear.
    """

    def __init__(self, sequences: Sequence[str], sink: TurnSink) -> None:
        self._sequences = sequences
        # Of those that begin at one place, the longest.
        longest_first = sorted(sequences, key=len, reverse=True)
        self._find = re.compile("|".join(map(re.escape, longest_first))).search
        self._sink = sink
        self._held = ""
        self._flush_sink: Callable[[], bool] | None = None
        self.found: str | None = None
        """The stop sequence that the turn has come to."""

    def whole_turn(self, turn: WholeTurn) -> None:
        """Take a turn that came as a whole."""
        turn.feed(self)

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        """Take a piece of the answer; a piece of which not all is passed on has no probabilities."""
        if passed := self._passed(delta):
            self._sink.text(passed, logprobs if passed == delta else None)

    def text_burst(self, deltas: Sequence[str]) -> None:
        """Take pieces of the answer that came together."""
        text = "".join(deltas)
        if passed := self._passed(text):
            self._sink.text_burst(deltas if passed == text else [passed])

    def reasoning(self, delta: str) -> None:
        """Take a piece of the model's thoughts, in which nothing is looked for."""
        if self._goes_on():
            self._sink.reasoning(delta)

    def summary(self, delta: str) -> None:
        """Take a piece of a summary of the model's thoughts."""
        if self._goes_on():
            self._sink.summary(delta)

    def opaque(self, content: str) -> None:
        """Take the thoughts as only the model server reads them."""
        if self._goes_on():
            self._sink.opaque(content)

    def refusal(self, delta: str) -> None:
        """Take a piece of a refusal."""
        if self._goes_on():
            self._sink.refusal(delta)

    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        """Take a piece of a function call."""
        if self._goes_on():
            self._sink.tool_call(index, call_id=call_id, name=name, arguments=arguments)

    def usage(self, usage: Usage) -> None:
        """Take the tokens used."""
        self._sink.usage(usage)

    def finish(self, reason: str) -> None:
        """Take why the model stopped; what was held back did not become a stop sequence."""
        self._goes_on()
        self._sink.finish(reason if self.found is None else "stop")

    def flush(self) -> Coroutine[Any, Any, None]:
        """Pass on what was taken; raise an AnswerStoppedError if nothing more is wanted."""
        if self.found is not None:
            raise AnswerStoppedError
        return self._sink.flush()

    @property
    def flush_now(self) -> Callable[[], bool] | None:
        """What does the same if nothing has to be waited for; None if the sink has no such thing."""
        self._flush_sink = quick_flush(self._sink)
        return None if self._flush_sink is None else self._flush_now

    def _flush_now(self) -> bool:
        if self.found is not None:
            raise AnswerStoppedError
        return self._flush_sink is not None and self._flush_sink()

    def _passed(self, delta: str) -> str:
        """Return what can be passed on with a new piece of text."""
        if self.found is not None:
            return ""
        text = self._held + delta
        if found := self._find(text):
            self.found, self._held = found[0], ""
            return text[: found.start()]
        begun = min((self._begun(text, sequence) for sequence in self._sequences), default=len(text))
        self._held = text[begun:]
        return text[:begun]

    @staticmethod
    def _begun(text: str, sequence: str) -> int:
        """Return where at the end of a text a stop sequence begins; its length if it does nowhere."""
        start = text.find(sequence[0], max(0, len(text) - len(sequence) + 1))
        while start >= 0 and not sequence.startswith(text[start:]):
            start = text.find(sequence[0], start + 1)
        return len(text) if start < 0 else start

    def _goes_on(self) -> bool:
        """Tell whether anything is still wanted; what was held back has come to its end then."""
        if self.found is None and self._held:
            held, self._held = self._held, ""
            self._sink.text(held)
        return self.found is None
