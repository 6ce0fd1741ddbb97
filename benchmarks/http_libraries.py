"""Why there are an HTTP client and an HTTP protocol of our own: what they cost beside those one would take instead."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import httpx
import msgspec
import uvloop

from antwort.http1.client import Http1Client
from benchmarks.gateway import TIMES, Bench, Costs, Target, Workload, measure_costs, open_bench
from benchmarks.measure import Call, Row, cpu_of_rounds
from benchmarks.protocols import EVENTS, OURS, PROTOCOLS

METHOD = """\
HTTP clients: one request after the other to the mock backend, in one process with uvloop; its CPU time per answer.
HTTP protocols: servers with uvloop and an app that has its answers ready, 8 connections; CPU time of the server per
answer. All candidates take turns for {rounds} rounds; ratios are medians of each round's ratios."""
PROJECT = Path(__file__).parents[1]
WHOLE = "whole answer"
IN_PIECES = f"answer of {EVENTS} events"
OUR_CLIENT = "antwort's Http1Client"
CLIENT_BARS = {"aiohttp": 0.5, "httpx": 0.2}
PROTOCOL_BARS = {"uvicorn's httptools": 1.0, "uvicorn's h11": 0.6}
"""Ours must cost less than so many times the other, or it is not worth its lines."""
LIMITS = 0.2
"""What the limits and time-outs that uvicorn's protocols lack may cost in addition where every event is a write."""


def http_rows(*, full: bool, rounds: int) -> list[Row]:
    """Compare HTTP clients and HTTP protocols."""
    scale = 2 if full else 1
    with open_bench() as bench:
        rows = client_rows(bench, rounds=rounds, repeat=200 * scale)
        rows += protocol_rows(bench, rounds=rounds, requests=800 * scale)
    return rows


def client_rows(bench: Bench, *, rounds: int, repeat: int) -> list[Row]:
    """Measure a POST to a model server with each client."""
    models = {WHOLE: "json", IN_PIECES: f"burst-{EVENTS}"}
    costs = Costs(
        {
            (name, answer): values
            for answer, model in models.items()
            for name, values in _cpu_of_clients(bench.mock.port, model, rounds=rounds, repeat=repeat).items()
        }
    )
    return [row for answer in models for row in _rows("HTTP client", OUR_CLIENT, CLIENT_BARS, answer, costs)]


def protocol_rows(bench: Bench, *, rounds: int, requests: int) -> list[Row]:
    """Measure a small request, and an answer in pieces, with each protocol."""
    targets = [Target(name, (sys.executable, "-m", "benchmarks.protocols", name), cwd=PROJECT) for name in PROTOCOLS]
    asked = {"model": "json", "input": "Hello"}
    work = [Workload(WHOLE, asked, requests), Workload(IN_PIECES, {**asked, "stream": True}, max(8, requests // 8))]
    costs = measure_costs(bench, targets, work, rounds=rounds)
    more = {name: bar + LIMITS for name, bar in PROTOCOL_BARS.items()}
    return [
        *_rows("HTTP protocol", OURS, PROTOCOL_BARS, WHOLE, costs),
        *_rows("HTTP protocol", OURS, more, IN_PIECES, costs),
    ]


def _rows(kind: str, ours: str, bars: Mapping[str, float], answer: str, costs: Costs) -> Iterator[Row]:
    for name in (ours, *bars):
        yield Row(f"{kind}, {answer}: {name}", costs.median((name, answer)), "µs")
    for name, bar in bars.items():
        yield Row(f"{kind}, {answer}: ours against {name}", costs.ratio((ours, answer), (name, answer)), TIMES, bar)


def _cpu_of_clients(port: int, model: str, *, rounds: int, repeat: int) -> dict[str, list[float]]:
    async def measure() -> dict[str, list[float]]:
        async with AsyncExitStack() as stack:
            calls = await _clients(stack, port, model)
            return await cpu_of_rounds(calls, rounds=rounds, repeat=repeat)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(measure())


async def _clients(stack: AsyncExitStack, port: int, model: str) -> dict[str, Call]:
    """Open each client, and return how it asks: it reads the answer piece by piece, as one reads a stream."""
    path = "/v1/chat/completions"
    url = f"http://127.0.0.1:{port}{path}"
    messages = [{"role": "user", "content": "Hello"}]
    body = msgspec.json.encode({"model": model, "stream": model.startswith("burst"), "messages": messages})
    headers = {"content-type": "application/json"}
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    ours = Http1Client("127.0.0.1", port, tls=False, limit=10)
    stack.push_async_callback(ours.close)
    session = await stack.enter_async_context(aiohttp.ClientSession())
    client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))

    async def with_ours() -> None:
        reply = await ours.exchange(request, connect_timeout=5, silence=60)
        while not reply.is_read and await reply.chunk():
            pass
        reply.abort()  # gives the connection back

    async def with_aiohttp() -> None:
        async with session.post(url, data=body, headers=headers) as reply:
            async for _ in reply.content.iter_any():
                pass

    async def with_httpx() -> None:
        async with client.stream("POST", url, content=body, headers=headers) as reply:
            async for _ in reply.aiter_bytes():
                pass

    return {OUR_CLIENT: with_ours, "aiohttp": with_aiohttp, "httpx": with_httpx}
