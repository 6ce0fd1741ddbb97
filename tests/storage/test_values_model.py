"""The variable store does what a few dictionaries would do; a state machine of hypothesis drives both.

It covers scopes, versions, values of several chunks, appending, restarts, deletion, expiry and quotas.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)
from typing_extensions import override

from antwort.context import Context
from antwort.context.variables import Variable, VariableScope
from antwort.errors import FunctionError
from antwort.storage import SqliteStore, Store
from antwort.storage.postgres import PostgresStore
from antwort.storage.sql.values import CHUNK
from antwort.storage.streamed_values import ValueLimits
from antwort.storage.variables import StoredValues

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))
QUOTA = 3 * CHUNK
CALLS = [
    Context(tenant, run_id=run, agent_id=agent, conversation_id=conversation)
    for tenant in ("one", "two")
    for run, agent, conversation in (
        ("resp_1", "resp_1", "conv"),
        ("resp_1", "resp_child", "conv"),
        ("resp_2", "resp_2", "conv"),
        ("resp_3", "resp_3", "resp_3"),
    )
]
SCOPES: tuple[VariableScope, ...] = ("agent", "run", "conversation", "tenant")
TEXTS = ["", "small", "ü" * 5, "a" * CHUNK, "b" * (CHUNK + 1), "c" * (2 * CHUNK)]
ADDITIONS = ["+", "ü", "d" * CHUNK]

calls = st.sampled_from(CALLS)
scopes = st.sampled_from(SCOPES)
keys = st.sampled_from(["key", "a/b", "a_b"])
texts = st.sampled_from(TEXTS)
additions = st.sampled_from(ADDITIONS)
lives = st.one_of(st.none(), st.integers(1, 20))


def scope_id(ctx: Context, scope: VariableScope) -> str:
    return {"agent": ctx.agent_id, "run": ctx.run_id, "conversation": ctx.conversation_id, "tenant": ""}[scope] or ""


@dataclass
class Kept:
    """A version, as the model has it."""

    variable: Variable
    text: str
    expires_at: int | None


@dataclass
class Blob:
    """What is stored of a value."""

    tenant: str
    size: int
    text: str | None
    """What others may be equal to: nothing, once it has grown."""


@dataclass
class Model:
    """All versions, in the order of their making."""

    versions: list[Kept] = field(default_factory=list)
    blobs: dict[str, Blob] = field(default_factory=dict)
    now: int = 1_000_000

    def living(self, tenant: str) -> list[Kept]:
        return [
            kept
            for kept in self.versions
            if kept.variable.tenant == tenant and (kept.expires_at is None or kept.expires_at > self.now)
        ]

    def of_key(self, ctx: Context, scope: VariableScope, key: str) -> list[Kept]:
        place = (scope, scope_id(ctx, scope), key)
        return [
            kept
            for kept in self.living(ctx.tenant)
            if (kept.variable.scope, kept.variable.scope_id, kept.variable.key) == place
        ]

    def found(self, ctx: Context, key: str) -> Kept | None:
        for scope in SCOPES:
            if of_key := self.of_key(ctx, scope, key):
                return max(of_key, key=lambda kept: kept.variable.version)
        return None

    def used(self, tenant: str) -> int:
        """Count each text once, expired ones that were not swept too."""
        return sum(blob.size for blob in self.blobs.values() if blob.tenant == tenant)

    def has(self, tenant: str, text: str) -> bool:
        return any((blob.tenant, blob.text) == (tenant, text) for blob in self.blobs.values())

    def drop(self, gone: list[Kept]) -> None:
        self.versions = [kept for kept in self.versions if kept not in gone]
        used = {kept.variable.blob_id for kept in self.versions}
        self.blobs = {name: blob for name, blob in self.blobs.items() if name in used}


class VariableMachine(RuleBasedStateMachine):
    """Does the same to the store and to the model."""

    opening: ClassVar[Callable[[], Store]]
    versions: Bundle[Kept] = Bundle("versions")

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.model = Model()
        self.open()

    def open(self) -> None:
        self.store = type(self).opening()
        self.values = StoredValues(self.store.values, ValueLimits(tenant=QUOTA), clock=lambda: float(self.model.now))

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    @override
    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.clear())
            self.run(self.store.close())
            self.runner.close()

    async def clear(self) -> None:
        for tenant in ("one", "two"):
            rows = await self.store.values.list(tenant, all_versions=True, limit=10_000, now=0)
            await self.store.values.forget(tenant, "", [(row.id, row.blob_id) for row in rows])
            assert await self.store.values.usage(tenant) == 0

    def keep(self, made: Variable, text: str, expires_in: int | None) -> Kept:
        kept = Kept(made, text, None if expires_in is None else self.model.now + expires_in)
        self.model.versions.append(kept)
        self.model.blobs.setdefault(made.blob_id, Blob(made.tenant, made.size, text))
        return kept

    @rule(target=versions, ctx=calls, scope=scopes, key=keys, text=texts, expires_in=lives)
    def set(self, ctx: Context, scope: VariableScope, key: str, text: str, expires_in: int | None) -> Any:
        of_key = [k.variable.version for k in self.model.versions if self.same_key(k, ctx, scope, key)]
        has = self.model.has(ctx.tenant, text)
        fits = has or self.model.used(ctx.tenant) + len(text.encode()) <= QUOTA
        try:
            made = self.run(self.values.of(ctx).set(key, text, scope=scope, expires_in=expires_in))
        except FunctionError:
            assert not fits
            return multiple()
        assert fits
        assert made.version == max(of_key, default=0) + 1
        return self.keep(made, text, expires_in)

    @rule(target=versions, ctx=calls, scope=scopes, key=keys, addition=additions)
    def append(self, ctx: Context, scope: VariableScope, key: str, addition: str) -> Any:
        before = max(self.model.of_key(ctx, scope, key), key=lambda kept: kept.variable.version, default=None)
        text = (before.text if before else "") + addition
        blob = self.model.blobs[before.variable.blob_id] if before else None
        grows = before is not None and blob is not None and blob.size == before.variable.size
        new = 0 if not grows and self.model.has(ctx.tenant, text) else len((addition if grows else text).encode())
        fits = not new or self.model.used(ctx.tenant) + new <= QUOTA
        try:
            made = self.run(self.values.of(ctx).append(key, addition, scope=scope))
        except FunctionError:
            assert not fits
            return multiple()
        assert fits
        assert made.size == len(text.encode())
        if grows and blob is not None:
            blob.size, blob.text = made.size, None
        kept = self.keep(made, text, None)
        kept.expires_at = before.expires_at if before else None
        return kept

    def same_key(self, kept: Kept, ctx: Context, scope: VariableScope, key: str) -> bool:
        one = kept.variable
        return (one.tenant, one.scope, one.scope_id, one.key) == (ctx.tenant, scope, scope_id(ctx, scope), key)

    @rule(target=versions, ctx=calls, source=versions, scope=scopes, key=keys)
    def promote(self, ctx: Context, source: Kept, scope: VariableScope, key: str) -> Any:
        try:
            found = self.run(self.values.of(ctx).find(source.variable.id))
        except FunctionError:
            assert source not in self.model.living(ctx.tenant) or not self.reaches(ctx, source)
            return multiple()
        assert source in self.model.living(ctx.tenant)
        assert self.reaches(ctx, source)
        return self.keep(self.run(self.values.of(ctx).promote(found, key, scope=scope)), source.text, None)

    def reaches(self, ctx: Context, kept: Kept) -> bool:
        one = kept.variable
        return (
            one.scope == "tenant"
            or (one.scope != "conversation" and one.run_id == ctx.run_id)
            or one.conversation_id == ctx.conversation_id
        )

    @rule(ctx=calls, key=keys)
    def find(self, ctx: Context, key: str) -> None:
        expected = self.model.found(ctx, key)
        try:
            found = self.run(self.values.of(ctx).find(key))
        except FunctionError:
            assert expected is None
            return
        assert expected is not None
        assert found == expected.variable
        assert self.run(self.values.of(ctx).load(found)) == expected.text

    @rule(kept=versions)
    def read_a_pinned_version(self, kept: Kept) -> None:
        one = kept.variable
        found = self.run(self.values.get(one.tenant, one.id))
        if kept in self.model.living(one.tenant):
            assert found == one
            assert self.run(self.values.of(CALLS[0]).load(found)) == kept.text
        else:
            assert found is None

    @rule(ctx=calls)
    def list(self, ctx: Context) -> None:
        listed = self.run(self.values.of(ctx).list(limit=1000))
        expected = {
            max(of_key, key=lambda kept: kept.variable.version).variable.id
            for scope in SCOPES
            for key in ("key", "a/b", "a_b")
            if (of_key := self.model.of_key(ctx, scope, key))
        }
        assert {one.id for one in listed} == expected

    @rule(ctx=calls, scope=scopes, key=keys)
    def delete_a_key(self, ctx: Context, scope: VariableScope, key: str) -> None:
        gone = [kept for kept in self.model.versions if self.same_key(kept, ctx, scope, key)]
        assert self.run(self.values.of(ctx).delete(key, scope=scope)) == bool(gone)
        self.model.drop(gone)

    @rule(kept=consumes(versions))
    def delete_a_version(self, kept: Kept) -> None:
        one = kept.variable
        there = kept in self.model.living(one.tenant)
        assert self.run(self.values.delete(one.tenant, one.id)) == there
        if there:
            self.model.drop([kept])

    @rule(tenant=st.sampled_from(["one", "two"]), run=st.sampled_from(["resp_1", "resp_2", "resp_3"]))
    def drop_a_run(self, tenant: str, run: str) -> None:
        gone = [
            kept
            for kept in self.model.versions
            if (one := kept.variable).tenant == tenant
            and one.run_id == run
            and (one.scope in {"agent", "run"} or (one.scope == "conversation" and one.scope_id == run))
        ]
        assert self.run(self.values.drop_run(tenant, run)) == len(gone)
        self.model.drop(gone)

    @rule(seconds=st.integers(1, 15))
    def wait(self, seconds: int) -> None:
        self.model.now += seconds

    @rule()
    def restart(self) -> None:
        self.run(self.store.close())
        self.open()

    @rule()
    def usage(self) -> None:
        for tenant in ("one", "two"):
            assert self.run(self.store.values.usage(tenant)) == self.model.used(tenant)


@pytest.fixture(params=["sqlite", "postgresql"])
def opening(request: pytest.FixtureRequest, path: Path) -> Iterator[Callable[[], Store]]:
    if request.param == "sqlite":
        yield lambda: SqliteStore.open(path)
    else:
        url = request.getfixturevalue("ready_url")
        yield lambda: PostgresStore.open(url, pool_size=2)


def test_the_store_does_what_dictionaries_would_do(opening: Callable[[], Store]) -> None:
    machine = type("Machine", (VariableMachine,), {"opening": staticmethod(opening)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=100 if FULL else 15,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
