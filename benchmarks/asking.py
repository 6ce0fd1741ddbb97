"""Somebody who asks a server, and holds what comes back against what it has to be."""

import asyncio
import json
import random
import re
import ssl
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import httpx

from antwort.types import JSON
from benchmarks.obedient import MODEL

KEYS = {"red": "sk-crowd-red-0123456789", "blue": "sk-crowd-blue-0123456789"}
"""The tenants, and their keys."""
PATIENCE = 120.0
"""Seconds for an answer: what takes longer counts as lost."""
SECRET = "whisper-[a-z]{3,4}-[0-9a-f]{20}"
"""What the server masks: keys that people have made up."""
MASK = "[whisper]"
_REMEMBERED = 50
"""Paths of a tenant that others try."""

Paths = MutableMapping[str, list[str]]


class WrongAnswerError(Exception):
    """An answer is not what it has to be."""


class Asker:
    """Somebody of a tenant; `known` has paths of each tenant, so that others can try them."""

    def __init__(self, port: int, tenant: str, number: int, known: Paths) -> None:
        self._port = port
        self._chance = random.Random(f"{tenant}{number}")
        self._key = KEYS[tenant]
        self._tenant = tenant
        self.known = known
        headers = {"authorization": f"Bearer {self._key}"}
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # it is HTTP, and each client would read all authorities
        url = f"http://127.0.0.1:{port}/v1"
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE, verify=nobody)

    def word(self) -> str:
        """Make a word that nobody else has, by which one can see whose it is."""
        return f"{self._tenant}-{self._chance.getrandbits(80):020x}"

    def whisper(self) -> str:
        """Make up a key that nobody may see in any answer."""
        return f"whisper-{self.word()}"

    def has(self, path: str) -> str:
        """Note what others must not find, and return its path."""
        mine = self.known[self._tenant]
        mine.append(path)
        del mine[:-_REMEMBERED]
        return path

    # --- asking ------------------------------------------------------------------------------------------------------

    async def asked(self, method: str, path: str, *, status: int = 200, **options: Any) -> httpx.Response:
        """Return an answer of the status that it has to have."""
        answer = await self.http.request(method, path, **options)
        if answer.status_code != status:
            raise WrongAnswerError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        _discreet(answer.text)
        return answer

    async def events(self, path: str, body: Mapping[str, Any]) -> list[JSON]:
        """Return the events of a stream, which has to end."""
        found = []
        async with self.http.stream("POST", path, json={**body, "stream": True}) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    _discreet(line)
                    found.append(json.loads(line.removeprefix("data: ")))
        if not found:
            raise WrongAnswerError(f"POST {path}: {answer.status_code} without an event")
        return found

    async def told(self, order: Mapping[str, Any], **options: Any) -> tuple[str, JSON]:
        """Return what is said in the stream of a response, and the response at its end."""
        found = await self.events("/responses", {"model": MODEL, "input": json.dumps(order), **options})
        said = [event["delta"] for event in found if event["type"] == "response.output_text.delta"]
        return "".join(said), found[-1].get("response", {})

    async def response(self, order: Mapping[str, Any], *tools: JSON, **options: Any) -> JSON:
        """Return the response to an order for the model."""
        body = {"model": MODEL, "input": json.dumps(order), "store": False, "tools": list(tools), **options}
        made: JSON = (await self.asked("POST", "/responses", json=body)).json()
        return made

    async def ended(self, response: JSON) -> JSON:
        """Return a background response when it has ended."""
        path = f"/responses/{response['id']}"
        return await self.polled(path, lambda answer: answer["status"] not in {"queued", "in_progress"})

    async def polled(self, path: str, is_enough: Callable[[JSON], object]) -> JSON:
        """Ask until the answer is the one that is waited for."""
        while True:
            answer: JSON = (await self.asked("GET", path)).json()
            if is_enough(answer):
                return answer
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        await self.http.aclose()


def functions(*names: str) -> list[JSON]:
    return [{"type": "function", "name": name} for name in names]


def text_of(response: JSON) -> str:
    """Return what a response that is complete says."""
    if response.get("status") != "completed":
        raise WrongAnswerError(f"a response is {response.get('status')}: {json.dumps(response)[:500]}")
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts)


def _discreet(text: str) -> None:
    if (found := re.search(SECRET, text)) is not None:
        raise WrongAnswerError(f"{found[0]} is said in {text[:300]}")


def equal(got: object, wanted: object) -> None:
    if got != wanted:
        raise WrongAnswerError(f"{str(got)[:300]!r} instead of {str(wanted)[:300]!r}")


def contains(text: str, wanted: str) -> None:
    if wanted not in text:
        raise WrongAnswerError(f"{wanted!r} is not in {text[:300]!r}")
