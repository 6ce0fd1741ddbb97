"""Background runs in this process: tasks, an event log, recovery.

Where several workers share a database each run belongs to one of them, until that one is gone: then whoever sees it
first goes on with it. Another one only takes a run to cancel it, or because its answer came there, and reads its events
from the store.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from antwort.concurrency.contained_tasks import end_tasks
from antwort.concurrency.large_work import is_large
from antwort.concurrency.peers import Letters, Peers
from antwort.concurrency.slots import Queues
from antwort.context import Context
from antwort.engine.engine import Engine, not_found
from antwort.engine.journal import Journal
from antwort.engine.output.events import Events
from antwort.engine.plan import Plan
from antwort.engine.planning.continuing import is_answer
from antwort.engine.planning.input import read_input
from antwort.engine.turns.parts import Earlier
from antwort.errors import BadRequestError, ServiceUnavailableError
from antwort.runs.agents import AgentRuns
from antwort.runs.background import (
    TAKEOVERS,
    BackgroundParts,
    BackgroundRun,
    Readers,
    RecoverySlot,
    Takeover,
    TakeoverQueue,
    takeovers_of,
)
from antwort.runs.limits import TenantLimits
from antwort.runs.questions import CANCEL_GRACE, RunQuestions
from antwort.runs.recovery import RunLog, RunSink, StoredRun
from antwort.runs.run import patiently
from antwort.runs.waiting import WaitingRuns
from antwort.runs.workers import BEATS, WorkerWatch
from antwort.storage.base import (
    ACTIVE,
    CrowdedError,
    FencedError,
    StoredEvent,
    StoreUnavailableError,
)
from antwort.storage.sql.responses import WORKER, UnfinishedRun
from antwort.types import JSON
from antwort.wire.requests import CreateResponse

logger = logging.getLogger(__name__)


T = TypeVar("T")


LOOK = 0.5
"""Seconds between two looks at a run that somebody else executes; mostly that one tells when there is something new."""
_YIELD = 0.1
"""Seconds that a worker which is as busy as it may be leaves others to take a run; one with less to do leaves less."""
_ASKED = 3
"""Workers that try to take a run as soon as it is anybody's: if all did, it would cost as much as there are of them."""
_ASKING = 5.0
"""Seconds that a run has to ask what somebody answers already."""
_NEWS, _TAKEN, _READER, _READER_LEFT = "news", "taken", "reader", "reader left"
"""What workers tell each other about a run: it has new events, it was taken over, somebody reads it, or no longer."""
_QUEUED = "queued"
"""And that a run is anybody's: its tenant, its id and its epoch."""


def _nothing() -> None:
    """Do nothing."""


def _call_all(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        call()


async def _contain(response_id: str, work: Callable[[], Awaitable[None]]) -> None:
    """Work on a run, in a task of its own: nothing that is raised there ends the loop, and with it everything else."""
    try:
        await work()
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException:
        logger.exception("the work on background response %s has ended; the next start goes on with it", response_id)


class LocalRuns:
    """Executes background runs as tasks. A run that is cut off by the end of the process goes on at the next start."""

    def __init__(
        self,
        engine: Engine,
        limits: TenantLimits | None = None,
        peers: Peers | None = None,
        questions: RunQuestions | None = None,
        queues: Queues | None = None,
        *,
        watch: WorkerWatch | None = None,
        letters: Letters | None = None,
        works: bool = True,
    ) -> None:
        self.engine = engine
        self._works = works
        """Whether runs are executed here; else by other workers of the database."""
        self._watch = watch
        self._near = peers or Peers()
        self._far = letters
        self.limits = limits or TenantLimits()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._readers = Readers()
        for sender in filter(None, (self._near, self._far)):
            sender.hear(_NEWS, self.wake)
            sender.hear(_TAKEN, self._give_up_task)
            sender.hear(_READER, self._readers.come_elsewhere)
            sender.hear(_READER_LEFT, self._readers.leave_elsewhere)
            if works:
                sender.hear(_QUEUED, self._begin_queued)
        self._unattended: set[tuple[str, int]] = set()
        """Runs, with their epochs, on which nobody worked at the last look."""
        self._foreign: set[tuple[str, int]] = set()
        """Runs, with their epochs, that were worked on here at the last look though another worker has them."""
        self._looks = 0
        self._closing = False
        # What was accepted before is not refused now, however much it is.
        queues = queues or Queues()
        recovery = queues.named("recovery", bounded=False)
        self._queue = TakeoverQueue(engine.settings.parallel_recoveries, recovery)
        self.agents = AgentRuns(engine)
        self.questions = questions or RunQuestions(engine.store.questions)
        self.questions.go_on = self.go_on
        self.waiting = 0
        """Runs that belonged to no worker at the last look."""
        self.on_takeover: Callable[[], None] = _nothing
        """Called for each run that is taken over."""
        most = None if watch is None else self.limits.most_runs
        self._waiting = WaitingRuns(engine.settings.parallel_runs, queues, most)
        self._beginning: asyncio.TimerHandle | None = None
        self._parts = BackgroundParts(
            engine, self.agents, self._readers, self._tell, self._worker, self._give_away, most
        )

    @property
    def idle(self) -> bool:
        """Tell whether nothing is kept in memory: there is neither a run nor a reader."""
        return not self._tasks and self._readers.none

    @property
    def stopping(self) -> bool:
        """Whether readers of runs that are not over have to go, because the server stops."""
        return self._closing

    @property
    def active(self) -> int:
        """How many runs this worker works on."""
        return len(self._tasks)

    @property
    def workers(self) -> int:
        """How many workers of the database are alive, as far as is known, this one included."""
        return 1 if self._watch is None else 1 + len(self._watch.others)

    async def accept(self, plan: Plan) -> bytes:
        """Store a new run as queued, start it, and return it as JSON: it will happen, even if the process dies now.

        One that others work on waits for its turn, however many there are.
        """
        leave = self.limits.enter(plan.ctx.tenant, always=not self._works)
        try:
            return await self._accept(plan, leave)
        except BaseException:
            leave()
            raise

    async def _accept(self, plan: Plan, leave: Callable[[], None]) -> bytes:
        plan = self.engine.planner.in_background(plan)
        plan.response.status = "queued"
        record = self.engine.record(plan)
        record.extra = {
            "scopes": sorted(plan.ctx.scopes),
            "shown": msgspec.to_builtins(plan.shown),
            "profile": plan.profile,
            "compact_only": plan.compact_only,
            "refused": plan.refused,
        }
        waits = not self._works or self._waiting.most is not None  # then whoever may work on it claims it
        if not waits and (worker := self._worker()):
            record.extra[WORKER] = worker
        run = self._background(record.tenant, record.id)
        log = RunLog(record.id, self._tell)
        events = Events(log.put)
        events.emit("response.created", response=plan.response)
        events.emit("response.queued", response=plan.response)
        journal = Journal(self.engine.store, record, [*plan.input], len(plan.input), log)
        try:
            await journal.save()
        except StoreUnavailableError as error:
            # Nobody knows whether it was stored. Whoever asked is told that it failed, so it must not run.
            self._start(record.id, partial(run.withdraw, error))
            raise
        accepted = msgspec.json.encode(plan.response)
        if waits:
            self._offer(UnfinishedRun(record.tenant, record.id, record.epoch, ""))
            leave()
            return accepted
        loop = self.engine.loop(plan, journal, RunSink(journal, log), Earlier(events.sequence))
        self._start(record.id, partial(run.to_end, loop), leave)
        return accepted

    async def recover(self) -> int:
        """Take up every run that is not over and that nobody works on; return how many there were.

        All are claimed at once, so that nobody else writes to them any more, and go on a few at a time: a start must
        not send a model server more than it takes. The oldest come first, and last those that were taken up before and
        got no further: each alone, the fewer times the earlier.

        Where others share the database this is done again and again, for the runs of those who die.
        """
        found = await self.engine.store.unfinished() if self._works else []
        if self._watch is not None:
            await self._watch.look({run.worker for run in found})
            self._waiting.see(found, (run for run in found if not run.worker))
            found = [run for run in found if self._is_unattended(run, self._watch)]
        await self._take_over(found)
        self.questions.start()
        if self._watch is not None:
            self._watch.start(self._look_after)
            self._begin_waiting()
        return len(found) + await self.questions.go_on_with_answered()

    async def _look_after(self) -> None:
        """Take over the runs of workers that are gone, and those that wait, as many as there is room for.

        Others may take the rest.

        A run of this worker that it does not work on is one that it has lost, as when the store was away in the moment
        in which it was answered. It goes on with such a one as well. Who has just been answered may have no worker for
        a moment, so only those count that nobody has worked on since the look before.
        """
        watch = self._watch
        if watch is None or self._closing:
            return
        await self._go_on_with_answered(watch)
        found = await self.engine.store.unfinished()
        await watch.look({run.worker for run in found})
        self.waiting = sum(not run.worker for run in found)
        if self._works:
            await self._leave_to_others(found, watch)
            await self._take_what_is_left(found, watch)

    async def _take_what_is_left(self, found: Sequence[UnfinishedRun], watch: WorkerWatch) -> None:
        """Begin with runs that wait and take over those of workers that are gone, if they were so at the last look."""
        left = [run for run in found if not run.worker or self._is_unattended(run, watch)]
        before, self._unattended = self._unattended, {(run.id, run.epoch) for run in left}
        sure = [run for run in left if (run.id, run.epoch) in before]
        self._waiting.see(found, (run for run in sure if not run.worker))
        self._begin_waiting()
        await self._take_over([run for run in sure if run.worker][: self._queue.room])
        await watch.forget({run.worker for run in left})

    async def _go_on_with_answered(self, watch: WorkerWatch) -> None:
        """Go on, once in a lease, with runs whose worker died between parking them and seeing that they are answered.

        Those belong to nobody who could be missed, and nobody is told of the answer any more.
        """
        self._looks += 1
        if self._looks % BEATS == 0 and watch.leads:
            await self.questions.go_on_with_answered()

    async def _leave_to_others(self, found: Iterable[UnfinishedRun], watch: WorkerWatch) -> None:
        """Stop to work on runs that others have taken over, if their letters were lost: it would be in vain.

        Who reads such a run here looks at the store again, since what is told here is nothing any more.
        """
        elsewhere = [run for run in found if run.id in self._tasks and run.worker != watch.own]
        foreign = {(run.id, run.epoch) for run in elsewhere}
        for run in elsewhere:
            if (run.id, run.epoch) not in self._foreign:  # it may just be answered here, and is claimed in a moment
                continue
            record = await self.engine.store.get(run.tenant, run.id)
            if record is None or record.epoch == run.epoch:
                self._give_up_task(run.id)
        self._foreign = foreign
        for response_id in self._tasks.keys() - {run.id for run in found}:  # it may be over by others
            self.wake(response_id)

    def _is_unattended(self, run: UnfinishedRun, watch: WorkerWatch) -> bool:
        """Tell whether a run is somebody's who does not work on it."""
        if not run.worker or run.id in self._tasks:
            return False
        return run.worker == watch.own or watch.is_dead(run.worker)

    def _offer(self, run: UnfinishedRun) -> None:
        """Take a run that is anybody's, or tell others of it; who does not hear it finds it with its next looks."""
        if self._works:
            self._waiting.add(run)
            self._begin_waiting()
        if run.id not in self._tasks and self._far is not None:
            self._far.tell(_QUEUED, msgspec.json.encode((run.tenant, run.id, run.epoch)).decode())

    def _begin_queued(self, letter: str) -> None:
        """Take a run that is anybody's, unless another worker is faster: the less one has to do, the faster it is."""
        tenant, response_id, epoch = msgspec.json.decode(letter, type=tuple[str, str, int])
        if "\0" in tenant or "\0" in response_id:
            raise ValueError("no run is called so")
        if self._closing or response_id in self._tasks:
            return
        if self._watch is not None and not self._watch.is_among_the_first(response_id, _ASKED):
            return  # if those have no room, a look shows it
        self._waiting.add(UnfinishedRun(tenant, response_id, epoch, ""))
        if not self._tasks:
            self._begin_waiting()
        elif self._beginning is None:
            pause = _YIELD * min(1.0, len(self._tasks) / self._waiting.limit)
            self._beginning = asyncio.get_running_loop().call_later(pause, self._begin_waiting)

    def _begin_waiting(self) -> None:
        """Begin with runs that are anybody's, as many as there is room for."""
        self._beginning = None
        while not self._closing and (run := self._waiting.take(len(self._tasks))) is not None:
            if run.id in self._tasks:
                self._waiting.end(run)
                continue
            ends = (partial(self._waiting.end, run), self.limits.enter(run.tenant, always=True))
            self._start(run.id, partial(self._begin, run), partial(_call_all, ends))

    async def _begin(self, run: UnfinishedRun) -> None:
        try:
            await self._background(run.tenant, run.id).begin(run.epoch)
        except CrowdedError:
            self._waiting.put_back(run)

    async def _give_away(self, tenant: str, response_id: str) -> None:
        """Let a run be anybody's that can go on."""
        store = self.engine.store
        record = await patiently(lambda: store.claim(tenant, response_id))
        if record is None:
            return
        run = UnfinishedRun(tenant, response_id, record.epoch, "")
        if (task := self._tasks.get(response_id)) is None:
            self._offer(run)
        else:  # it is what gives it away
            task.add_done_callback(lambda _: self._offer(run))

    async def _take_over(self, found: Iterable[UnfinishedRun]) -> None:
        """Claim runs, unless somebody else has been faster, and go on with them in their turns."""
        claimed = []
        for left in found:
            if self._watch is not None:
                await self._watch.stay_alive()  # they may be many
            try:
                record = await self._parts.claim(left.tenant, left.id, epoch=left.epoch, in_turn=True)
            except CrowdedError:  # it was about to go on when its worker died
                await self._give_away(left.tenant, left.id)
                continue
            if record is not None:
                self.on_takeover()
                claimed.append(Takeover(left.tenant, left.id, record.epoch, takeovers_of(record)))
                if left.worker != self._worker():  # who has it may only stand still
                    self._tell_all(_TAKEN, left.id)
        if self._closing:  # nobody would end them any more
            return
        for takeover in sorted(claimed, key=lambda takeover: takeover.before):
            slot = self._queue.slot(takeover)
            # It was accepted, so it counts and is not refused.
            ends = (slot.leave, self._count(takeover.tenant))
            run = self._background(takeover.tenant, takeover.response_id, slot)
            self._start(takeover.response_id, partial(run.take_up, takeover), partial(_call_all, ends))

    async def cancel(self, tenant: str, response_id: str) -> JSON:
        """Cancel a background run and return it; one that is over stays as it is."""
        store = self.engine.store
        record = await store.get(tenant, response_id)
        if record is None:
            raise not_found(response_id)
        if not record.background:
            raise BadRequestError("Cannot cancel a synchronous response.", param="response_id")
        while (claimed := await self._parts.claim(tenant, response_id)) is not None:
            self._tell_all(_TAKEN, response_id)
            await self._stop(response_id)
            self._parts.recovering.pop(response_id, None)
            try:
                await (await StoredRun.load(self.engine, claimed, self._tell)).cancel()
            except FencedError:  # somebody else cancels it too
                continue
            except StoreUnavailableError as error:
                self._start(response_id, partial(self._background(tenant, response_id).withdraw, error))
                raise
            await store.questions.cancel_all(tenant, response_id, int(time.time()))
            await self.agents.cancel_tree(tenant, response_id)
            self._tell(response_id)
            break
        return await self.engine.retrieve(tenant, response_id)

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response, and stop to work on it: nobody could cancel it any more. Tell whether there was one."""
        deleted = await self.engine.store.delete(tenant, response_id)
        if deleted:
            self._tell_all(_TAKEN, response_id)
            self._give_up_task(response_id)
        return deleted

    def go_on(self, tenant: str, response_id: str) -> None:
        """Go on with a run that was parked and has all that it waits for."""
        if self._closing:  # the next start goes on with it
            return
        if self._works:
            run = self._background(tenant, response_id)
            work = partial(run.go_on, self._tasks.get(response_id))
            self._start(response_id, work, self._count(tenant))
        else:
            self._start(response_id, partial(self._give_away, tenant, response_id))

    async def answer(self, create: CreateResponse, ctx: Context) -> bool:
        """Answer what the response before a request waits for with the request's input: it goes on, not another one.

        False if the input is no answer, or nothing waits for one; raise as `RunQuestions.answer_with`.
        """
        given, response_id = create.input, create.previous_response_id
        if response_id is None or not isinstance(given, list) or not any(map(is_answer, given)):
            return False
        checked = (await self.engine.checked(create, ctx)).input
        items = await self.engine.large_work.run_if(is_large(given), read_input, checked)
        if not await self.questions.knows(items, ctx.tenant, response_id):
            # Its output shows a call a moment before it asks and waits, and clients are quick.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ASKING):
                    await self.rest(ctx.tenant, response_id)
        return await self.questions.answer_with(items, ctx, response_id)

    async def rest(self, tenant: str, response_id: str) -> None:
        """Wait until a background run is over, or waits for somebody; when the server stops, as `events` does."""
        with self._readers.reading(response_id), self._telling_peers(response_id):
            while True:
                news = self._readers.news(response_id)
                if await self._is_over(tenant, response_id, to_rest=True):
                    return
                await self._wait(response_id, news)

    async def events(
        self, tenant: str, response_id: str, *, after: int = -1, to_rest: bool = False
    ) -> AsyncGenerator[StoredEvent, None]:
        """Yield the events of a background run, those to come included, until it is over.

        With `to_rest` they also end when it waits for somebody. When the server stops before that, a
        ServiceUnavailableError is raised: the reader is to come back.
        """
        store = self.engine.store
        over = False
        with self._readers.reading(response_id), self._telling_peers(response_id):
            while True:
                news = self._readers.news(response_id)
                seen = after
                found = await patiently(lambda: store.events(tenant, response_id, after=seen))  # noqa: B023 - at once
                for event in found:
                    after = event.sequence
                    yield event
                if found:
                    continue
                if over:
                    return
                over = await self._is_over(tenant, response_id, to_rest=to_rest)
                if not over:
                    await self._wait(response_id, news)

    def wake(self, response_id: str) -> None:
        """Tell readers in this process that there is something new."""
        self._readers.wake(response_id)

    def _tell(self, response_id: str) -> None:
        """Tell readers that there is something new."""
        self.wake(response_id)
        self._near.tell(_NEWS, response_id)
        if self._far is not None and self._readers.is_read_elsewhere(response_id):
            self._far.tell(_NEWS, response_id)

    def _tell_all(self, kind: str, response_id: str) -> None:
        """Send a letter to all workers, those of other servers included."""
        self._near.tell(kind, response_id)
        if self._far is not None:
            self._far.tell(kind, response_id)

    def _worker(self) -> str:
        """Return who works on what is claimed here: this worker, or nobody yet if it works on nothing.

        Nothing also where there can be but one.
        """
        return self._watch.own if self._watch is not None and self._works else ""

    @contextlib.contextmanager
    def _telling_peers(self, response_id: str) -> Iterator[None]:
        """Let whoever has a run know that it is read here."""
        if response_id in self._tasks:
            yield
            return
        self._tell_all(_READER, response_id)
        try:
            yield
        finally:
            self._tell_all(_READER_LEFT, response_id)

    def send_away(self) -> None:
        """Let the readers of runs that are not over go, because the server stops; the runs go on until `close`."""
        self._closing = True
        self._readers.wake_all()

    async def close(self) -> None:
        """Stop all runs where they are. They are unfinished in the store, and go on at the next start."""
        self.send_away()
        if left := await end_tasks(self._tasks.values(), CANCEL_GRACE):
            logger.error("background responses that do not stop are left behind: %s", ", ".join(left))
        await self.questions.close()
        await self._uncount()

    # --- tasks -------------------------------------------------------------------------------------------------------

    async def _uncount(self) -> None:
        """Take back what was counted of runs that are stopped in good order: it was not they that ended the process."""
        store = self.engine.store
        for takeover in self._parts.recovering.values():
            try:
                record = await store.get(takeover.tenant, takeover.response_id)
                if record is not None:
                    await store.note(record.tenant, record.id, record.epoch, {TAKEOVERS: takeover.before})
            except FencedError:
                continue  # another process has it
            except StoreUnavailableError as error:
                logger.warning("runs that were taken up stay counted as such: %s", error.message)
                break
        self._parts.recovering.clear()

    def _start(
        self, response_id: str, work: Callable[[], Awaitable[None]], finished: Callable[[], None] | None = None
    ) -> None:
        task = asyncio.get_running_loop().create_task(_contain(response_id, work), name=response_id)
        self._tasks[response_id] = task

        def ended(_: "asyncio.Task[None]") -> None:
            if finished is not None:  # a task that is cancelled before its first step does not clean up by itself
                finished()
            if self._tasks.get(response_id) is task:
                del self._tasks[response_id]
            self._tell(response_id)
            if self._watch is not None:
                self._begin_waiting()

        task.add_done_callback(ended)

    def _count(self, tenant: str) -> Callable[[], None]:
        """Count a run that was accepted before, and return what ends it."""
        return partial(_call_all, (self.limits.enter(tenant, always=True), partial(self._waiting.free, tenant)))

    def _background(self, tenant: str, response_id: str, slot: RecoverySlot | None = None) -> BackgroundRun:
        return BackgroundRun(self._parts, tenant, response_id, slot)

    def _give_up_task(self, response_id: str) -> None:
        """Stop to work on a run that another worker has taken, or that is gone: its writes are refused already."""
        self.agents.stop(response_id)
        task = self._tasks.get(response_id)
        if task is not None:
            self._parts.recovering.pop(response_id, None)
            task.cancel()

    async def _stop(self, response_id: str) -> None:
        self.agents.stop(response_id)
        task = self._tasks.get(response_id)
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_GRACE)

    async def _wait(self, response_id: str, news: asyncio.Event) -> None:
        """Wait for something new about a run."""
        if self._closing:
            raise ServiceUnavailableError("The server is stopping. The response goes on at its next start.")
        mine = response_id in self._tasks
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if mine else LOOK):
                await news.wait()

    async def _is_over(self, tenant: str, response_id: str, *, to_rest: bool) -> bool:
        """Tell whether a run is over; with `to_rest` also whether it waits for an answer that is not there."""
        record = await patiently(lambda: self.engine.store.get(tenant, response_id))
        if record is None or record.status not in ACTIVE:
            return True
        return to_rest and record.parked and not await self._background(tenant, response_id).has_answer()
