"""Variables: versions, scopes, references, blobs, quotas, housekeeping; on SQLite and on PostgreSQL."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.storage.samples import record

from antwort.config import StorageConfig
from antwort.context import Context, Fence
from antwort.context.values import Place
from antwort.context.variables import VariableScope, VariableView
from antwort.errors import FunctionError, FunctionUnavailableError, NotFoundError, PayloadTooLargeError, RateLimitError
from antwort.observability import Metrics
from antwort.storage import Store
from antwort.storage.retention import Pruner, Sweeper
from antwort.storage.sql.values import CHUNK
from antwort.storage.streamed_values import ValueLimits
from antwort.storage.variables import StoredValues

SCOPES: tuple[VariableScope, ...] = ("agent", "run", "conversation", "tenant")


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def values(store: Store) -> StoredValues:
    return StoredValues(store.values)


def call(agent: str = "resp_a", run: str = "resp_a", conversation: str = "conv_1", tenant: str = "t") -> Context:
    return Context(tenant, run_id=run, agent_id=agent, conversation_id=conversation)


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def value(variables: VariableView, name: str) -> Any:
    return await variables.load(await variables.find(name))


async def blobs(store: Store) -> int:
    counted: list[int] = await store._reader.run(
        lambda database: [row[0] for row in database.execute("SELECT count(*) FROM blobs").fetchall()]
    )
    return counted[0]


# --- values and versions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", ["", "ä text", "x" * (2 * CHUNK + 5), b"\x00\xff", {"a": [1, None, "ü"]}, [], 5, True, None]
)
async def test_a_value_comes_back_as_it_was(values: StoredValues, given: Any) -> None:
    variables = values.of(call())
    made = await variables.set("key", given)
    assert (made.version, made.scope, made.scope_id) == (1, "agent", "resp_a")
    assert await value(variables, "key") == given


async def test_a_reference_pins_its_version(values: StoredValues) -> None:
    variables = values.of(call())
    first = await variables.set("key", "old")
    second = await variables.set("key", "new")
    assert (first.version, second.version) == (1, 2)
    assert await value(variables, "key") == "new"
    assert await value(variables, first.id) == "old"
    assert first.reference == {"$ref": first.id}


async def test_keys_that_look_alike_are_different_variables(values: StoredValues) -> None:
    variables = values.of(call())
    for key in ("a/b", "a_b", "a b", "A/B", "a/b/", "ä/b"):
        await variables.set(key, f"of {key}")
    for key in ("a/b", "a_b", "a b", "A/B", "a/b/", "ä/b"):
        assert await value(variables, key) == f"of {key}"


async def test_the_same_key_in_two_agents_scopes_is_two_variables(values: StoredValues) -> None:
    one, other = values.of(call("resp_a")), values.of(call("resp_b"))
    await one.set("key", 1)
    await other.set("key", 2)
    assert (await value(one, "key"), await value(other, "key")) == (1, 2)
    await one.delete("key")
    assert await value(other, "key") == 2


@pytest.mark.parametrize("key", ["", "x" * 257, "nul\0", "\ud800"])
async def test_a_key_that_cannot_be_one_is_refused(values: StoredValues, key: str) -> None:
    with pytest.raises(FunctionError, match="A key is a text"):
        await values.of(call()).set(key, 1)
    with pytest.raises(FunctionError):
        await values.of(call()).find(key)


async def test_what_json_cannot_say_is_refused(values: StoredValues) -> None:
    with pytest.raises(FunctionError, match="cannot be written as JSON"):
        await values.of(call()).set("key", object())


async def test_whoever_has_lost_the_response_writes_no_variables_any_more(store: Store, values: StoredValues) -> None:
    await store.create(record("resp_a", tenant="t"), [])
    late = values.of(call().with_(fence=Fence("resp_a", 0)))
    kept = await late.set("key", "one")
    claimed = await store.claim("t", "resp_a")
    assert claimed is not None
    writes: list[Callable[[VariableView], Awaitable[object]]] = [
        lambda variables: variables.set("key", "two"),
        lambda variables: variables.set("key", "x" * (2 * CHUNK)),  # which takes several transactions
        lambda variables: variables.promote(kept, "key", scope="run"),
        lambda variables: variables.delete("key"),
    ]
    for write in writes:
        with pytest.raises(FunctionError, match="goes on elsewhere"):
            await write(late)
    assert [variable.id for variable in await values.list("t", all_versions=True)] == [kept.id]
    assert await blobs(store) == 1
    assert await value(late, "key") == "one"  # to read is nobody's right
    for write in writes:
        await write(values.of(call().with_(fence=Fence("resp_a", claimed.epoch))))
    assert [(variable.scope, variable.key) for variable in await values.list("t")] == [("run", "key")]


async def test_what_several_claimers_write_in_a_race_is_in_the_order_of_their_claims(
    store: Store, values: StoredValues
) -> None:
    await store.create(record("resp_a", tenant="t"), [])

    begun = [asyncio.Event() for _ in range(9)]
    begun[0].set()

    async def claim_and_write(turn: int) -> None:
        await begun[turn].wait()
        claimed = await store.claim("t", "resp_a")
        assert claimed is not None
        variables = values.of(call().with_(fence=Fence("resp_a", claimed.epoch)))
        with contextlib.suppress(FunctionError):
            for number in range(10):
                await variables.set("key", [claimed.epoch, number])
                begun[turn + 1].set()  # the next one claims while this one writes

    await asyncio.gather(*(claim_and_write(turn) for turn in range(8)))
    reader = values.of(call())
    versions = sorted(await values.list("t", all_versions=True), key=lambda one: one.version)
    written = [tuple(await reader.load(one)) for one in versions]
    assert written == sorted(written)
    assert {epoch for epoch, _ in written} == set(range(1, 9))
    assert written[-1] == (8, 9)


async def test_many_at_once_give_one_key_as_many_versions(values: StoredValues) -> None:
    variables = values.of(call())
    made = await asyncio.gather(*(variables.set("key", "the same") for _ in range(20)))
    assert sorted(one.version for one in made) == list(range(1, 21))
    assert len({one.blob_id for one in made}) == 1


# --- scopes ----------------------------------------------------------------------------------------------------------


async def test_reads_look_outward(values: StoredValues) -> None:
    variables = values.of(call("resp_child", "resp_a"))
    for scope in reversed(SCOPES):
        await variables.set("key", scope, scope=scope)
        assert await value(variables, "key") == scope
    assert await value(values.of(call("resp_other", "resp_a")), "key") == "run"
    assert await value(values.of(call("resp_c", "resp_c")), "key") == "conversation"
    assert await value(values.of(call("resp_d", "resp_d", "conv_2")), "key") == "tenant"
    with pytest.raises(FunctionError, match="There is no variable 'key'"):
        await values.of(call(tenant="other")).find("key")


async def test_references_are_followed_within_the_run_and_the_conversation_only(values: StoredValues) -> None:
    made = {scope: await values.of(call()).set(f"{scope} key", scope, scope=scope) for scope in SCOPES}

    async def reached(ctx: Context) -> set[str]:
        found: set[str] = set()
        for variable in made.values():
            with contextlib.suppress(FunctionError):
                found.add((await values.of(ctx).find(variable.id)).scope)
        return found

    assert await reached(call("resp_child")) == {"agent", "run", "conversation", "tenant"}
    assert await reached(call("resp_z", "resp_z", "conv_1")) == {"agent", "run", "conversation", "tenant"}
    assert await reached(call("resp_z", "resp_z", "conv_2")) == {"tenant"}
    assert await reached(Context("t")) == {"tenant"}
    assert await reached(call(tenant="other")) == set()


async def test_a_promoted_value_is_not_copied(store: Store, values: StoredValues) -> None:
    variables = values.of(call())
    made = await variables.set("key", "x" * 3 * CHUNK)
    promoted = await variables.promote(made, "shared", scope="tenant")
    assert (promoted.scope, promoted.blob_id, promoted.size) == ("tenant", made.blob_id, made.size)
    assert await blobs(store) == 1
    await variables.delete("key")
    assert await value(values.of(Context("t")), "shared") == "x" * 3 * CHUNK


async def test_what_is_gone_cannot_be_promoted(values: StoredValues) -> None:
    variables = values.of(call())
    made = await variables.set("key", 1)
    await variables.delete("key")
    with pytest.raises(FunctionError, match="is gone"):
        await variables.promote(made, "shared", scope="run")


async def test_a_call_without_a_run_has_the_tenants_scope_alone(values: StoredValues) -> None:
    variables = values.of(Context("t"))
    with pytest.raises(FunctionError, match="belongs to no agent"):
        await variables.set("key", 1)
    await variables.set("key", 1, scope="tenant")
    assert await value(variables, "key") == 1
    assert await variables.list(scope="run") == []


async def test_an_unknown_key_is_told_with_the_nearest(values: StoredValues) -> None:
    variables = values.of(call())
    with pytest.raises(FunctionError, match="there are no variables yet"):
        await variables.find("documnet")
    await variables.set("document", 1)
    with pytest.raises(FunctionError, match="did you mean 'document'"):
        await variables.find("documnet")


async def test_a_context_of_no_app_says_so() -> None:
    with pytest.raises(FunctionUnavailableError, match="need a running app"):
        _ = Context("t").variables
    with pytest.raises(FunctionUnavailableError, match="need a running app"):
        _ = Context("t").agents


async def test_the_list_has_the_newest_version_of_each_variable_in_reach(values: StoredValues) -> None:
    variables = values.of(call())
    for number in range(5):
        await variables.set(f"key {number % 3}", number)
    await values.of(call("resp_x", "resp_x", "conv_x")).set("of another run", 1)
    listed = await variables.list()
    assert [(one.key, one.version) for one in listed] == [("key 2", 1), ("key 0", 2), ("key 1", 2)]
    assert [one.key for one in await variables.list(limit=1, after=listed[0].id)] == ["key 0"]
    everything = await values.list("t", where={"key": "key 0"}, all_versions=True, newest_first=True)
    assert [one.version for one in everything] == [2, 1]
    of_run = await values.list("t", where={"run_id": "resp_x"})
    assert [one.key for one in of_run] == ["of another run"]


# --- blobs -----------------------------------------------------------------------------------------------------------


async def test_a_reference_given_to_a_thousand_readers_is_stored_once(store: Store, values: StoredValues) -> None:
    made = await values.of(call()).set("key", "x" * 1024**2)

    async def read(number: int) -> int:
        reader = values.of(call(f"resp_child{number}"))
        found = await reader.find(made.id)
        size = 0
        async for chunk in reader.read(found, 0, 100):
            size += len(chunk)
        return size

    assert await asyncio.gather(*map(read, range(1000))) == [100] * 1000
    assert await blobs(store) == 1
    assert await store.values.usage("t") == 1024**2


async def test_equal_values_of_a_tenant_are_stored_once(store: Store, values: StoredValues) -> None:
    large = "y" * (CHUNK + 1)
    for ctx in (call("resp_a"), call("resp_b"), call(tenant="other")):
        for key in ("one", "two"):
            await values.of(ctx).set(key, large)
            await values.of(ctx).set(key, "small")
    assert await blobs(store) == 4
    assert await store.values.usage("t") == len(large) + len("small")


async def test_parts_are_read_across_chunks(values: StoredValues) -> None:
    data = bytes(range(256)) * (6 * CHUNK // 256) + b"end"
    made = await values.write(Place("t"), "key", pieces(data[:10], b"", data[10 : CHUNK + 1], data[CHUNK + 1 :]))
    assert made.size == len(data)
    for start, end in ((0, None), (CHUNK - 1, CHUNK + 1), (5 * CHUNK, None), (len(data) - 3, len(data) + 9), (7, 7)):
        read = b"".join([chunk async for chunk in values.read(made, start, end)])
        assert read == data[start:end]


async def test_an_upload_that_breaks_off_leaves_nothing(store: Store, values: StoredValues) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield b"x" * 3 * CHUNK
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await values.write(Place("t"), "key", breaking())
    assert await blobs(store) == 0
    assert await values.list("t") == []


async def test_a_value_that_goes_while_it_is_read_is_not_cut_in_silence(values: StoredValues) -> None:
    made = await values.write(Place("t"), "key", pieces(b"x" * 8 * CHUNK))
    reading = values.read(made)
    await anext(reading)
    assert await values.delete("t", made.id)
    with pytest.raises(NotFoundError, match="was deleted while it was read"):
        await anext(reading)


async def test_two_uploads_of_one_value_at_the_same_time_are_one_blob(store: Store, values: StoredValues) -> None:
    data = b"z" * (2 * CHUNK)
    made = await asyncio.gather(*(values.write(Place("t"), f"key {n}", pieces(data)) for n in range(8)))
    assert len({one.blob_id for one in made}) == 1
    assert await blobs(store) == 1


# --- limits ----------------------------------------------------------------------------------------------------------


async def test_a_value_that_is_too_large_is_refused(store: Store) -> None:
    values = StoredValues(store.values, ValueLimits(value=CHUNK))
    with pytest.raises(PayloadTooLargeError, match="max_value_bytes"):
        await values.write(Place("t"), "key", pieces(b"x" * CHUNK, b"y"))
    assert await blobs(store) == 0
    with pytest.raises(FunctionError, match="larger than"):
        await values.of(call()).set("key", "x" * (CHUNK + 1))


async def test_the_quota_of_a_tenant_holds(store: Store) -> None:
    values = StoredValues(store.values, ValueLimits(tenant=1000))
    variables = values.of(call())
    await variables.set("one", "a" * 600)
    with pytest.raises(FunctionError, match="max_variable_bytes"):
        await variables.set("two", "b" * 600)
    await variables.set("two", "a" * 600)  # nothing more is stored
    await values.of(call(tenant="other")).set("one", "b" * 600)
    await variables.delete("one")
    await variables.delete("two")
    await variables.set("two", "b" * 1000)


async def test_setting_a_large_key_again_keeps_the_accounts_right(store: Store) -> None:
    values = StoredValues(store.values, ValueLimits(tenant=10 * CHUNK))
    variables = values.of(call())
    for number in range(4):
        await variables.set("key", str(number) * 2 * CHUNK)
        assert await store.values.usage("t") == 2 * CHUNK * (number + 1)
    await variables.set("key", "3" * 2 * CHUNK)
    assert await store.values.usage("t") == 8 * CHUNK
    with pytest.raises(FunctionError, match="max_variable_bytes"):
        await variables.set("key", "4" * 3 * CHUNK)
    assert await variables.delete("key")
    assert await store.values.usage("t") == 0
    assert not await variables.delete("key")


async def test_a_tenant_without_room_is_refused_before_anything_is_read(store: Store) -> None:
    async def no_room(tenant: str) -> None:
        raise RateLimitError(f"{tenant} has no room", retry_after=None)

    values = StoredValues(store.values, check_room=no_room)
    with pytest.raises(FunctionError, match="has no room"):
        await values.of(call()).set("key", 1)


async def test_values_count_as_stored_bytes(store: Store, values: StoredValues) -> None:
    before = await store.retention.usage("t")
    await values.of(call()).set("key", "x" * 5000)
    assert await store.retention.usage("t") == before + 5000


async def test_what_is_to_be_had_at_once_has_a_limit(values: StoredValues) -> None:
    variables = values.of(call())
    made = await variables.set("key", "x" * 100)
    with pytest.raises(FunctionError, match="Read it in parts"):
        await variables.load(made, most=99)


async def test_what_is_no_json_is_told(values: StoredValues) -> None:
    made = await values.write(Place("t"), "key", pieces(b"{"), kind="json")
    with pytest.raises(FunctionError, match="not valid json"):
        await values.of(call()).load(made)


# --- the end of values -----------------------------------------------------------------------------------------------


async def test_an_expired_version_is_gone(store: Store) -> None:
    clock = Clock()
    values = StoredValues(store.values, clock=clock)
    variables = values.of(call())
    await variables.set("key", "for ever")
    short = await variables.set("key", "short", expires_in=10)
    assert await value(variables, "key") == "short"
    clock.time += 10
    assert await value(variables, "key") == "for ever"
    with pytest.raises(FunctionError):
        await variables.find(short.id)
    assert [one.version for one in await variables.list()] == [1]
    assert await values.get("t", short.id) is None
    with pytest.raises(FunctionError, match="positive number of seconds"):
        await variables.set("key", 1, expires_in=0)


async def test_a_version_is_deleted_or_all_of_them(store: Store, values: StoredValues) -> None:
    variables = values.of(call())
    made = [await variables.set("key", number) for number in range(3)]
    assert await values.delete("t", made[2].id)
    assert await value(variables, "key") == 1
    assert not await values.delete("other", made[0].id)
    assert await values.delete("t", made[0].id, all_versions=True)
    assert not await values.delete("t", made[1].id)
    assert await blobs(store) == 0


async def test_a_run_is_dropped_with_what_it_made_for_itself(store: Store, values: StoredValues) -> None:
    variables = values.of(call())
    for scope in SCOPES:
        for number in range(60):
            await variables.set(f"{scope} {number}", f"{scope} {number}", scope=scope)
    await values.of(call("resp_b", "resp_b")).set("of another run", 1)
    assert await values.drop_run("other", "resp_a") == 0
    assert await values.drop_run("t", "resp_a") == 120
    left = await values.list("t", limit=1000)
    assert {one.scope for one in left if one.run_id == "resp_a"} == {"conversation", "tenant"}
    assert await blobs(store) == 121


async def test_a_conversation_that_began_with_a_dropped_run_goes_too(values: StoredValues) -> None:
    await values.of(call(conversation="resp_a")).set("key", 1, scope="conversation")
    assert await values.drop_run("t", "resp_a") == 1


async def test_the_sweep_deletes_what_nobody_has_a_claim_to(store: Store) -> None:
    old = Clock()
    values = StoredValues(store.values, clock=old)
    await store.create(record("resp_kept", tenant="t"))
    for run in ("resp_kept", "resp_gone"):
        variables = values.of(call(run, run, run))
        for scope in SCOPES[:3]:
            await variables.set(f"{scope} of {run}", f"{scope} of {run}", scope=scope)
    await values.of(call()).set("of the tenant", 1, scope="tenant")
    await values.of(call()).set("expired", 1, scope="tenant", expires_in=5)
    await StoredValues(store.values).of(call("resp_now", "resp_now")).set("young", 1)
    await store.values.begin("t", "blob_left_by_a_crash", 1)
    assert await Pruner(store).forget_values() == 4
    left = await values.list("t", limit=100)
    assert {one.key for one in left} == {
        "agent of resp_kept",
        "run of resp_kept",
        "conversation of resp_kept",
        "of the tenant",
        "young",
    }
    assert await blobs(store) == 4  # two of them have the same value
    await store.delete("t", "resp_kept")
    assert await Pruner(store).forget_values() == 3


async def test_the_server_sweeps_values_now_and_then(store: Store) -> None:
    values = StoredValues(store.values, clock=Clock())
    await values.of(call()).set("key", 1)
    metrics = Metrics("test")
    settings = StorageConfig()
    assert await Sweeper(store, settings.keep, settings.sweep, metrics).sweep() == {"values": 1}
    assert b'antwort_pruned_total{kind="values"} 1.0' in metrics.render(None)[0]


async def test_a_quota_holds_for_values_that_come_at_the_same_time(store: Store) -> None:
    values = StoredValues(store.values, ValueLimits(tenant=100_000))

    async def chunks(number: int) -> AsyncIterator[bytes]:
        yield bytes([number]) * 40_000

    written = [values.write(Place("t"), f"key {number}", chunks(number)) for number in range(8)]
    results = await asyncio.gather(*written, return_exceptions=True)
    assert sum(isinstance(result, RateLimitError) for result in results) == 6
    assert await store.values.usage("t") == 80_000
