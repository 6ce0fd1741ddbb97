"""The shipped app with workspaces, a scripted model behind it, and the SDK before it."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.http.sdk import Served

from antwort import Antwort
from antwort.config import Config
from antwort.testing import ScriptedBackend, Turn, call, running, turn
from antwort.types import JSON

SHELL: Any = {"type": "shell", "environment": {"type": "container_auto"}}
"""OpenAI's tool, as requests name it."""


def calling(*calls: tuple[str, JSON], answer: str = "Done.") -> list[Turn]:
    """Return the script of a model that makes calls one after the other, and then answers."""
    return [*(turn(calls=[call(name, **arguments)]) for name, arguments in calls), turn(answer)]


@contextlib.contextmanager
def staged(tmp_path: Path, steps: Sequence[Turn | str] = (), **settings: Any) -> Iterator[Served]:
    """Serve the app; lint every answer its clients have read."""
    sections = settings.pop("sections", {})
    providers = {"workspace": {"enabled": True, "settings": settings}}
    with ScriptedBackend(steps) as model:
        app = Antwort(Config(data_dir=tmp_path / "data", **{"providers": providers, **sections}), backend=model)
        with running(app) as server, contextlib.ExitStack() as closing:
            stage = Served(server, model, closing)
            yield stage
        for tape in stage.tapes:
            tape.lint()


def outputs(stage: Served) -> list[str]:
    """Return what the model has read of its calls, in the last request."""
    return [str(item["output"]) for item in stage.requests[-1].items if item.get("type") == "function_call_output"]


def used(tmp_path: Path, *calls: tuple[str, JSON], **settings: Any) -> list[str]:
    """Let a model make calls, and return what it read of them."""
    with staged(tmp_path, calling(*calls), **settings) as stage:
        answer = stage.client().responses.create(model="m", input="Go.")
        assert answer.output_text == "Done."
        return outputs(stage)


def as_json(value: object) -> Any:
    return json.loads(json.dumps(value))
