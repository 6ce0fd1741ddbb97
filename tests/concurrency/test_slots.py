"""Slots: how many are in use, who waits, for how long, and whose turn it is."""

import asyncio
import os
import random
import threading
from collections import Counter
from contextlib import suppress

import pytest

from antwort.concurrency.slots import MOST_WAITING, Queue, QueueFullError, Queues, Slots

ROUNDS = 300 if os.environ.get("ANTWORT_TEST_FULL") else 30


def shared(limit: int, *, most_waiting: int = 1000) -> Slots:
    """Return slots of a server that has several tenants."""
    return Slots(limit, Queues(several=True, most_waiting=most_waiting).named("things"))


async def waiting(slots: Slots, tenant: str, got: list[str], number: int = 1) -> list[asyncio.Task[None]]:
    """Let some of a tenant wait for slots, which they keep."""

    async def take() -> None:
        await slots.acquire(tenant, 60)
        got.append(tenant)

    tasks = [asyncio.create_task(take()) for _ in range(number)]
    await asyncio.sleep(0)
    return tasks


async def settle() -> None:
    """Let slots that were given back be handed over."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_slots_are_handed_out_in_the_order_of_asking() -> None:
    slots = Slots(1)
    await slots.acquire()
    got: list[int] = []

    async def take(number: int) -> None:
        await slots.acquire(seconds=60)
        got.append(number)
        slots.release()

    tasks = [asyncio.create_task(take(number)) for number in range(3)]
    await asyncio.sleep(0)
    assert (slots.taken, slots.waiting) == (1, 3)
    slots.release()
    await asyncio.gather(*tasks)
    assert got == [0, 1, 2]
    assert (slots.taken, slots.waiting) == (0, 0)


async def test_who_waits_for_too_long_is_told_and_takes_nothing() -> None:
    slots = Slots(1)
    await slots.acquire()
    with pytest.raises(TimeoutError):
        await slots.acquire(seconds=0)
    assert (slots.taken, slots.waiting) == (1, 0)
    slots.release()
    await slots.acquire(seconds=0)
    assert (slots.taken, slots.waiting) == (1, 0)


async def test_tenants_that_wait_take_turns() -> None:
    slots = shared(1)
    await slots.acquire("a")
    got: list[str] = []
    tasks = [
        *await waiting(slots, "a", got, 3),
        *await waiting(slots, "b", got, 2),
        *await waiting(slots, "c", got, 1),
    ]
    holder = "a"
    for number in range(6):
        slots.release(holder)
        await settle()
        assert len(got) == number + 1
        holder = got[-1]
    await asyncio.gather(*tasks)
    assert got == ["b", "c", "a", "b", "a", "a"]


async def test_whoever_had_the_only_slot_goes_behind_those_who_had_none() -> None:
    slots = shared(1)
    await slots.acquire("attacker")
    got: list[str] = []
    tasks = [*await waiting(slots, "attacker", got), *await waiting(slots, "other", got)]
    slots.release("attacker")
    await settle()
    assert got == ["other"], "it waits for one piece of work, however many of others came before"
    slots.release("other")
    await asyncio.gather(*tasks)


async def test_who_has_fewer_slots_goes_first() -> None:
    slots = shared(8)
    for tenant in ("a", "a", "a", "a", "a", "b", "c", "c"):
        assert slots.take(tenant)
    got: list[str] = []
    tasks = [*await waiting(slots, "a", got, 2), *await waiting(slots, "b", got, 2)]
    for tenant in ("c", "c", "a", "a"):
        slots.release(tenant)
        await settle()
    assert got == ["b", "b", "a", "a"], "although the others came first"
    await asyncio.gather(*tasks)


async def test_one_tenant_of_several_leaves_a_quarter_of_the_slots_to_others() -> None:
    slots = shared(8)
    got: list[str] = []
    tasks = await waiting(slots, "a", got, 10)
    assert (slots.held("a"), slots.waiting) == (6, 4)
    assert slots.take("b"), "what is left is for others, who do not wait"
    assert slots.take("c")
    assert not slots.take("b")
    slots.release("c")
    await settle()
    assert slots.held("a") == 6
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("limit", [1, 2, 3, 8, 100])
async def test_a_tenant_that_is_alone_has_all_slots(limit: int) -> None:
    slots = Slots(limit)
    assert [slots.take("a") for _ in range(limit + 1)] == [True] * limit + [False]
    assert not slots.take("b")
    slots.release("a")
    got: list[str] = []
    tasks = [*await waiting(slots, "a", got), *await waiting(slots, "b", got)]
    await settle()
    assert got[0] == ("a" if limit == 1 else "b"), "from now on there are two"
    slots.release("a")
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_one_queue_has_seen_of_tenants_holds_for_all_of_them() -> None:
    queues = Queues()
    first, second = Slots(4, queues.named("first")), Slots(4, queues.named("second"))
    assert first.take("a")
    assert first.take("b")
    assert [second.take("a") for _ in range(4)] == [True, True, True, False]


async def test_only_so_many_of_a_tenant_wait_and_the_next_is_told_where_and_what_to_do() -> None:
    slots = shared(1, most_waiting=2)
    await slots.acquire("a")
    got: list[str] = []
    tasks = await waiting(slots, "a", got, 2)
    with pytest.raises(QueueFullError, match=r"2 .* queue 'things' .*max_waiting.*Try again"):
        await slots.acquire("a")
    tasks += await waiting(slots, "b", got, 1)
    assert slots.waiting == 3, "others may wait"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_queue_knows_how_many_wait_and_how_long_each_has() -> None:
    queues = Queues()
    new: list[Queue] = []
    queues.on_new = new.append
    queue = queues.named("things")
    waited: list[float] = []
    queue.observe = waited.append
    one, other = Slots(1, queue), Slots(1, queues.named("things"))
    assert new == [queue]
    await one.acquire("a")
    await other.acquire("a")
    assert (queue.waiting, waited) == (0, [])
    got: list[str] = []
    tasks = [*await waiting(one, "a", got), *await waiting(other, "a", got)]
    assert queue.waiting == 2
    one.release("a")
    other.release("a")
    await asyncio.gather(*tasks)
    assert (queue.waiting, len(waited)) == (0, 2)


def test_a_loop_that_is_closed_keeps_nobody_from_a_slot() -> None:
    slots = shared(1)
    got: list[str] = []

    async def leave_somebody_waiting() -> None:
        await slots.acquire("a")
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
        await waiting(slots, "b", got)

    loop = asyncio.new_event_loop()
    task = loop.create_task(leave_somebody_waiting())
    loop.run_forever()
    pending = asyncio.all_tasks(loop)
    loop.close()
    slots.release("a")
    assert slots.taken == 0
    asyncio.run(slots.acquire("c", 60))
    assert slots.held("c") == 1
    for one in (task, *pending):
        one._log_destroy_pending = False  # type: ignore[attr-defined] # they were left on purpose


class Story:
    """Some hundred workers of several tenants that want slots, leave, are cancelled, and come again, by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.limit = self.random.randint(1, 6)
        self.slots = shared(self.limit)
        self.running: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    async def work(self, tenant: str) -> None:
        await self.slots.acquire(tenant, 60)
        self.running[tenant] += 1
        assert self.running.total() <= self.limit
        assert self.running[tenant] <= max(1, self.limit - max(1, self.limit // 4))
        try:
            for _ in range(self.random.randint(0, 3)):
                await asyncio.sleep(0)
        finally:
            self.running[tenant] -= 1
            self.slots.release(tenant)
        self.done[tenant] += 1

    async def tell(self) -> None:
        tenants = [f"tenant {number}" for number in range(self.random.randint(2, 5))]
        tasks: list[asyncio.Task[None]] = []
        wanted: Counter[str] = Counter()
        left = 0
        for _ in range(100):
            tenant = tenants[0] if self.random.random() < 0.7 else self.random.choice(tenants)
            wanted[tenant] += 1
            tasks.append(asyncio.create_task(self.work(tenant)))
            if self.random.random() < 0.2:
                await asyncio.sleep(0)
            if self.random.random() < 0.2:
                self.random.choice(tasks).cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
            left += task.cancelled()
        assert self.done.total() + left == wanted.total(), "everybody had a turn, or did not want it any more"
        assert (self.slots.taken, self.slots.waiting) == (0, 0)
        assert not self.slots._held


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_nobody_starves_and_no_slot_is_lost_whatever_happens(seed: int) -> None:
    async with asyncio.timeout(60):
        await Story(seed).tell()


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_a_tenant_waits_for_as_many_turns_as_there_are_others(seed: int) -> None:
    chance = random.Random(seed)
    limit = chance.randint(1, 6)
    slots = shared(limit)
    others = [f"other {number}" for number in range(chance.randint(1, 4))]
    got: list[str] = []
    tasks = []
    for other in others:
        tasks += await waiting(slots, other, got, chance.randint(1, 40))
    await settle()
    running = list(got)
    held = len(running)
    tasks += await waiting(slots, "late", got)
    await settle()
    for _ in range(len(others) + 1):
        if "late" in got:
            break
        slots.release(running.pop(chance.randrange(len(running))))
        await settle()
        running += got[held:]
        held = len(got)
    assert "late" in got, "however many of others came before"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_slot_that_a_thread_gives_back_reaches_whoever_waits() -> None:
    slots = shared(1)
    await slots.acquire("a")
    got: list[str] = []
    tasks = await waiting(slots, "b", got)
    await asyncio.to_thread(slots.release, "a")
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks)
    assert (got, slots.taken) == (["b"], 1)
    await asyncio.to_thread(slots.release, "b")
    assert slots.taken == 0
    assert slots.take("a")


async def test_slots_can_become_more_and_fewer_while_some_are_in_use() -> None:
    slots = shared(0)
    got: list[str] = []
    tasks = await waiting(slots, "a", got, 5)
    slots.resize(4)
    await settle()
    assert (slots.taken, slots.waiting) == (3, 2)
    slots.resize(2)
    slots.release("a")
    await settle()
    assert (slots.taken, slots.waiting) == (2, 2), "there are as many as there may be"
    slots.resize(8)
    await asyncio.gather(*tasks)
    assert slots.held("a") == 4


async def test_a_slot_that_a_thread_gives_back_while_another_is_handed_out_costs_nobody_the_turn() -> None:
    slots = shared(2)
    await slots.acquire("a")
    await slots.acquire("b")
    got: list[str] = []
    tasks = [(await waiting(slots, tenant, got))[0] for tenant in "cde"]
    thread = threading.Thread(target=slots.release, args=("a",))
    thread.start()
    thread.join()
    slots.release("b")  # before the loop could count what the thread has given back
    await settle()
    assert (got, slots.taken, slots.waiting) == (["c", "d"], 2, 1)
    slots.release("c")
    await settle()
    assert (got, slots.taken, slots.waiting) == (["c", "d", "e"], 2, 0)
    await asyncio.gather(*tasks)


async def test_any_number_may_wait_where_nobody_has_said_how_many() -> None:
    slots = Slots(1)
    await slots.acquire()
    got: list[str] = []
    tasks = await waiting(slots, "", got, MOST_WAITING + 1)
    assert slots.waiting == MOST_WAITING + 1
    for task in tasks:
        task.cancel()
    assert len(await asyncio.gather(*tasks, return_exceptions=True)) == MOST_WAITING + 1
    assert slots.waiting == 0
