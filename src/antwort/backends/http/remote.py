"""What all model servers behind HTTP have in common: a request for each turn, an answer that is a stream or not."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from itertools import islice
from traceback import walk_tb
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from antwort.backends.base import EncodedTools, ModelInfo, ModelRequest, TurnSink, quick_flush
from antwort.backends.errors import (
    BROKEN,
    DEADLINE,
    DISCONNECTED,
    BrokenOffError,
    OddAnswerError,
    excerpt,
    no_list,
    reply_error,
)
from antwort.backends.http.sse import EventSplitter
from antwort.backends.http.transport import AnswerLimits, Reply, Timeouts, Transport
from antwort.backends.models import KnownModels, read_models
from antwort.backends.passages import unmade
from antwort.concurrency.deadline import Deadline
from antwort.concurrency.large_work import LargeWork, is_large
from antwort.concurrency.slots import Queue
from antwort.config import BackendConfig
from antwort.errors import APIError, BadGatewayError, BadRequestError, GatewayTimeoutError
from antwort.http1.client import Parts
from antwort.types import JSON

logger = logging.getLogger(__name__)


MAX_ERROR = 64 * 1024
LIST_BYTES = 4 * 1024 * 1024
"""Bytes of a list of models."""
LIST_TIMEOUT = 10.0
"""Seconds to wait for the list of models, which is never worth more."""
PROBE_TIMEOUT = 3.0
"""Seconds to wait for a sign of life."""
COPIED = 16 * 1024
"""Bytes of tools that are copied into a body rather than sent beside it."""
SLICE = 256
"""Events that are read before others get their turn."""
_FEW = 3
"""Reads after which what comes is taken as it comes: an answer in few pieces is over before that is worth while."""
PORTION = 32 * 1024
"""Bytes that are taken apart before others get their turn: they hold some 200 events, or thousands of lines."""
_JSON = "application/json"
_ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, msgspec.MsgspecError)
"""What a reader may raise that meets something it does not expect: the answer is odd, whatever else is wrong."""
CLOSE_TIMEOUT = 0.25
"""Seconds to wait for the end of a stream whose last event is there, so that its connection can be used again."""

Fields: TypeAlias = Callable[[ModelRequest], JSON]
"""Makes of a turn the fields of the body that asks for it."""


class AnswerReader(Protocol):
    """Reads one answer and feeds a sink."""

    @property
    def begun(self) -> bool:
        """Whether the model has said anything yet."""

    @property
    def done(self) -> bool:
        """Whether the server said that nothing follows."""

    def take(self, payload: bytes) -> None:
        """Take the data of an event."""

    def pass_on(self) -> None:
        """Feed what was taken and held back until all that came together was taken."""

    def take_whole(self, body: bytes) -> None:
        """Take an answer that came as a whole."""

    def end(self) -> None:
        """Feed what is known only at the end; an answer that is none is a BadGatewayError."""


class EventReader(Protocol):
    """Cuts a stream into events, wherever it was split."""

    def __init__(self, limits: AnswerLimits) -> None: ...

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take what arrived and return the data of every event that is complete with it."""

    def end(self) -> list[bytes]:
        """Return what the end of the stream has left."""


class RemoteBackend(ABC):
    """One server. Each turn is one request; nothing is tried again here.

    What a subclass adds is what the server speaks: where a turn is asked for, how, and how its answer is read.
    """

    event_reader: ClassVar[type[EventReader]] = EventSplitter
    """What cuts its streams into events: server-sent events, if a subclass does not say otherwise."""
    models_path: ClassVar[str] = "/models"
    """Where its models are listed, in OpenAI's shape or in Ollama's."""
    reads_any_file: ClassVar[bool] = False
    """Whether it takes files of any kind as they are, by URL as well."""
    reads_pdf: ClassVar[bool] = False
    """Whether it takes PDF files as they are, if its configuration does not say."""
    passes_through: ClassVar[bool] = True
    """Whether it has the endpoints of OpenAI's API to which requests are passed through as they are."""

    def __init__(self, name: str, config: BackendConfig, path: str, queue: Queue | None = None) -> None:
        self.name = name
        self._path = path
        self.limits = AnswerLimits.of(name, config)
        self.transport = Transport(name, config, queue)
        self._patient = replace(self.transport.timeouts, first_byte=None)
        # Connections of their own, for a list and a sign of life: those of the pool may all be waiting for a server
        # that hangs.
        self._probes = Transport(name, config.model_copy(update={"max_connections": 2}))
        self._window = config.context_window
        self.large_work = LargeWork()
        self._known = KnownModels(name, self.models)

    @abstractmethod
    def body(self, request: ModelRequest) -> JSON:
        """Return the body that asks for a turn."""

    @abstractmethod
    def reader(self, sink: TurnSink, alternatives: int | None) -> AnswerReader:
        """Return a reader for one answer, of which log probabilities with so many alternatives are wanted, or none."""

    def read_whole(self, body: bytes, sink: TurnSink, alternatives: int | None) -> None:
        """Read an answer that came as a whole, to its end."""
        turn = self.reader(sink, alternatives)
        turn.take_whole(body)
        turn.end()

    @abstractmethod
    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Have the server count the input tokens of a turn; None if it does not."""

    def run(self, request: ModelRequest, sink: TurnSink, fields: Fields | None = None) -> Coroutine[Any, Any, None]:
        """Perform one turn, asked for by these fields or as usual.

        A passed deadline is a GatewayTimeoutError with the code `deadline_exceeded`.
        """
        if request.deadline is None:
            return self._exchange(request, sink, fields)
        return self._exchange_until(request.deadline, request, sink, fields)

    async def _exchange_until(
        self, deadline: float, request: ModelRequest, sink: TurnSink, fields: Fields | None
    ) -> None:
        left = max(0.0, deadline - time.monotonic())
        limit = asyncio.timeout(left)
        try:
            async with limit:
                await self._exchange(request, sink, fields)
        except TimeoutError:
            if not limit.expired():
                raise
            raise GatewayTimeoutError(
                f"The answer of the backend '{self.name}' was not complete within the {left:.1f} s that were left to"
                " the request (`engine.deadline`).",
                code=DEADLINE,
            ) from None

    async def models(self) -> Sequence[ModelInfo]:
        """List the models it serves."""
        try:
            return await self._models()
        except APIError as error:
            self.transport.secrets.mask(error)
            raise

    async def _models(self) -> Sequence[ModelInfo]:
        document = await self._listed(self.models_path)
        models = tuple(islice(read_models(document, self.name), self.limits.models))
        self._known.learn(models)
        return models

    async def _listed(self, path: str) -> Any:
        """Return a list of models as the server writes it."""
        times = self.transport.timeouts
        limited = Timeouts(times.connect, min(LIST_TIMEOUT, times.first_byte or LIST_TIMEOUT), times.chunk)
        reply = await self._probes.get(path, timeouts=limited)
        try:
            if reply.status == 404:
                raise no_list(self.name, await reply.head(MAX_ERROR))
            if reply.status != 200:
                raise await self._refusal(reply, "")
            body = await reply.read(LIST_BYTES)
            self.limits.check_values(body)
        finally:
            reply.abort()
        try:
            return msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise BadGatewayError(
                f"The list of models of the backend '{self.name}' is no JSON: {excerpt(body)}", code=BROKEN
            ) from None

    async def is_there(self) -> bool:
        """Ask the server for a sign of life, with nothing of anybody's request. Any answer is one, but 5xx."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                reply = await self._probes.get(self.models_path)
        except (APIError, TimeoutError) as error:
            logger.debug("No sign of life of the backend '%s': %s", self.name, error)
            return False
        reply.abort()
        return reply.status < 500

    async def context_window(self, model: str) -> int | None:
        """Return how many tokens a model takes: as configured, else as the list of models says."""
        if self._window is not None:
            return self._window
        await self._known.update()
        return self._known.context_window(model)

    async def close(self) -> None:
        """Give connections back."""
        await self._known.close()
        await self.transport.close()
        await self._probes.close()

    async def _exchange(self, request: ModelRequest, sink: TurnSink, fields: Fields | None) -> None:
        if not request.short and is_large(unmade(request.items)):
            body = await self.large_work.run(_encoded_in_pieces, fields or self.body, request)
        else:
            body = encode_parts(self.body(request) if fields is None else fields(request))
        times = None if request.stream else self._patient
        reply = await self.transport.post(self._path, body, request.headers, times, request.tenant)
        del body  # the answer may take long, and this may be much
        try:
            if reply.status != 200:
                raise await self._refusal(reply, request.model)
            # Nearly all that is not asked for as a stream says of itself that it is JSON.
            if reply.headers.get("content-type") != _JSON and _is_stream(reply, asked=request.stream):
                await self._stream(reply, sink, request.top_logprobs)
            else:
                whole = reply.whole() or await reply.read(self.limits.event_bytes)
                self.limits.check_values(whole)
                # Whoever has asked sends what is left, with what it says to it.
                self.read_whole(whole, sink, request.top_logprobs)
        except APIError as error:
            self.transport.secrets.mask(error)
            if error.code == DISCONNECTED:
                raise BrokenOffError(error.message) from error
            raise
        except _ODD as error:
            if _passed_through(error, sink):
                raise
            logger.exception("The answer of the backend '%s' could not be read.", self.name)
            raise OddAnswerError(f"The backend '{self.name}' sent an answer that could not be read.") from None
        finally:
            # Nothing remains of a turn that was cancelled or failed: the server must stop working on it.
            reply.abort()

    async def _stream(self, reply: Reply, sink: TurnSink, alternatives: int | None) -> None:
        turn = self.reader(sink, alternatives)
        events = self.event_reader(self.limits)
        feed, chunk, flush = events.feed, reply.chunk, sink.flush
        flush_now, at_once = quick_flush(sink), None
        patient, reads = True, 0
        while data := await chunk():
            if len(data) > PORTION:  # a long burst does not keep everybody else waiting
                for start in range(0, len(data), PORTION):
                    await _take_slices(turn, feed(data[start : start + PORTION]), flush)
            else:
                _take(turn, feed(data))
            if turn.done:
                break
            if patient and turn.begun:
                # Until the model begins it may think in silence; from then on pauses are short.
                patient = False
                reply.limit_silence(self.transport.timeouts.chunk)
            await flush()
            reads += 1
            if flush_now is None or reads < _FEW or patient:
                continue
            at_once = at_once or _taking(turn, feed, flush_now)
            if await _take_at_once(reply, turn, at_once, flush):
                break
        if not turn.done:
            await _take_slices(turn, events.end(), flush)
        turn.end()  # whoever has asked sends what is left, with what it says to it
        await _part(reply)

    async def _refusal(self, reply: Reply, model: str) -> APIError:
        return reply_error(self.name, model, reply.status, reply.headers, await reply.head(MAX_ERROR))


def _taking(
    turn: AnswerReader, feed: Callable[[bytes], list[bytes]], flush_now: Callable[[], bool]
) -> Callable[[bytes], bool]:
    """Return what takes a piece of a stream and sends what comes of it; it wants more as long as nobody has to wait."""
    take = turn.take

    def take_at_once(data: bytes) -> bool:
        try:
            for payload in feed(data):
                take(payload)
        finally:  # what came before an error was said
            turn.pass_on()
        return not turn.done and flush_now()

    return take_at_once


async def _take_at_once(
    reply: Reply, turn: AnswerReader, taker: Callable[[bytes], bool], flush: Callable[[], Awaitable[None]]
) -> bool:
    """Have what comes taken as it comes, as far as that can be; tell whether the answer has ended with it."""
    await reply.hand_over(taker)
    if not turn.done:
        await flush()
    return turn.done


def _take(turn: AnswerReader, payloads: Sequence[bytes]) -> None:
    try:
        for payload in payloads:
            turn.take(payload)
    finally:  # what came before an error was said
        turn.pass_on()


async def _take_slices(turn: AnswerReader, payloads: Sequence[bytes], flush: Callable[[], Awaitable[None]]) -> None:
    """Take events, and let others have their turn in between."""
    for start in range(0, len(payloads), SLICE):
        _take(turn, payloads[start : start + SLICE])
        await flush()
        await asyncio.sleep(0)
    if not payloads:
        await asyncio.sleep(0)


def _passed_through(error: BaseException, sink: TurnSink) -> bool:
    """Tell whether it was the sink that raised an error, which is no failure of the model server."""
    frames = walk_tb(error.__traceback__)
    return any(frame.f_locals.get("self") is sink for frame, _ in frames)


def encode_body(body: JSON, encode: Callable[[JSON], bytes] = msgspec.json.encode) -> bytes:
    """Write a body as JSON."""
    try:
        return encode(body)
    except UnicodeEncodeError:
        raise BadRequestError("The request holds text that is not valid Unicode.", param="input") from None
    except RecursionError:  # what can just be read may be too deep to be written
        raise BadRequestError("The request is nested too deeply.") from None


def encode_parts(body: JSON, encode: Callable[[JSON], bytes] = msgspec.json.encode) -> bytes | Parts:
    """Write a body as JSON; in parts if it has so many tools that are kept encoded that they are better not copied."""
    tools = body.get("tools")
    if not isinstance(tools, EncodedTools) or tools.size <= COPIED:
        return encode_body(body, encode)
    others = body.copy()
    del others["tools"]
    begin = encode_body(others, encode)[:-1]
    return [b'%s,"tools":[' % begin if others else b'{"tools":[', *tools.to_end]


def _encoded_in_pieces(fields: Fields, request: ModelRequest) -> bytes | Parts:
    return encode_parts(fields(request), in_pieces)


def in_pieces(body: JSON) -> bytes:
    """Write a body as JSON on a thread: no step of it takes so long that others would have to wait."""
    return b"".join(_pieces(body))


def _pieces(body: JSON) -> Iterator[bytes]:
    """Yield a body field by field, and lists element by element."""
    yield b"{"
    for number, (name, value) in enumerate(body.items()):
        yield b"%s%s:" % (b"," if number else b"", msgspec.json.encode(name))
        if not isinstance(value, list) or not value:
            yield msgspec.json.encode(value)
            continue
        for index, element in enumerate(value):
            yield b"," if index else b"["
            yield msgspec.json.encode(element)
        yield b"]"
    yield b"}"


async def _part(reply: Reply) -> None:
    """Read what is left of a stream whose last event is there."""
    if reply.is_read:
        return
    try:
        with Deadline(CLOSE_TIMEOUT):
            while await reply.chunk():
                pass
    except (TimeoutError, APIError):
        reply.abort()


def _is_stream(reply: Reply, *, asked: bool) -> bool:
    """Tell how an answer came; some servers do not stream although asked to, or always."""
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return True
    return asked and kind not in {_JSON, "text/html"}
