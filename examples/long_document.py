"""A question about a document that fits into no window: by one program, the agent divides it among others and answers.

It runs offline: a scripted model says what a real one might. Give a real one instead with `backend="http://…/v1"`.
"""

import asyncio
import base64
import json
import tempfile
from functools import partial
from pathlib import Path

from antwort import Antwort
from antwort.backends import ModelRequest
from antwort.config import Config
from antwort.context import ANONYMOUS_TENANT
from antwort.testing import ScriptedBackend, call, matching, turn

LINES = 20_000
PARTS = 4


def document() -> bytes:
    """Return a log of a lighthouse that nobody wants to read."""
    lines = [f"Night {number}: nothing happened." for number in range(LINES)]
    lines[4_711] = "Night 4711: a ship without lights passed, heading north."
    lines[17_000] = "Night 17000: the ship without lights came back."
    return "\n".join(lines).encode()


PROGRAM = f"""
import asyncio
log = await variable("log.txt")
size = {LINES // PARTS}
found = await asyncio.gather(*[
    spawn_agent(prompt=f"Which nights in lines {{1 + size * n}}-{{size * (n + 1)}} were unusual?", context=log)
    for n in range({PARTS})
])
await final_answer(" ".join([one["result"] for one in found if one["result"] != "None."]))
"""


def model() -> ScriptedBackend:
    """Return a model that divides the document among sub-agents, each of which searches its part."""
    size = LINES // PARTS
    parts = [f"{1 + size * part}-{size * (part + 1)}" for part in range(PARTS)]
    found = ["A ship without lights passed in night 4711.", "None.", "None.", "It came back in night 17000."]
    steps = [
        turn(calls=[call("run_program", code=PROGRAM)]),
        *(
            turn(calls=[call("store_get", key="log.txt", grep="ship")], by=matching(last=f"lines {part} were"))
            for part in parts
        ),
        *(
            turn(calls=[call("return_result", value=text)], by=partial(_has_read, part))
            for part, text in zip(parts, found, strict=True)
        ),
    ]
    return ScriptedBackend(steps)


def _has_read(part: str, request: ModelRequest) -> bool:
    """Tell whether a request is that of the sub-agent that has searched a part."""
    text = str(request.items)
    return f"lines {part} were" in text and "function_call_output" in text


async def main() -> None:
    """Ask, and show the answer, the tree of agents, and how much the model read at once."""
    part = {"type": "input_file", "filename": "log.txt", "file_data": base64.b64encode(document()).decode()}
    question = {"type": "input_text", "text": "What happened at the lighthouse?"}
    backend = model()
    with tempfile.TemporaryDirectory() as folder:
        async with Antwort(Config(data_dir=Path(folder)), backend=backend) as app:
            response = await app.run([{"role": "user", "content": [part, question]}], agent="recursive")
            print(response.output_text)
            for agent in await app.runs.agents.tree(ANONYMOUS_TENANT, response.id) or ():
                tokens = 0 if agent.usage is None else agent.usage.total_tokens
                print(f"{'  ' * agent.depth}{agent.name}: {agent.status}, {tokens} tokens")
    largest = max(len(json.dumps([*request.items], default=str)) for request in backend.requests)
    print(f"The document has {len(document()):,} bytes; the largest window had {largest:,}.")


if __name__ == "__main__":
    asyncio.run(main())
