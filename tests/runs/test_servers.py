"""Several servers on one PostgreSQL, each with a data folder of its own, while they are killed, frozen and cut off.

One of them has a clock that is wrong, and the model server hangs and dies beside them.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from mcp.server.mcpserver import MCPServer
from tests.providers.mcp.stage import McpServer, running_server
from tests.runs import mutated, wrong_clock
from tests.runs.cable import Cable
from tests.runs.embedded import events_of
from tests.runs.mutated import MUTATIONS
from tests.runs.processes import ServerProcess
from tests.runs.steady_model import ModelProcess, steady_model
from tests.runs.test_kill_trees import ANSWERS, OVER, TOOLS, check
from tests.support.postgres import PostgresServer

from antwort.engine.window import INTERRUPTED
from antwort.providers.mcp.waiting import LOST
from antwort.testing import lint_response, lint_stream
from antwort.types import JSON

T = TypeVar("T")
FULL = "ANTWORT_TEST_FULL" in os.environ
ROUNDS = 20 if FULL else 2
RUNS = 10 if FULL else 7
"""Runs that begin in each moment of a round: at least one of each kind."""
KINDS = ("run", "tree", "program", "remote", "run", "tree", "slow")
"""Of these kinds: calls one after the other, agents with questions and approvals, calls of a program and of an MCP
server, a call that takes long."""
LEASE = 2.0
PATIENCE = 120.0
AHEAD = 300
"""Seconds that the clock of one server is wrong."""
REQUESTED = [*TOOLS, {"type": "programmatic_tool_calling"}]
KEY = "c2l4dGVlbiBieXRlcywgdHdpY2UsIGFzIGl0IG11c3Q="


class Cluster:
    """Servers on one database, whoever of them is alive, and a client that comes back to another one."""

    def __init__(
        self,
        folder: Path,
        model: str,
        url: str,
        *,
        program: Sequence[str] | None = None,
        patience: float = PATIENCE,
        count: int = 3,
        workers: int = 0,
        remote: str | None = None,
    ) -> None:
        """Make servers, and `workers` of them such that nobody asks, which do the work of the others.

        `remote` is an MCP server whose tools all of them offer.
        """
        self._patience = patience
        self._asked = range(count - workers)
        self.cables = [Cable(url) for _ in range(count)]
        """The way of each to the database."""
        sections: JSON = {
            "storage": {"s3": {"bucket": "none", "endpoint": "http://127.0.0.1:9"}},
            "engine": {"max_takeovers": 10_000, "takeover_after": LEASE},
            "encryption": {"key": KEY},
        }
        self.servers: list[ServerProcess] = []
        for number in range(count):
            place = folder / f"server-{number}"
            place.mkdir()
            options: dict[str, Any] = {} if program is None else {"program": program}
            if program is None and number == 1:
                options = {"program": (wrong_clock.__file__, str(AHEAD))}
            if workers:
                asked = number in self._asked
                options |= {"command": "serve", "with_worker": False} if asked else {"command": "worker"}
            providers: JSON = {name: {"enabled": True} for name in ("user", "variables", "programs")}
            if remote is not None:
                offered = {"url": remote, "offer": "always", "require_approval": "never"}
                providers["mcp"] = {"enabled": True, "settings": {"servers": {"remote": offered}}}
            own = {**sections, "storage": {**sections["storage"], "url": self.cables[number].url}}
            self.servers.append(ServerProcess(place, model, providers=providers, sections=own, **options))
        self.alive: set[int] = set()
        self._clients: dict[int, httpx.AsyncClient] = {}
        self._before: list[httpx.AsyncClient] = []
        """Those of servers that were started anew since."""
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self, *numbers: int) -> None:
        """Start servers."""
        for number in numbers:
            await self.cables[number].start()
        await asyncio.gather(*(asyncio.to_thread(self.servers[number].start) for number in numbers))
        for number in numbers:
            if number in self._clients:
                self._before.append(self._clients[number])
            self._clients[number] = httpx.AsyncClient(base_url=self.servers[number].url, timeout=httpx.Timeout(10.0))
            self.alive.add(number)

    async def close(self) -> None:
        """End all of them, and before them whoever asks them."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for client in (*self._before, *self._clients.values()):
            await client.aclose()
        for server in self.servers:
            with contextlib.suppress(AssertionError):
                server.ask_to_stop(signal.SIGCONT)
            server.kill()
        for cable in self.cables:
            await cable.close()

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Do something meanwhile, as long as there are servers."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def kill(self, number: int) -> None:
        """End one as the kernel does."""
        self.alive.discard(number)
        await asyncio.to_thread(self.servers[number].kill)

    @contextlib.asynccontextmanager
    async def frozen(self, number: int) -> AsyncIterator[None]:
        """Let one stand still, for longer than its lease."""
        self.alive.discard(number)
        self.servers[number].ask_to_stop(signal.SIGSTOP)
        try:
            await asyncio.sleep(2 * LEASE)
            yield
        finally:
            self.servers[number].ask_to_stop(signal.SIGCONT)
            self.alive.add(number)

    @contextlib.asynccontextmanager
    async def cut_off(self, number: int) -> AsyncIterator[None]:
        """Cut one off from the database, for longer than its lease."""
        self.alive.discard(number)
        async with self.cables[number].cut():
            await asyncio.sleep(2 * LEASE)
            yield
        self.alive.add(number)

    def any(self, chance: random.Random) -> httpx.AsyncClient:
        """Return a client of one that is alive."""
        return self._clients[chance.choice(sorted(self.alive.intersection(self._asked)))]

    async def accepted(self, name: str, chance: random.Random) -> str | None:
        """Ask one for a run; None if it did not get to tell its id."""
        body = {"model": "steady", "input": name, "background": True, "tools": REQUESTED}
        with contextlib.suppress(httpx.HTTPError):
            found = await self.any(chance).post("/v1/responses", json=body)
            assert found.status_code in {200, 503}, found.text
            if found.status_code == 200:
                return str(found.json()["id"])
        return None

    async def stream(self, response_id: str, chance: random.Random) -> list[JSON]:
        """Read a run to its end, going on at another server whenever one is lost."""
        seen: list[JSON] = []
        async with asyncio.timeout(self._patience):
            while not seen or seen[-1]["type"] not in {"response.completed", "response.failed", "response.incomplete"}:
                after = {"starting_after": seen[-1]["sequence_number"]} if seen else {}
                with contextlib.suppress(httpx.HTTPError):
                    client = self.any(chance)
                    params = {"stream": True, **after}
                    async with client.stream("GET", f"/v1/responses/{response_id}", params=params) as answer:
                        if answer.status_code == 200:
                            data = b""
                            try:
                                async for piece in answer.aiter_raw():
                                    data += piece
                            finally:  # what came before it was lost counts
                                seen += events_of(data[: data.rfind(b"\n\n") + 2])
                await asyncio.sleep(0.05)
        return seen

    async def answer_all(self, chance: random.Random) -> None:
        """Answer what is asked, at any server, until cancelled."""
        while True:
            with contextlib.suppress(httpx.HTTPError, KeyError):
                listed = (await self.any(chance).get("/v1/questions", params={"status": "open", "limit": 100})).json()
                for question in listed["data"]:
                    answer = ANSWERS[question["kind"]]
                    found = await self.any(chance).post(f"/v1/questions/{question['id']}/answer", json=answer)
                    assert found.status_code in {200, 409, 503}, found.text
            await asyncio.sleep(0.05)

    async def questions(self, chance: random.Random) -> list[JSON]:
        """Return what is asked and not answered."""
        found: list[JSON] = []
        page: JSON = {"has_more": True, "last_id": None}
        while page["has_more"]:
            after = {"after": page["last_id"]} if found else {}
            params = {"status": "open", "limit": 100, **after}
            page = (await self.any(chance).get("/v1/questions", params=params)).json()
            found += page["data"]
        return found

    async def ended(self, response_id: str, chance: random.Random) -> JSON:
        """Wait for the end of a run."""
        async with asyncio.timeout(self._patience):
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    found = await self.any(chance).get(f"/v1/responses/{response_id}")
                    if found.status_code == 200 and found.json()["status"] in OVER:
                        response: JSON = found.json()
                        return response
                await asyncio.sleep(0.05)


def check_line(response: JSON, name: str) -> None:
    """Check a run without agents: each of its calls has an output that the model was told once."""
    assert response["status"] == "completed", response
    text = response["output"][-1]["content"][0]["text"]
    told = json.loads(text.removeprefix("It is done. "))
    assert len(told) == (1 if name.startswith(("slow", "program", "remote")) else 4)
    if name.startswith("program"):
        [output] = told.values()
        assert output == f"charged {name}-0\ncharged {name}-1" or INTERRUPTED in output, output
    if name.startswith("remote"):
        assert set(told.values()) <= {f"delivered {name}", INTERRUPTED, LOST}, told


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with steady_model() as url:
        yield url


class Requests:
    """Runs that clients have begun, each with a reader who goes from server to server."""

    def __init__(self, cluster: Cluster, chance: random.Random, first: int) -> None:
        self._cluster = cluster
        self._chance = chance
        self._begun = first
        self.names: dict[str, str] = {}
        """What was asked for, by response."""
        self._reading: dict[str, asyncio.Task[list[JSON]]] = {}

    async def begin(self) -> None:
        """Begin some, at any server."""
        for number in range(self._begun, self._begun + RUNS):
            name = f"{KINDS[number % len(KINDS)]}-{number}"
            if (response_id := await self._cluster.accepted(name, self._chance)) is not None:
                self.names[response_id] = name
                self._reading[response_id] = self._cluster.spawn(self._cluster.stream(response_id, self._chance))
        self._begun += RUNS

    async def check(self) -> None:
        """Wait for the end of all, and hold what was read at several servers against what there is."""
        cluster, chance = self._cluster, self._chance
        for response_id, name in self.names.items():
            response = await cluster.ended(response_id, chance)
            seen = await self._reading[response_id]
            whole = await cluster.any(chance).get(f"/v1/responses/{response_id}", params={"stream": True})
            stream = lint_stream(whole.content)
            assert lint_response(response) == stream.response
            assert seen == stream.events
            check(response, name) if name.startswith("tree") else check_line(response, name)

    async def check_undisturbed(self) -> None:
        """Check also that no call was taken for interrupted: nothing has happened to anybody."""
        await self.check()
        for response_id in self.names:
            response = await self._cluster.ended(response_id, self._chance)
            assert INTERRUPTED not in json.dumps(response)


async def suffer(cluster: Cluster, postgres: PostgresServer, model: ModelProcess, rounds: int) -> None:
    """Let servers die, freeze and lose the database or the model while runs are under way; check what these come to."""
    chance = random.Random(7)
    cluster.spawn(cluster.answer_all(chance))
    calm = Requests(cluster, chance, 0)
    await calm.begin()
    await calm.check_undisturbed()
    requests = Requests(cluster, chance, RUNS)
    for number in range(rounds):
        dies, freezes, loses = chance.sample(range(3), 3)
        await requests.begin()
        await cluster.kill(dies)
        await requests.begin()
        async with cluster.frozen(freezes):
            await requests.begin()
        model.freeze()
        async with cluster.cut_off(loses):
            model.thaw()
            await requests.begin()
            await asyncio.to_thread(model.kill)
        await asyncio.to_thread(model.start)
        if number % 2:
            await asyncio.to_thread(postgres.stop, "immediate")
            await asyncio.sleep(LEASE)
            await asyncio.to_thread(postgres.start)
        await cluster.start(dies)
    await requests.begin()
    await cluster.kill(2)  # which nobody starts again
    await requests.check()
    assert len(requests.names) >= rounds * RUNS


def check_once(cluster: Cluster) -> None:
    """Check that nothing that is not to be repeated was done twice, on whichever servers."""
    executions = [server.executions() for server in cluster.servers]
    once = {
        call for counts in executions for call in counts if call.endswith("_0") or "tree" in call or "program" in call
    }
    assert [call for call in once if sum(counts[call] for counts in executions) > 1] == []


@pytest.fixture
def mortal_model() -> Iterator[ModelProcess]:
    """A model server that can be frozen and killed."""
    process = ModelProcess()
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.fixture(scope="module")
def remote() -> Iterator[McpServer]:
    """An MCP server that delivers orders, and notes each of them."""
    delivered: list[str] = []
    tools = MCPServer("delivery")

    @tools.tool()
    def deliver(order: str) -> str:
        """Deliver an order. Twice would be expensive."""
        delivered.append(order)
        return f"delivered {order}"

    with running_server(tools) as server:
        server.calls = delivered
        yield server


async def test_every_run_ends_once_whatever_becomes_of_the_servers(
    tmp_path: Path, mortal_model: ModelProcess, remote: McpServer, ready_url: str, postgres_server: PostgresServer
) -> None:
    cluster = Cluster(tmp_path, mortal_model.url, ready_url, remote=remote.url)
    try:
        await cluster.start(0, 1, 2)
        await suffer(cluster, postgres_server, mortal_model, ROUNDS)
    finally:
        await cluster.close()
    check_once(cluster)
    assert remote.calls
    assert [order for order, count in Counter(remote.calls).items() if count > 1] == []


@pytest.mark.parametrize("mutation", list(MUTATIONS)[: None if FULL else 1])
async def test_a_broken_engine_is_found_out(
    mutation: str,
    tmp_path: Path,
    mortal_model: ModelProcess,
    remote: McpServer,
    ready_url: str,
    postgres_server: PostgresServer,
) -> None:
    url, model = remote.url, mortal_model.url
    cluster = Cluster(tmp_path, model, ready_url, remote=url, program=(mutated.__file__, mutation), patience=30.0)
    try:
        await cluster.start(0, 1, 2)  # one that does not start is not what is found out
        with pytest.raises((AssertionError, TimeoutError, KeyError)):
            await suffer(cluster, postgres_server, mortal_model, 2)
            check_once(cluster)
    finally:
        await cluster.close()


PARKED = 1_000 if FULL else 40
"""Runs that wait for somebody when everything ends."""


async def test_runs_that_wait_for_somebody_outlive_all_servers_and_go_on_anywhere(
    tmp_path: Path, model: str, ready_url: str
) -> None:
    chance = random.Random(3)
    cluster = Cluster(tmp_path, model, ready_url, count=2)
    try:
        await cluster.start(0, 1)
        runs = {await cluster.accepted(f"ask-{number}", chance): f"ask-{number}" for number in range(PARKED)}
        assert None not in runs
        asked: list[JSON] = []
        async with asyncio.timeout(PATIENCE):
            while len(asked) < PARKED:
                await asyncio.sleep(0.1)
                asked = await cluster.questions(chance)
        for number in range(2):
            await cluster.kill(number)
        await cluster.start(1, 0)
        assert {question["id"] for question in await cluster.questions(chance)} == {one["id"] for one in asked}
        for question in asked:
            answered = await cluster.any(chance).post(
                f"/v1/questions/{question['id']}/answer", json={"answer": question["response_id"]}
            )
            assert answered.status_code == 200, answered.text
        for response_id in filter(None, runs):
            response = await cluster.ended(response_id, chance)
            assert response["status"] == "completed"
            told = json.loads(response["output"][-1]["content"][0]["text"].removeprefix("It is done. "))
            assert [*told.values()] == [response_id, f"charged {runs[response_id]}"]
    finally:
        await cluster.close()
    assert sum((server.executions() for server in cluster.servers), Counter()).most_common(1)[0][1] == 1


async def test_workers_do_what_servers_have_accepted(
    tmp_path: Path, model: str, remote: McpServer, ready_url: str
) -> None:
    chance = random.Random(5)
    cluster = Cluster(tmp_path, model, ready_url, count=4, workers=2, remote=remote.url)
    try:
        await cluster.start(0, 1)
        cluster.spawn(cluster.answer_all(chance))
        requests = Requests(cluster, chance, 0)
        await requests.begin()  # there is nobody yet who works on it
        await cluster.start(2)
        await requests.begin()
        await cluster.start(3)
        await requests.begin()
        await cluster.kill(2)
        await requests.begin()
        await requests.check()
        page = (await cluster.any(chance).get("/metrics")).text
    finally:
        await cluster.close()
    check_once(cluster)
    assert 'antwort_background_responses{state="waiting"} 0.0' in page
    assert "antwort_live_workers 3.0" in page
    assert [bool(server.executions()) for server in cluster.servers] == [False, False, True, True]
