"""Watching turns: when they begin, what they used, how they end."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from typing_extensions import override

from antwort.backends.base import ModelBackend, ModelInfo, ModelRequest, TurnSink
from antwort.types import JSON
from antwort.wire.usage import Usage

__all__ = ["Observed", "Observer", "WatchedSink", "Wrapper", "watched"]


class Observer(Protocol):
    """Told about every request to a model server, tries that failed included. `seconds` count from its start."""

    def request_started(self, backend: str, model: str) -> None:
        """Note that a request goes out."""

    def first_token(self, backend: str, model: str, seconds: float) -> None:
        """Note that the answer begins."""

    def finished(
        self, backend: str, model: str, seconds: float, usage: Usage | None, error: BaseException | None
    ) -> None:
        """Note that the answer is complete, or why it is not; a turn that was given up ends with a cancellation."""


class WatchedSink:
    """Passes everything on and knows whether anything was: from then on a turn cannot be tried again.

    It also knows what the sink itself raised, which is no failure of the model server.
    """

    __slots__ = ("_call", "_error", "_flush", "_listeners", "_reasoning", "_sink", "_text", "begun", "used")

    def __init__(self, sink: TurnSink) -> None:
        self.begun = False
        self.used: Usage | None = None
        self._error: BaseException | None = None
        self._flush = sink.flush
        self._sink = sink
        self._text = sink.text
        self._reasoning = sink.reasoning
        self._call = sink.tool_call
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call somebody when the turn begins."""
        self._listeners.append(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        """Call somebody no more."""
        self._listeners.remove(listener)

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._text(delta, logprobs)
        except BaseException as error:
            self._error = error
            raise

    def reasoning(self, delta: str) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._reasoning(delta)
        except BaseException as error:
            self._error = error
            raise

    def summary(self, delta: str) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._sink.summary(delta)
        except BaseException as error:
            self._error = error
            raise

    def opaque(self, content: str) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._sink.opaque(content)
        except BaseException as error:
            self._error = error
            raise

    def refusal(self, delta: str) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._sink.refusal(delta)
        except BaseException as error:
            self._error = error
            raise

    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._call(index, call_id=call_id, name=name, arguments=arguments)
        except BaseException as error:
            self._error = error
            raise

    def usage(self, usage: Usage) -> None:
        """Pass it on, and remember it."""
        if not self.begun:
            self._begin()
        self.used = usage
        try:
            self._sink.usage(usage)
        except BaseException as error:
            self._error = error
            raise

    def finish(self, reason: str) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._sink.finish(reason)
        except BaseException as error:
            self._error = error
            raise

    async def flush(self) -> None:
        """Have it pass on what it took."""
        try:
            await self._flush()
        except BaseException as error:
            self._error = error
            raise

    def raised(self, error: BaseException) -> bool:
        """Tell whether an error came out of the sink."""
        return error is self._error

    def _begin(self) -> None:
        self.begun = True
        for listener in self._listeners:
            listener()


def watched(sink: TurnSink) -> WatchedSink:
    """Watch a sink, once however many want to."""
    return sink if isinstance(sink, WatchedSink) else WatchedSink(sink)


class Wrapper:
    """A backend that adds something to another; as it stands, nothing."""

    def __init__(self, backend: ModelBackend) -> None:
        self.name = backend.name
        self.backend = backend

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        """Perform one turn."""
        await self.backend.run(request, sink)

    async def models(self) -> Sequence[ModelInfo]:
        """List the models it serves."""
        return await self.backend.models()

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Count the input tokens of a turn; None if the server does not do that."""
        return await self.backend.count_tokens(request)

    async def context_window(self, model: str) -> int | None:
        """Return how many tokens a model takes, None if that is not known."""
        return await self.backend.context_window(model)

    async def close(self) -> None:
        """Give connections back."""
        await self.backend.close()


class Observed(Wrapper):
    """Tells an observer about each request."""

    def __init__(
        self, backend: ModelBackend, observer: Observer, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(backend)
        self._observer = observer
        self._clock = clock

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        watch = watched(sink)
        started = self._clock()

        def begun() -> None:
            self._observer.first_token(self.name, request.model, self._clock() - started)

        self._observer.request_started(self.name, request.model)
        watch.listen(begun)
        error: BaseException | None = None
        try:
            await self.backend.run(request, watch)
        except BaseException as failure:
            error = failure
            raise
        finally:
            watch.forget(begun)
            self._observer.finished(self.name, request.model, self._clock() - started, watch.used, error)
