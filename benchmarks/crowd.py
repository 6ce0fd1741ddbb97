"""A crowd that uses every feature side by side, for two tenants, and looks at what each answer says.

Run as a program: port, seconds, and how many of each kind. The model behind the server is `benchmarks.obedient`, which
does what it is told, so every answer is known beforehand. Whatever else is there, another tenant's bytes among it, is a
wrong answer. At the end it prints one line of JSON: how often each kind was right, and what was wrong.
"""

import asyncio
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

from websockets.asyncio.client import connect

from benchmarks.asking import KEYS, PATIENCE, WrongAnswerError, contains, equal, functions, text_of
from benchmarks.guests import Guest
from benchmarks.obedient import MODEL

PAUSE = 0.5
"""Seconds after a wrong answer."""


class Person(Guest):
    """Somebody of a tenant, who does one kind of thing over and over."""

    # --- kinds -------------------------------------------------------------------------------------------------------

    async def plain(self) -> None:
        word = self.word()
        equal(text_of(await self.response({"say": word})), word)

    async def streamed(self) -> None:
        word, count = self.word(), self._chance.randrange(1, 200)
        said, last = await self.told({"say": word, "words": count}, store=False)
        wanted = " ".join([word] * count)
        equal(said, wanted)
        equal(text_of(last), wanted)

    async def left(self) -> None:
        """Leave a stream in its middle."""
        body = {"model": MODEL, "input": json.dumps({"say": self.word(), "words": 2000}), "stream": True}
        async with self.http.stream("POST", "/responses", json=body) as answer:
            async for _ in answer.aiter_bytes():
                if self._chance.random() < 0.3:
                    return

    async def over_websocket(self) -> None:
        url = f"ws://127.0.0.1:{self._port}/v1/responses"
        async with connect(url, additional_headers={"authorization": f"Bearer {self._key}"}) as connection:
            for _ in range(3):
                word = self.word()
                order = {"model": MODEL, "input": json.dumps({"say": word}), "store": False}
                await connection.send(json.dumps({"type": "response.create", **order}))
                async with asyncio.timeout(PATIENCE):
                    while (event := json.loads(await connection.recv()))["type"] != "response.completed":
                        pass
                equal(text_of(event["response"]), word)

    async def stored(self) -> None:
        words = [self.word(), self.word()]
        first = await self.response({"say": words[0]}, store=True)
        second = await self.response({"say": words[1]}, store=True, previous_response_id=first["id"])
        kept = (await self.asked("GET", f"/responses/{second['id']}")).json()
        equal(text_of(kept), words[1])
        await self.asked("DELETE", f"/responses/{first['id']}")
        await self.asked("GET", f"/responses/{first['id']}", status=404)

    async def in_background(self) -> None:
        word = self.word()
        order = {"calls": [["calculate", {"expression": "6 * 7"}]], "say": word}
        begun = await self.response(order, *functions("calculate"), background=True, store=True)
        equal(text_of(await self.ended(begun)), f'{word}["42"]')

    async def cancelled(self) -> None:
        begun = await self.response({"say": "too late", "pause": 60}, background=True, store=True)
        await self.asked("POST", f"/responses/{begun['id']}/cancel")
        equal((await self.ended(begun))["status"], "cancelled")

    async def conversation(self) -> None:
        word = self.word()
        made = (await self.asked("POST", "/conversations", json={})).json()
        await self.response({"say": word}, store=True, conversation=made["id"])
        items = (await self.asked("GET", f"/conversations/{made['id']}/items")).json()["data"]
        equal(items[0]["content"][0]["text"], word)
        await self.asked("DELETE", f"/conversations/{made['id']}")

    async def client_function(self) -> None:
        word = self.word()
        tool = {"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}
        first = await self.response({"calls": [["mine", {}]], "say": "got "}, tool, store=True)
        [call] = [item for item in first["output"] if item["type"] == "function_call"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": word}
        body = {"model": MODEL, "input": [output], "previous_response_id": first["id"], "tools": [tool]}
        equal(text_of((await self.asked("POST", "/responses", json=body)).json()), f'got ["{word}"]')

    async def variable(self) -> None:
        key, value = f"v{self._chance.getrandbits(40):x}", self.word() * 50
        order = {"calls": [["store_set", {"key": key, "value": value, "scope": "conversation"}]], "say": key}
        made = await self.response(order, *functions("store_set", "store_get"), store=True)
        order = {"calls": [["store_get", {"key": key}]], "say": ""}
        tools = functions("store_set", "store_get")
        read = await self.response(order, *tools, previous_response_id=made["id"], store=True)
        equal(text_of(read), json.dumps([value]))

    async def question(self) -> None:
        word = self.word()
        order = {"calls": [["ask_user", {"question": "Which?"}]], "say": "chosen "}
        begun = await self.response(order, *functions("ask_user"), background=True, store=True)
        path = f"/questions?status=open&response_id={begun['id']}"
        asked = await self.polled(path, lambda answer: answer["data"])
        await self.asked("POST", f"/questions/{asked['data'][0]['id']}/answer", json={"answer": word})
        contains(text_of(await self.ended(begun)), word)

    async def agents(self) -> None:
        words = [self.word() for _ in range(5)]
        configs = [{"prompt": json.dumps({"say": word})} for word in words]
        order = {"calls": [["spawn_many", {"configs": configs}]], "say": ""}
        made = await self.response(order, *functions("spawn_many"), store=True)
        for word in words:
            contains(text_of(made), word)

    async def shell(self) -> None:
        word = self.word()
        order = {"calls": [["shell", {"command": f"echo {word} > f; sleep 0.0$((RANDOM % 5)); cat f"}]], "say": ""}
        tool = {"type": "shell", "environment": {"type": "container_auto"}}
        made = await self.response(order, tool, store=True)
        [got] = [item for item in made["output"] if item["type"] == "shell_call_output"]
        equal(got["output"][0]["stdout"].strip(), word)
        contains(text_of(made), word)

    async def code(self) -> None:
        word = self.word()
        program = f"import hashlib; print(hashlib.sha256(b'{word}').hexdigest())"
        order = {"calls": [["code_interpreter", {"code": program}]], "say": ""}
        tool = {"type": "code_interpreter", "container": {"type": "auto"}}
        made = await self.response(order, tool, store=True)
        contains(text_of(made), hashlib.sha256(word.encode()).hexdigest())

    async def program(self) -> None:
        word = self.word()
        loop = "total = 0\nfor n in range(20):\n    total += int(await calculate(expression=str(n)))"
        code = f"{loop}\n'{word}' + str(total)"
        order = {"calls": [["run_program", {"code": code}]], "say": ""}
        made = await self.response(order, {"type": "programmatic_tool_calling"}, *functions("calculate"))
        contains(text_of(made), f"{word}190")

    async def file(self) -> None:
        content = self.word().encode() * self._chance.randrange(1, 20_000)
        file = await self._uploaded(content)
        got = (await self.asked("GET", f"/files/{file}/content")).content
        if got != content:
            raise WrongAnswerError(f"{len(content)} bytes of {content[:40]!r} came back as {len(got)} of {got[:40]!r}")
        await self.asked("DELETE", f"/files/{file}")

    async def file_search(self) -> None:
        word = self.word()
        file = await self._uploaded(f"The password of the harbour is {word}.\n".encode())
        store = (await self.asked("POST", "/vector_stores", json={"file_ids": [file]})).json()
        path = f"/vector_stores/{store['id']}"
        store = await self.polled(path, lambda answer: answer["status"] == "completed")
        equal(store["file_counts"], {"in_progress": 0, "completed": 1, "failed": 0, "cancelled": 0, "total": 1})
        found = (await self.asked("POST", f"{path}/search", json={"query": "password of the harbour"})).json()["data"]
        contains(found[0]["content"][0]["text"], word)
        order = {"calls": [["file_search", {"query": "password"}]], "say": ""}
        made = await self.response(order, {"type": "file_search", "vector_store_ids": [store["id"]]}, store=True)
        contains(text_of(made), word)
        await self.asked("DELETE", path)
        await self.asked("DELETE", f"/files/{file}")

    async def _uploaded(self, content: bytes) -> str:
        form = {"file": ("words.txt", content, "text/plain")}
        made = (await self.asked("POST", "/files", data={"purpose": "user_data"}, files=form)).json()
        equal(made["bytes"], len(content))
        return str(made["id"])

    async def foreign(self) -> None:
        """Look for what another tenant has: there must be nothing."""
        other = next(tenant for tenant in KEYS if tenant != self._tenant)
        for path in LISTS:
            answer = await self.http.get(path)
            if f"{other}-" in answer.text:
                raise WrongAnswerError(f"GET {path} of {self._tenant} shows something of {other}")
        for path in [*self.known[other]]:
            await self.asked("GET", path, status=404)
        await asyncio.sleep(1)


KINDS: dict[str, Callable[[Person], Awaitable[None]]] = {
    name: getattr(Person, name)
    for name in (
        *("plain", "streamed", "left", "over_websocket", "stored", "in_background", "cancelled", "conversation"),
        *("client_function", "variable", "question", "agents", "shell", "code", "program", "file", "file_search"),
        *("message", "message_stream", "message_tool", "message_batch", "chat", "chat_stream", "chat_tool"),
        *("stored_chat", "decision", "prompt", "batch", "conversations", "behind", "behind_tools"),
        *("secret", "secret_call", "secret_elsewhere", "foreign"),
    )
}
LISTS = (
    *("/responses", "/files", "/vector_stores", "/questions", "/workspaces", "/containers", "/conversations", "/runs"),
    *("/chat/completions", "/prompts", "/batches", "/messages/batches", "/traces"),
)


class Crowd:
    """People of both tenants, some of each kind."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.right: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self.wrong: Counter[str] = Counter()
        self.problems: list[str] = []

    async def run(self, count: int, seconds: float) -> None:
        """Let so many of each kind and tenant do their thing, once at least, until the time is over."""
        end = asyncio.get_running_loop().time() + seconds
        known: dict[str, list[str]] = {tenant: [] for tenant in KEYS}
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                for kind in KINDS:
                    for tenant in KEYS:
                        group.create_task(self._again(kind, Person(self._port, tenant, number, known), end))

    async def _again(self, kind: str, person: Person, end: float) -> None:
        await self._once(kind, person)
        while asyncio.get_running_loop().time() < end:
            await self._once(kind, person)
        await person.close()

    async def _once(self, kind: str, person: Person) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await KINDS[kind](person)
        except Exception as error:  # noqa: BLE001 - each is told, and the others go on
            self.wrong[kind] += 1
            if len(self.problems) < 20:
                self.problems.append(f"{kind}: {error!r}")
            await asyncio.sleep(PAUSE)
        else:
            self.right[kind] += 1

    def report(self) -> str:
        return json.dumps({"right": self.right, "wrong": self.wrong, "problems": self.problems})


async def main(port: int, seconds: float, count: int) -> None:
    crowd = Crowd(port)
    await crowd.run(count, seconds)
    print(crowd.report(), flush=True)


if __name__ == "__main__":
    os.nice(5)
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
