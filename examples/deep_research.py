"""Research by several agents: one plans, others each look something up and report, the first one puts it together.

It runs offline: a scripted model says what a real one might, and the search knows three sentences. Agents, functions
and limits are those of a configuration file.
"""

import asyncio
import tempfile
from pathlib import Path

from antwort import Antwort
from antwort.config import Config
from antwort.context import ANONYMOUS_TENANT
from antwort.testing import ScriptedBackend, call, matching, turn

FACTS = {
    "oldest": "The Tower of Hercules has stood since the first century.",
    "tallest": "The Jeddah Light is 133 metres tall.",
    "northernmost": "The northernmost lighthouse stands on Svalbard.",
}
CONFIG = {
    "engine": {"run": {"max_depth": 1, "max_agents": 10, "max_tokens": 100_000}},
    "agents": {
        "planner": {
            "instructions": "Divide the question, let a researcher answer each part, and put the answers together.",
            "functions": ["spawn_many", "budget_remaining"],
            "agents": ["researcher"],
        },
        "researcher": {"instructions": "Look it up. Report in one sentence.", "functions": ["look_up"]},
    },
}


async def look_up(topic: str) -> str:
    """Look something up about lighthouses."""
    return FACTS.get(topic, "Nothing is known about that.")


def model() -> ScriptedBackend:
    """Return a model that sends out a researcher for each topic."""
    configs = [{"prompt": f"Which lighthouse is the {topic}?", "agent": "researcher"} for topic in FACTS]
    return ScriptedBackend(
        [
            turn(calls=[call("budget_remaining")]),
            turn(calls=[call("spawn_many", configs=configs)]),
            *(turn(calls=[call("look_up", topic=topic)], by=matching(last=f"is the {topic}?")) for topic in FACTS),
            *(turn(calls=[call("return_result", value=fact)], by=matching(last=fact)) for fact in FACTS.values()),
            turn(" ".join(FACTS.values())),
        ]
    )


async def main() -> None:
    """Ask, and show the report and who has worked on it."""
    with tempfile.TemporaryDirectory() as folder:
        config = Config.model_validate({**CONFIG, "data_dir": Path(folder)})
        async with Antwort(config, functions=[look_up], backend=model()) as app:
            response = await app.run("Tell me about remarkable lighthouses.", agent="planner")
            print(response.output_text)
            for agent in await app.runs.agents.tree(ANONYMOUS_TENANT, response.id) or ():
                tokens = 0 if agent.usage is None else agent.usage.total_tokens
                print(f"{'  ' * agent.depth}{agent.name}: {agent.status}, {tokens} tokens")
            print(f"together: {0 if response.usage is None else response.usage.total_tokens} tokens")


if __name__ == "__main__":
    asyncio.run(main())
