"""Letters between the workers of a database: what is sent together."""

import asyncio
import contextlib
import json

import msgspec
import psycopg
import pytest

from antwort.storage.postgres.connection import PostgresAddress
from antwort.storage.postgres.letters import PostgresLetters

MOST = 7_999
"""Bytes that PostgreSQL takes."""


async def test_letters_that_grow_when_they_are_written_are_sent_in_smaller_numbers(ready_url: str) -> None:
    sent: list[str] = []
    told = [
        f"{number}{sign * 900}" for number in range(9) for sign in ('"', "\\", "\n", "\x01", "ü", "\N{GRINNING FACE}")
    ]
    done = asyncio.Event()

    async def send(_channel: str, text: str) -> None:
        sent.append(text)
        if sum(len(json.loads(payload)[1]) for payload in sent) == len(told):
            done.set()

    letters = PostgresLetters(PostgresAddress.of(ready_url), send)
    letters.open()
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(letters.close)
        for text in told:
            letters.tell("news", text)
        async with asyncio.timeout(60):
            await done.wait()
    assert [letter for payload in sent for letter in json.loads(payload)[1]] == [["news", text] for text in told]
    assert max(len(payload.encode()) for payload in sent) <= MOST


async def test_a_letter_that_cannot_be_written_is_not_the_last(ready_url: str) -> None:
    sent = asyncio.Queue[str]()

    async def send(_channel: str, text: str) -> None:
        text.encode()  # as the driver does
        sent.put_nowait(text)

    letters = PostgresLetters(PostgresAddress.of(ready_url), send)
    letters.open()
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(letters.close)
        letters.tell("news", "\ud800")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        letters.tell("news", "run")
        async with asyncio.timeout(60):
            assert json.loads(await sent.get())[1] == [["news", "run"]]


@pytest.mark.parametrize(
    "payload",
    ["", "null", "[]", '["x", [["news"]]]', '["x", [[[], "y"]]]', "[" * 7_000, '["x", [["queued", "{}"]]]'],
)
async def test_what_is_no_letter_is_said_once_and_the_next_one_is_heard(
    payload: str, ready_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    listening, heard = asyncio.Event(), asyncio.Event()

    def decode(text: str) -> None:
        msgspec.json.decode(text, type=tuple[str, str, int])

    async def send(_channel: str, _text: str) -> None:
        return

    letters = PostgresLetters(PostgresAddress.of(ready_url), send)
    letters.hear("queued", decode)
    letters.hear("hello", lambda _: listening.set())
    letters.hear("news", lambda _: heard.set())
    letters.open()
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(letters.close)
        async with asyncio.timeout(60):
            while not listening.is_set():  # it takes a moment until somebody listens
                await asyncio.to_thread(notify, ready_url, '["x", [["hello", "run"]]]')
                await asyncio.sleep(0.05)
            for text in [payload, payload, '["x", [["other", 5], ["news", 5], ["news", "run"]]]']:
                await asyncio.to_thread(notify, ready_url, text)
            await heard.wait()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def notify(url: str, payload: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_notify('antwort', %s)", (payload,))
