"""Runs that wait for a worker with room: in turns between tenants, and of one no more than may run, anywhere."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runs.embedded import TENANT, Embedded, embedded
from tests.runs.test_lost_runs import options, parked, refund, shared
from typing_extensions import override

from antwort import Antwort
from antwort.backends.base import ModelRequest, TurnSink
from antwort.concurrency.slots import Queues
from antwort.config import Config, TenantLimitsConfig
from antwort.context import Context
from antwort.errors import RateLimitError
from antwort.runs import limits as module
from antwort.runs.limits import TenantLimits
from antwort.runs.waiting import WaitingRuns
from antwort.storage.sql.responses import UnfinishedRun
from antwort.testing import Gate, ScriptedBackend, Turn, call, turn

PATIENCE = 60.0


class Slow(ScriptedBackend):
    """A model that says "Done." when it may, and knows how many responses of whom it makes."""

    def __init__(self, ledger: "Ledger") -> None:
        super().__init__(["Done."] * 100)
        self._ledger = ledger

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        async with self._ledger.making(self, request.items[-1]["content"][0]["text"]):
            await super().run(request, sink)


class Ledger:
    """What is being made by all models together, by the input, and who makes how much."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.making_now: Counter[str] = Counter()
        self.by_model: Counter[Slow] = Counter()
        self.most: Counter[str] = Counter()
        self.changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def making(self, model: Slow, who: str) -> AsyncIterator[None]:
        self.making_now[who] += 1
        self.by_model[model] += 1
        self.most[who] = max(self.most[who], self.making_now[who])
        async with self.changed:
            self.changed.notify_all()
        try:
            await self.go.wait()
            yield
        finally:
            self.making_now[who] -= 1
            self.by_model[model] -= 1

    async def until(self, enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE), self.changed:
            await self.changed.wait_for(enough)


@contextlib.asynccontextmanager
async def servers(folder: Path, url: str, ledger: Ledger, **config: Any) -> AsyncIterator[list[Antwort]]:
    """Start three workers, and a server that leaves its background responses to them."""
    async with contextlib.AsyncExitStack() as stack:
        apps = []
        for number in range(4):
            given = {"data_dir": folder / str(number), "providers": {}, **shared(url, 0.5), **config}
            given["engine"] = {**given["engine"], "parallel_runs": config.get("parallel_runs", 100)}
            given.pop("parallel_runs", None)
            given["server"] = {"with_worker": number > 0}
            app = Antwort(Config.model_validate(given), backend=Slow(ledger))
            apps.append(await stack.enter_async_context(app))
        yield apps


async def accepted(app: Antwort, tenant: str) -> tuple[str, str]:
    ctx = Context(tenant, scopes=frozenset({"*"}))
    plan = await Embedded(app, ScriptedBackend([])).plan({"input": tenant, "background": True}, ctx)
    return tenant, str(msgspec.json.decode(await app.runs.accept(plan))["id"])


async def ended(app: Antwort, tenant: str, response_id: str) -> str:
    async with asyncio.timeout(PATIENCE):
        await app.runs.rest(tenant, response_id)
    record = await app.engine.store.get(tenant, response_id)
    assert record is not None
    return record.status


async def test_no_more_runs_of_a_tenant_are_worked_on_than_may_and_the_rest_holds_up_nobody(
    tmp_path: Path, ready_url: str
) -> None:
    ledger = Ledger()
    limits = {"per_tenant": {"max_runs": 2}}
    async with servers(tmp_path, ready_url, ledger, limits=limits) as (server, *_):
        runs = [await accepted(server, "many") for _ in range(20)]
        await ledger.until(lambda: ledger.making_now["many"] == 2)
        runs += [await accepted(server, "few") for _ in range(2)]
        await ledger.until(lambda: ledger.making_now["few"] == 2)  # while nothing of the other one ends
        ledger.go.set()
        assert {await ended(server, *run) for run in runs} == {"completed"}
    assert ledger.most == {"many": 2, "few": 2}


async def test_a_worker_takes_as_many_as_it_has_room_for_and_leaves_the_others(tmp_path: Path, ready_url: str) -> None:
    ledger = Ledger()
    async with servers(tmp_path, ready_url, ledger, parallel_runs=2) as (server, *_):
        runs = [await accepted(server, TENANT) for _ in range(8)]
        await ledger.until(lambda: sorted(filter(None, ledger.by_model.values())) == [2, 2, 2])
        ledger.go.set()
        assert {await ended(server, *run) for run in runs} == {"completed"}


async def test_a_run_that_was_answered_waits_until_there_is_room_for_it(tmp_path: Path, ready_url: str) -> None:
    gate = Gate()
    steps: list[Turn | str] = [turn(calls=[call("refund")]), turn("The other.", wait_for=gate), "Done."]
    limits = {"per_tenant": {"max_runs": 1}}
    async with embedded(tmp_path, steps, [refund], **options(ready_url, limits=limits)) as app:
        run = await app.accept()
        await parked(app, run)
        other = await app.accept()
        await gate.reached()
        [question] = (await app.runs.questions.page(TENANT)).data
        await app.runs.questions.answer(TENANT, question.id, {"approve": True})
        async with asyncio.timeout(PATIENCE):
            while {one.id: one.worker for one in await app.store.unfinished()}[run]:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.02)
        gate.open()
        for response_id in (other, run):
            assert (await app.result(response_id))[0]["status"] == "completed"


# --- who is next ------------------------------------------------------------------------------------------------------


def waiting(tenant: str, number: int, worker: str = "") -> UnfinishedRun:
    return UnfinishedRun(tenant, f"{tenant}-{number}", 1, worker)


def taken(runs: WaitingRuns, active: int = 0) -> list[str]:
    found: list[str] = []
    while (run := runs.take(active + len(found))) is not None:
        found.append(run.id)
    return found


def test_tenants_take_turns_and_each_has_its_oldest_first() -> None:
    runs = WaitingRuns(8, Queues(several=True))
    for number in range(9):
        runs.add(waiting("many", number))
    for number in range(2):
        runs.add(waiting("few", number))
    assert taken(runs) == ["many-0", "few-0", "many-1", "few-1", "many-2", "many-3", "many-4", "many-5"]
    assert taken(runs, active=8) == []


def test_a_tenant_with_as_many_runs_as_may_waits_for_an_end_or_a_look() -> None:
    runs = WaitingRuns(100, Queues(), 2)
    there = [waiting("many", number, "another-0" if number == 9 else "") for number in range(10)]
    runs.see(there, there[:9])
    assert taken(runs) == ["many-0"]
    runs.put_back(there[0])  # since it was another one in truth
    assert taken(runs) == []
    runs.add(waiting("few", 0))
    assert taken(runs) == ["few-0"]
    runs.free("many")
    assert taken(runs) == ["many-0", "many-1"]
    runs.end(there[0])
    runs.end(there[0])
    assert taken(runs) == ["many-2"]


def test_what_is_over_or_taken_elsewhere_does_not_wait_any_more() -> None:
    runs = WaitingRuns(100, Queues())
    runs.see([], [])
    for number in range(3):
        runs.add(waiting("a", number))
    runs.see([waiting("a", 0, "another-0")], [])  # which may be older than what was heard
    runs.see([waiting("a", 0, "another-0"), waiting("a", 2)], [])
    assert taken(runs) == ["a-2"]
    runs.see([waiting("a", 2)], [waiting("a", 2)])  # it is being claimed
    assert taken(runs) == []


# --- what workers tell each other -------------------------------------------------------------------------------------


class Post:
    """Letters to everybody, which come at once."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[str], None]] = []
        self.sent = asyncio.Queue[str]()

    def tell(self, kind: str, text: str) -> None:
        self.sent.put_nowait(text)

    def hear(self, kind: str, listener: Callable[[str], None]) -> None:
        self.listeners.append(listener)


async def test_responses_that_others_make_count_until_they_end_or_are_not_heard_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(module, "REPEATED", 0.0)
    post, now = Post(), [0.0]
    config = TenantLimitsConfig(max_runs=2)
    one = TenantLimits(config, others=post)
    other = TenantLimits(config, others=(hearing := Post()), clock=lambda: now[0])
    leave = one.enter("a")
    letter = await post.sent.get()
    for _ in range(2):  # again and again, which is the same one
        hearing.listeners[0](letter)
    with other.making("a"), other.making("b"), other.making("b"), pytest.raises(RateLimitError, match="at most 2"):
        other.enter("a")
    now[0] += module.FORGOTTEN
    other.enter("a")()
    hearing.listeners[0](await post.sent.get())  # it says so again
    other.enter("a")
    with pytest.raises(RateLimitError):
        other.enter("a")
    leave()
    async with asyncio.timeout(PATIENCE):
        while not (letter := await post.sent.get()).endswith(',"a",0]'):
            pass
    hearing.listeners[0](letter)
    other.enter("a")
