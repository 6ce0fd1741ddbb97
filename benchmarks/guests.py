"""Those of the crowd who come by other doors: Messages, chat completions, batches, and those who have secrets."""

import json
from collections.abc import Mapping
from typing import Any

from antwort.types import JSON
from benchmarks.asking import MASK, Asker, WrongAnswerError, contains, equal, functions, text_of
from benchmarks.obedient import MODEL

BEHIND = f"behind/{MODEL}"
"""The same model, by another antwort."""
CALCULATE: JSON = {"calls": [["calculate", {"expression": "6 * 7"}]]}
CLIENTS_CALL: JSON = {"calls": [["mine", {}]]}
SCHEMA: JSON = {"type": "object", "properties": {}}
OWN: JSON = {"type": "function", "name": "mine", "parameters": SCHEMA}
MESSAGE_TOOL: JSON = {"name": "mine", "input_schema": SCHEMA}
CHAT_TOOL: JSON = {"type": "function", "function": {"name": "mine", "parameters": SCHEMA}}
LINES = 3
"""Requests of a batch."""
AT_WORK = ("validating", "in_progress", "finalizing")


class Guest(Asker):
    """Somebody of a tenant who uses other faces of the server."""

    # --- messages ----------------------------------------------------------------------------------------------------

    async def message(self) -> None:
        word = self.word()
        body = asking({**CALCULATE, "say": word}, tools=[{"name": "calculate"}])
        equal(message_text((await self.asked("POST", "/messages", json=body)).json()), f'{word}["42"]')

    async def message_stream(self) -> None:
        word, count = self.word(), self._chance.randrange(1, 200)
        found = await self.events("/messages", asking({"say": word, "words": count}))
        equal(found[-1]["type"], "message_stop")
        said = [event["delta"]["text"] for event in found if event["type"] == "content_block_delta"]
        equal("".join(said), " ".join([word] * count))

    async def message_tool(self) -> None:
        word = self.word()
        body = asking({**CLIENTS_CALL, "say": "got "}, tools=[MESSAGE_TOOL])
        first = (await self.asked("POST", "/messages", json=body)).json()
        equal(first["stop_reason"], "tool_use")
        result = {"type": "tool_result", "tool_use_id": first["content"][-1]["id"], "content": word}
        body["messages"] += [
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": [result]},
        ]
        equal(message_text((await self.asked("POST", "/messages", json=body)).json()), f'got ["{word}"]')

    async def message_batch(self) -> None:
        words = {f"line-{number}": self.word() for number in range(LINES)}
        requests = [{"custom_id": name, "params": asking({"say": word})} for name, word in words.items()]
        begun = (await self.asked("POST", "/messages/batches", json={"requests": requests})).json()
        path = self.has(f"/messages/batches/{begun['id']}")
        ended = await self.polled(path, lambda answer: answer["processing_status"] == "ended")
        equal(ended["request_counts"]["succeeded"], LINES)
        lines = [json.loads(line) for line in (await self.asked("GET", f"{path}/results")).text.splitlines()]
        equal({line["custom_id"]: message_text(line["result"]["message"]) for line in lines}, words)
        await self.asked("DELETE", path)
        await self.asked("GET", path, status=404)

    # --- chat completions --------------------------------------------------------------------------------------------

    async def chat(self) -> None:
        word = self.word()
        tools = [{"type": "function", "function": {"name": "calculate"}}]
        equal(await self._chat({**CALCULATE, "say": word}, tools=tools), f'{word}["42"]')

    async def chat_stream(self) -> None:
        word, count = self.word(), self._chance.randrange(1, 200)
        equal(await self._chat_stream({"say": word, "words": count}), " ".join([word] * count))

    async def chat_tool(self) -> None:
        word = self.word()
        body = asking({**CLIENTS_CALL, "say": "got "}, tools=[CHAT_TOOL])
        made = (await self.asked("POST", "/chat/completions", json=body)).json()["choices"][0]
        equal(made["finish_reason"], "tool_calls")
        [call] = made["message"]["tool_calls"]
        body["messages"] += [made["message"], {"role": "tool", "tool_call_id": call["id"], "content": word}]
        equal(chat_text((await self.asked("POST", "/chat/completions", json=body)).json()), f'got ["{word}"]')

    async def stored_chat(self) -> None:
        word, topic = self.word(), self.word()
        body = asking({"say": word}, store=True, metadata={"topic": topic})
        if self._chance.random() < 0.5:
            chat = (await self.events("/chat/completions", body))[0]["id"]
        else:
            chat = (await self.asked("POST", "/chat/completions", json=body)).json()["id"]
        path = self.has(f"/chat/completions/{chat}")
        listed = (await self.asked("GET", "/chat/completions", params={"metadata[topic]": topic})).json()["data"]
        equal([(one["id"], chat_text(one)) for one in listed], [(chat, word)])
        messages = (await self.asked("GET", f"{path}/messages")).json()["data"]
        equal([message["content"] for message in messages], [body["messages"][0]["content"]])
        changed = self.word()
        await self.asked("POST", path, json={"metadata": {"topic": changed}})
        kept = (await self.asked("GET", path)).json()
        equal((chat_text(kept), kept["metadata"]), (word, {"topic": changed}))
        await self.asked("DELETE", path)
        await self.asked("GET", path, status=404)

    async def _chat(self, order: Mapping[str, Any], **options: Any) -> str:
        return chat_text((await self.asked("POST", "/chat/completions", json=asking(order, **options))).json())

    async def _chat_stream(self, order: Mapping[str, Any]) -> str:
        found = await self.events("/chat/completions", asking(order))
        choices = [chunk["choices"][0] for chunk in found if chunk.get("choices")]
        equal(choices[-1]["finish_reason"], "stop")
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    # --- others that are new to some ---------------------------------------------------------------------------------

    async def decision(self) -> None:
        percent = self._chance.randrange(50, 101)
        codes = {"q1": self._chance.choice(["yes", "no"]), "p1": percent, "q2": self._chance.choice("ABC"), "p2": 80}
        choices = [{"value": self.word()} for _ in "ABC"]
        questions = [
            {"type": "predicate", "name": "so", "instructions": "Is it?"},
            {"type": "choice", "name": "which", "instructions": "Which?", "choices": choices},
        ]
        body = {"model": MODEL, "input": json.dumps({"answers": codes}), "questions": questions}
        so, which = (await self.asked("POST", "/decisions", json=body)).json()["answers"]
        wanted = percent / 100 if codes["q1"] == "yes" else 1 - percent / 100
        equal((so["name"], round(so["probability"], 6)), ("so", round(wanted, 6)))
        chosen = choices["ABC".index(str(codes["q2"]))]["value"]
        equal((which["name"], which["choice"], which["confidence"]), ("which", chosen, 0.8))

    async def prompt(self) -> None:
        names = [self.word() for _ in range(2)]
        made = (await self.asked("POST", "/prompts", json={"template": f"{names[0]} of {{{{shop}}}}"})).json()
        path = self.has(f"/prompts/{made['id']}")
        await self.asked("PUT", path, json={"template": f"{names[1]} of {{{{shop}}}}", "version": 1})
        for version, name in enumerate(names, 1):
            shop, word = self.word(), self.word()
            prompt = {"id": made["id"], "variables": {"shop": shop}, "version": str(version)}
            answer = await self.response({"say": word}, prompt=prompt)
            equal((text_of(answer), answer["instructions"]), (word, f"{name} of {shop}"))
        await self.asked("DELETE", path)
        await self.asked("GET", path, status=404)

    async def batch(self) -> None:
        words = {f"line-{number}": self.word() for number in range(LINES)}
        lines = [
            {"custom_id": name, "method": "POST", "url": "/v1/responses", "body": ordered({"say": word}, store=False)}
            for name, word in words.items()
        ]
        form = {"file": ("lines.jsonl", "\n".join(map(json.dumps, lines)).encode(), "application/jsonl")}
        file = (await self.asked("POST", "/files", data={"purpose": "batch"}, files=form)).json()["id"]
        body = {"input_file_id": file, "endpoint": "/v1/responses", "completion_window": "24h"}
        begun = (await self.asked("POST", "/batches", json=body)).json()
        path = self.has(f"/batches/{begun['id']}")
        ended = await self.polled(
            path, lambda answer: answer["status"] not in {"validating", "in_progress", "finalizing"}
        )
        equal((ended["status"], ended["request_counts"]["completed"]), ("completed", LINES))
        answers = self.has(f"/files/{ended['output_file_id']}")
        read = [json.loads(line) for line in (await self.asked("GET", f"{answers}/content")).text.splitlines()]
        equal({line["custom_id"]: text_of(line["response"]["body"]) for line in read}, words)
        await self.asked("DELETE", answers)
        await self.asked("DELETE", f"/files/{file}")

    async def conversations(self) -> None:
        topics = [self.word() for _ in range(3)]
        made = [
            (await self.asked("POST", "/conversations", json={"metadata": {"topic": topic}})).json()["id"]
            for topic in topics
        ]
        listed = await self._listed("/conversations", made)
        equal([listed.get(one, {}).get("metadata") for one in made], [{"topic": topic} for topic in topics])
        for one in made:
            path = self.has(f"/conversations/{one}")
            await self.asked("DELETE", path)
            await self.asked("GET", path, status=404)
        equal(await self._listed("/conversations", made), {})

    async def _listed(self, path: str, ids: list[str]) -> dict[str, JSON]:
        """Look through the newest pages for what is wanted."""
        found: dict[str, JSON] = {}
        after: JSON = {}
        for _ in range(5):
            page = (await self.asked("GET", path, params={"limit": 20, "order": "desc", **after})).json()
            found |= {one["id"]: one for one in page["data"] if one["id"] in ids}
            if not page["has_more"]:
                break
            after = {"after": page["last_id"]}
        return found

    # --- another server behind this one ------------------------------------------------------------------------------

    async def behind(self) -> None:
        word, count = self.word(), self._chance.randrange(1, 100)
        wanted = " ".join([word] * count)
        equal(text_of(await self.response({"say": word, "words": count}, model=BEHIND)), wanted)
        said, last = await self.told({"say": word, "words": count}, model=BEHIND, store=False)
        equal((said, text_of(last)), (wanted, wanted))

    async def behind_tools(self) -> None:
        word = self.word()
        made = await self.response({**CALCULATE, "say": word}, *functions("calculate"), model=BEHIND)
        equal(text_of(made), f'{word}["42"]')
        first = await self.response({**CLIENTS_CALL, "say": "got "}, OWN, model=BEHIND, store=True)
        [call] = [item for item in first["output"] if item["type"] == "function_call"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": word}
        body = {"model": BEHIND, "input": [output], "previous_response_id": first["id"], "tools": [OWN]}
        equal(text_of((await self.asked("POST", "/responses", json=body)).json()), f'got ["{word}"]')

    # --- secrets -----------------------------------------------------------------------------------------------------

    async def secret(self) -> None:
        """Say a key, and have the model say one: plainly, streamed, and in the background."""
        heard, own = self.whisper(), self._unspoken()
        count = self._chance.randrange(1, 20)
        order = {"say": f"{heard} and {own}", "words": count, "without": "|"}
        wanted = " ".join([f"{MASK} and {MASK}"] * count)
        kept = await self.response(order, store=True)
        equal(text_of(kept), wanted)
        said, last = await self.told(order, store=True)
        equal((said, text_of(last)), (wanted, wanted))
        begun = await self.response(order, store=True, background=True)
        equal(text_of(await self.ended(begun)), wanted)
        for made in (kept, last, begun):
            path = self.has(f"/responses/{made['id']}")
            contains((await self.asked("GET", f"{path}/input_items")).text, MASK)
            contains((await self.asked("GET", f"{path}/trace")).text, MASK)
        await self.asked("GET", "/responses")

    async def secret_call(self) -> None:
        """Put keys into calls of the client's and the server's, and into what comes of them."""
        key = f"v{self._chance.getrandbits(40):x}"
        values = {"key": key, "value": self._unspoken(), "scope": "conversation"}
        calls = [["store_set", values], ["mine", {"key": self._unspoken()}]]
        tools = [OWN, *functions("store_set", "store_get", "run_program"), {"type": "programmatic_tool_calling"}]
        made = await self.response({"calls": calls, "say": "", "without": "|"}, *tools, store=True)
        call = next(item for item in made["output"] if item.get("name") == "mine")
        equal(json.loads(call["arguments"]), {"key": MASK})
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": self.whisper()}
        code = "'whisper' + '" + self.whisper().removeprefix("whisper") + "'"
        order = {"calls": [["store_get", {"key": key}], ["run_program", {"code": code}]], "say": ""}
        asked = [output, {"role": "user", "content": json.dumps(order)}]
        body = {"model": MODEL, "input": asked, "previous_response_id": made["id"], "tools": tools}
        read = (await self.asked("POST", "/responses", json=body)).json()
        equal(text_of(read).count(MASK), 2)
        for one in (made, read):
            await self.asked("GET", f"/responses/{one['id']}/trace")

    async def secret_elsewhere(self) -> None:
        """Do the same by the other faces."""
        order = {"say": f"{self.whisper()} and {self._unspoken()}", "words": 3, "without": "|"}
        wanted = " ".join([f"{MASK} and {MASK}"] * 3)
        equal(message_text((await self.asked("POST", "/messages", json=asking(order))).json()), wanted)
        found = await self.events("/messages", asking(order))
        said = [event["delta"]["text"] for event in found if event["type"] == "content_block_delta"]
        equal("".join(said), wanted)
        equal(await self._chat(order, store=True), wanted)
        equal(await self._chat_stream(order), wanted)
        equal(text_of(await self.response(order, model=BEHIND)), wanted)
        await self.asked("GET", "/chat/completions", params={"order": "desc"})

    def _unspoken(self) -> str:
        """Make up a key in a form in which only the model says it."""
        return self.whisper().replace("-", "|-", 1)


def ordered(order: Mapping[str, Any], **options: Any) -> JSON:
    """Return a request for a response."""
    return {"model": MODEL, "input": json.dumps(order), **options}


def asking(order: Mapping[str, Any], **options: Any) -> JSON:
    """Return a request for a message, or a chat completion."""
    content = {"role": "user", "content": json.dumps(order)}
    return {"model": MODEL, "max_tokens": 10_000, "messages": [content], **options}


def message_text(message: JSON) -> str:
    if message.get("stop_reason") != "end_turn":
        raise WrongAnswerError(f"a message has not ended: {json.dumps(message)[:500]}")
    return "".join(block["text"] for block in message["content"])


def chat_text(completion: JSON) -> str:
    [choice] = completion["choices"]
    equal(choice["finish_reason"], "stop")
    return str(choice["message"]["content"])
