"""Pages, against a list that is easy to understand."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.samples import record

from antwort.storage import SqliteStore, Store
from antwort.storage.postgres import PostgresStore

Stamped = tuple[int, str]
"""The creation time and the id of a response."""

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
    ),
    max_size=30,
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store of each kind for every example; each uses a tenant and an event loop of its own."""
    store: Store
    if request.param == "sqlite":
        store = SqliteStore.open(tmp_path_factory.mktemp("pages") / "antwort.db")
    else:
        store = PostgresStore.open(request.getfixturevalue("postgres_server").create())
    yield store
    asyncio.run(store.close())


@pytest.fixture(scope="module")
def tenants() -> Iterator[str]:
    """Tenants nobody has used yet."""
    return (f"tenant_{n}" for n in itertools.count())


async def acted(store: Store, tenant: str, actions: list[tuple[str, int]]) -> list[str]:
    """Insert and delete; return the ids that must be there, oldest first."""
    model: list[Stamped] = []
    for number, (action, value) in enumerate(actions):
        if action == "insert":
            response_id = f"resp_{tenant}_{number}"
            await store.create(record(response_id, tenant=tenant, created_at=value))
            model.append((value, response_id))
        elif model:
            _, response_id = model.pop(value % len(model))
            assert await store.delete(tenant, response_id)
    return [response_id for _, response_id in sorted(model, key=lambda stamped: stamped[0])]


async def page(store: Store, tenant: str, **options: Any) -> tuple[list[str], bool]:
    found = await store.list_responses(tenant, **options)
    return [each.record.id for each in found.data], found.has_more


@settings(max_examples=40, deadline=None)
@given(actions=ACTIONS, limit=st.integers(1, 8), order=st.sampled_from(["asc", "desc"]))
def test_walking_forwards_and_back_meets_every_response_once_and_in_order(
    shared: Store, tenants: Iterator[str], actions: list[tuple[str, int]], limit: int, order: str
) -> None:
    async def walk() -> None:
        tenant = next(tenants)
        expected = await acted(shared, tenant, actions)
        if order == "desc":
            expected.reverse()
        seen, more = await page(shared, tenant, limit=limit, order=order)
        while more:
            following, more = await page(shared, tenant, limit=limit, order=order, after=seen[-1])
            assert following
            seen += following
        assert seen == expected
        back: list[str] = expected[-1:]
        more = bool(back)
        while more:
            preceding, more = await page(shared, tenant, limit=limit, order=order, before=back[0])
            back = preceding + back
        assert back == expected

    asyncio.run(walk())


@settings(max_examples=40, deadline=None)
@given(actions=ACTIONS, data=st.data(), limit=st.integers(1, 8), order=st.sampled_from(["asc", "desc"]))
def test_two_cursors_cut_out_what_lies_between(
    shared: Store,
    tenants: Iterator[str],
    actions: list[tuple[str, int]],
    data: st.DataObject,
    limit: int,
    order: str,
) -> None:
    async def cut() -> None:
        tenant = next(tenants)
        expected = await acted(shared, tenant, actions)
        if order == "desc":
            expected.reverse()
        if not expected:
            return
        first, last = (data.draw(st.integers(0, len(expected) - 1)) for _ in range(2))
        between = expected[first + 1 : last]
        found = await page(shared, tenant, limit=limit, order=order, after=expected[first], before=expected[last])
        assert found == (between[:limit], len(between) > limit)

    asyncio.run(cut())
