"""Citations over several responses: numbers mean the same for as long as the model reads them."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antwort import Antwort, Context, FunctionSpec
from antwort.backends.demo import DemoBackend
from antwort.config import Config
from antwort.context import Source
from antwort.engine.calls.admission import Totals
from antwort.engine.plan import Plan
from antwort.storage.base import ConversationRecord, JournalEntry
from antwort.testing import ScriptedBackend, Turn, call, matching, turn
from antwort.wire.items import Message
from antwort.wire.requests import decode_create
from antwort.wire.responses import ResponseObject


async def find(ctx: Context, name: str) -> str:
    """Search the web.

    Args:
        name: What to search for.
    """
    return f"[{ctx.sources.add(Source(name, url=f'https://example.org/{name}'))}] All about {name}."


def finding(*names: str) -> Turn:
    """Return a turn that calls `find` for each name, by ids of their own."""
    return turn(calls=[call("find", name=name) for name in names])


@contextlib.asynccontextmanager
async def started(tmp_path: Path, *steps: Turn | str, **options: Any) -> AsyncIterator[Antwort]:
    """Start an app whose model plays a script."""
    functions = [FunctionSpec.of(find, {"idempotent": True})]
    with ScriptedBackend(steps) as model:
        config = Config(data_dir=tmp_path, providers={}, **options)
        async with Antwort(config, functions=functions, backend=model) as app:
            yield app


def cited(response: ResponseObject) -> list[str]:
    """Return the titles that the last message cites, in order."""
    message = response.output[-1]
    assert isinstance(message, Message)
    return [annotation["title"] for annotation in msgspec.to_builtins(message)["content"][0]["annotations"]]


async def planned(app: Antwort, **create: Any) -> Plan:
    """Read a request."""
    body = msgspec.json.encode({"input": "?", **create})
    return await app.engine.plan(decode_create(body), Context("default", scopes=frozenset({"*"})))


async def journal(app: Antwort, response_id: str) -> list[JournalEntry]:
    """Return the entries of calls."""
    return [entry for entry in await app.engine.store.journal("default", response_id) if entry.call is not None]


async def test_a_number_means_the_same_in_the_next_response(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        finding("tea"),
        "Tea [1].",
        finding("coffee"),
        turn("Tea [1], coffee [2].", expect=matching(last="[2] All about coffee.")),
    ]
    async with started(tmp_path, *steps) as app:
        first = await app.run("Tea?")
        second = await app.run("And coffee?", previous_response_id=first.id)
    assert cited(first) == ["tea"]
    assert cited(second) == ["tea", "coffee"]


async def test_a_response_that_searches_nothing_cites_what_was_found_before(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        finding("tea"),
        "Tea.",
        "As said [1].",
        "Again [1], or https://example.org/tea, but not [2].",
    ]
    async with started(tmp_path, *steps) as app:
        first = await app.run("Tea?")
        second = await app.run("Sure?", previous_response_id=first.id)
        third = await app.run("Really?", previous_response_id=second.id)
    assert (cited(first), cited(second), cited(third)) == ([], ["tea"], ["tea", "tea"])


async def test_what_is_found_again_keeps_its_number_and_is_noted_again(tmp_path: Path) -> None:
    steps: list[Turn | str] = [finding("tea"), "[1]", finding("milk", "tea"), turn("[1] [2]"), "[1] [2]"]
    async with started(tmp_path, *steps) as app:
        first = await app.run("Tea?")
        second = await app.run("With milk?", previous_response_id=first.id)
        noted = [entry.call.sources or {} for entry in await journal(app, second.id) if entry.call is not None]
        await app.engine.store.delete("default", first.id)
        third = await app.run("Well?", previous_response_id=second.id)
    assert [{number: source["title"] for number, source in one.items()} for one in noted] == [
        {"2": "milk"},
        {"1": "tea"},
    ]
    assert cited(second) == cited(third) == ["tea", "milk"]


async def test_branches_of_a_chain_number_on_their_own(tmp_path: Path) -> None:
    steps: list[Turn | str] = [finding("tea"), "[1]", finding("milk"), "[1] [2]", finding("sugar"), "[1] [2]", "[2]"]
    async with started(tmp_path, *steps) as app:
        first = await app.run("Tea?")
        left = await app.run("Milk?", previous_response_id=first.id)
        right = await app.run("Sugar?", previous_response_id=first.id)
        after = await app.run("So?", previous_response_id=left.id)
    assert (cited(left), cited(right), cited(after)) == (["tea", "milk"], ["tea", "sugar"], ["milk"])


@pytest.mark.parametrize("stored", [True, False])
async def test_of_two_answers_at_the_same_time_the_later_has_the_number(tmp_path: Path, stored: bool) -> None:
    steps: list[Turn | str] = [finding("tea"), "[1]", finding("milk"), "[1]", finding("tea"), "[1] [2]"]
    async with started(tmp_path, *steps) as app:
        await app.engine.store.conversations.create(ConversationRecord("conv_1", "default", 0))
        request = {"conversation": "conv_1", "store": stored}
        one, two = await planned(app, **request), await planned(app, **request)
        assert cited(await app.engine.respond(one)) == ["tea"]
        assert cited(await app.engine.respond(two)) == ["milk"]
        after = await app.engine.respond(await planned(app, **request))
    assert cited(after) == ["milk", "tea"]


async def test_a_reference_to_a_call_brings_its_sources(tmp_path: Path) -> None:
    steps: list[Turn | str] = [finding("tea"), "[1]", finding("milk"), "[1] [2]"]
    async with started(tmp_path, *steps, engine={"show_calls": True}) as app:
        first = await app.run("Tea?")
        [found] = await journal(app, first.id)
        again = [{"type": "item_reference", "id": found.id}, {"role": "user", "content": "With milk?"}]
        second = await app.run(again)
    assert cited(second) == ["tea", "milk"]


async def test_equal_calls_that_are_executed_once_note_the_same(tmp_path: Path) -> None:
    async with started(tmp_path, finding("tea", "tea"), "[1] [2]") as app:
        response = await app.run("Tea?")
        one, two = await journal(app, response.id)
    assert one.call is not None
    assert two.call is not None
    assert one.call.sources == two.call.sources
    assert list(one.call.sources or ()) == ["1"]
    assert cited(response) == ["tea"]


async def test_calls_without_sources_are_stored_as_before(tmp_path: Path) -> None:
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    with ScriptedBackend([turn(calls=[call("add", a=1, b=2)]), "3"]) as model:
        async with Antwort(Config(data_dir=tmp_path, providers={}), functions=[add], backend=model) as app:
            [entry] = await journal(app, (await app.run("1 + 2?")).id)
    assert entry.call is not None
    assert entry.call.sources is None


async def test_the_demo_model_cites_what_each_of_its_searches_found(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, providers={})
    async with Antwort(config, functions=[find], backend=DemoBackend()) as app:
        first = await app.run("Search for tea")
        second = await app.run("Search for coffee", previous_response_id=first.id)
        third = await app.run("Search for tea", previous_response_id=second.id)
    texts = [msgspec.to_builtins(response.output[-1])["content"][0]["text"] for response in (first, second, third)]
    assert texts == ["All about tea [1].", "All about coffee [2].", "All about tea [1]."]
    assert [cited(response) for response in (first, second, third)] == [["tea"], ["coffee"], ["tea"]]


def test_counts_of_the_version_before_can_be_read() -> None:
    stored = {"turns": 2, "sources": [{"title": "tea", "url": None, "file_id": None}]}
    assert Totals.restored(stored, []).turns == 2
