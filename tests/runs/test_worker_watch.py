"""Workers that watch each other: who is alive, who is dead, and who cannot work beside whom."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antwort.errors import ConfigError
from antwort.runs.workers import Sharing, WorkerWatch
from antwort.storage.identities import WorkerIdentities
from antwort.storage.sql.store import Store
from antwort.storage.sqlite import SqliteStore

LEASE = 10.0
BEAT = LEASE / 5
NOTHING = Sharing()


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A database that workers share."""
    store = SqliteStore.open(tmp_path / "shared.db")
    yield store
    await store.close()


class Team:
    """Workers, each with a data folder of its own unless it is told otherwise, and with one clock."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self.clock = Clock()

    async def worker(
        self, folder: str, sharing: Sharing = NOTHING, *, lease: float = LEASE, works: bool = True
    ) -> WorkerWatch:
        """Let a worker join."""
        identities = WorkerIdentities(self._folder / folder)
        watch = WorkerWatch(self._store.workers, identities, lease=lease, works=works, clock=self.clock)
        await watch.join(sharing)
        return watch

    async def pass_time(self, seconds: float, *alive: WorkerWatch, owners: set[str] | None = None) -> None:
        """Let time pass in which some look as often as they have to."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += BEAT
            for worker in alive:
                await worker.look(owners or set())


@pytest.fixture
def team(store: Store, tmp_path: Path) -> Team:
    return Team(store, tmp_path)


async def test_who_looks_is_alive_and_who_stands_still_for_a_lease_is_dead(team: Team) -> None:
    first, second = await team.worker("a"), await team.worker("b")
    await team.pass_time(3 * LEASE, first, second)
    assert not first.is_dead(second.own)
    assert not second.is_dead(first.own)
    assert [row.id for row in first.others] == [second.own]

    await team.pass_time(LEASE - BEAT, first)
    assert not first.is_dead(second.own)
    await team.pass_time(2 * BEAT, first)
    assert first.is_dead(second.own)
    assert first.others == []


async def test_of_two_leases_the_longer_one_counts(team: Team) -> None:
    quick, slow = await team.worker("a"), await team.worker("b", lease=6 * LEASE)
    await team.pass_time(5 * LEASE, quick)  # it beats seldom
    assert not quick.is_dead(slow.own)
    await team.pass_time(2 * LEASE, quick)
    assert quick.is_dead(slow.own)

    await team.pass_time(BEAT, quick, slow)
    await team.pass_time(5 * LEASE, slow)
    assert not slow.is_dead(quick.own)


async def test_who_is_busy_for_longer_than_a_lease_says_that_it_lives(team: Team, store: Store) -> None:
    worker = await team.worker("a")
    [before] = await store.workers.all()
    await worker.stay_alive()
    assert await store.workers.all() == [before]
    team.clock.now += BEAT
    await worker.stay_alive()
    [after] = await store.workers.all()
    assert after.beats == before.beats + 1


async def test_who_was_taken_for_dead_is_alive_again_with_its_next_look(team: Team) -> None:
    first, second = await team.worker("a"), await team.worker("b")
    await team.pass_time(2 * LEASE, first)
    assert first.is_dead(second.own)
    await first.forget(busy=set())
    await first.look()

    await second.look()  # it enters itself anew
    await first.look()
    assert not first.is_dead(second.own)
    await team.pass_time(2 * LEASE, first, second)
    assert not first.is_dead(second.own)


async def test_whoever_could_not_look_for_long_judges_nobody(team: Team) -> None:
    first, second = await team.worker("a"), await team.worker("b")
    await team.pass_time(BEAT, first, second)
    team.clock.now += 5 * LEASE  # the database was away, or this one was frozen
    await first.look()
    assert not first.is_dead(second.own)
    await team.pass_time(LEASE - BEAT, first)
    assert not first.is_dead(second.own)
    await team.pass_time(2 * BEAT, first)
    assert first.is_dead(second.own)


async def test_who_has_left_is_dead_at_once(team: Team) -> None:
    first, second = await team.worker("a"), await team.worker("b")
    await second.close()
    await first.look()
    assert first.is_dead(second.own)
    assert not first.is_dead(first.own)


async def test_who_ended_in_the_same_data_folder_is_dead_at_once(team: Team, store: Store, tmp_path: Path) -> None:
    first = await team.worker("a")
    identities = WorkerIdentities(tmp_path / "a")
    second = WorkerWatch(store.workers, identities, lease=LEASE, clock=team.clock)
    await second.join(NOTHING)
    assert second.own != first.own
    await first.look()
    assert not first.is_dead(second.own)
    identities.release()  # as the kernel does for a process that was killed
    await first.look()
    assert first.is_dead(second.own)


async def test_an_identity_is_the_same_after_a_restart(team: Team) -> None:
    first = await team.worker("a")
    await first.close()
    assert (await team.worker("a")).own == first.own


async def test_a_worker_that_nobody_has_entered_is_dead_after_a_lease(team: Team) -> None:
    first = await team.worker("a")
    owners = {"gone-0"}
    await first.look(owners)
    assert not first.is_dead("gone-0")
    await team.pass_time(LEASE + BEAT, first, owners=owners)
    assert first.is_dead("gone-0")
    assert first.is_dead("")  # what belongs to nobody is anybody's at once


async def test_the_dead_are_forgotten_once_nothing_of_them_is_left(team: Team, store: Store) -> None:
    first, second = await team.worker("a"), await team.worker("b")
    await team.pass_time(2 * LEASE, first)
    await first.forget(busy={second.own})
    assert {row.id for row in await store.workers.all()} == {first.own, second.own}
    await first.forget(busy=set())
    assert {row.id for row in await store.workers.all()} == {first.own}


async def test_one_of_all_leads(team: Team) -> None:
    workers = [await team.worker(folder) for folder in "abc"]
    await team.pass_time(BEAT, *workers)
    assert [worker.leads for worker in workers].count(True) == 1
    leader = next(worker for worker in workers if worker.leads)
    rest = [worker for worker in workers if worker is not leader]
    await team.pass_time(2 * LEASE, *rest)
    assert [worker.leads for worker in rest].count(True) == 1


async def test_two_with_one_identity_part(team: Team, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = await team.worker("a")
    (tmp_path / "copy" / "workers").mkdir(parents=True)
    for file in (tmp_path / "a" / "workers").iterdir():
        (tmp_path / "copy" / "workers" / file.name).write_bytes(file.read_bytes())
    second = await team.worker("copy")
    same = second.own
    assert first.own == same
    await first.look()
    assert first.own != same
    assert "another worker has the identity of this one" in caplog.text
    await team.pass_time(2 * LEASE, first, second)
    assert not first.is_dead(second.own)
    assert not second.is_dead(first.own)


@contextlib.asynccontextmanager
async def beating(watch: WorkerWatch, every: float) -> AsyncIterator[None]:
    """Let a worker show that it lives."""

    async def beat() -> None:
        while True:
            await watch.look()
            await asyncio.sleep(every)

    task = asyncio.create_task(beat())
    yield
    task.cancel()
    await asyncio.wait({task})


FILES = Sharing(local={"storage.s3": "files are here"})


@pytest.mark.parametrize(
    ("one", "other", "where", "why"),
    [
        (FILES, NOTHING, "storage.s3", "files are here"),
        (NOTHING, FILES, "storage.s3", "files are here"),
        (
            Sharing(same={"encryption.key": "1"}),
            Sharing(same={"encryption.key": "2"}),
            "encryption.key",
            "all servers of a database need the same",
        ),
    ],
)
async def test_a_server_that_cannot_share_does_not_start_beside_another(
    team: Team, one: Sharing, other: Sharing, where: str, why: str
) -> None:
    first = await team.worker("a", one, lease=0.5)
    async with beating(first, 0.02):
        with pytest.raises(ConfigError) as refused:
            await team.worker("b", other, lease=0.5)
    assert refused.value.where == where
    assert why in refused.value.message
    await first.look()
    assert first.others == []


async def test_a_server_that_has_died_keeps_nobody_from_starting(team: Team) -> None:
    await team.worker("a", FILES, lease=0.2)
    await team.worker("b", FILES, lease=0.2)


async def test_workers_of_one_data_folder_share_what_is_in_it(team: Team) -> None:
    first = await team.worker("a", FILES, lease=0.2)
    async with beating(first, 0.01):
        await team.worker("a", FILES, lease=0.2)


async def test_a_folder_that_cannot_be_written_gives_an_identity_by_chance(team: Team, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    first, second = await team.worker("file/a"), await team.worker("file/a")
    assert first.own != second.own


async def test_so_many_that_work_are_the_first_for_each_run(team: Team) -> None:
    workers = [await team.worker(f"worker-{number}") for number in range(5)]
    servers = [await team.worker(f"server-{number}", works=False) for number in range(5)]
    await team.pass_time(BEAT, *workers, *servers)
    asked = [[worker.is_among_the_first(f"resp_{number}", 3) for worker in workers] for number in range(100)]
    assert {sum(of_run) for of_run in asked} == {3}
    assert all(any(of_worker) for of_worker in zip(*asked, strict=True))
