"""A loop that goes on when a stranger's callback wants to end it."""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["run_contained"]

logger = logging.getLogger(__name__)


def run_contained(
    loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, None], *, entered_again: Callable[[], None]
) -> None:
    """Run a coroutine to its end, whatever the callbacks of plug-ins raise meanwhile. What it raises itself is raised.

    asyncio lets a SystemExit or KeyboardInterrupt of any callback out of the loop, which then can be entered again: all
    that was waiting still waits. So this costs nothing until it happens; then `entered_again` is called on the loop.
    Ctrl-C passes where the loop does not handle it.
    """
    task = loop.create_task(main)
    while not task.done():
        try:
            loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt, RuntimeError) as error:  # the last is for a loop that somebody stopped
            if task.done():
                break
            if _is_signal(error) or loop.is_closed():
                raise
            logger.exception("a callback of a function or provider wanted to end the process; it goes on")
            loop.call_soon(entered_again)
    task.result()


def _is_signal(error: BaseException) -> bool:
    """Tell whether it may be Ctrl-C: it never is while the loop has a handler of its own for that."""
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler
