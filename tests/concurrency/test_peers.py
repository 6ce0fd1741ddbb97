"""Letters and questions between the workers of a server, here on one loop."""

import asyncio
from collections.abc import Iterator

import pytest

from antwort.concurrency.peers import Mailbox, Peers


@pytest.fixture
def three() -> Iterator[list[Peers]]:
    """Three workers."""
    mailboxes = [Mailbox() for _ in range(3)]
    yield [Peers(number, mailboxes) for number in range(3)]
    for mailbox in mailboxes:
        mailbox.close()


def opened(peers: list[Peers]) -> None:
    for each in peers:
        each.open()


async def test_a_letter_reaches_all_others_in_the_order_of_sending(three: list[Peers]) -> None:
    heard: list[tuple[int, str]] = []
    over = asyncio.Event()
    for peer in three:
        peer.hear("greeting", lambda text, number=peer.number: heard.append((number, text)))  # type: ignore[misc]
        peer.hear("end", lambda _: over.set() if len(heard) == 4 else None)
    opened(three)
    for text in ("hello", "füße", "end"):
        three[1].tell("end" if text == "end" else "greeting", text)
        three[1].tell("unknown", "nobody reads this")
    await over.wait()
    for peer in three:
        peer.close()
    assert sorted(heard) == [(0, "füße"), (0, "hello"), (2, "füße"), (2, "hello")]
    assert [text for number, text in heard if number == 0] == ["hello", "füße"]


async def test_a_mailbox_that_is_full_takes_no_more_and_nobody_waits(three: list[Peers]) -> None:
    heard: list[str] = []
    over = asyncio.Event()
    for number in range(10_000):
        three[0].tell("number", str(number))
    three[1].hear("number", heard.append)
    three[1].hear("end", lambda _: over.set())
    three[1].open()
    while not over.is_set():
        three[0].tell("end", "")
        await asyncio.sleep(0)
    three[1].close()
    assert heard == [str(number) for number in range(len(heard))]
    assert 100 < len(heard) < 10_000


async def test_a_question_is_answered_by_all_others_however_long_the_answer_is(three: list[Peers]) -> None:
    for peer in three:
        peer.answer("size", lambda number=peer.number: bytes([number]) * 3_000_000)  # type: ignore[misc]
    opened(three)
    said = await three[0].ask("size")
    for peer in three:
        peer.close()
    assert said == {1: b"\1" * 3_000_000, 2: b"\2" * 3_000_000}


async def test_who_cannot_answer_is_missing(three: list[Peers], caplog: pytest.LogCaptureFixture) -> None:
    three[1].answer("size", lambda: b"here")
    three[2].answer("size", lambda: bytes(1 // 0))
    opened(three)
    said = await three[0].ask("size"), await three[0].ask("nothing that is known")
    for peer in three:
        peer.close()
    assert said == ({1: b"here"}, {})
    assert "ZeroDivisionError" in caplog.text


async def test_who_does_not_answer_is_not_waited_for_for_long(
    three: list[Peers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antwort.concurrency.peers._PATIENCE", 0.01)
    assert await three[0].ask("size") == {}  # nobody reads


async def test_the_only_worker_has_nobody_to_talk_to() -> None:
    alone = Peers()
    alone.open()
    alone.tell("greeting", "hello")
    assert await alone.ask("size") == {}
    alone.close()
    assert (alone.number, alone.count) == (0, 1)
