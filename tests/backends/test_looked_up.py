"""Replicas that are the addresses of one host name: they come and go with it, and requests go on."""

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.backends.conftest import Notes
from tests.backends.test_replicas import CachingServer, _here, turn
from tests.support.certificates import certificates
from typing_extensions import override

from antwort.app import Antwort
from antwort.backends import CircuitBreaker, ModelRequest, Retries, TurnSink
from antwort.backends.build import build_router
from antwort.backends.http.transport import Transport
from antwort.backends.looked_up import MISSES, LookedUpReplicas, lookup_of
from antwort.backends.replicas import Replica
from antwort.config import BackendConfig, Config
from antwort.errors import APIError, ConfigError
from antwort.testing import PrefixCache, ScriptServer, running

NAME = "models.test"
GONE = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


class Place(CachingServer):
    """A server at an address, which may let turns wait, and knows whether it was closed."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun = asyncio.Event()
        self.closed = False

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        self.begun.set()
        await self.gate.wait()
        assert not self.closed
        await super().run(request, sink)

    @override
    async def close(self) -> None:
        self.closed = True


class Names:
    """A name server that is asked as often as a test says, and the servers at its addresses."""

    def __init__(self, *, patience: float = 60.0) -> None:
        self.places: dict[str, Place] = {}
        self.by_name = Place("gpu")
        self._asked: asyncio.Queue[None] = asyncio.Queue()
        self._answers: asyncio.Queue[Sequence[str] | OSError] = asyncio.Queue()
        self.replicas = LookedUpReplicas(
            self._replica(self.by_name, "name"),
            self._make,
            self._lookup,
            every=0.0,
            patience=patience,
            retries=Retries(0),
        )

    def _make(self, name: str, address: str) -> Replica:
        self.places[address] = Place(name)
        return self._replica(self.places[address], address)

    def _replica(self, place: Place, where: str) -> Replica:
        return Replica(place, CircuitBreaker(place.name, _here), where)

    async def _lookup(self) -> Sequence[str]:
        self._asked.put_nowait(None)
        answer = await self._answers.get()
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def tell(self, *answers: Sequence[str] | OSError) -> None:
        """Let it be asked, answer, and wait until the answers are taken: whoever is asked again has taken the last."""
        for answer in answers:
            await self._asked.get()
            self._answers.put_nowait(answer)
        await self._asked.get()
        self._asked.put_nowait(None)

    async def ask(self, said: str = "hello") -> None:
        """Perform a turn."""
        await self.replicas.run(turn(said), Notes())

    @property
    def names(self) -> dict[str, str]:
        """The names of the replicas, by their addresses."""
        listed = {replica.name for replica in self.replicas.replicas}
        return {address: place.name for address, place in self.places.items() if place.name in listed}


@contextlib.asynccontextmanager
async def names_of(*addresses: str) -> AsyncIterator[Names]:
    names = Names()
    asked = asyncio.create_task(names.ask())
    await names.tell(addresses)
    await asked
    yield names
    await names.replicas.close()


async def test_each_address_is_a_replica() -> None:
    async with names_of("10.0.0.1", "10.0.0.2", "10.0.0.3") as names:
        for number in range(60):
            await names.ask(f"question {number}")
        assert names.names == {"10.0.0.1": "gpu-1", "10.0.0.2": "gpu-2", "10.0.0.3": "gpu-3"}
        assert sum(place.turns for place in names.places.values()) == 61
        assert all(place.turns for place in names.places.values())
        assert names.by_name.turns == 0
        assert [info.id for info in await names.replicas.models()] == ["small"]
    assert all(place.closed for place in [names.by_name, *names.places.values()])


async def test_one_that_comes_takes_its_share_only_and_has_the_number_of_one_that_has_gone() -> None:
    async with names_of("10.0.0.1", "10.0.0.2", "10.0.0.3") as names:
        seen: list[tuple[list[str], list[str]]] = []
        names.replicas.watch = lambda left, come: seen.append(([one.name for one in left], [one.name for one in come]))
        requests = [turn(f"question {number}") for number in range(200)]
        before = [names.replicas.order(request)[0].name for request in requests]
        staying = ["10.0.0.1", "10.0.0.3"]
        await names.tell(*[staying] * (MISSES - 1))
        assert len(names.replicas.replicas) == 3, "it may be that not all are told each time"
        await names.tell(staying)
        assert (names.names, seen) == ({"10.0.0.1": "gpu-1", "10.0.0.3": "gpu-3"}, [(["gpu-2"], [])])
        assert names.places["10.0.0.2"].closed
        after = [names.replicas.order(request)[0].name for request in requests]
        assert all(new == old for old, new in zip(before, after, strict=True) if old != "gpu-2")
        await names.tell(["10.0.0.1", "10.0.0.3", "10.0.0.4"])
        assert names.names["10.0.0.4"] == "gpu-2"
        assert seen[1:] == [([], ["gpu-2"])]
        await names.tell(*[["10.0.0.3"], ["10.0.0.1", "10.0.0.3", "10.0.0.4"]] * MISSES)
        assert len(names.replicas.replicas) == 3


async def test_all_servers_ask_the_same_one_for_the_same_conversation() -> None:
    async with names_of("10.0.0.1", "10.0.0.2") as one, names_of("10.0.0.3") as other:
        await one.tell(["10.0.0.1", "10.0.0.2", "10.0.0.3"])
        await other.tell(["10.0.0.1", "10.0.0.2", "10.0.0.3"])
        assert one.names != other.names
        places = [{name: address for address, name in names.names.items()} for names in (one, other)]
        for number in range(50):
            request = turn(f"question {number}")
            orders = [
                [of[replica.name] for replica in names.replicas.order(request)]
                for names, of in zip((one, other), places, strict=True)
            ]
            assert orders[0] == orders[1]


async def test_a_turn_of_one_that_goes_comes_to_its_end() -> None:
    async with names_of("10.0.0.1") as names:
        place = names.places["10.0.0.1"]
        place.gate.clear()
        place.begun.clear()
        asked = asyncio.create_task(names.ask())
        await place.begun.wait()
        await names.tell(*[["10.0.0.2"]] * MISSES)
        assert list(names.names) == ["10.0.0.2"]
        assert not place.closed
        place.gate.set()
        await asked
        assert place.closed


async def test_while_names_cannot_be_looked_up_those_that_are_known_stay(caplog: pytest.LogCaptureFixture) -> None:
    async with names_of("10.0.0.1", "10.0.0.2") as names:
        await names.tell(*[GONE] * (MISSES + 1), [], [], [], [])
        assert len(names.replicas.replicas) == 2
        await names.ask()
    assert [record.message for record in caplog.records] == [
        "the addresses of the backend 'gpu' cannot be looked up: [Errno -2] Name or service not known"
    ]


async def test_until_addresses_are_known_it_is_asked_by_the_name() -> None:
    names = Names(patience=0.01)
    await names.ask()
    assert (names.by_name.turns, len(names.replicas.replicas)) == (1, 1)
    await names.tell(GONE)
    await names.ask()
    assert names.by_name.turns == 2
    await names.tell(["10.0.0.1"])
    await names.ask()
    assert (names.by_name.turns, names.places["10.0.0.1"].turns) == (2, 1)
    await names.replicas.close()
    assert names.by_name.closed


async def test_a_name_is_looked_up_for_one_kind_of_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(["::1", "::2", "127.0.0.1"]))
    assert await lookup_of(NAME, 80)() == ["::1", "::2"]
    monkeypatch.undo()
    [address] = await lookup_of("localhost", 80)()
    assert address in {"127.0.0.1", "::1"}


async def test_the_name_is_what_a_certificate_is_for_and_what_the_server_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = certificates(tmp_path, NAME)
    monkeypatch.setattr(ssl, "create_default_context", lambda: theirs)
    asked_for: list[str | None] = []
    ours.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=ours) as server:
        port = server.sockets[0].getsockname()[1]
        config = BackendConfig.model_validate({"url": f"https://{NAME}:{port}/v1", "replicas": "dns"})
        transport = Transport("gpu-1", config.at("127.0.0.1"))
        reply = await transport.get("/models")
        assert (reply.status, await reply.read()) == (200, b"{}")
        reply.abort()
        await transport.close()
        wrong = Transport("gpu-1", config.model_copy(update={"url": f"https://other.test:{port}/v1"}).at("127.0.0.1"))
        with pytest.raises(APIError, match="its TLS certificate is not trusted"):
            await wrong.get("/models")
    assert asked_for[0] == NAME
    assert f"\r\nhost: {NAME}:{port}\r\n".encode() in heads[0]


def test_behind_a_proxy_addresses_cannot_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    config = Config.model_validate({"backends": {"gpu": {"url": f"http://{NAME}/v1", "replicas": "dns"}}})
    with pytest.raises(ConfigError, match=f"A proxy chooses the address itself; name '{NAME}' in NO_PROXY"):
        build_router(config)


# --- real servers ----------------------------------------------------------------------------------------------------


class Resolver:
    """Tells the addresses of one name; others are looked up as ever."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self._before = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != NAME:
            return self._before(host, port, *args, **kwargs)
        return [found for address in self.addresses for found in self._before(address, port, *args, **kwargs)]


@contextlib.contextmanager
def model_at(number: int, port: int = 0) -> Iterator[ScriptServer]:
    model = ScriptServer(["Hello."] * 1000, host=f"127.0.0.{number}", port=port, prefix_cache=PrefixCache())
    model.start()
    try:
        yield model
    finally:
        model.stop()


def replicas_of(client: httpx.Client) -> dict[str, str]:
    found: dict[str, str] = client.get("/readyz").json()["backends"][0].get("replicas", {})
    return found


def test_servers_behind_a_name_come_and_go_and_nobody_sees_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as opened:
        models = [opened.enter_context(model_at(1))]
        port = int(models[0].url.rpartition(":")[2].removesuffix("/v1"))
        models += [opened.enter_context(model_at(number, port)) for number in (2, 3)]
        resolver = Resolver(["127.0.0.1", "127.0.0.2"])
        monkeypatch.setattr(socket, "getaddrinfo", resolver)
        backend = {"url": f"http://{NAME}:{port}/v1", "replicas": "dns", "lookup_interval": 0.01}
        config = Config.model_validate({"data_dir": tmp_path, "providers": {}, "backends": {"gpu": backend}})
        server = opened.enter_context(running(Antwort(config)))
        client = opened.enter_context(httpx.Client(base_url=server.url, timeout=60.0))
        asked = Counter[str]()

        def ask(times: int = 1) -> None:
            for _ in range(times):
                asked["turns"] += 1
                body = {"model": "scripted", "input": f"Question {asked['turns']}?"}
                answer = client.post("/v1/responses", json=body).json()
                assert answer["status"] == "completed", answer

        ask(40)
        assert replicas_of(client) == {"gpu-1": "ok", "gpu-2": "ok"}
        assert [bool(model.requests) for model in models] == [True, True, False]
        assert models[0].headers[-1]["host"] == f"{NAME}:{port}"
        previous, usage = None, {}
        for _ in range(6):
            body = {"model": "scripted", "input": "What is it? " * 20, "previous_response_id": previous}
            answer = client.post("/v1/responses", json=body).json()
            previous, usage = answer["id"], answer["usage"]
        assert usage["input_tokens_details"]["cached_tokens"] > usage["input_tokens"] / 2
        resolver.addresses = ["127.0.0.2", "127.0.0.3"]
        models[0].stop()
        while "gpu-3" not in replicas_of(client) and not models[2].requests:
            ask()
        while replicas_of(client).keys() != {"gpu-2", "gpu-3"} and replicas_of(client).keys() != {"gpu-1", "gpu-2"}:
            ask()
        ask(40)
        assert models[2].requests
        metrics = client.get("/metrics").text
        for name in replicas_of(client):
            assert f'antwort_backend_up{{backend="{name}"}} 1.0' in metrics
            assert f'antwort_backend_connections{{backend="{name}",state="in_use"}} 0.0' in metrics
        assert metrics.count("antwort_backend_up{") == 2
        assert client.post("/v1/embeddings", json={"model": "scripted", "input": "Hi"}).status_code == 200
