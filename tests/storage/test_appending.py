"""What is appended to variables: nothing is lost, nothing is copied, and versions before stay what they were."""

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from textwrap import dedent
from typing import Any

import pytest
from tests.storage.samples import record

from antwort.context import Context, Fence
from antwort.context.values import Place
from antwort.context.variables import Variable, VariableView
from antwort.errors import FunctionError, RateLimitError
from antwort.storage import Store
from antwort.storage.postgres import PostgresStore
from antwort.storage.sql.values import CHUNK
from antwort.storage.streamed_values import ValueLimits
from antwort.storage.variables import StoredValues

CALL = Context("t", run_id="resp_a", agent_id="resp_a", conversation_id="conv_1")


@pytest.fixture
def values(store: Store) -> StoredValues:
    return StoredValues(store.values)


@pytest.fixture
def variables(values: StoredValues) -> VariableView:
    return values.of(CALL)


async def value(variables: VariableView, name: str) -> Any:
    return await variables.load(await variables.find(name))


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def rows(store: Store, table: str) -> int:
    counted: list[int] = await store._reader.run(
        lambda database: [row[0] for row in database.execute(f"SELECT count(*) FROM {table}").fetchall()]
    )
    return counted[0]


# --- many at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True], ids=["a new key", "one that is there"])
async def test_fifty_that_append_at_the_same_time_lose_nothing(store: Store, *, begun: bool) -> None:
    several = [StoredValues(store.values).of(CALL) for _ in range(5)]
    if begun:
        await several[0].set("log", "")
        await several[0].set("list", [])
    appends = [several[number % 5].append("log", f"<{number}>", scope="agent") for number in range(50)]
    elements = [several[number % 5].append("list", {"number": number}) for number in range(50)]
    made = await asyncio.gather(*appends, *elements)
    log, found = await value(several[0], "log"), await value(several[0], "list")
    assert sorted(log.split("<")) == sorted(["", *(f"{number}>" for number in range(50))])
    assert sorted(one["number"] for one in found) == list(range(50))
    assert sorted(one.version for one in made[:50]) == [number + begun for number in range(1, 51)]
    sizes = [one.size for one in sorted(made[50:], key=lambda one: one.version)]
    assert sizes == sorted(sizes)


def test_workers_that_append_at_the_same_time_lose_nothing(ready_url: str) -> None:
    program = """
        import asyncio
        import sys

        from antwort.config import Config, StorageConfig
        from antwort.context import Context
        from antwort.storage import open_store
        from antwort.storage.variables import StoredValues

        async def append(worker):
            store = open_store(Config(storage=StorageConfig(url=sys.argv[1], pool_size=3)))
            variables = StoredValues(store.values).of(Context("t"))
            print("ready", flush=True)
            sys.stdin.read()
            for number in range(17):
                await variables.append("log", f"<{worker}/{number}>", scope="tenant")
                await variables.append("list", [worker, number], scope="tenant")
            await store.close()

        asyncio.run(append(int(sys.argv[2])))
        """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", dedent(program), ready_url, f"{worker}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for worker in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    assert [(process.communicate(timeout=120)[1], process.returncode) for process in processes] == [("", 0)] * 3
    log, found = asyncio.run(read_both(ready_url))
    every = [(worker, number) for worker in range(3) for number in range(17)]
    assert sorted(log.split("<")) == sorted(["", *(f"{worker}/{number}>" for worker, number in every)])
    assert sorted(map(tuple, found)) == every


async def read_both(url: str) -> tuple[Any, Any]:
    store = await asyncio.to_thread(PostgresStore.open, url)
    variables = StoredValues(store.values).of(Context("t"))
    try:
        return await value(variables, "log"), await value(variables, "list")
    finally:
        await store.close()


async def test_what_is_set_and_appended_at_the_same_time_is_in_one_order(store: Store) -> None:
    several = [StoredValues(store.values).of(CALL) for _ in range(4)]
    await several[0].set("key", "0")

    async def work(number: int) -> None:
        for turn in range(8):
            if turn % 4 == 3:
                await several[number].set("key", f"={number}{turn}")
            else:
                await several[number].append("key", f"+{number}{turn}")

    await asyncio.gather(*(work(number) for number in range(4)))
    versions = sorted(await store.values.list("t", all_versions=True, limit=100, now=0), key=lambda one: one.version)
    texts = [await several[0].load(one) for one in versions]
    assert [one.version for one in versions] == list(range(1, 34))
    for before, text in itertools.pairwise(texts):
        assert (len(text) == 3 and text[0] == "=") or (text[:-3] == before and text[-3] == "+")


# --- what is written -------------------------------------------------------------------------------------------------


async def test_a_large_value_is_not_copied(store: Store, variables: VariableView) -> None:
    first = await variables.set("log", "x" * (3 * CHUNK + 5))
    made = first
    for number in range(5):
        made = await variables.append("log", f"{number}" * (CHUNK // 2))
    assert (made.blob_id, made.version) == (first.blob_id, 6)
    assert (await rows(store, "blobs"), await rows(store, "blob_chunks")) == (1, 6)
    assert await store.values.usage("t") == made.size == 3 * CHUNK + 5 + 5 * (CHUNK // 2)
    whole = "x" * (3 * CHUNK + 5) + "".join(f"{number}" * (CHUNK // 2) for number in range(5))
    assert await value(variables, "log") == whole
    assert await value(variables, first.id) == whole[: first.size]


async def test_versions_of_a_list_stay_what_they_were(store: Store, variables: VariableView) -> None:
    made = [await variables.append("list", number) for number in range(5)]
    shared = await variables.promote(made[1], "two", scope="run")
    large = [await variables.append("list", "x" * CHUNK) for _ in range(2)]
    assert [await variables.load(one) for one in made] == [list(range(count)) for count in range(1, 6)]
    assert await variables.load(shared) == [0, 1]
    assert await variables.load(large[0]) == [0, 1, 2, 3, 4, "x" * CHUNK]
    assert await value(variables, "list") == [0, 1, 2, 3, 4, "x" * CHUNK, "x" * CHUNK]
    assert await rows(store, "blobs") == 1
    for one in (*made, shared, *large):  # in parts, too
        read = b"".join([chunk async for chunk in variables.read(one, max(one.size - 3, 0))])
        assert read.endswith(b"]")
    await variables.append("two", "other")
    assert await value(variables, "two") == "other"  # which is the agent's own
    await variables.append("two", 9, scope="run")
    assert await variables.load((await variables.list(scope="run"))[0]) == [0, 1, 9]
    assert await value(variables, "list") == [0, 1, 2, 3, 4, "x" * CHUNK, "x" * CHUNK]


async def test_equal_values_part_when_one_of_them_grows(store: Store, variables: VariableView) -> None:
    for key in ("one", "two", "three"):
        await variables.set(key, "the same")
    assert await rows(store, "blobs") == 1
    await variables.append("one", " and more")
    await variables.append("two", ", but different")
    await variables.set("four", "the same")
    found = [await value(variables, key) for key in ("one", "two", "three", "four")]
    assert found == ["the same and more", "the same, but different", "the same", "the same"]


async def test_a_text_that_reads_like_a_list_does_not_change_with_it(variables: VariableView) -> None:
    await variables.set("text", "[1]")
    await variables.set("list", [1])
    await variables.append("list", 2)
    await variables.set("later", "[1]")
    await variables.append("text", ", and so on")
    found = [await value(variables, key) for key in ("text", "list", "later")]
    assert found == ["[1], and so on", [1, 2], "[1]"]


@pytest.mark.parametrize("written", ["[]", " [ ] ", "[\n]\n", "[1, 2]", "[1, 2 ]\n\n", '[["]"]]', "[[]]", "[{}]\t"])
async def test_lists_are_written_in_many_ways(values: StoredValues, variables: VariableView, written: str) -> None:
    await values.write(Place("t"), "list", once(written.encode()), kind="json")
    for element in ("a", {"b": [1]}):
        await variables.append("list", element, scope="tenant")
    assert await value(variables, "list") == [*json.loads(written), "a", {"b": [1]}]


async def test_bytes_grow_by_texts_and_bytes(values: StoredValues, variables: VariableView) -> None:
    await values.write(Place("t"), "log", once(b"\xff"), kind="bytes")
    await variables.append("log", "ü", scope="tenant")
    await variables.append("log", b"\x00", scope="tenant")
    assert await value(variables, "log") == b"\xff\xc3\xbc\x00"


# --- what is refused -------------------------------------------------------------------------------------------------


async def test_what_does_not_go_together_is_refused_with_the_cure(variables: VariableView) -> None:
    await variables.set("text", "a")
    await variables.set("object", {"a": 1})
    with pytest.raises(FunctionError, match="'text' is a text: append a text to it"):
        await variables.append("text", {"a": 1})
    with pytest.raises(FunctionError, match="'object' is JSON, but no array"):
        await variables.append("object", 1)
    with pytest.raises(FunctionError, match="cannot be written as JSON"):
        await variables.append("list", object())
    with pytest.raises(FunctionError, match="A key is a text"):
        await variables.append("", 1)
    assert [one.version for one in await variables.list()] == [1, 1]


async def test_what_grows_has_the_limits_of_all_values(store: Store) -> None:
    values = StoredValues(store.values, ValueLimits(value=1000, tenant=1500))
    variables = values.of(CALL)
    await variables.append("one", "a" * 900)
    with pytest.raises(FunctionError, match="max_value_bytes"):
        await variables.append("one", "b" * 101)
    await variables.append("one", "b" * 100)
    await variables.append("two", "c" * 400)
    with pytest.raises(FunctionError, match="max_variable_bytes"):
        await variables.append("two", "d" * 101)
    assert await store.values.usage("t") == 1400
    await variables.append("two", "d" * 100)
    assert await value(variables, "two") == "c" * 400 + "d" * 100

    async def no_room(tenant: str) -> None:
        raise RateLimitError(f"{tenant} has no room", retry_after=None)

    full = StoredValues(store.values, check_room=no_room).of(CALL)
    with pytest.raises(FunctionError, match="has no room"):
        await full.append("two", "e")


async def test_whoever_has_lost_the_response_appends_nothing_any_more(store: Store, values: StoredValues) -> None:
    await store.create(record("resp_a", tenant="t"), [])
    late = values.of(CALL.with_(fence=Fence("resp_a", 0)))
    await late.append("log", "one")
    claimed = await store.claim("t", "resp_a")
    assert claimed is not None
    for key in ("log", "another"):
        with pytest.raises(FunctionError, match="goes on elsewhere"):
            await late.append(key, "two")
    assert await value(late, "log") == "one"
    await values.of(CALL.with_(fence=Fence("resp_a", claimed.epoch))).append("log", "+")
    assert await value(late, "log") == "one+"


async def test_tenants_and_scopes_are_kept_apart(values: StoredValues) -> None:
    for tenant in ("t", "other"):
        for agent in ("resp_a", "resp_b"):
            await values.of(CALL.with_(tenant=tenant, agent_id=agent)).append("log", f"{tenant} {agent};")
    for tenant in ("t", "other"):
        for agent in ("resp_a", "resp_b"):
            own = values.of(CALL.with_(tenant=tenant, agent_id=agent))
            await own.append("log", "more")
            assert await value(own, "log") == f"{tenant} {agent};more"


async def test_what_grows_expires_when_it_did_before(store: Store) -> None:
    time = 1_000_000.0
    values = StoredValues(store.values, clock=lambda: time)
    variables = values.of(CALL)
    first: Variable = await variables.set("log", "a", expires_in=100)
    time += 50
    grown = await variables.append("log", "b")
    assert grown.expires_at == first.expires_at
    time += 60
    begun = await variables.append("log", "c", expires_in=10)
    assert (await value(variables, "log"), begun.version) == ("c", 3)
    assert begun.expires_at == time + 10


# --- lists of variables ----------------------------------------------------------------------------------------------


async def test_keys_are_listed_by_how_they_begin(variables: VariableView) -> None:
    for key in ("log/1", "log/2", "Log/3", "lo%", "log", "ülog/1", "😀a"):
        await variables.set(key, 1)

    async def listed(prefix: str) -> list[str]:
        return [one.key for one in await variables.list(prefix=prefix)]

    assert await listed("log/") == ["log/1", "log/2"]
    assert await listed("log") == ["log/1", "log/2", "log"]
    assert await listed("lo%") == ["lo%"]
    assert await listed("ül") == ["ülog/1"]
    assert await listed("😀") == ["😀a"]
    assert await listed("_og") == await listed("x" * 300) == await listed("\0") == await listed("\ud800") == []
    assert len(await listed("")) == 7
