"""The shipped app with workspaces, a scripted model behind it, and the SDK before it."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.http.sdk import Served, outputs, served_provider

from antwort.testing import Turn, call, turn
from antwort.types import JSON

__all__ = ["SHELL", "calling", "outputs", "staged", "used"]

SHELL: Any = {"type": "shell", "environment": {"type": "container_auto"}}
"""OpenAI's tool, as requests name it."""


def calling(*calls: tuple[str, JSON], answer: str = "Done.") -> list[Turn]:
    """Return the script of a model that makes calls one after the other, and then answers."""
    return [*(turn(calls=[call(name, **arguments)]) for name, arguments in calls), turn(answer)]


def staged(
    tmp_path: Path, steps: Sequence[Turn | str] = (), **settings: Any
) -> contextlib.AbstractContextManager[Served]:
    """Serve the app; lint every answer its clients have read."""
    return served_provider(tmp_path, "workspace", steps, settings)


def used(tmp_path: Path, *calls: tuple[str, JSON], **settings: Any) -> list[str]:
    """Let a model make calls, and return what it read of them."""
    with staged(tmp_path, calling(*calls), **settings) as stage:
        answer = stage.client().responses.create(model="m", input="Go.")
        assert answer.output_text == "Done."
        return outputs(stage)
