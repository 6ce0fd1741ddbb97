"""Several servers with the same models: turns that begin alike go where what they begin with is known."""

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path

import httpx
import msgspec
import pytest
from tests.backends.conftest import Notes, a_request
from tests.backends.test_resilience import Clock, Server

from antwort.app import Antwort
from antwort.backends import CircuitBreaker, ModelInfo, ModelRequest, Retries, TurnSink
from antwort.backends.errors import FAILED, UNAVAILABLE, UNREACHABLE
from antwort.backends.replicas import Replica, Replicas, _short, beginning_of
from antwort.config import Config
from antwort.errors import APIError, BadGatewayError, BadRequestError, RateLimitError, ServiceUnavailableError
from antwort.testing import PrefixCache, ScriptServer, running
from antwort.types import JSON
from antwort.wire.responses import InputTokensDetails, Usage

COUNT = 4
AWAY = ServiceUnavailableError("The backend is down.", code=UNAVAILABLE)


class CachingServer:
    """A model server that knows the beginnings of prompts that it has read, the latest of them."""

    def __init__(self, name: str, *, blocks: int = 10_000) -> None:
        self.name = name
        self.cache = PrefixCache(blocks)
        self.turns = 0
        self.away = False

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise AWAY
        self.turns += 1
        instructions = {"role": "system", "content": request.instructions or ""}
        tokens, cached = self.cache.take({"messages": [instructions, *request.items]})
        sink.text("answer")
        sink.usage(Usage(tokens, InputTokensDetails(cached), output_tokens=1, total_tokens=tokens + 1))
        sink.finish("stop")

    async def models(self) -> list[ModelInfo]:
        if self.away:
            raise AWAY
        return [ModelInfo("small", "me")]

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None

    async def context_window(self, model: str) -> int | None:
        return None

    async def close(self) -> None:
        return


async def _here() -> bool:
    return True


def replicas_of(*servers: CachingServer | Server, retries: Retries | None = None) -> Replicas:
    made = [Replica(server, CircuitBreaker(server.name, _here), f"http://{server.name}") for server in servers]
    return Replicas("gpu", made, retries or Retries(0))


def turn(*said: str, instructions: str = "Be helpful.", key: str | None = None) -> ModelRequest:
    """Return a turn with a conversation."""
    items: list[JSON] = [{"type": "message", "role": "user", "content": text} for text in said]
    return a_request(items=items, instructions=instructions, prompt_cache_key=key)


async def converse(backend: Replicas, conversation: int, chance: random.Random, turns: int = 8) -> None:
    """Ask turn after turn, each with all that was said before, as loops of agents do."""
    said: list[str] = []
    for number in range(turns):
        said += [f"question {conversation}-{number} " + "that takes some words " * 5]
        notes = Notes()
        await backend.run(turn(*said), notes)
        said += [f"answer {number}"]
        await asyncio.sleep(chance.random() * 0.001)


async def test_conversations_stay_where_their_beginning_is_known_and_are_spread_evenly() -> None:
    servers = [CachingServer(f"server-{number}") for number in range(COUNT)]
    alone = [CachingServer("alone", blocks=10**9)]
    for group in (servers, alone):
        backend, chance = replicas_of(*group), random.Random(1)
        await asyncio.gather(*(converse(backend, number, chance) for number in range(200)))
    assert sum(server.cache.cached for server in servers) >= 0.95 * alone[0].cache.cached > 0
    assert max(server.turns for server in servers) <= 1.25 * sum(server.turns for server in servers) / COUNT


async def test_a_server_that_is_lost_and_comes_back_costs_no_error() -> None:
    servers = [CachingServer(f"server-{number}") for number in range(COUNT)]
    backend, chance = replicas_of(*servers), random.Random(2)

    async def lose_one() -> None:
        await asyncio.sleep(0.005)
        servers[1].away = True
        await asyncio.sleep(0.02)
        servers[1].away = False

    await asyncio.gather(lose_one(), *(converse(backend, number, chance) for number in range(200)))
    before = servers[1].turns
    await asyncio.gather(*(converse(backend, number, chance) for number in range(200, 300)))
    assert servers[1].turns > before


async def test_only_the_share_of_a_server_that_leaves_goes_elsewhere() -> None:
    servers = [CachingServer(f"server-{number}") for number in range(COUNT)]
    all_of_them, fewer = replicas_of(*servers), replicas_of(*servers[:-1])
    moved = Counter[bool]()
    for number in range(400):
        request = turn(f"question {number}")
        first = all_of_them.order(request)[0].name
        moved[first != fewer.order(request)[0].name] += first != "server-3"
        assert first in {server.name for server in servers}
    assert moved[True] == 0


async def test_a_cache_key_says_what_belongs_together() -> None:
    backend = replicas_of(*(CachingServer(f"server-{number}") for number in range(COUNT)))
    places = {backend.order(turn(f"question {number}", key="mine"))[0].name for number in range(50)}
    assert len(places) == 1
    assert beginning_of(turn("a", key="mine")) == beginning_of(turn("b", key="mine"))
    assert beginning_of(turn("a")) != beginning_of(turn("b"))
    assert beginning_of(turn("a")) == beginning_of(turn("a", "and more"))
    assert beginning_of(turn("a")) != beginning_of(turn("a", instructions="Be short."))


def test_of_a_large_first_item_no_more_is_read_than_counts() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 1_000_000}
    written = msgspec.json.encode(_short([image, {"type": "input_text", "text": "B" * 1_000_000}]))
    assert len(written) < 10_000
    assert _short({"type": "input_text", "text": "short", "detail": None}) == {
        "type": "input_text",
        "text": "short",
        "detail": None,
    }


@pytest.mark.parametrize(
    ("error", "asked_another"),
    [
        (AWAY, True),
        (BadGatewayError("gone", code=UNREACHABLE), True),
        (RateLimitError("slowly", retry_after=1), True),
        (BadGatewayError("it failed", code=FAILED), True),
        (BadRequestError("never"), False),
    ],
)
async def test_what_another_server_could_do_better_it_is_asked_for(error: APIError, asked_another: bool) -> None:
    request = turn("hello")
    servers = [Server(name=f"server-{number}") for number in range(2)]
    first = replicas_of(*servers).order(request)[0].name
    failing = next(server for server in servers if server.name == first)
    other = next(server for server in servers if server is not failing)
    failing.failures = [error]
    notes = Notes()
    if asked_another:
        await replicas_of(*servers).run(request, notes)
    else:
        with pytest.raises(type(error)):
            await replicas_of(*servers).run(request, notes)
    assert len(other.asked) == asked_another


async def test_an_answer_that_has_begun_is_nobody_elses() -> None:
    request = turn("hello")
    servers = [Server(AWAY, name=f"server-{number}", begin=True) for number in range(2)]
    with pytest.raises(ServiceUnavailableError):
        await replicas_of(*servers).run(request, Notes())
    assert sum(len(server.asked) for server in servers) == 1


async def test_all_are_tried_again_when_none_is_there() -> None:
    clock = Clock()
    servers = [Server(AWAY, AWAY, name=f"server-{number}") for number in range(3)]
    retries = Retries(2, sleep=clock.sleep, clock=clock, jitter=lambda _, high: high)
    await replicas_of(*servers, retries=retries).run(turn("hello"), Notes())
    assert clock.pauses == [0.5, 1.0]


def test_each_replica_shows_whether_it_is_there_and_what_it_knew_of_its_prompts(tmp_path: Path) -> None:
    caches = [PrefixCache(), PrefixCache()]
    one, two = (ScriptServer(["Hello."] * 250, prefix_cache=cache) for cache in caches)
    with contextlib.ExitStack() as opened:
        for model in (one, two):
            model.start()
            opened.callback(model.stop)  # who is asked how often is up to hashes
        backend = {"url": one.url, "replicas": [two.url, "http://127.0.0.1:9/v1"], "retries": 0}
        config = Config.model_validate({"data_dir": tmp_path, "providers": {}, "backends": {"gpu": backend}})
        with running(Antwort(config)) as server, httpx.Client(base_url=server.url, timeout=60.0) as client:
            previous, answer = None, {}
            for _ in range(6):
                asked = {"model": "scripted", "input": "What is it? " * 20, "previous_response_id": previous}
                answer = client.post("/v1/responses", json=asked).json()
                previous = answer["id"]
            usage = answer["usage"]
            for number in range(200):
                if client.get("/readyz").json()["backends"][0]["replicas"].get("gpu-3") == "away":
                    break
                client.post("/v1/responses", json={"model": "scripted", "input": f"Anybody {number}?"})
            replicas = client.get("/readyz").json()["backends"][0]["replicas"]
            metrics = client.get("/metrics").text
    assert replicas == {"gpu": "ok", "gpu-2": "ok", "gpu-3": "away"}
    assert usage["input_tokens_details"]["cached_tokens"] > usage["input_tokens"] / 2
    for name, up, cache in (("gpu", "1.0", caches[0]), ("gpu-2", "1.0", caches[1]), ("gpu-3", "0.0", PrefixCache())):
        assert f'antwort_backend_up{{backend="{name}"}} {up}' in metrics
        counted = f'antwort_backend_prompt_tokens_total{{backend="{name}",cached='
        assert f'{counted}"yes"}} {cache.cached}.0' in metrics
        assert f'{counted}"no"}} {cache.read - cache.cached}.0' in metrics


def test_the_replicas_of_a_backend_that_are_away_are_nobodys_error(tmp_path: Path) -> None:
    count = 6
    with ScriptServer(["Hello."] * count) as model:
        backend = {"url": "http://127.0.0.1:9/v1", "replicas": ["http://127.0.0.1:7/v1", model.url], "retries": 0}
        config = Config.model_validate({"data_dir": tmp_path, "providers": {}, "backends": {"gpu": backend}})
        with running(Antwort(config)) as server, httpx.Client(base_url=f"{server.url}/v1") as client:
            for number in range(count):
                answer = client.post("/responses", json={"model": "scripted", "input": f"Question {number}?"})
                assert answer.json()["status"] == "completed", answer.text
            metrics = httpx.get(f"{server.url}/metrics").text
    assert 'antwort_backend_connections{backend="gpu-3",state="in_use"} 0.0' in metrics
