"""The shipped server on a socket, with a model server behind it that plays a script over HTTP."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from tests.http.sdk import Served

from antwort import Antwort
from antwort.config import Config
from antwort.testing import ScriptServer, Turn, running

__all__ = ["KEY", "MODELS", "Stage", "said", "scripted", "staged"]

KEY = "sk-a-key-of-the-tests"
MODELS = ["scripted", "other"]
ALIASES = {"gpt-5": "scripted"}
"""Some clients compact only what has a name of OpenAI's."""


class Stage(Protocol):
    """What the fixture `stage` gives: a function that serves an app on the store of the test."""

    def __call__(self, *steps: Turn | str, **sections: Any) -> contextlib.AbstractContextManager[Served]:
        """Serve until the block ends, behind the key `KEY`; the script must have been played in full by then."""


@contextlib.contextmanager
def staged(model: ScriptServer, data_dir: Path, database_url: str, **sections: Any) -> Iterator[Served]:
    """Serve an app in front of a model server. The agent `accountant` is a model with a function of ours."""
    config = Config.model_validate(
        {
            "data_dir": data_dir,
            "storage": {"url": database_url},
            "auth": {"api_keys": [{"id": "tests", "key": KEY, "tenant": "acme"}]},
            "backends": {"main": {"url": model.url, "models": MODELS, "aliases": ALIASES, "retries": 0, "pdf": True}},
            "agents": {"accountant": {"model": "scripted", "functions": ["calculate"]}},
            **sections,
        }
    )
    with running(Antwort(config)) as server, contextlib.ExitStack() as closing:
        yield Served(server, model, closing)


def said(body: dict[str, Any]) -> list[Any]:
    """Return what a request to the model server says, message by message: its role, and its text or its calls."""
    return [(message["role"], _said(message)) for message in body["messages"]]


def _said(message: dict[str, Any]) -> Any:
    if message.get("tool_calls"):
        return [call["function"]["name"] for call in message["tool_calls"]]
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def scripted(steps: Iterable[Turn | str]) -> ScriptServer:
    """Return a model server with the models the app expects."""
    return ScriptServer(steps, models=MODELS)
