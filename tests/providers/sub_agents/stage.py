"""The shipped server with the functions for agents, a model that is told what to say, and the SDK before it."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from openai.types.responses import Response
from tests.http.sdk import Served, create, served

from antwort import Context
from antwort.providers.sub_agents import SubAgentsProvider
from antwort.providers.sub_agents.provider import SubAgentsSettings
from antwort.providers.variables import VariablesProvider
from antwort.testing import Turn, call, turn
from antwort.types import JSON

FUNCTIONS = tuple(spec.name for spec in SubAgentsProvider().tools())
TOOLS = [{"type": "function", "name": name} for name in FUNCTIONS]
"""The functions for agents as a request names them."""


async def remember(ctx: Context, text: str, times: int = 1) -> dict[str, str]:
    """Keep a text as a variable."""
    return (await ctx.variables.set("remembered", text * times, scope="run")).reference


@contextlib.contextmanager
def stage(
    folder: Path,
    steps: Iterable[Turn | str],
    *,
    variables: bool = True,
    sub_agents: JSON | None = None,
    **sections: Any,
) -> Iterator[Served]:
    """Serve an app that has the functions for agents, with settings, and those for variables."""
    sections.setdefault("functions", [remember])
    own = SubAgentsProvider(SubAgentsSettings.model_validate(sub_agents or {}))
    with served(folder, steps, providers=[own, *([VariablesProvider()] if variables else [])], **sections) as found:
        yield found


def ask(served_app: Served, *, stream: bool, text: str = "Do it!", **fields: Any) -> Response:
    """Ask the root agent, which has all functions."""
    tools = [*TOOLS, *fields.pop("tools", ())]
    return create(served_app, stream, input=text, tools=tools, **fields)


def outputs(served_app: Served, number: int = -1) -> list[str]:
    """Return what the model has read of its calls in one of its requests."""
    return [item["output"] for item in served_app.requests[number].items if item["type"] == "function_call_output"]


def output(served_app: Served, number: int = -1) -> Any:
    """Return the JSON that the model has read of its last call."""
    return msgspec.json.decode(outputs(served_app, number)[-1])


def prompt_of(served_app: Served, number: int) -> str:
    """Return what an agent was asked."""
    [item] = [item for item in served_app.requests[number].items if item.get("role") == "user"]
    content = item["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def offered(served_app: Served, number: int) -> list[str]:
    """Return the functions that the model was offered."""
    return [str(tool["name"]) for tool in served_app.requests[number].tools]


def does(name: str, **arguments: Any) -> Turn:
    """Make a turn that calls a function."""
    return turn(calls=[call(name, arguments)])


def tree(served_app: Served, response_id: str, **options: Any) -> JSON:
    """Return the agents of a response."""
    found = served_app.request("GET", f"/responses/{response_id}/agents", **options)
    assert found.status_code == 200, found.text
    body: JSON = found.json()
    return body
