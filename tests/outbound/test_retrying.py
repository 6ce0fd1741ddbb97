"""Sending a request again, and what `Retry-After` says about when."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from antwort.context.http_client import OutboundTimeoutError, TooLargeError
from antwort.provider import HttpAnswer, OutboundError, UnreachableError, call_again, retry_after


class Service:
    """Answers a call as it is told, and notes how long it would have been waited for."""

    def __init__(self, *replies: HttpAnswer | OutboundError) -> None:
        self._replies: Iterator[HttpAnswer | OutboundError] = iter(replies)
        self.calls = 0
        self.waits: list[float] = []

    async def call(self) -> HttpAnswer:
        self.calls += 1
        reply = next(self._replies)
        if isinstance(reply, OutboundError):
            raise reply
        return reply

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


def answer(status: int, asks: str | None = None) -> HttpAnswer:
    return HttpAnswer("http://service/", status, {} if asks is None else {"retry-after": asks}, b"")


@pytest.mark.parametrize("failure", [answer(429), answer(500), answer(503), UnreachableError("away")])
async def test_a_failure_that_may_pass_is_tried_again(failure: HttpAnswer | OutboundError) -> None:
    service = Service(failure, failure, answer(200))
    assert (await call_again(service.call, retries=2, patience=1, sleep=service.sleep)).status == 200
    first, second = service.waits
    assert 0.1 <= first <= 0.2 <= second <= 0.4


@pytest.mark.parametrize("status", [200, 301, 400, 401, 404, 422])
async def test_any_other_answer_is_final(status: int) -> None:
    service = Service(answer(status))
    assert (await call_again(service.call, retries=2, patience=1, sleep=service.sleep)).status == status


async def test_after_the_last_try_the_answer_is_returned_as_it_is() -> None:
    service = Service(*[answer(503)] * 3)
    assert (await call_again(service.call, retries=2, patience=1, sleep=service.sleep)).status == 503
    assert service.calls == 3


async def test_after_the_last_try_that_nobody_could_be_reached_is_raised() -> None:
    service = Service(*[UnreachableError("away")] * 2)
    with pytest.raises(UnreachableError):
        await call_again(service.call, retries=1, patience=1, sleep=service.sleep)
    assert service.calls == 2


@pytest.mark.parametrize("failure", [OutboundTimeoutError("late"), TooLargeError("large")])
async def test_what_took_its_time_is_not_tried_again(failure: OutboundError) -> None:
    service = Service(failure)
    with pytest.raises(type(failure)):
        await call_again(service.call, retries=2, patience=1, sleep=service.sleep)


async def test_what_the_service_asks_for_is_waited() -> None:
    service = Service(answer(429, "3"), answer(503, "0.5"), answer(200))
    await call_again(service.call, retries=2, patience=5, sleep=service.sleep)
    assert service.waits == [3, 0.5]


async def test_a_service_that_asks_for_more_than_the_patience_is_not_asked_again() -> None:
    service = Service(answer(429, "60"))
    assert (await call_again(service.call, retries=2, patience=5, sleep=service.sleep)).status == 429
    assert service.waits == []


async def test_pauses_grow_up_to_the_longest() -> None:
    service = Service(*[answer(503)] * 9)
    await call_again(service.call, retries=8, patience=1, first_pause=1, longest_pause=4, sleep=service.sleep)
    assert [2 * pause > most for pause, most in zip(service.waits, [1, 2, 4, 4, 4, 4, 4, 4], strict=True)] == [True] * 8
    assert max(service.waits) <= 4


async def test_a_caller_can_say_what_may_pass() -> None:
    service = Service(answer(404), answer(503))
    found = await call_again(
        service.call, retries=2, patience=1, passing=lambda one: one.status == 404, sleep=service.sleep
    )
    assert found.status == 503


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0.5", 0.5),
        ("999999999999", 86_400.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("1e3", None),
        ("nan", None),
        ("inf", None),
        ("\u0667", None),
        ("1.2.3", None),
    ],
)
def test_retry_after_is_read_as_a_number_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}) == seconds


def test_retry_after_that_is_a_date_tells_the_seconds_until_then() -> None:
    then = datetime.now(UTC) + timedelta(hours=1)
    assert 3500 < (retry_after({"retry-after": format_datetime(then, usegmt=True)}) or 0) <= 3600


def test_without_the_header_nothing_is_asked() -> None:
    assert retry_after({}) is None
