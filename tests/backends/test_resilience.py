"""Trying again, leaving alone, asking another."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from tests.backends.conftest import Notes, a_request, retrying, wait_until_examined
from typing_extensions import override

from antwort.backends import CircuitBreaker, Fallback, GuardedBackend, ModelInfo, ModelRequest, Retries, TurnSink
from antwort.backends.base import BackendWrapper, WholeTurn
from antwort.backends.errors import BROKEN, DEADLINE, DISCONNECTED, FAILED, UNAUTHORIZED, UNAVAILABLE, StalledError
from antwort.backends.resilience import LONGEST_WAIT, WatchedSink, watched
from antwort.errors import (
    APIError,
    BadGatewayError,
    BadRequestError,
    GatewayTimeoutError,
    RateLimitError,
    ServiceUnavailableError,
)
from antwort.wire.responses import Usage

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


def at_times(clock: Clock, most: int = 2) -> Retries:
    return Retries(most, sleep=clock.sleep, clock=clock, jitter=lambda _, most: most)


# --- trying again ---------------------------------------------------------------------------------------------------


async def test_a_failure_that_passes_is_not_noticed(notes: Notes) -> None:
    clock, server = Clock(), Server(DOWN, BadGatewayError("cut off", code=DISCONNECTED))
    await retrying(server, at_times(clock)).run(a_request(), notes)
    assert notes.said() == "local says hello"
    assert len(server.asked) == 3
    assert clock.pauses == [0.5, 1.0]


async def test_a_failure_that_stays_is_raised_after_the_last_try(notes: Notes) -> None:
    clock, server = Clock(), always(DOWN)
    with pytest.raises(ServiceUnavailableError) as caught:
        await retrying(server, at_times(clock, 5)).run(a_request(), notes)
    assert caught.value is DOWN
    assert len(server.asked) == 6
    assert clock.pauses == [0.5, 1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(
    "error",
    [
        ServiceUnavailableError("It takes nothing now.", code=UNAVAILABLE),
        RateLimitError("It takes nothing now", retry_after=0.5),
    ],
)
async def test_a_server_that_takes_nothing_now_is_told_to_the_log_with_each_try(
    notes: Notes, caplog: pytest.LogCaptureFixture, error: APIError
) -> None:
    for retries, ends in ((1, ["; trying again in 0.5 s", "; not tried again"]), (0, ["; not tried again"])):
        caplog.clear()
        with pytest.raises(type(error)):
            await retrying(always(error), at_times(Clock(), retries)).run(a_request(), notes)
        assert caplog.messages == [f"It takes nothing now{end}" for end in ends]


async def test_pauses_are_random_within_their_limit(notes: Notes) -> None:
    clock, limits = Clock(), list[tuple[float, float]]()

    def jitter(least: float, most: float) -> float:
        limits.append((least, most))
        return most / 4

    retries = Retries(2, sleep=clock.sleep, jitter=jitter)
    await retrying(Server(DOWN, DOWN), retries).run(a_request(), notes)
    assert limits == [(0.0, 0.5), (0.0, 1.0)]
    assert clock.pauses == [0.125, 0.25]


@pytest.mark.parametrize(
    "error", [BadRequestError("no"), BadGatewayError("x", code=FAILED), BadGatewayError("x", code=UNAUTHORIZED)]
)
async def test_a_failure_that_would_come_again_is_raised_at_once(notes: Notes, error: APIError) -> None:
    server = always(error)
    with pytest.raises(type(error)):
        await retrying(server, at_times(Clock())).run(a_request(), notes)
    assert len(server.asked) == 1


async def test_nothing_is_tried_again_once_the_answer_has_begun(notes: Notes) -> None:
    server = always(DOWN, begin=True)
    with pytest.raises(ServiceUnavailableError):
        await retrying(server, at_times(Clock())).run(a_request(), notes)
    assert len(server.asked) == 1
    assert notes.said() == "Hel"


async def test_no_retries_means_one_try(notes: Notes) -> None:
    server = always(DOWN)
    with pytest.raises(ServiceUnavailableError):
        await retrying(server, at_times(Clock(), 0)).run(a_request(), notes)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "error", [RateLimitError("busy", retry_after=3.0), ServiceUnavailableError("x", headers={"retry-after": "3"})]
)
async def test_the_server_says_how_long_to_wait(notes: Notes, error: APIError) -> None:
    clock = Clock()
    await retrying(Server(error), at_times(clock)).run(a_request(), notes)
    assert clock.pauses == [3.0]


async def test_a_wait_that_is_too_long_is_left_to_the_client(notes: Notes) -> None:
    clock, server = Clock(), always(RateLimitError("busy", retry_after=LONGEST_WAIT + 1))
    with pytest.raises(RateLimitError) as caught:
        await retrying(server, at_times(clock)).run(a_request(), notes)
    assert caught.value.headers["retry-after"] == "31"
    assert clock.pauses == []


async def test_a_pause_beyond_the_deadline_is_not_begun(notes: Notes) -> None:
    clock, server = Clock(), always(DOWN)
    with pytest.raises(ServiceUnavailableError):
        await retrying(server, at_times(clock)).run(a_request(deadline=clock.now + 0.6), notes)
    assert clock.pauses == [0.5]


async def test_being_cancelled_is_not_a_failure_to_try_again(notes: Notes) -> None:
    server = Server(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await retrying(server, at_times(Clock())).run(a_request(), notes)
    assert len(server.asked) == 1


# --- leaving alone --------------------------------------------------------------------------------------------------


class Probes:
    """What is asked for a sign of life, and how long it is left alone in between; the test takes the steps."""

    def __init__(self, *alive: bool | Exception) -> None:
        self.answers = list(alive)
        self.pauses: list[float] = []
        self.asked = asyncio.Event()
        self.resting = asyncio.Event()
        self.rested = asyncio.Event()

    async def probe(self) -> bool:
        self.asked.set()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.resting.set()
        await self.rested.wait()
        self.rested.clear()

    async def step(self) -> None:
        """Let it try once more, and wait until it rests again."""
        self.resting.clear()
        self.rested.set()
        await self.resting.wait()

    def breaker(self, max_failures: int = 1) -> CircuitBreaker:
        return CircuitBreaker(
            "local", self.probe, max_failures=max_failures, sleep=self.sleep, jitter=lambda _, most: most
        )


async def fail(backend: GuardedBackend, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(APIError):
            await backend.run(a_request(), Notes())


async def test_a_server_that_is_away_is_left_alone_until_a_probe_is_answered(notes: Notes) -> None:
    probes, server = Probes(False, False, True), always(DOWN)
    guarded = GuardedBackend(server, probes.breaker(max_failures=3))
    await fail(guarded, 3)
    await probes.resting.wait()
    assert guarded.breaker.is_open
    with pytest.raises(ServiceUnavailableError, match="'local' cannot be reached at the moment") as caught:
        await guarded.run(a_request(), notes)
    assert caught.value.code == UNAVAILABLE
    assert caught.value.headers["retry-after"] == "1"
    assert len(server.asked) == 3
    await probes.step()
    probes.rested.set()
    await wait_until_examined(guarded.breaker)
    server.failures.clear()
    await guarded.run(a_request(), notes)
    assert notes.said() == "local says hello"


async def test_a_probe_that_breaks_is_not_the_last(notes: Notes, caplog: pytest.LogCaptureFixture) -> None:
    probes, server = Probes(False, TypeError("odd"), True), always(DOWN)
    guarded = GuardedBackend(server, probes.breaker())
    await fail(guarded)
    await probes.resting.wait()
    await probes.step()
    assert guarded.breaker.is_open
    assert "'local' could not be asked for a sign of life" in caplog.text
    probes.rested.set()
    await wait_until_examined(guarded.breaker)
    server.failures.clear()
    await guarded.run(a_request(), notes)
    assert notes.said() == "local says hello"


async def test_nobody_is_told_what_a_server_said_to_another(notes: Notes) -> None:
    probes = Probes(False)
    guarded = GuardedBackend(
        always(ServiceUnavailableError("busy with 'my secret'", code=UNAVAILABLE)), probes.breaker()
    )
    await fail(guarded)
    await probes.resting.wait()
    with pytest.raises(ServiceUnavailableError) as caught:
        await guarded.run(a_request(), notes)
    assert "secret" not in repr((caught.value.envelope(), caught.value.__cause__, caught.value.__context__))
    await guarded.close()


async def test_failures_of_requests_do_not_open_the_breaker_of_a_server_that_is_there() -> None:
    probes, server = Probes(True, True), always(DOWN)
    guarded = GuardedBackend(server, probes.breaker(max_failures=3))
    for _ in range(2):
        await fail(guarded, 3)
        await wait_until_examined(guarded.breaker)
        assert not guarded.breaker.is_open
    assert probes.answers == []
    assert len(server.asked) == 6


@pytest.mark.parametrize(
    "error",
    [
        BadRequestError("x"),
        RateLimitError("x", retry_after=1),
        BadGatewayError("x", code=FAILED),
        BadGatewayError("x", code=BROKEN),
        BadGatewayError("x", code=UNAUTHORIZED),
        GatewayTimeoutError("x", code=DEADLINE),
    ],
)
async def test_an_answer_that_speaks_of_the_request_raises_no_suspicion(error: APIError) -> None:
    probes = Probes()
    guarded = GuardedBackend(always(error), probes.breaker())
    await fail(guarded, 3)
    assert not guarded.breaker.examining
    assert not guarded.breaker.is_open


async def test_a_success_forgets_the_failures_before_it() -> None:
    server, probes = Server(DOWN, DOWN), Probes()
    guarded = GuardedBackend(server, probes.breaker(max_failures=3))
    await fail(guarded, 2)
    await guarded.run(a_request(), Notes())
    server.failures = [DOWN, DOWN]
    await fail(guarded, 2)
    assert not guarded.breaker.examining


async def test_a_server_that_stays_away_is_asked_ever_less_often_but_never_given_up() -> None:
    probes = Probes(*[False] * 7)
    guarded = GuardedBackend(always(DOWN), probes.breaker())
    await fail(guarded)
    await probes.resting.wait()
    for _ in range(5):
        await probes.step()
    assert probes.pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    with pytest.raises(ServiceUnavailableError) as caught:
        await guarded.run(a_request(), Notes())
    assert caught.value.headers["retry-after"] == "5"
    await guarded.close()


async def test_one_probe_runs_however_many_requests_fail() -> None:
    probes = Probes(False)
    guarded = GuardedBackend(always(DOWN), probes.breaker())
    guarded.breaker.note_failure()
    guarded.breaker.note_failure()
    await probes.resting.wait()
    guarded.breaker.note_failure()
    assert probes.answers == []
    await guarded.close()


async def test_an_answer_that_begins_closes_the_breaker_before_it_ends() -> None:
    probes, gate, asked = Probes(False, False), asyncio.Event(), asyncio.Event()
    breaker = probes.breaker()
    seen: list[bool] = []

    class Slow(Server):
        @override
        async def run(self, request: ModelRequest, sink: TurnSink) -> None:
            asked.set()
            await gate.wait()
            seen.append(breaker.is_open)
            await super().run(request, sink)

    class Looking(Notes):
        @override
        async def flush(self) -> None:
            seen.append(breaker.is_open)

    guarded = GuardedBackend(Slow(), breaker)
    under_way = asyncio.create_task(guarded.run(a_request(), Looking()))
    await asked.wait()
    breaker.note_failure()
    await probes.resting.wait()
    gate.set()
    await under_way
    assert seen == [True, False]
    probes.rested.set()
    await wait_until_examined(breaker)
    assert len(probes.pauses) == 1


async def test_closing_a_backend_ends_its_probe() -> None:
    probes = Probes(False)
    server = always(DOWN)
    guarded = GuardedBackend(server, probes.breaker())
    await fail(guarded)
    await probes.resting.wait()
    await guarded.close()
    assert not guarded.breaker.examining
    guarded.breaker.note_failure()  # of a request that was under way
    assert not guarded.breaker.examining
    assert server.asked[-1] == "closed"


# --- what the sink raises -------------------------------------------------------------------------------------------


class Unwritable(Notes):
    """A sink whose database is away: it takes notes and cannot pass them on."""

    def __init__(self, *, at: str = "flush") -> None:
        super().__init__()
        self.error = ServiceUnavailableError("The database is away.", code=UNAVAILABLE)
        self.at = at

    @override
    def finish(self, reason: str) -> None:
        if self.at == "finish":
            raise self.error

    @override
    async def flush(self) -> None:
        raise self.error


class Early(Server):
    """A server that sends nothing at first, of which the sink is told too."""

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        self.asked.append(request.model)
        await sink.flush()
        await super().run(request, sink)


@pytest.mark.parametrize("server", [Server(), Early()], ids=["begun", "not begun"])
@pytest.mark.parametrize("at", ["flush", "finish"])
async def test_what_the_sink_raises_is_no_failure_of_the_server(server: Server, at: str) -> None:
    clock, probes, other = Clock(), Probes(), Server(name="spare")
    server.asked.clear()
    guarded = GuardedBackend(server, probes.breaker(), at_times(clock))
    sink = Unwritable(at=at)
    with pytest.raises(ServiceUnavailableError) as caught:
        await Fallback(guarded, other).run(a_request(), sink)
    assert caught.value is sink.error
    assert len(server.asked) == 1
    assert (clock.pauses, other.asked, guarded.breaker.examining) == ([], [], False)


async def test_what_the_sink_raises_during_the_fallback_is_told_as_it_is() -> None:
    sink = Unwritable()
    with pytest.raises(ServiceUnavailableError) as caught:
        await Fallback(always(BadGatewayError("x", code=FAILED)), Early(name="spare")).run(a_request(), sink)
    assert caught.value is sink.error


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


async def test_an_answer_that_is_under_way_is_not_begun_elsewhere_because_of_time(notes: Notes) -> None:
    other = Server(name="spare")
    with pytest.raises(StalledError):
        await Fallback(always(StalledError("x")), other).run(a_request(), notes)
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
        partial(sink.whole_turn, WholeTurn("a", [], Usage(), "stop")),
    ]


@pytest.mark.parametrize("piece", range(8))
def test_every_piece_begins_a_turn_and_is_passed_on(piece: int) -> None:
    plain, behind, begun = Notes(), Notes(), list[bool]()
    watch = watched(behind)
    watch.listener = lambda: begun.append(True)
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
    wrapper = BackendWrapper(server)
    assert wrapper.name == "local"
    await wrapper.run(a_request(), notes)
    assert [info.id for info in await wrapper.models()] == ["m"]
    await wrapper.close()
    assert server.asked == ["m", "closed"]


async def test_all_wrappers_pass_counts_and_windows_through() -> None:
    server, other = Server(), Server(name="other")
    backend = Fallback(GuardedBackend(server, Probes().breaker(), at_times(Clock())), other)
    assert await backend.count_tokens(a_request(model="llama")) == 7
    assert await backend.context_window("llama") == 4096
    assert (server.asked, other.asked) == (["count llama", "window llama"], [])


async def test_a_server_that_is_left_alone_is_not_asked_to_count() -> None:
    server, probes = Server(), Probes(False)
    backend = GuardedBackend(server, probes.breaker())
    backend.breaker.note_failure()
    await probes.resting.wait()
    assert await backend.count_tokens(a_request()) is None
    assert server.asked == []
    await backend.close()


async def test_summaries_and_sealed_thoughts_begin_a_turn_too() -> None:
    summed_up, sealed = Notes(), Notes()
    watched(summed_up).summary("So.")
    watch = watched(sealed)
    watch.opaque("x1")
    assert watch.begun
    assert (summed_up.calls, sealed.calls) == ([("summary", "So.")], [("opaque", "x1")])
