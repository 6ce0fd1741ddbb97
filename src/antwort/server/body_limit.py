"""Bodies have a largest size, each of them and all together, and a largest number of values."""

from collections.abc import Callable, Collection, Mapping

from starlette.types import Message, Receive, Scope

from antwort.errors import PayloadTooLargeError, ServiceUnavailableError
from antwort.web.requests import ValueCount

SMALL = 64 * 1024
"""Bytes of a body that do not count: as many as a connection may have in its buffers anyway."""


class BodyBudget:
    """The bytes of the large bodies of all requests under way: what was read of them, not what was announced.

    They count until the request is over, as what was made of them is as large and stays as long.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def take(self, size: int) -> None:
        """Count some bytes; ServiceUnavailableError if there are too many."""
        if self.held + size > self._limit:
            raise ServiceUnavailableError(
                "The requests under way have as many bytes as the server takes (server.max_bodies_bytes). Try again.",
                code="server_overloaded",
                headers={"retry-after": "1"},
            )
        self.held += size

    def give_back(self, size: int) -> None:
        """Forget some bytes that were counted."""
        self.held -= size


class BodyLimit:
    """Refuses a body that is too large, by its announced length or, without one, while it is being read.

    One of JSON that holds too many values is refused while it is being read, whichever route reads it. Those to the
    paths of `uncounted` may hold any number, such as the tokens of texts to embed, and are looked at by their routes. A
    body that its route reads as a stream is limited there.
    """

    def __init__(
        self,
        limit: int,
        budget: BodyBudget,
        *,
        max_values: int,
        uncounted: Collection[str] = (),
        streamed: Callable[[str, str], bool] | None = None,
    ) -> None:
        self.limit = limit
        self._streamed = streamed
        self.budget = budget
        self._max_values = max_values
        self._uncounted = uncounted
        self._small = min(SMALL, max_values, limit)

    def watch(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> "LimitedBody | None":
        """Return the body of a request, to be read through its `receive`; PayloadTooLargeError if it is too large.

        None is one that needs no limit, and is read as it comes.
        """
        announced = headers.get(b"content-length", b"")
        is_announced = announced.isdigit()
        size = int(announced) if is_announced else self.limit
        if is_announced and size <= self._small:
            return None  # the server lets no more bytes pass than were announced
        if self._streamed is not None and self._streamed(scope["method"], scope["path"]):
            return None
        if size > self.limit:
            raise self.too_large()
        # In a body with fewer bytes there cannot be too many; one that claims to be something else is not read as JSON.
        kind = headers.get(b"content-type", b"json").lower()
        counts = size > self._max_values and b"json" in kind and scope["path"] not in self._uncounted
        return LimitedBody(self, receive, ValueCount(self._max_values) if counts else None)

    def too_large(self) -> PayloadTooLargeError:
        """Return the error for a body that is too large."""
        return PayloadTooLargeError(f"The body is larger than {self.limit:,} bytes (server.max_body_bytes).")


class LimitedBody:
    """A body that may be large: what is read of it is counted."""

    __slots__ = ("_counted", "_limit", "_read", "_receive", "_values")

    def __init__(self, limit: BodyLimit, receive: Receive, values: ValueCount | None) -> None:
        self._receive = receive
        self._limit = limit
        self._values = values
        self._read = self._counted = 0

    async def receive(self) -> Message:
        """Return the next piece; PayloadTooLargeError, or BadRequestError for too many values, if it is too much."""
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read > self._limit.limit:
            raise self._limit.too_large()
        if self._read > SMALL:
            self._limit.budget.take(self._read - self._counted)
            self._counted = self._read
        if self._values is not None:
            self._values.take(message.get("body", b""))
        return message

    def end(self) -> None:
        """Take note that the request is over."""
        self._limit.budget.give_back(self._counted)
        self._counted = 0
