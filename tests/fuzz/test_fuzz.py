"""One-field mutations of every request there is: no answer is a 500, every error tells what is wrong, nothing stops."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.fuzz.stage import Answer, Stage, staged
from tests.fuzz.targets import Case, cases, chats, frames, prepare, valid, valid_chats

from antwort.types import JSON

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))
CASES = 30_000 if FULL else 3_000
CHATS = 3_000 if FULL else 300
"""Cases of chat completions that the engine makes: that of SQLite does."""
SHARDS = 2 if FULL else 1  # each has much to prepare
DATABASES = 2
MESSAGES = 10
"""One case of so many is a message of a WebSocket."""
SHARE = CASES // (SHARDS * DATABASES)
SHARE_OF_CHATS = CHATS // SHARDS
CLIENTS = 4
FAILED = (b"event: response.failed", b"event: error", b'data: {"error"')
"""What a stream tells that went wrong."""
PROBLEMS = 20
"""How many are shown."""


class Findings:
    """What went wrong, and how the answers were."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.unplaced: list[str] = []

    def check(self, case: Case, answer: Answer) -> None:
        """Hold an answer against the rules."""
        self.statuses[answer.status] += 1
        if answer.status >= 500:
            self.problems.append(f"{answer.status} {answer.body[:300]!r}\n    {case}")
        elif answer.status >= 400:
            self._check_error(case, answer.json()["error"] if answer.kind.startswith("application/json") else None)
        elif any(sign in answer.body for sign in FAILED):
            self.problems.append(f"failed {answer.body[-600:]!r}\n    {case}")

    def check_event(self, case: Case, event: JSON) -> None:
        """Hold the last event of an answer against the same rules."""
        status = event.get("status", 200 if event["type"] in {"response.completed", "response.incomplete"} else 500)
        self.statuses[status] += 1
        if status >= 500:
            self.problems.append(f"{event}\n    {case}")
        elif status >= 400:
            self._check_error(case, event["error"])

    def _check_error(self, case: Case, error: JSON | None) -> None:
        if case.path.startswith("/v1/messages"):
            self._check_message_error(case, error)
            return
        named = {"message", "type", "code", "param"}
        if error is None or not named <= set(error) or not isinstance(error["message"], str) or not error["message"]:
            self.problems.append(f"no error of the API: {error}\n    {case}")
        elif "Traceback" in error["message"] or "\n  File" in error["message"]:
            self.problems.append(f"a traceback: {error}\n    {case}")
        elif case.field and error["param"] is None and error["code"] not in {"invalid_json", "invalid_type"}:
            self.unplaced.append(f"{error}\n    {case}")

    def _check_message_error(self, case: Case, error: JSON | None) -> None:
        """Hold an error in Anthropic's envelope against the rules: it names its field in what it says."""
        if error is None or error.keys() != {"message", "type"} or not error["message"]:
            self.problems.append(f"no error of the API: {error}\n    {case}")
        elif "Traceback" in error["message"] or "\n  File" in error["message"]:
            self.problems.append(f"a traceback: {error}\n    {case}")
        elif case.field and case.field.split(".")[0].split("[")[0] not in error["message"]:
            self.unplaced.append(f"{error}\n    {case}")


async def _ask(stage: Stage, queue: "asyncio.Queue[Case]", findings: Findings) -> None:
    client = await stage.client()
    while not queue.empty():
        case = queue.get_nowait()
        try:
            findings.check(case, await client.ask(case.method, case.path, case.body))
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError) as error:
            findings.problems.append(f"no answer: {error!r}\n    {case}")
            await client.close()
            client = await stage.client()
        findings.problems += [f"logged {found[-1500:]}\n    {case}" for found in stage.complaints.take()]
    await client.close()


async def _tell(stage: Stage, messages: Iterable[Case], findings: Findings) -> None:
    async with stage.socket() as socket:
        for case in messages:
            await socket.send(case.body.decode(errors="replace"))
            event = await stage.receive(socket)
            while event["type"] not in {"response.completed", "response.incomplete", "response.failed", "error"}:
                event = await stage.receive(socket)
            findings.check_event(case, event)
            findings.problems += [f"logged {found[-1500:]}\n    {case}" for found in stage.complaints.take()]


def _sample(all_cases: Iterable[Case], count: int, shard: int) -> list[Case]:
    """Choose cases, others in each shard; the same ones each time."""
    found = list(all_cases)
    random.Random(17).shuffle(found)
    return found[shard :: SHARDS * DATABASES][:count]


async def _fuzz(stage: Stage, shard: int, *, makes_chats: bool) -> Findings:
    findings = Findings()
    client = await stage.client()
    known = await prepare(client)
    for case in [*valid(known), *(valid_chats(known) if makes_chats else ())]:
        answer = await client.ask(case.method, case.path, case.body)
        assert answer.status == 200, f"{answer}\n    {case}"
    queue: asyncio.Queue[Case] = asyncio.Queue()
    for case in _sample(cases(known), SHARE - SHARE // MESSAGES, shard):
        queue.put_nowait(case)
    for case in _sample(chats(known), SHARE_OF_CHATS, shard) if makes_chats else ():
        queue.put_nowait(case)
    await client.close()
    await asyncio.gather(*(_ask(stage, queue, findings) for _ in range(CLIENTS)))
    await _tell(stage, _sample(frames(known), SHARE // MESSAGES, shard), findings)
    client = await stage.client()
    answer = await client.ask("POST", "/v1/responses", b'{"model": "chat", "input": "Hello!"}')
    assert answer.status == 200
    await client.close()
    return findings


@pytest.mark.parametrize("shard", range(SHARDS))
async def test_no_mutation_of_a_request_is_an_error_of_the_server(
    tmp_path: Path, database_url: str, shard: int
) -> None:
    makes_chats = not database_url.startswith("postgres")
    async with staged(tmp_path, database_url, makes_chats=makes_chats) as stage:
        findings = await _fuzz(stage, shard + (0 if makes_chats else SHARDS), makes_chats=makes_chats)
    assert not findings.problems, f"{len(findings.problems)} problems:\n" + "\n".join(findings.problems[:PROBLEMS])
    assert sum(findings.statuses.values()) == SHARE + (SHARE_OF_CHATS if makes_chats else 0)
    assert findings.statuses.keys() >= {200, 400, 404}
