"""Trying again, leaving alone, asking another."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from tests.backends.conftest import Notes, a_request
from typing_extensions import override

from antwort.backends import CircuitBreaker, Fallback, Guarded, ModelInfo, ModelRequest, Observed, Retrying, TurnSink
from antwort.backends.failures import FAILED, UNAUTHORIZED, UNAVAILABLE
from antwort.backends.resilience import LONGEST_WAIT, CircuitState
from antwort.backends.watch import WatchedSink, Wrapper, watched
from antwort.errors import (
    APIError,
    BadGatewayError,
    BadRequestError,
    GatewayTimeoutError,
    RateLimitError,
    ServiceUnavailableError,
)
from antwort.wire.usage import Usage

DOWN = ServiceUnavailableError("The backend 'local' is down.", code=UNAVAILABLE)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Server:
    """A backend that fails as told, one failure after the other, and then answers."""

    def __init__(self, *failures: BaseException, name: str = "local", begin: bool = False) -> None:
        self.name = name
        self.failures = list(failures)
        self.begin = begin
        self.asked: list[str] = []

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        self.asked.append(request.model)
        if self.begin:
            sink.text("Hel")
        if self.failures:
            raise self.failures.pop(0)
        sink.text(f"{self.name} says hello")
        sink.usage(Usage(1, output_tokens=2, total_tokens=3))
        sink.finish("stop")
        await sink.flush()

    async def models(self) -> Sequence[ModelInfo]:
        return [ModelInfo("m", self.name)]

    async def count_tokens(self, request: ModelRequest) -> int | None:
        self.asked.append(f"count {request.model}")
        return 7

    async def context_window(self, model: str) -> int | None:
        self.asked.append(f"window {model}")
        return 4096

    async def close(self) -> None:
        self.asked.append("closed")


def always(error: APIError, **options: object) -> Server:
    return Server(*[error] * 1000, **options)  # type: ignore[arg-type]


def retrying(server: Server, clock: Clock, retries: int = 2) -> Retrying:
    return Retrying(server, retries, sleep=clock.sleep, clock=clock, jitter=lambda _, most: most)


# --- trying again ---------------------------------------------------------------------------------------------------


async def test_a_failure_that_passes_is_not_noticed(notes: Notes) -> None:
    clock, server = Clock(), Server(DOWN, GatewayTimeoutError("slow"))
    await retrying(server, clock).run(a_request(), notes)
    assert notes.said() == "local says hello"
    assert len(server.asked) == 3
    assert clock.pauses == [0.5, 1.0]


async def test_a_failure_that_stays_is_raised_after_the_last_try(notes: Notes) -> None:
    clock, server = Clock(), always(DOWN)
    with pytest.raises(ServiceUnavailableError) as caught:
        await retrying(server, clock, retries=5).run(a_request(), notes)
    assert caught.value is DOWN
    assert len(server.asked) == 6
    assert clock.pauses == [0.5, 1.0, 2.0, 4.0, 8.0]


async def test_pauses_are_random_within_their_limit(notes: Notes) -> None:
    clock, limits = Clock(), list[tuple[float, float]]()

    def jitter(least: float, most: float) -> float:
        limits.append((least, most))
        return most / 4

    await Retrying(Server(DOWN, DOWN), 2, sleep=clock.sleep, jitter=jitter).run(a_request(), notes)
    assert limits == [(0.0, 0.5), (0.0, 1.0)]
    assert clock.pauses == [0.125, 0.25]


@pytest.mark.parametrize(
    "error", [BadRequestError("no"), BadGatewayError("x", code=FAILED), BadGatewayError("x", code=UNAUTHORIZED)]
)
async def test_a_failure_that_would_come_again_is_raised_at_once(notes: Notes, error: APIError) -> None:
    server = always(error)
    with pytest.raises(type(error)):
        await retrying(server, Clock()).run(a_request(), notes)
    assert len(server.asked) == 1


async def test_nothing_is_tried_again_once_the_answer_has_begun(notes: Notes) -> None:
    server = always(DOWN, begin=True)
    with pytest.raises(ServiceUnavailableError):
        await retrying(server, Clock()).run(a_request(), notes)
    assert len(server.asked) == 1
    assert notes.said() == "Hel"


async def test_no_retries_means_one_try(notes: Notes) -> None:
    server = always(DOWN)
    with pytest.raises(ServiceUnavailableError):
        await retrying(server, Clock(), retries=0).run(a_request(), notes)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "error", [RateLimitError("busy", retry_after=3.0), ServiceUnavailableError("x", headers={"retry-after": "3"})]
)
async def test_the_server_says_how_long_to_wait(notes: Notes, error: APIError) -> None:
    clock = Clock()
    await retrying(Server(error), clock).run(a_request(), notes)
    assert clock.pauses == [3.0]


async def test_a_wait_that_is_too_long_is_left_to_the_client(notes: Notes) -> None:
    clock, server = Clock(), always(RateLimitError("busy", retry_after=LONGEST_WAIT + 1))
    with pytest.raises(RateLimitError) as caught:
        await retrying(server, clock).run(a_request(), notes)
    assert caught.value.headers["retry-after"] == "31"
    assert clock.pauses == []


async def test_a_pause_beyond_the_deadline_is_not_begun(notes: Notes) -> None:
    clock, server = Clock(), always(DOWN)
    with pytest.raises(ServiceUnavailableError):
        await retrying(server, clock).run(a_request(deadline=clock.now + 0.6), notes)
    assert clock.pauses == [0.5]


async def test_being_cancelled_is_not_a_failure_to_try_again(notes: Notes) -> None:
    server = Server(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await retrying(server, Clock()).run(a_request(), notes)
    assert len(server.asked) == 1


# --- leaving alone --------------------------------------------------------------------------------------------------


async def fail(backend: Guarded, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(APIError):
            await backend.run(a_request(), Notes())


async def test_a_server_that_fails_too_often_is_left_alone(notes: Notes) -> None:
    clock, server = Clock(), always(DOWN)
    guarded = Guarded(server, CircuitBreaker(max_failures=3, rest=30, clock=clock))
    await fail(guarded, 3)
    assert guarded.breaker.state is CircuitState.OPEN
    clock.now += 10
    with pytest.raises(ServiceUnavailableError, match="'local' failed several times in a row") as caught:
        await guarded.run(a_request(), notes)
    assert "is down" in caught.value.message
    assert caught.value.headers["retry-after"] == "20"
    assert len(server.asked) == 3


async def test_a_success_forgets_the_failures_before_it() -> None:
    server = Server(DOWN, DOWN)
    guarded = Guarded(server, CircuitBreaker(max_failures=3))
    await fail(guarded, 2)
    await guarded.run(a_request(), Notes())
    server.failures = [DOWN, DOWN]
    await fail(guarded, 2)
    assert guarded.breaker.state is CircuitState.CLOSED


@pytest.mark.parametrize("error", [BadRequestError("x"), RateLimitError("x", retry_after=1)])
async def test_an_answer_that_refuses_is_no_failure_of_the_server(error: APIError) -> None:
    guarded = Guarded(always(error), CircuitBreaker(max_failures=1))
    await fail(guarded, 3)
    assert guarded.breaker.state is CircuitState.CLOSED


async def test_after_a_rest_one_request_tries_and_closes_the_circuit() -> None:
    clock, gate, asked = Clock(), asyncio.Event(), asyncio.Event()

    class Slow(Server):
        @override
        async def run(self, request: ModelRequest, sink: TurnSink) -> None:
            asked.set()
            await gate.wait()
            await super().run(request, sink)

    server = Server(DOWN)
    guarded = Guarded(server, CircuitBreaker(max_failures=1, rest=30, clock=clock))
    await fail(guarded)
    clock.now += 30
    guarded.backend = slow = Slow()
    first = asyncio.create_task(guarded.run(a_request(), Notes()))
    await asked.wait()
    await fail(guarded)  # the others are refused while one tries
    gate.set()
    await first
    assert len(slow.asked) == 1
    assert guarded.breaker.state is CircuitState.CLOSED


async def test_a_failed_try_after_a_rest_begins_another_rest() -> None:
    clock = Clock()
    guarded = Guarded(always(DOWN), CircuitBreaker(max_failures=3, rest=30, clock=clock))
    await fail(guarded, 3)
    clock.now += 30
    assert guarded.breaker.state is CircuitState.HALF_OPEN
    await fail(guarded)
    assert guarded.breaker.remaining() == 30


async def test_a_try_that_was_cancelled_leaves_the_next_one_to_somebody_else(notes: Notes) -> None:
    clock, server = Clock(), Server(DOWN, asyncio.CancelledError())
    guarded = Guarded(server, CircuitBreaker(max_failures=1, rest=30, clock=clock))
    await fail(guarded)
    clock.now += 30
    with pytest.raises(asyncio.CancelledError):
        await guarded.run(a_request(), Notes())
    await guarded.run(a_request(), notes)
    assert notes.said() == "local says hello"


async def test_an_answer_that_begins_closes_the_circuit_before_it_ends() -> None:
    clock = Clock()
    breaker = CircuitBreaker(max_failures=1, rest=30, clock=clock)
    seen: list[CircuitState] = []

    class Looking(Notes):
        @override
        async def flush(self) -> None:
            seen.append(breaker.state)

    guarded = Guarded(Server(DOWN), breaker)
    await fail(guarded)
    clock.now += 30
    await guarded.run(a_request(), Looking())
    assert seen == [CircuitState.CLOSED]


# --- asking another -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [DOWN, RateLimitError("x", retry_after=1), BadGatewayError("x", code=FAILED), GatewayTimeoutError("x")]
)
async def test_another_backend_answers_when_one_cannot(notes: Notes, error: APIError) -> None:
    other = Server(name="spare")
    await Fallback(always(error), other, "small").run(a_request(), notes)
    assert notes.said() == "spare says hello"
    assert other.asked == ["small"]


async def test_the_other_backend_is_asked_for_the_same_model_if_none_is_set(notes: Notes) -> None:
    other = Server(name="spare")
    await Fallback(always(DOWN), other).run(a_request(model="big"), notes)
    assert other.asked == ["big"]


async def test_a_refusal_is_not_passed_to_another_backend(notes: Notes) -> None:
    other = Server(name="spare")
    with pytest.raises(BadRequestError):
        await Fallback(always(BadRequestError("x")), other).run(a_request(), notes)
    assert other.asked == []


async def test_an_answer_that_has_begun_is_not_begun_elsewhere(notes: Notes) -> None:
    other = Server(name="spare")
    with pytest.raises(ServiceUnavailableError):
        await Fallback(always(DOWN, begin=True), other).run(a_request(), notes)
    assert other.asked == []


async def test_the_first_failure_counts_when_both_fail(notes: Notes) -> None:
    other = always(BadRequestError("too long for the small model"), name="spare")
    with pytest.raises(ServiceUnavailableError) as caught:
        await Fallback(always(DOWN), other).run(a_request(), notes)
    assert caught.value is DOWN


async def test_a_failure_of_the_other_counts_once_it_has_begun(notes: Notes) -> None:
    other = always(GatewayTimeoutError("x"), name="spare", begin=True)
    with pytest.raises(GatewayTimeoutError):
        await Fallback(always(DOWN), other).run(a_request(), notes)


# --- watching -------------------------------------------------------------------------------------------------------


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def request_started(self, backend: str, model: str) -> None:
        self.lines.append(("started", backend, model))

    def first_token(self, backend: str, model: str, seconds: float) -> None:
        self.lines.append(("begun", backend, model, seconds))

    def finished(
        self, backend: str, model: str, seconds: float, usage: Usage | None, error: BaseException | None
    ) -> None:
        self.lines.append(("finished", seconds, usage.total_tokens if usage else None, error))


async def test_an_observer_sees_every_try(notes: Notes) -> None:
    log, clock = Log(), Clock()
    observed = Observed(Server(DOWN), log, clock=clock)
    await Retrying(observed, 1, sleep=clock.sleep, clock=clock, jitter=lambda _, most: most).run(a_request(), notes)
    assert log.lines == [
        ("started", "local", "m"),
        ("finished", 0.0, None, DOWN),
        ("started", "local", "m"),
        ("begun", "local", "m", 0.0),
        ("finished", 0.0, 3, None),
    ]


async def test_an_observer_sees_what_was_given_up(notes: Notes) -> None:
    log = Log()
    with pytest.raises(asyncio.CancelledError):
        await Observed(Server(asyncio.CancelledError()), log).run(a_request(), notes)
    assert isinstance(log.lines[-1][-1], asyncio.CancelledError)


def pieces(sink: TurnSink) -> list[Callable[[], None]]:
    """Return one way each to feed a sink."""
    return [
        partial(sink.text, "a"),
        partial(sink.text, "a", [{"token": "a"}]),
        partial(sink.reasoning, "a"),
        partial(sink.refusal, "a"),
        partial(sink.tool_call, 0, call_id="c", name="n", arguments="{}"),
        partial(sink.usage, Usage()),
        partial(sink.finish, "stop"),
    ]


@pytest.mark.parametrize("piece", range(7))
def test_every_piece_begins_a_turn_and_is_passed_on(piece: int) -> None:
    plain, behind, begun = Notes(), Notes(), list[bool]()
    watch = watched(behind)
    watch.listen(lambda: begun.append(True))
    pieces(plain)[piece]()
    pieces(watch)[piece]()
    pieces(watch)[piece]()
    assert begun == [True]
    assert behind.calls == plain.calls * 2


def test_a_sink_is_watched_once() -> None:
    watch = watched(Notes())
    assert watched(watch) is watch
    assert isinstance(watch, WatchedSink)


async def test_a_wrapper_passes_everything_on(notes: Notes) -> None:
    server = Server()
    wrapper = Wrapper(server)
    assert wrapper.name == "local"
    await wrapper.run(a_request(), notes)
    assert [info.id for info in await wrapper.models()] == ["m"]
    await wrapper.close()
    assert server.asked == ["m", "closed"]


async def test_all_wrappers_pass_counts_and_windows_through() -> None:
    server, other, clock = Server(), Server(name="other"), Clock()
    inner = Retrying(Observed(server, Log()), 2, sleep=clock.sleep, clock=clock)
    backend = Fallback(Guarded(inner, CircuitBreaker(clock=clock)), other)
    assert await backend.count_tokens(a_request(model="llama")) == 7
    assert await backend.context_window("llama") == 4096
    assert (server.asked, other.asked) == (["count llama", "window llama"], [])


async def test_a_server_that_is_left_alone_is_not_asked_to_count() -> None:
    server, clock = Server(), Clock()
    breaker = CircuitBreaker(max_failures=1, clock=clock)
    backend = Guarded(server, breaker)
    breaker.failure()
    assert await backend.count_tokens(a_request()) is None
    assert server.asked == []


async def test_summaries_and_sealed_thoughts_begin_a_turn_too() -> None:
    summed_up, sealed = Notes(), Notes()
    watched(summed_up).summary("So.")
    watch = watched(sealed)
    watch.opaque("x1")
    assert watch.begun
    assert (summed_up.calls, sealed.calls) == ([("summary", "So.")], [("opaque", "x1")])
