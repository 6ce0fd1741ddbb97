"""`ScriptedBackend`: a model that says what the script says, and notices whatever else it is asked."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from antwort.backends.base import ModelInfo, ModelRequest, TurnSink
from antwort.errors import (
    APIError,
    BadGatewayError,
    BadRequestError,
    ConflictError,
    DefinitionError,
    GatewayTimeoutError,
    InternalServerError,
    NotFoundError,
    RateLimitError,
    ServiceUnavailableError,
)
from antwort.testing.chat import count_words
from antwort.testing.playback import Closed, Failed, TurnPiece, logprob, perform
from antwort.testing.script import Failure, Script, Turn
from antwort.testing.script_file import read_script

_ERRORS: dict[int, type[APIError]] = {
    kind.status: kind
    for kind in (
        BadRequestError,
        NotFoundError,
        ConflictError,
        InternalServerError,
        BadGatewayError,
        ServiceUnavailableError,
        GatewayTimeoutError,
    )
}


class ScriptedBackend:
    """A model backend that plays a script, for tests.

        with ScriptedBackend([turn(calls=[call("add", a=1, b=2)]), turn(["It is ", "3."])]) as model:
            ...  # use it where a backend is wanted
        assert model.requests[1].items[-1]["type"] == "function_call_output"

    It is strict. A call that the script does not foresee, or that is not as a step expects, raises an APIError with
    status 500 to the caller; and that, like a step that was never asked for, makes `assert_done()` fail, which the end
    of the `with` block calls. A step may be plain text. Each delta is fed and flushed by itself, unless the step has a
    `burst`; a request without `stream` gets all in one flush.

    With a `tokenizer`, such as `count_words`, it counts tokens. With a `context_window` it tells how many it takes, and
    refuses a request with more; such a request plays no step. Without a tokenizer words are counted for that.
    """

    def __init__(
        self,
        steps: Iterable[Turn | str],
        *,
        name: str = "scripted",
        models: Sequence[str] = ("scripted",),
        tokenizer: Callable[[ModelRequest], int] | None = None,
        context_window: int | None = None,
    ) -> None:
        self.name = name
        self.script = Script(steps)
        self.cancelled: list[int] = []
        """The numbers of the steps that were cancelled while they ran."""
        self.closed = False
        self._models = tuple(models)
        self._tokenizer = tokenizer
        self._window = context_window
        for number, step in enumerate(self.script.steps, 1):
            if step.raw is not None:
                raise DefinitionError(f"step {number}: raw bytes only travel over HTTP; use ScriptServer")

    @classmethod
    def from_yaml(cls, path: str | Path, *, name: str = "scripted") -> Self:
        """Read the script from a file; `antwort.testing.script_file` describes the format."""
        file = read_script(path)
        return cls(file.steps, name=name, models=file.models)

    @property
    def requests(self) -> list[ModelRequest]:
        """Every request, in order of arrival."""
        return self.script.requests

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        """Play the step that answers the request."""
        self._check_window(request)
        number, step = self.script.take(request)
        try:
            await self._play(step, number, request, sink)
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        except Failed as failed:
            raise self._error(failed.failure) from None
        except Closed:
            raise BadGatewayError(f"Backend '{self.name}' closed the connection.") from None

    async def models(self) -> Sequence[ModelInfo]:
        """List the models it was given."""
        return [ModelInfo(model, self.name, context_window=self._window) for model in self._models]

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Count with the tokenizer, if there is one."""
        return None if self._tokenizer is None else self._tokenizer(request)

    async def context_window(self, _model: str) -> int | None:
        """Return the window it was given."""
        return self._window

    async def close(self) -> None:
        """Take note that nobody needs it any more."""
        self.closed = True

    def assert_done(self) -> None:
        """Raise a ScriptError unless every step was played and nothing else was asked."""
        self.script.assert_done()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.script.close_block(error)

    def _check_window(self, request: ModelRequest) -> None:
        count = (self._tokenizer or count_words)(request) if self._window is not None else 0
        if self._window is not None and count > self._window:
            self.script.refuse(request)
            raise BadRequestError(
                f"The conversation is too long for the model: it has {count} tokens, of {self._window}.",
                param="input",
                code="context_length_exceeded",
            )

    async def _play(self, step: Turn, number: int, request: ModelRequest, sink: TurnSink) -> None:
        whole: list[TurnPiece] = []
        async with contextlib.aclosing(perform(step)) as bursts:
            async for burst in bursts:
                if request.stream:
                    self._feed(burst, step, number, request, sink)
                    await sink.flush()
                else:
                    whole += burst
        self._feed(whole, step, number, request, sink)
        if step.usage is not None:
            sink.usage(step.usage)
        sink.finish(step.finish)
        await sink.flush()

    def _feed(self, pieces: list[TurnPiece], step: Turn, number: int, request: ModelRequest, sink: TurnSink) -> None:
        for piece in pieces:
            if piece.kind == "text":
                wanted = step.logprobs and request.top_logprobs is not None
                sink.text(piece.delta, [logprob(piece.delta)] if wanted else None)
            elif piece.kind == "reasoning":
                sink.reasoning(piece.delta)
            elif piece.kind == "summary":
                sink.summary(piece.delta)
            elif piece.kind == "opaque":
                sink.opaque(piece.delta)
            elif piece.kind == "refusal":
                sink.refusal(piece.delta)
            elif piece.call is not None:
                call_id = piece.call.call_id or f"call_{number}_{piece.index}"
                sink.tool_call(piece.index, call_id=call_id, name=piece.call.name, arguments=piece.delta)
            else:
                sink.tool_call(piece.index, arguments=piece.delta)

    def _error(self, failure: Failure) -> APIError:
        message = f"Backend '{self.name}': {failure.message}"
        if failure.status == 429:
            return RateLimitError(message, retry_after=float(failure.headers.get("retry-after", 1)))
        error = _ERRORS.get(failure.status, APIError)(message, code=failure.code, headers=failure.headers)
        error.status = failure.status
        return error
