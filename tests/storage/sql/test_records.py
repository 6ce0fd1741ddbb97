"""What providers keep, on each database."""

import asyncio
from typing import Any

import pytest

from antwort.errors import ConflictError, NotFoundError
from antwort.storage import Records, Store


async def ids(records: Records, **options: Any) -> tuple[list[str], bool]:
    """Return the ids of a page of Ann's books, and whether there are more."""
    page = await records.list("ann", "book", **options)
    return [kept.id for kept in page.data], page.has_more


async def pass_a_day(store: Any) -> None:
    """Let everything be deleted a day and a second earlier."""
    statement = "UPDATE records SET deleted_at = deleted_at - 86401"
    await store._writer.run(lambda database: database.execute(statement).rowcount, "")


async def rows(store: Any) -> int:
    """Return how many rows the table has, deleted ones too."""
    found = await store._reader.run(lambda database: database.execute("SELECT count(*) FROM records").fetchone())
    return int(found[0])


async def test_what_is_kept_comes_back(store: Store) -> None:
    records = store.records("library")
    made = await records.create("ann", "book", "b1", {"title": "Käse", "pages": 3}, parent="shelf", created_at=7)
    found = await records.get("ann", "book", "b1")
    assert found == made
    assert (made.version, made.parent, made.created_at, made.kind) == (1, "shelf", 7, "book")


async def test_an_id_that_cannot_be_is_not_there(store: Store) -> None:
    assert await store.records("library").get("ann", "book", "b\x001") is None


async def test_an_id_is_taken_once_by_kind_tenant_and_owner(store: Store) -> None:
    records = store.records("library")
    await records.create("ann", "book", "b1", {"n": 1})
    with pytest.raises(ConflictError):
        await records.create("ann", "book", "b1", {"n": 2})
    await records.create("bob", "book", "b1", {"n": 3})
    await records.create("ann", "shelf", "b1", {"n": 4})
    await store.records("museum").create("ann", "book", "b1", {"n": 5})
    assert (await records.get("ann", "book", "b1")).value == {"n": 1}  # type: ignore[union-attr]


async def test_nobody_sees_what_is_another_tenants_or_providers(store: Store) -> None:
    records = store.records("library")
    await records.create("ann", "book", "b1", {})
    assert await records.get("bob", "book", "b1") is None
    assert not await records.delete("bob", "book", "b1")
    assert await store.records("museum").get("ann", "book", "b1") is None
    assert (await records.list("bob", "book")).data == []
    assert await records.count("bob", "book") == 0
    with pytest.raises(NotFoundError):
        await records.list("bob", "book", after="b1")


async def test_of_two_updates_of_one_version_one_wins(store: Store) -> None:
    records = store.records("library")
    one = await records.create("ann", "book", "b1", {"n": 0})
    other = await records.get("ann", "book", "b1")
    assert other is not None
    one.value, other.value = {"n": 1}, {"n": 2}
    assert await records.update(one)
    assert not await records.update(other)
    assert one.version == 2
    assert (await records.get("ann", "book", "b1")) == one
    assert await records.delete("ann", "book", "b1")
    assert not await records.update(one)


async def test_updates_at_the_same_time_lose_nothing(store: Store) -> None:
    records = store.records("library")
    await records.create("ann", "count", "c", {"n": 0})

    async def add() -> None:
        while True:
            kept = await records.get("ann", "count", "c")
            assert kept is not None
            kept.value["n"] += 1
            if await records.update(kept):
                return

    await asyncio.gather(*(add() for _ in range(20)))
    assert (await records.get("ann", "count", "c")).value == {"n": 20}  # type: ignore[union-attr]


async def test_lists_have_cursors_in_both_directions(store: Store) -> None:
    records = store.records("library")
    for number in range(5):
        await records.create("ann", "book", f"b{number}", {}, parent="ab"[number % 2])

    assert await ids(records) == (["b4", "b3", "b2", "b1", "b0"], False)
    assert await ids(records, limit=2) == (["b4", "b3"], True)
    assert await ids(records, limit=2, after="b3") == (["b2", "b1"], True)
    assert await ids(records, limit=2, before="b1") == (["b3", "b2"], True)
    assert await ids(records, limit=2, order="asc") == (["b0", "b1"], True)
    assert await ids(records, limit=9, order="asc", after="b3") == (["b4"], False)
    assert await ids(records, parent="a") == (["b4", "b2", "b0"], False)
    assert await records.count("ann", "book") == 5
    assert await records.count("ann", "book", parent="b") == 2


async def test_housekeeping_sees_all_tenants_in_order(store: Store) -> None:
    records = store.records("library")
    for number in range(5):
        await records.create(f"tenant{number}", "book", "b", {"n": number})
    await records.create("ann", "shelf", "s", {})
    seen = []
    after = 0
    while page := await records.scan("book", after=after, limit=2):
        seen += [kept.value["n"] for _, kept in page]
        after = page[-1][0]
    assert seen == [0, 1, 2, 3, 4]


async def test_what_is_deleted_is_nowhere_and_has_no_value_left(store: Any) -> None:
    records = store.records("library")
    for number in range(3):
        await records.create("ann", "book", f"b{number}", {"n": number}, parent="shelf")
    kept = await records.get("ann", "book", "b1")
    assert await records.delete("ann", "book", "b1")
    assert not await records.delete("ann", "book", "b1")
    assert await records.get("ann", "book", "b1") is None
    assert not await records.update(kept)
    assert await ids(records) == await ids(records, parent="shelf") == (["b2", "b0"], False)
    assert await records.count("ann", "book") == await records.count("ann", "book", parent="shelf") == 2
    assert [one.id for _, one in await records.scan("book")] == ["b0", "b2"]
    values = await store._reader.run(lambda database: database.execute("SELECT value FROM records").fetchall())
    assert sorted(value for (value,) in values) == ['{"n":0}', '{"n":2}', "{}"]


async def test_a_list_goes_on_from_what_was_deleted(store: Store) -> None:
    records = store.records("library")
    for number in range(5):
        await records.create("ann", "book", f"b{number}", {})
    page, more = await ids(records, limit=2)
    for one in page:
        await records.delete("ann", "book", one)
    assert (page, more) == (["b4", "b3"], True)
    assert await ids(records, limit=2, after="b3") == (["b2", "b1"], True)
    await records.delete("ann", "book", "b1")
    assert await ids(records, limit=2, after="b1") == (["b0"], False)
    assert await ids(records, before="b1", order="asc") == (["b0"], False)
    assert await ids(records, before="b1") == (["b2"], False)
    for unknown in ("b9", "shelf"):
        with pytest.raises(NotFoundError, match="list again without 'after'"):
            await records.list("ann", "book", after=unknown)
    with pytest.raises(NotFoundError):
        await records.list("bob", "book", after="b1")


async def test_the_id_of_something_deleted_is_free_and_its_place_is_a_new_one(store: Store) -> None:
    records = store.records("library")
    for number in range(3):
        await records.create("ann", "book", f"b{number}", {"n": number})
    await records.delete("ann", "book", "b0")
    again = await records.create("ann", "book", "b0", {"n": 7}, parent="shelf")
    assert await records.get("ann", "book", "b0") == again
    assert (again.version, again.value) == (1, {"n": 7})
    assert await ids(records) == (["b0", "b2", "b1"], False)
    with pytest.raises(ConflictError):
        await records.create("ann", "book", "b0", {})
    assert await records.get("ann", "book", "b0") == again


async def test_of_several_that_take_a_free_id_one_gets_it(store: Store) -> None:
    records = store.records("library")
    await records.create("ann", "book", "b", {})
    await records.delete("ann", "book", "b")
    tries = (records.create("ann", "book", "b", {"n": number}) for number in range(5))
    results = await asyncio.gather(*tries, return_exceptions=True)
    [made] = [one for one in results if not isinstance(one, BaseException)]
    assert sum(isinstance(one, ConflictError) for one in results) == 4
    assert await records.get("ann", "book", "b") == made


async def test_places_are_removed_by_later_deletions_a_few_at_a_time(store: Any) -> None:
    records, others = store.records("library"), store.records("museum")
    for number in range(150):
        await others.create("bob", "vase", f"v{number}", {})
        await others.delete("bob", "vase", f"v{number}")
    for number in range(4):
        await records.create("ann", "book", f"b{number}", {})
    assert await rows(store) == 154
    await pass_a_day(store)
    assert await records.delete("ann", "book", "b3")
    assert await rows(store) == 54
    assert not await records.delete("ann", "book", "b3")
    assert await rows(store) == 4
    assert await ids(records, after="b3") == (["b2", "b1", "b0"], False)
    await pass_a_day(store)
    assert await records.delete("ann", "book", "b2")
    assert await rows(store) == 3
    with pytest.raises(NotFoundError):
        await records.list("ann", "book", after="b3")
