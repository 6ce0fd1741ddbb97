"""What a model says, held back until the checks of providers have let it through."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from string import ascii_letters, digits
from typing import Literal

from antwort.backends.base import TurnSink, WholeTurn
from antwort.context import Context
from antwort.engine.output.emitter import AnswerTooLongError
from antwort.functions.checking import RegisteredCheck
from antwort.functions.checks import Mask, MaskedSpan, Refuse, masked
from antwort.types import JSON
from antwort.wire.responses import Usage

_LEAST = 16
"""Characters that have to come before it is worth another look whether something can go on."""
_LONGEST_WORD = 1000
"""Characters without a blank from which on a word is cut where there is a mark that no secret has in it."""
_LONGEST_RUN = 10_000
"""Characters without such a mark from which on they are cut anywhere."""
_IN_SECRETS = frozenset(f"{ascii_letters}{digits}_.+/=:~@%&?#-")

Said = Literal["text", "reasoning", "summary", "refusal"]


class AnswerRefusedError(Exception):
    """A check refuses what a turn says; what was let through until then is there."""

    def __init__(self, reason: str) -> None:
        super().__init__("The answer is refused.")
        self.reason = reason


class HeldText:
    """What one check has not let through yet of one text that arrives in pieces.

    Before each look at least as much is held back as the check has to see; a span that it masks and that reaches into
    that may not be at its end yet, and is held back as a whole. Words are not cut: what is looked for in the rest would
    seem to begin there, or not be known any more. Long ones are, where languages and JSON have marks in them.
    """

    def __init__(self, check: RegisteredCheck, ctx: Context) -> None:
        self._check = check
        self._ctx = ctx
        self._holds = check.spec.holds
        self._pieces: list[str] = []
        self._size = 0
        self._next_look = _LEAST + (self._holds or 0)

    async def passed(self, text: str, *, ended: bool) -> str:
        """Return what goes on with a new piece; an AnswerRefusedError if nothing does any more."""
        if text:
            self._pieces.append(text)
            self._size += len(text)
        if not self._size or (not ended and (self._holds is None or self._size < self._next_look)):
            return ""
        held = "".join(self._pieces)
        verdict = await self._check.verdict(held, self._ctx)
        if isinstance(verdict, Refuse):
            raise AnswerRefusedError(verdict.reason)
        spans: Sequence[MaskedSpan] = ()
        if isinstance(verdict, Mask):
            if verdict.text is not None:
                if ended:
                    return self._keep("", verdict.text)
                self._next_look = 2 * self._size  # which part of it is final, nobody knows
                return self._keep(held, "")
            spans = verdict.spans
        if ended:
            return self._keep("", masked(held, spans))
        end = _final(held, self._holds or 0, spans)
        rest = held[end:]
        self._next_look = max((self._holds or 0) + _LEAST, len(rest) + max(_LEAST, len(rest) // 2))
        return self._keep(rest, masked(held[:end], [span for span in spans if span.end <= end]))

    def _keep(self, held: str, passed: str) -> str:
        self._pieces, self._size = [held] if held else [], len(held)
        return passed


def _final(held: str, holds: int, spans: Sequence[MaskedSpan]) -> int:
    """Return up to where a text can go on, if so many characters have to be seen to recognise what is masked."""
    last = end = len(held) - holds
    for span in spans:
        if span.end > last:  # it may not be at its end, and is recognised again with what stands before it
            end = min(end, span.start - holds)
    if end <= 0:
        return 0
    begin = end
    while begin and not held[begin - 1].isspace():
        begin -= 1
    if begin == 0 and end >= _LONGEST_WORD:
        begin = end
        while begin and held[begin - 1] in _IN_SECRETS:
            begin -= 1
    if begin or end < _LONGEST_RUN:
        end = begin
    for span in reversed(spans):
        if span.start < end < span.end:
            end = span.start
    return end


class _Text:
    """A text of the turn that is being checked: one thing that is said without anything else between."""

    def __init__(self, said: Said, checks: Sequence[RegisteredCheck], ctx: Context) -> None:
        self.said = said
        self._chain = [HeldText(check, ctx) for check in checks]
        self.pieces: list[str] = []

    async def passed(self, *, ended: bool) -> str:
        """Return what all checks let through of what has come, one after the other."""
        text, self.pieces = "".join(self.pieces), []
        for held in self._chain:
            text = await held.passed(text, ended=ended)
            if not text and not ended:
                break
        return text


class CheckedTurn:
    """A turn sink that passes on what the checks let through of a turn, in its order.

    `flush` looks at what has come, and `end`, which is to be called when the turn is over, at the rest. What a turn
    says that ends in any other way is lost with it: nothing goes on that was not looked at. Probabilities of tokens are
    left out, since they tell what was masked.
    """

    def __init__(self, checks: Sequence[RegisteredCheck], ctx: Context, sink: TurnSink, longest: int) -> None:
        self._checks = checks
        self._ctx = ctx
        self._sink = sink
        self._room = longest
        self._waiting: deque[_Text | Callable[[], None]] = deque()
        self._reason: str | None = None

    def whole_turn(self, turn: WholeTurn) -> None:
        """Take a turn that came as a whole."""
        turn.feed(self)

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:  # noqa: ARG002 - they are left out
        """Take a piece of the answer."""
        self._take("text", delta)

    def text_burst(self, deltas: Sequence[str]) -> None:
        """Take pieces of the answer that came together."""
        self._take("text", "".join(deltas))

    def reasoning(self, delta: str) -> None:
        """Take a piece of the model's thoughts, which clients may read, too."""
        self._take("reasoning", delta)

    def summary(self, delta: str) -> None:
        """Take a piece of a summary of the model's thoughts."""
        self._take("summary", delta)

    def refusal(self, delta: str) -> None:
        """Take a piece of a refusal."""
        self._take("refusal", delta)

    def opaque(self, content: str) -> None:
        """Take the thoughts as only the model server reads them."""
        self._waiting.append(partial(self._sink.opaque, content))

    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        """Take a piece of a function call, which is checked by others."""
        self._waiting.append(partial(self._sink.tool_call, index, call_id=call_id, name=name, arguments=arguments))

    def usage(self, usage: Usage) -> None:
        """Take the tokens used."""
        self._sink.usage(usage)

    def finish(self, reason: str) -> None:
        """Take why the model stopped; it is told with the end."""
        self._reason = reason

    async def flush(self) -> None:
        """Pass on what can go on by now; raise an AnswerTooLongError if more was said than may be."""
        if self._room < 0:
            raise AnswerTooLongError
        while self._waiting:
            if not await self._pass_on(ended=len(self._waiting) > 1):
                break
        await self._sink.flush()

    async def end(self) -> None:
        """Pass on what the checks let through of the rest."""
        while self._waiting:
            await self._pass_on(ended=True)
        if self._room < 0:
            self._sink.finish("length")
        elif self._reason is not None:
            self._sink.finish(self._reason)

    def _take(self, said: Said, delta: str) -> None:
        if self._room < 0:
            return
        fitting = delta[: self._room]
        self._room -= len(delta)
        if not fitting:
            return
        last = self._waiting[-1] if self._waiting else None
        if not isinstance(last, _Text) or last.said != said:
            last = _Text(said, self._checks, self._ctx)
            self._waiting.append(last)
        last.pieces.append(fitting)

    async def _pass_on(self, *, ended: bool) -> bool:
        """Pass on what comes first; tell whether it is over. Of a text that may go on it is what is final."""
        first = self._waiting[0]
        if not isinstance(first, _Text):
            self._waiting.popleft()
            first()
            return True
        passed = await first.passed(ended=ended)
        if passed:
            match first.said:
                case "text":
                    self._sink.text(passed)
                case "reasoning":
                    self._sink.reasoning(passed)
                case "summary":
                    self._sink.summary(passed)
                case "refusal":
                    self._sink.refusal(passed)
        if ended:
            self._waiting.popleft()
        return ended
