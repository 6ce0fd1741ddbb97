"""URLs of images and files in what a model reads. The model server fetches them, and stands where no stranger does."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from antwort.errors import BadRequestError, FunctionError
from antwort.types import JSON

CheckUrl = Callable[[str], Awaitable[None]]
"""Raises a FunctionError unless a model server may be given a URL."""
Link = tuple[str, str]
"""Where a URL stands, and the URL."""

_DATA = "data:"
_TEXTS = frozenset({"input_text", "output_text", "text", "refusal", "summary_text"})
MOST = 200
"""URLs of one request that are looked up: each costs a question to the resolver."""


def item_links(item: JSON, where: str) -> Iterator[Link]:
    """Give the URLs in the content or output of an item."""
    for name in ("content", "output"):
        value = item.get(name)
        if isinstance(value, list):
            for index, part in enumerate(value):
                yield from part_links(part, f"{where}.{name}[{index}]")
        elif isinstance(value, dict):
            yield from part_links(value, f"{where}.{name}")


def part_links(part: Any, where: str) -> Iterator[Link]:
    """Give the URLs of a content part: fields such as `image_url`, a text or an object with a `url`."""
    if not isinstance(part, dict) or (isinstance(kind := part.get("type"), str) and kind in _TEXTS):
        return
    for name, value in part.items():
        if name.endswith("_url"):
            url = value.get("url") if isinstance(value, dict) else value
            if isinstance(url, str) and url[: len(_DATA)].lower() != _DATA:
                yield f"{where}.{name}", url


async def check_links(links: Iterable[Link], check: CheckUrl) -> None:
    """Check each URL once; BadRequestError with the place of the first that may not be passed on."""
    first_seen: dict[str, str] = {}
    for where, url in links:
        first_seen.setdefault(url, where)
        if len(first_seen) > MOST:
            raise BadRequestError(
                f"Invalid value for '{where}': it is one too many; a request names up to {MOST} URLs.",
                param=where,
                code="too_many_urls",
            )
    for url, where in first_seen.items():
        try:
            await check(url)
        except FunctionError as error:
            raise BadRequestError(f"Invalid value for '{where}': {error}", param=where, code="invalid_url") from None
