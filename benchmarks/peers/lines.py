"""The rows about CPU: what is asked, and how it is known that a gateway has done it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.gateway import PATH, QUESTION, Workload
from benchmarks.measure import BenchmarkError
from benchmarks.peers import gateways as rows
from benchmarks.peers.running import Running, ask

ASK: Mapping[str, Any] = {"input": QUESTION, "store": False}
LOOK_UP: Mapping[str, Any] = {
    "type": "function",
    "name": "look_up",
    "description": "Look an expression up.",
    "parameters": {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
        "additionalProperties": False,
    },
    "strict": True,
}
CALL: Mapping[str, Any] = {"call_id": "call_1", "name": "look_up", "arguments": '{"expression":"12*7"}'}

Steps = Callable[[Running], Sequence[Workload]]


@dataclass(frozen=True, slots=True)
class Line:
    """A row about CPU: the requests of one round, one step after the other, which are told as one."""

    what: str
    steps: Steps
    events: int = 1
    """Those that the cost of an answer is divided by."""
    postgres: bool = False
    proof: Callable[[Running, str], None] = lambda _, __: None
    """Raises an error unless the answer to the last step shows that the gateway has done what the row is about."""


def kept(gateway: Running, answer: str) -> None:
    """Tell whether a response is there later."""
    status, _ = ask(gateway.server.port, "GET", f"{PATH}/{json.loads(answer)['id']}")
    if status != 200:
        raise BenchmarkError("does not keep responses")


def concluded(_: Running, answer: str) -> None:
    """Tell whether the model was given what its call came to: only then it answers with a text."""
    if not any(item["type"] == "message" for item in json.loads(answer)["output"]):
        raise BenchmarkError("does not execute the call")


def asking(*bodies: Mapping[str, Any], requests: int, events: int = 1) -> Steps:
    """Return the same steps for every gateway."""
    steps = [Workload("a request", {**ASK, **body}, requests, events=events) for body in bodies]
    return lambda _: steps


def calling_the_server(gateway: Running) -> Sequence[Workload]:
    if gateway.gateway.server_tools is None:
        raise BenchmarkError("it executes no functions")
    tools = gateway.gateway.server_tools(gateway.site)
    return [Workload("a request", {**ASK, "model": "call", "tools": tools}, 100)]


def lines() -> list[Line]:
    """Return the rows about CPU, those of `make bench` that other gateways can be asked for."""
    whole = {"model": "json"}
    stored = asking({**whole, "store": True}, requests=200)
    message = {"type": "message", "role": "user", "content": QUESTION}
    output = {"type": "function_call_output", "call_id": CALL["call_id"], "output": "84"}
    first = {"model": "call", "tools": [LOOK_UP]}
    second = {**first, "input": [message, {"type": "function_call", **CALL}, output]}
    burst = asking({"model": "burst-64", "stream": True}, requests=80, events=64)
    paced = asking({"model": "paced-100", "stream": True}, requests=24, events=100)
    return [
        Line(rows.JSON_REQUEST, asking(whole, requests=200)),
        Line(rows.STORED, stored, proof=kept),
        Line(rows.STORED_POSTGRES, stored, postgres=True, proof=kept),
        Line(rows.BURST_EVENT, burst, events=64),
        Line(rows.PACED_EVENT, paced, events=100),
        Line(rows.CLIENT_CALL, asking(first, second, requests=100), proof=concluded),
        Line(rows.SERVER_CALL, calling_the_server, proof=concluded),
    ]


def prove(gateway: Running, line: Line) -> None:
    """See that a gateway does what a row is about, with one request of each step."""
    answer = ""
    for step in line.steps(gateway):
        status, answer = ask(gateway.server.port, "POST", PATH, step.body)
        if status != 200:
            raise BenchmarkError(f"answers {status}: {answer[:200]}")
    line.proof(gateway, answer)
