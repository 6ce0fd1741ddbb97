"""What is not over after a moment is told so, and nothing else."""

import asyncio
import contextvars

from antwort.concurrency.deadline import MOMENT, Deadline, Stragglers

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class Late:
    """Knows whether it was late, and in whose context it was told."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.context = ""

    def be_late(self) -> None:
        self.context = who.get()
        self.told.set()


async def test_who_is_not_forgotten_is_told_and_who_is_forgotten_is_not() -> None:
    stragglers = Stragglers()
    early, late, later = Late(), Late(), Late()
    stragglers.expect(early)
    stragglers.expect(late)
    stragglers.forget(early)
    await asyncio.sleep(MOMENT / 2)
    stragglers.expect(later)
    await asyncio.wait_for(later.told.wait(), 10)
    assert late.told.is_set()
    assert not early.told.is_set()
    stragglers.expect(early)  # after a pause in which nobody was expected
    await asyncio.wait_for(early.told.wait(), 10)


async def test_nobody_is_told_in_the_context_of_another() -> None:
    stragglers, late = Stragglers(), Late()
    who.set("the first")
    stragglers.expect(late)
    await asyncio.wait_for(late.told.wait(), 10)
    assert late.context == "nobody"


async def test_a_deadline_among_stragglers_passes_as_any_other() -> None:
    stragglers = Stragglers()
    for seconds in (0.0, MOMENT, 2 * MOMENT):
        deadline = Deadline(seconds, stragglers)
        try:
            with deadline:
                await asyncio.Event().wait()
        except TimeoutError:
            pass
        assert deadline.expired
    with Deadline(2 * MOMENT, stragglers) as deadline:
        await asyncio.sleep(0)
    await asyncio.sleep(3 * MOMENT)
    assert not deadline.expired
