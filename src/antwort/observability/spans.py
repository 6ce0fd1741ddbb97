"""Spans around work, for whoever collects them. Without a tracer they cost next to nothing."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from typing_extensions import override

Attribute: TypeAlias = str | int | float | bool | list[str]

_NO_HEADERS: Mapping[str, str] = {}


class Span(Protocol):
    """One piece of work, open while its context manager is."""

    def set(self, key: str, value: Attribute) -> None:
        """Add or replace an attribute."""

    def fail(self, message: str) -> None:
        """Mark the work as failed. An exception that leaves the span does so by itself."""


class Tracer(Protocol):
    """Makes spans. A span opened inside another becomes its child, also across `await`."""

    enabled: bool
    """Whether anybody sees the spans. If not, whoever has much to tell need not put it together."""

    def span(self, name: str, attributes: Mapping[str, Attribute] = ...) -> AbstractContextManager[Span]:
        """Open a span for the length of a `with` block."""

    def joining(self, headers: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager[None]:
        """Let the spans of a `with` block belong to the trace of whoever sent these headers, if they name one."""

    def headers(self) -> Mapping[str, str]:
        """Return the headers by which another server's spans belong to the current one; none if there is none."""

    def close(self) -> None:
        """Send what is left."""


class _NullSpan(Span):
    """A span nobody sees, and its own context manager. It holds no state, so that one serves all."""

    @override
    def set(self, key: str, value: Attribute) -> None:
        pass

    @override
    def fail(self, message: str) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


NO_SPAN = _NullSpan()


class NoTracer(Tracer):
    """The tracer of an app that does not trace."""

    enabled = False

    @override
    def span(self, name: str, attributes: Mapping[str, Attribute] | None = None) -> AbstractContextManager[Span]:
        return NO_SPAN

    @override
    def joining(self, headers: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager[None]:
        return nullcontext()

    @override
    def headers(self) -> Mapping[str, str]:
        return _NO_HEADERS

    @override
    def close(self) -> None:
        pass
