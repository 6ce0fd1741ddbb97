"""File handles: every connection is one, and so is every connection to a model server."""

import logging
import resource

__all__ = ["most_connections", "raise_limit"]

logger = logging.getLogger(__name__)

_SPARE = 64
"""Handles for files, the database and whatever else is open."""


def raise_limit() -> None:
    """Let this process open as many files as its user may: the limit that shells give is for interactive programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # some systems have a limit below the one they tell
        logger.info("the limit of open files stays at %d: %s", soft, error)


def most_connections() -> int:
    """Return how many connections leave room for as many to model servers."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1_000_000
    return max(16, (soft - _SPARE) // 2)
