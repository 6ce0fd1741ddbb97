"""The memory of containers, in the steps that OpenAI's API has."""

from typing import Literal, get_args

MemoryLimit = Literal["1g", "4g", "16g", "64g"]
MEMORY_LIMITS: tuple[MemoryLimit, ...] = get_args(MemoryLimit)


def memory_bytes(limit: str | None) -> int | None:
    """Return the bytes of a step; None if none is named."""
    return int(limit.removesuffix("g")) << 30 if limit in MEMORY_LIMITS else None


def memory_name(size: int) -> MemoryLimit:
    """Return the largest step that so much memory has, or the smallest there is."""
    fitting = [limit for limit in MEMORY_LIMITS if (memory_bytes(limit) or 0) <= size]
    return fitting[-1] if fitting else MEMORY_LIMITS[0]
