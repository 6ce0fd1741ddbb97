"""The work on batches: each request of a file goes where a client's would go, one server works on a batch at a time."""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, field
from starlette.types import ASGIApp, Message

from antwort.concurrency.backoff import Backoff
from antwort.concurrency.contained_tasks import end_tasks
from antwort.concurrency.slots import Queue, Slots
from antwort.config import EngineConfig
from antwort.context import Context, Principal
from antwort.context.context import BATCHES_WRITE
from antwort.errors import APIError, BadGatewayError, NotFoundError, PayloadTooLargeError
from antwort.observability import bind_log_context
from antwort.server.batch_lines import (
    CANCELLED,
    EXPIRED,
    NO_JSON,
    AnswerLines,
    BatchLimits,
    BatchLine,
    BatchRequest,
    CheckModel,
    LineReader,
    MessageLines,
    Unmade,
    outcome_of,
)
from antwort.storage.base import FileRecord, Page, StoreUnavailableError
from antwort.storage.batches import OVER, Batch, BatchError, BatchErrors, Batches, BatchOfMessages, OpenBatch, Outcome
from antwort.types import JSON
from antwort.web.answers import as_api_error
from antwort.web.requests import CONTEXT, REQUEST_ID
from antwort.wire.ids import new_id

logger = logging.getLogger(__name__)

ENDPOINTS = ("/v1/responses", "/v1/chat/completions", "/v1/completions", "/v1/embeddings")
_OUTPUT, _INPUT = "batch_output", "batch"
"""Purposes of files."""
_MAY_PASS = {429, 502, 503, 504}
"""What is tried again: the model server is busy, or away."""
_TRIES = 6
_MOST_WORKS = 16
"""Batches that a server works on at a time."""
_MOST_OF_TENANT = 4
"""Those of them that one tenant has: the others need not wait for all of his."""
_MAKING = 3600
"""Seconds after which a batch that is not there yet will not come any more."""
_INPUT_KEPT = 7 * 86_400
"""Seconds after which requests go that no batch was made of, or that nobody has come to in all that time."""
_CLOSE_TIMEOUT = 5.0

ReadFile = Callable[..., Awaitable[AsyncIterator[bytes]]]
"""Returns the content of a tenant's file, by its id; raises a NotFoundError if there is none."""
CreateFile = Callable[..., Awaitable[FileRecord]]
"""Keeps a file of a tenant, with a name and a purpose."""
DeleteFile = Callable[..., Awaitable[None]]
ListFiles = Callable[..., Awaitable[Page]]
KeyHolder = Callable[[str, str], Awaitable[Principal | None]]
"""Returns whom an API key of a tenant stands for, by its id; None if it was revoked or has expired."""


class BatchFiles:
    """The files that batches are read from and written to."""

    def __init__(self, read: ReadFile, create: CreateFile, delete: DeleteFile, listed: ListFiles) -> None:
        self._read, self._create, self._delete, self._list = read, create, delete, listed

    async def keep_requests(self, tenant: str, batch: Batch, content: AsyncIterator[bytes]) -> str:
        """Keep the requests of a batch that came with it; return the id of the file."""
        name, until = f"{batch.id}.jsonl", batch.created_at + _INPUT_KEPT
        kept = await self._create(tenant, name, _INPUT, content, part_of=batch.holder, expires_at=until)
        return kept.id

    async def requests(self, tenant: str, batch: Batch) -> AsyncIterator[bytes]:
        """Return the content of the file of requests; a NotFoundError if there is none."""
        return await self._read(tenant, batch.input_file_id, part_of=batch.holder)

    async def create(self, tenant: str, batch: Batch, content: AsyncIterator[bytes], *, fine: bool) -> str:
        """Keep answers that are fine, or others; return the id of the file."""
        name = _names(batch)[not fine]
        return (await self._create(tenant, name, _OUTPUT, content, part_of=batch.holder)).id

    async def answers(self, tenant: str, batch: Batch) -> AsyncGenerator[bytes, None]:
        """Yield what came of a batch that is over; a NotFoundError if that is gone."""
        for file_id in filter(None, (batch.output_file_id, batch.error_file_id)):
            async for piece in await self._read(tenant, file_id, part_of=batch.holder):
                yield piece

    async def forget(self, tenant: str, batch: Batch, file_ids: Iterable[str | None]) -> None:
        """Delete files of a batch that nobody was told of, or needs any more."""
        for file_id in filter(None, file_ids):
            with contextlib.suppress(NotFoundError):
                await self._delete(tenant, file_id, part_of=batch.holder)

    async def forget_own(self, tenant: str, batch: Batch) -> None:
        """Delete all files that a batch keeps for itself alone."""
        await self.forget(tenant, batch, (batch.input_file_id, batch.output_file_id, batch.error_file_id))

    async def forget_others(self, tenant: str, batch: Batch) -> None:
        """Delete the files of a batch that is over which it does not name."""
        after, more = None, True
        while more:
            page = await self._list(tenant, purpose=_OUTPUT, after=after, part_of=batch.holder)
            since = [file for file in page.data if file.created_at >= batch.created_at]
            after, more = page.data[-1].id if page.data else None, page.has_more and len(since) == len(page.data)
            own = {batch.output_file_id, batch.error_file_id}
            others = [file.id for file in since if file.filename in _names(batch) and file.id not in own]
            await self.forget(tenant, batch, others)


def _names(batch: Batch) -> tuple[str, str]:
    """Return the names of the files with the answers that are fine, and with the others."""
    return f"{batch.id}_output.jsonl", f"{batch.id}_error.jsonl"


class _Sight(Struct):
    """What was seen of a batch that another server works on: no clock of that server counts."""

    version: int
    since: float


class _TakenOverError(Exception):
    """Another server works on a batch."""


class BatchRunner:
    """Works on batches, also on those that a server has left which is gone."""

    def __init__(
        self,
        settings: EngineConfig,
        batches: Batches[Batch],
        files: BatchFiles,
        check_model: CheckModel,
        key_holder: KeyHolder,
        *,
        queue: Queue,
    ) -> None:
        lease = settings.takeover_after
        self.batches = batches
        self.files = files
        self.limits = BatchLimits(settings.parallel_batch_requests, every=min(2.0, lease / 5), lease=lease)
        self.api: ASGIApp | None = None
        """Where the requests go."""
        self.check_model = check_model
        self.key_holder = key_holder
        self.slots = Slots(self.limits.parallel, queue)
        """Requests of all batches that may be made at a time: one may take as long as its model server likes."""
        self._sights: dict[str, _Sight] = {}
        self._works: dict[str, BatchWork] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for batches."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="the work on batches")

    async def close(self) -> None:
        """Leave all batches to other servers, or to the next start."""
        tasks = [*self._tasks, *([] if self._task is None else [self._task])]
        for name in await end_tasks(tasks, _CLOSE_TIMEOUT):
            logger.warning("%s does not end; it is left behind", name)

    def wake(self, batch: Batch) -> None:
        """Look at once: there is a batch, or one was changed."""
        if (work := self._works.get(batch.id)) is not None:
            work.note(batch)
        self._woken.set()

    async def _run(self) -> None:
        while True:
            try:
                for batch in await self.batches.unfinished():
                    self._look_at(batch)
            except StoreUnavailableError as error:
                logger.warning("nobody looks for batches now: %s", error.message)
            except Exception:
                logger.exception("nobody looks for batches now")
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self.limits.every)

    def _look_at(self, batch: OpenBatch) -> None:
        """Work on a batch if nobody else does: if its owner has given no sign of life for long enough."""
        if batch.id in self._works or self.api is None or len(self._works) >= _MOST_WORKS:
            return
        if sum(work.open.tenant == batch.tenant for work in self._works.values()) >= _MOST_OF_TENANT:
            return
        now, version = time.monotonic(), batch.kept.version
        seen = self._sights.get(batch.id)
        if seen is None or seen.version != version:
            seen = self._sights[batch.id] = _Sight(version, now)
        if version <= 1 or now - seen.since >= self.limits.lease:  # at first nobody has it
            del self._sights[batch.id]
            work = BatchWork(self, batch, self.api)
            task = asyncio.get_running_loop().create_task(self._to_end(work), name=f"batch {batch.id}")
            self._works[batch.id] = work
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _to_end(self, work: "BatchWork") -> None:
        try:
            if await work.run():
                self._woken.set()  # there is room for another one
        except _TakenOverError:
            logger.info("another server works on batch %s", work.open.id)
        except APIError as error:
            logger.warning("batch %s is left for now: %s", work.open.id, error.message)
        except Exception:
            logger.exception("batch %s is left for now", work.open.id)
        finally:
            del self._works[work.open.id]


class BatchWork:
    """The work of one server on one batch, from wherever it is to its end."""

    def __init__(self, runner: BatchRunner, batch: OpenBatch, api: ASGIApp) -> None:
        self.open = batch
        self._runner, self._files, self._limits = runner, runner.files, runner.limits
        self._batches = runner.batches.of(batch.type)
        self._lines: AnswerLines = MessageLines() if batch.type is BatchOfMessages else AnswerLines()
        self._is_later = batch.kept.version > 1
        """Whether another server, or the one before this one, may have left files."""
        self._api = api
        self._backoff = Backoff(1.0, 60.0, 0.5)
        self._work: asyncio.Task[Any] | None = None
        self._batch: Batch | None = None
        self._done: dict[int, Outcome] = {}
        self._lost = False
        self._holding = asyncio.Lock()

    def note(self, batch: Batch) -> None:
        """Take note of how the batch is now: somebody has changed it."""
        self._batch = batch

    async def run(self) -> bool:
        """Bring the batch to its end; False if it is only being made."""
        young = time.time() - self.open.kept.created_at < _MAKING
        if young and await self._batches.find(self.open.tenant, self.open.id) is None:
            return False
        await self._hold()
        loop = asyncio.get_running_loop()
        self._work = loop.create_task(self._bring_to_end(), name=f"{self.open.id}: its requests")
        beats = loop.create_task(self._beat(self._work), name=f"{self.open.id}: signs of life")
        try:
            await self._work
        except asyncio.CancelledError:
            if self._lost:
                raise _TakenOverError from None
            raise
        finally:
            await end_tasks([self._work, beats], _CLOSE_TIMEOUT)
        return True

    async def _hold(self) -> None:
        async with self._holding:
            if not await self._batches.hold(self.open):
                raise _TakenOverError

    async def _beat(self, work: asyncio.Task[Any]) -> None:
        """Say again and again that somebody is at work; stop the work if somebody else is."""
        while True:
            await asyncio.sleep(self._limits.every)
            try:
                await self._hold()
                if self._batch is not None and self._batch.status == "in_progress":
                    await self._note_progress()
            except StoreUnavailableError:
                continue  # if it lasts, somebody else takes the batch over
            except _TakenOverError:
                self._lost = True
                work.cancel()
                return

    # --- from one status to the next ----------------------------------------------------------------------------------

    async def _bring_to_end(self) -> None:
        tenant, name = self.open.tenant, self.open.id
        try:
            batch = self._batch = await self._batches.get(tenant, name)
        except NotFoundError:  # its making was broken off
            await self._batches.close(self.open)
            return
        if batch.status in OVER:
            await self._forget(batch)
            return
        total = batch.request_counts.total
        if not total:  # else the file was right, and may be gone by now
            total, errors = await self._validated(batch)
            if errors:
                await self._forget(await self._change(lambda known: _fail(known, errors)))
                return
            batch = await self._change(lambda known: _begin(known, total))
        self._done = await self._batches.answered(tenant, name)
        if batch.status != "finalizing":
            await self._answer_all(batch)
        if problem := await self._finish(total):
            await self._forget(await self._change(lambda known: _fail(known, [problem])))

    async def _change(self, change: Callable[[Batch], None]) -> Batch:
        """Change the batch, unless another server has brought it to its end: it stays as it is then."""

        def checked(known: Batch) -> None:
            if known.status in OVER:
                raise _TakenOverError
            change(known)

        if self._lost:
            raise _TakenOverError
        self._batch = await self._batches.change(self.open.tenant, self.open.id, checked)
        return self._batch

    async def _forget(self, batch: Batch) -> None:
        """Forget what is only needed while a batch is not over, and files of servers that did not come to its end."""
        if self._is_later:
            await self._files.forget_others(self.open.tenant, batch)
        if batch.holder:
            await self._files.forget(self.open.tenant, batch, [batch.input_file_id])
        await self._batches.close(self.open)

    async def _note_progress(self) -> None:
        outcomes = Counter(self._done.values())
        await self._change(lambda known: known.count(outcomes))

    # --- the file of requests -----------------------------------------------------------------------------------------

    async def _validated(self, batch: Batch) -> tuple[int, list[BatchError]]:
        """Return how many requests a file has, or what is wrong with them."""
        reader = LineReader(batch.endpoint, self._runner.check_model, self._limits)
        try:
            async with aclosing(self._read(batch)) as lines:
                async for line in lines:
                    await reader.take(line)
                    if reader.is_full:
                        break
        except NotFoundError as error:
            return 0, [BatchError("invalid_request", error.message, param="input_file_id")]
        if reader.is_too_long:
            message = f"The file has more than {self._limits.lines:,} requests, or too many lines without one."
            reader.errors.append(BatchError("invalid_request", message, param="input_file_id"))
        if not reader.names and not reader.errors:
            reader.errors.append(BatchError("empty_file", "The file has no requests.", param="input_file_id"))
        return len(reader.names), reader.errors

    async def _read(self, batch: Batch) -> AsyncGenerator[bytes, None]:
        """Yield the lines of the file, each no longer than it may be and a little more."""
        left = b""
        async for piece in await self._files.requests(self.open.tenant, batch):
            *lines, left = (left + piece).split(b"\n")
            for line in lines:
                yield line
            if len(left) > self._limits.line_bytes:
                break
        yield left

    async def _requests(self, batch: Batch) -> AsyncGenerator[BatchLine, None]:
        """Yield the requests without an answer of a file that was found to be right, as far as it is still there."""
        number = 0
        with contextlib.suppress(NotFoundError, *NO_JSON):
            async with aclosing(self._read(batch)) as lines:
                async for line in lines:
                    number += 1
                    if line.strip() and number not in self._done:
                        found = msgspec.json.decode(line, type=BatchRequest)
                        yield BatchLine(found.custom_id, found.body, number)

    # --- answering ----------------------------------------------------------------------------------------------------

    async def _answer_all(self, batch: Batch) -> None:
        """Make all requests."""
        taking = asyncio.Lock()
        async with aclosing(self._requests(batch)) as requests:

            async def answer_some() -> None:
                while True:
                    async with taking:
                        line = await anext(requests, None)
                    if line is None:
                        return
                    await self._answer(line)

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._limits.parallel):
                        group.create_task(answer_some())
            except ExceptionGroup as found:
                raise found.exceptions[0] from None

    async def _answer(self, line: BatchLine) -> None:
        """Make a request, unless the batch is over, and keep what came of it."""
        tries = 0
        while (why := self._why_over()) is None:
            async with self._runner.slots.taken_by(self.open.tenant):
                if self._why_over() is not None:  # it has waited, for as long as the requests of others took
                    continue
                scopes = await self._scopes()
                if scopes is None:
                    await self._change(partial(_revoke, key_id=self.open.owner.key_id))
                    continue
                request_id = new_id("req")
                status, body = await self._asked(line, scopes, request_id)
            tries += 1
            if status not in _MAY_PASS or tries >= _TRIES:
                answer = self._lines.made(line, request_id, status, body)
                await self._keep(line, answer, outcome_of(status))
                return
            await asyncio.sleep(self._backoff.pause(tries - 1))
        await self._keep(line, self._lines.unmade(line, why), why.outcome)

    async def _scopes(self) -> frozenset[str] | None:
        """Return what requests may do now; None if whoever has made the batch may not make any."""
        owner = self.open.owner
        if owner.key_id is None:
            return frozenset(owner.scopes)
        holder = await self._runner.key_holder(self.open.tenant, owner.key_id)
        return None if holder is None or not holder.grants(BATCHES_WRITE) else holder.scopes

    def _why_over(self) -> Unmade | None:
        """Return why no request is made any more; None if they are."""
        batch = self._batch
        if batch is None or batch.status == "cancelling":
            problem = None if batch is None or batch.errors is None else batch.errors.data[0]
            return CANCELLED if problem is None else Unmade("errored", problem.code, problem.message)
        return EXPIRED if batch.expires_at is not None and time.time() >= batch.expires_at else None

    async def _keep(self, line: BatchLine, answer: JSON, outcome: Outcome) -> None:
        if self._lost:
            raise _TakenOverError
        if not await self._batches.answer(self.open.tenant, self.open.id, line.number, answer, outcome):
            await self._hold()  # whoever has answered it may have the batch
        self._done[line.number] = outcome

    async def _asked(self, line: BatchLine, scopes: frozenset[str], request_id: str) -> tuple[int, JSON]:
        """Make a request as a client would, with the rights of whoever has made the batch."""
        owner, url = self.open.owner, self._batch.endpoint if self._batch is not None else ""
        ctx = Context(self.open.tenant, owner.subject, scopes, request_id=request_id, key_id=owner.key_id)
        body = bytes(line.body)
        headers = {"content-type": "application/json", "content-length": str(len(body)), **owner.headers}
        scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": url,
            "raw_path": url.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": None,
            "server": None,
            CONTEXT: ctx,
            REQUEST_ID: request_id,
        }
        exchange = _Answering(body)
        with bind_log_context(request_id=request_id):
            try:
                await self._api(scope, exchange.receive, exchange.send)
                return exchange.status, exchange.answer()
            except Exception as error:  # noqa: BLE001 - what is no refusal goes to the log
                refusal = as_api_error(error, f"POST {url} of a batch", request_id)
                return refusal.status, self._lines.refused(refusal, request_id)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _finish(self, total: int) -> BatchError | None:
        """Write the answers into files, and end the batch; return why that cannot be."""
        await self._note_progress()
        batch = await self._change(lambda known: known.enter("finalizing") if known.status == "in_progress" else None)
        made: dict[bool, str | None] = {}

        def end(known: Batch) -> None:
            known.output_file_id, known.error_file_id = made[True], made[False]
            if len(self._done) < total:
                _give_up(known, total, len(self._done))
            elif known.status == "cancelling":
                known.enter("cancelled")
            else:
                known.enter("expired" if "expired" in self._done.values() else "completed")

        try:
            for fine in (True, False):
                made[fine] = await self._file(batch, fine=fine)
            ended = await self._change(end)
        except BaseException as error:
            await asyncio.shield(self._files.forget(self.open.tenant, batch, made.values()))
            if not isinstance(error, APIError) or not self._is_hopeless(error, batch):
                raise
            return BatchError(error.code or "invalid_request", error.message)
        await self._forget(ended)
        return None

    def _is_hopeless(self, error: APIError, batch: Batch) -> bool:
        """Tell whether a file can never be written; where the tenant only has no room, there is time to make some."""
        if isinstance(error, PayloadTooLargeError):
            return True
        late = batch.expires_at is not None and time.time() >= batch.expires_at
        return late and not isinstance(error, StoreUnavailableError)

    async def _file(self, batch: Batch, *, fine: bool) -> str | None:
        """Write the answers that are fine, or the others, into a file, if there are some."""
        if not any((outcome == "succeeded") is fine for outcome in self._done.values()):
            return None
        answers = self._batches.answers(self.open.tenant, batch.id, fine=fine)
        return await self._files.create(self.open.tenant, batch, _encoded(answers), fine=fine)


def _fail(batch: Batch, errors: list[BatchError]) -> None:
    if batch.status == "cancelling":
        batch.enter("cancelled")
        return
    batch.errors = BatchErrors(data=errors)
    batch.enter("failed")


def _begin(batch: Batch, total: int) -> None:
    batch.request_counts.total = total
    if batch.status == "validating":
        batch.enter("in_progress")


def _revoke(batch: Batch, key_id: str | None) -> None:
    """Let a batch end whose key is good for nothing any more."""
    if batch.status == "in_progress":
        message = (
            f"The API key '{key_id}', with which the batch was made, was revoked, has expired or has lost the scope "
            f"'{BATCHES_WRITE}' before this request was made."
        )
        batch.errors = BatchErrors(data=[BatchError("key_revoked", message)])
        batch.enter("cancelling")


def _give_up(batch: Batch, total: int, done: int) -> None:
    """End a batch with requests that are gone."""
    batch.request_counts.failed = total - batch.request_counts.completed
    message = (
        f"The file of requests is gone, or cannot be read any more: {total - done:,} of them were not made. "
        "What was answered before is in the files of the batch."
    )
    _fail(batch, [BatchError("invalid_request", message, param="input_file_id")])


async def _encoded(answers: AsyncIterator[JSON]) -> AsyncIterator[bytes]:
    async for answer in answers:
        yield msgspec.json.encode(answer) + b"\n"


class _Answering(Struct):
    """A request and its answer, without a connection."""

    body: bytes
    status: int = 500
    pieces: list[bytes] = field(default_factory=list)
    is_read: bool = False

    async def receive(self) -> Message:
        """Return the body; whoever waits for more waits for a client that does not leave."""
        if self.is_read:
            await asyncio.Event().wait()
        self.is_read = True
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Take a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self.pieces.append(message.get("body", b""))

    def answer(self) -> JSON:
        """Return the body of the answer; a BadGatewayError if it is no JSON."""
        try:
            found: JSON = msgspec.json.decode(b"".join(self.pieces) or b"{}")
        except NO_JSON:  # what a model server says to an embedding is passed on as it is
            raise BadGatewayError("The answer of the model server is not valid JSON.") from None
        return found
