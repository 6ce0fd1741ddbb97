"""The agent that ships answers by one program over a variable that fits into no window."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.providers.sub_agents.brain import Brain, prompt, size_of, texts
from tests.providers.sub_agents.stage import does

from antwort import Antwort
from antwort.backends.base import ModelRequest
from antwort.config import Config
from antwort.context import ANONYMOUS_TENANT
from antwort.context.values import Place
from antwort.testing import Turn

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))
LINES = 3_000_000 if FULL else 300_000
SHIPS = 2000
GREY = 3
"""Every third ship is grey."""
LONGEST = 8000
QUESTION = "How many of the ships in the variable `log` were grey?"
PROGRAM = """
import asyncio
log = await variable("log")
print(await log.read(0, 60))
parts, part = [], ""
for line in await log.grep("ship", 100_000):
    if len(part) + len(line) > 5000:
        parts.append(part)
        part = ""
    part += line + "\\n"
parts.append(part)
answers = await asyncio.gather(*[call_llm("How many of these ships were grey? A number only.", p) for p in parts])
await final_answer(f"{sum(int(a) for a in answers)} of {sum(p.count('ship') for p in parts)} ships were grey.")
"""


async def log() -> AsyncIterator[bytes]:
    """Give what happened in many nights; in few of them a ship passed."""
    every = LINES // SHIPS
    for start in range(0, LINES, every):
        colour = "grey" if start // every % GREY == 0 else "white"
        nights = [f"Night {start + number:08}: nothing.\n" for number in range(1, every)]
        yield "".join([f"Night {start:08}: a {colour} ship passed.\n", *nights]).encode()


class Models(Brain):
    """A large model that is an agent, and a small one that is asked."""

    def __init__(self, program: str = PROGRAM) -> None:
        super().__init__(self._say)
        self._program = program
        self.requests: list[ModelRequest] = []

    def _say(self, request: ModelRequest) -> Turn | str:
        self.requests.append(request)
        if request.model == "small":
            return str(prompt(request).count("grey ship"))
        if "sub-task" in prompt(request):
            return does("run_program", code="await return_result({'seen': (await variable('log')).size})")
        return f"I read: {texts(request)[-1]}" if texts(request) else does("run_program", code=self._program)

    def of(self, model: str) -> list[ModelRequest]:
        """Return what one of them was asked."""
        return [request for request in self.requests if request.model == model]


@asynccontextmanager
async def recursive(folder: Path, models: Models, **programs: Any) -> AsyncIterator[Antwort]:
    """Start the default server, with another model for `call_llm`, and a long log as a variable."""
    providers: dict[str, Any] = {name: {"enabled": True} for name in ("variables", "user")}
    providers["sub_agents"] = {"enabled": True, "settings": {"call_model": "small"}}
    providers["programs"] = {"enabled": True, "settings": programs}
    async with Antwort(Config.model_validate({"data_dir": folder, "providers": providers}), backend=models) as app:
        await app.values.write(Place(ANONYMOUS_TENANT), "log", log(), kind="text")
        yield app


@pytest.mark.parametrize("interpreter", ["monty", "auto"])
async def test_one_program_asks_another_model_about_the_parts_and_answers(tmp_path: Path, interpreter: str) -> None:
    models = Models()
    async with recursive(tmp_path, models, interpreter=interpreter) as app:
        response = await app.run(QUESTION, model="large", agent="recursive")
        assert response.output_text == f"{-(-SHIPS // GREY)} of {SHIPS} ships were grey."
        program, printed, _ = response.output
        assert isinstance(program, dict)
        assert isinstance(printed, dict)
        assert (program["type"], printed["result"][:22]) == ("program", "Night 00000000: a grey")
    assert len(models.of("large")) == 1
    assert len(models.of("small")) > SHIPS * 30 // 5000
    assert max(map(size_of, models.requests)) <= LONGEST
    # The small model is asked, and is told nothing of what the agent can do.
    assert {request.instructions for request in models.of("small")} == {None}
    assert not any(request.tools for request in models.of("small"))


async def test_the_program_is_its_first_means_and_each_agent_has_one_way_to_end(tmp_path: Path) -> None:
    models = Models("print((await spawn_agent(prompt='sub-task', output_schema={'type': 'object'}))['result']['seen'])")
    async with recursive(tmp_path, models) as app:
        response = await app.run(QUESTION, model="large", agent="recursive")
    assert re.fullmatch(r"I read: \d+", response.output_text)
    root, child, _ = models.requests
    names = [[str(tool["name"]) for tool in request.tools] for request in (root, child)]
    assert "run_program" in names[0]
    assert [name for name in names[0] if name in {"final_answer", "return_result"}] == ["final_answer"]
    assert [name for name in names[1] if name in {"final_answer", "return_result"}] == ["return_result"]
    assert {*names[0]} ^ {*names[1]} == {"final_answer", "return_result"}
    instructions = root.instructions or ""
    assert instructions.index("run_program") < min(instructions.index(name) for name in ("store_get", "spawn_agent"))
    assert {word.strip("`.,:;()") for word in instructions.split() if re.match(r"[`(]?[a-z]+_[a-z]+", word)} <= {
        *("json_path", *names[0], *names[1], "final_answer(text")
    }
    assert child.instructions is not None
    assert child.instructions.startswith(instructions)


@pytest.mark.parametrize("interpreter", ["monty", "sandbox", "auto"])
async def test_what_it_is_told_and_offered_leaves_room_to_work(tmp_path: Path, interpreter: str) -> None:
    """Of the 8,000 bytes of a request, a third is for the task and what calls return."""
    models = Models("1")
    async with recursive(tmp_path, models, interpreter=interpreter) as app:
        await app.run("?", model="large", agent="recursive")
    assert size_of(models.requests[0]) <= 5333
