"""What providers keep, on each database."""

import asyncio

import pytest

from antwort.errors import ConflictError, NotFoundError
from antwort.storage import Store


async def test_what_is_kept_comes_back(store: Store) -> None:
    records = store.records("library")
    made = await records.create("ann", "book", "b1", {"title": "Käse", "pages": 3}, parent="shelf", created_at=7)
    found = await records.get("ann", "book", "b1")
    assert found == made
    assert (made.version, made.parent, made.created_at, made.kind) == (1, "shelf", 7, "book")


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

    async def ids(**options: object) -> tuple[list[str], bool]:
        page = await records.list("ann", "book", **options)  # type: ignore[arg-type]
        return [kept.id for kept in page.data], page.has_more

    assert await ids() == (["b4", "b3", "b2", "b1", "b0"], False)
    assert await ids(limit=2) == (["b4", "b3"], True)
    assert await ids(limit=2, after="b3") == (["b2", "b1"], True)
    assert await ids(limit=2, before="b1") == (["b3", "b2"], True)
    assert await ids(limit=2, order="asc") == (["b0", "b1"], True)
    assert await ids(limit=9, order="asc", after="b3") == (["b4"], False)
    assert await ids(parent="a") == (["b4", "b2", "b0"], False)
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
