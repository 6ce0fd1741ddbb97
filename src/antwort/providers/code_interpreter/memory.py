"""The memory of containers, in the steps that OpenAI's API has."""

from typing import Literal, get_args

from antwort.provider import BadRequestError

MemoryLimit = Literal["1g", "4g", "16g", "64g"]
MEMORY_LIMITS: tuple[MemoryLimit, ...] = get_args(MemoryLimit)


def memory_bytes(limit: str | None) -> int | None:
    """Return the bytes of a step; None if none is named."""
    return int(limit.removesuffix("g")) << 30 if limit in MEMORY_LIMITS else None


def memory_name(size: int) -> MemoryLimit | None:
    """Return the largest step that so much memory has; None if it is less than the smallest."""
    fitting = [limit for limit in MEMORY_LIMITS if (memory_bytes(limit) or 0) <= size]
    return fitting[-1] if fitting else None


def check_memory(limit: str | None, most: int, param: str) -> None:
    """Refuse a step that is more than a container can have; BadRequestError names the largest one."""
    if (memory_bytes(limit) or 0) <= most:
        return
    largest = memory_name(most)
    allowed = "no value of it can be had" if largest is None else f"'{largest}' is the largest that can be had"
    raise BadRequestError(
        f"'{param}' is '{limit}', but {allowed} here. Leave it out to have {most:,} bytes.", param=param
    )
