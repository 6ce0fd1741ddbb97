"""Frameworks for agents that do what antwort's `spawn_many` does, each as a process: for each number it reads, so many.

An agent calls its function, which lets as many others work, 16 at a time, each of which asks the model once; then it
reads what they have answered. Beside them, model calls alone, with the clients that are below. A process imports only
what it runs: some of it takes seconds.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import uvloop
from pydantic import BaseModel

from antwort.http1.client import Http1Client
from benchmarks.sub_agents import IN_FLIGHT, MODEL, OPENAI_AGENTS, OPENAI_CALLS, OWN_CALLS, PYDANTIC_AI, arguments

Work = Callable[[int], Awaitable[None]]


class AgentWork(BaseModel):
    """What one agent is to do."""

    prompt: str


async def at_a_time(one: Callable[[str], Awaitable[str]], prompts: Sequence[str]) -> list[str]:
    """Do something with each, some at a time, and return what came of it in order."""
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def in_slot(prompt: str) -> str:
        async with slots:
            return await one(prompt)

    return await asyncio.gather(*map(in_slot, prompts))


def reported(answers: Sequence[str]) -> str:
    """Return what the agent that has started the others reads of them."""
    return json.dumps([{"status": "completed", "result": answer} for answer in answers])


def openai_agents(url: str) -> Work:
    """Return the work done with `openai-agents`."""
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key="none")
    model = agents.OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
    worker = agents.Agent[None](name="worker", model=model)

    async def work(prompt: str) -> str:
        return str((await agents.Runner.run(worker, prompt)).final_output)

    @agents.function_tool
    async def spawn_many(configs: list[AgentWork]) -> str:
        """Let sub-agents work at the same time."""
        return reported(await at_a_time(work, [config.prompt for config in configs]))

    root = agents.Agent[None](name="root", model=model, tools=[spawn_many])

    async def run(number: int) -> None:
        await agents.Runner.run(root, arguments(number))

    return run


def pydantic_agents(url: str) -> Work:
    """Return the work done with `pydantic-ai`."""
    import pydantic_ai
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(base_url=url, api_key="none")
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))
    worker = pydantic_ai.Agent(model)
    root = pydantic_ai.Agent(model)

    async def work(prompt: str) -> str:
        return (await worker.run(prompt)).output

    @root.tool_plain
    async def spawn_many(configs: list[AgentWork]) -> str:
        """Let sub-agents work at the same time."""
        return reported(await at_a_time(work, [config.prompt for config in configs]))

    async def run(number: int) -> None:
        await root.run(arguments(number))

    return run


def openai_calls(url: str) -> Work:
    """Return model calls alone with the `openai` package, which both frameworks use."""
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletionUserMessageParam

    client = AsyncOpenAI(base_url=url, api_key="none")

    async def ask(prompt: str) -> str:
        message: ChatCompletionUserMessageParam = {"role": "user", "content": prompt}
        completion = await client.chat.completions.create(model=MODEL, messages=[message])
        return completion.choices[0].message.content or ""

    async def run(number: int) -> None:
        await at_a_time(ask, [f"Task {index}" for index in range(number)])

    return run


def own_calls(url: str) -> Work:
    """Return model calls alone with antwort's HTTP client."""
    address, _, path = url.removeprefix("http://").partition("/")
    host, _, port = address.partition(":")
    client = Http1Client(host, int(port), tls=False, limit=IN_FLIGHT)
    head = f"POST /{path}/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n"

    async def ask(prompt: str) -> str:
        body = msgspec.json.encode({"model": MODEL, "messages": [{"role": "user", "content": prompt}]})
        request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        reply = await client.exchange(request, connect_timeout=5, silence=60)
        answer = b""
        while not reply.is_read and (part := await reply.chunk()):
            answer += part
        reply.abort()  # gives the connection back
        completion: Any = msgspec.json.decode(answer)
        return str(completion["choices"][0]["message"]["content"])

    async def run(number: int) -> None:
        await at_a_time(ask, [f"Task {index}" for index in range(number)])

    return run


FRAMEWORKS: dict[str, Callable[[str], Work]] = {
    OPENAI_AGENTS: openai_agents,
    PYDANTIC_AI: pydantic_agents,
    OPENAI_CALLS: openai_calls,
    OWN_CALLS: own_calls,
}


def main() -> None:
    """Do the work as often as a line asks for it, and print the seconds of CPU that it took."""
    name, url = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        work = FRAMEWORKS[name](url)
        print("ready", flush=True)
        for line in sys.stdin:
            started = time.process_time()
            runner.run(_awaited(work, int(line)))
            print(time.process_time() - started, flush=True)


async def _awaited(work: Work, number: int) -> None:
    await work(number)


if __name__ == "__main__":
    main()
