"""How a scripted turn runs: its pieces in order, and where it waits, hangs or breaks off."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from antwort.testing.script import Call, Failure, Turn, Waitable

__all__ = ["Closed", "Failed", "Piece", "logprob", "perform"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One delta of a turn."""

    kind: Literal["reasoning", "summary", "opaque", "refusal", "text", "call"]
    delta: str
    index: int = 0
    call: Call | None = None
    """The call that begins with this piece."""


class Failed(Exception):  # noqa: N818 (an event of the script, not a mistake)
    """The script says that the turn fails here."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Closed(Exception):  # noqa: N818 (an event of the script, not a mistake)
    """The script says that the connection is closed here."""


async def perform(turn: Turn) -> AsyncGenerator[list[Piece], None]:
    """Yield the pieces that arrive together; wait where the script says so; raise Failed or Closed where it says so.

    Use it with `contextlib.aclosing`: the consumer may stop in the middle.
    """
    if turn.wait_for is not None:
        await turn.wait_for.wait()
    if turn.delay:
        await asyncio.sleep(turn.delay)
    sent = 0
    burst: list[Piece] = []
    for piece in _pieces(turn):
        if _breaks(turn, sent) or (not isinstance(piece, Piece)) or len(burst) == turn.burst:
            if burst:
                yield burst
                burst = []
                await asyncio.sleep(turn.pace)
            await _break_off(turn, sent)
        if isinstance(piece, Piece):
            burst.append(piece)
            sent += 1
        else:
            await piece.wait()
    if burst:
        yield burst
    await _break_off(turn, None)


def _pieces(turn: Turn) -> Iterator[Piece | Waitable]:
    opaque = (turn.opaque,) if turn.opaque else ()
    thoughts = (("reasoning", turn.reasoning), ("summary", turn.summary), ("opaque", opaque))
    for kind, deltas in (*thoughts, ("refusal", turn.refusal), ("text", turn.text)):
        for delta in deltas:
            yield Piece(kind, delta) if isinstance(delta, str) else delta  # type: ignore[arg-type] # kinds are literals
    for index, call in enumerate(turn.calls):
        for number, delta in enumerate(call.arguments or ("",)):
            yield Piece("call", delta, index, call if number == 0 else None)


def _breaks(turn: Turn, sent: int) -> bool:
    ends = (turn.error.after if turn.error else None, turn.close_after, turn.hang_after)
    return sent in ends


async def _break_off(turn: Turn, sent: int | None) -> None:
    """Fail, close or hang if the script says so after so many pieces; None stands for the end of the turn."""
    if turn.error is not None and (sent is None or turn.error.after == sent):
        raise Failed(turn.error)
    if turn.close_after is not None and (sent is None or turn.close_after == sent):
        raise Closed
    if turn.hang_after is not None and (sent is None or turn.hang_after == sent):
        await asyncio.Event().wait()


def logprob(token: str) -> dict[str, Any]:
    """Return the made-up log probability of a token; Responses and Chat Completions have the same shape."""
    return {"token": token, "logprob": -0.25, "bytes": list(token.encode()), "top_logprobs": []}
