"""The shipped app with a code interpreter, a scripted model behind it, and the SDK before it."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openai.types.responses import Response, ResponseCodeInterpreterToolCall
from tests.http.sdk import Served, outputs, served_provider

from antwort.testing import Turn, call, turn

__all__ = ["OUTPUTS", "TOOL", "calls", "executed", "outputs", "running_code", "staged"]

TOOL: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
"""OpenAI's tool, as requests name it."""
OUTPUTS: Any = ["code_interpreter_call.outputs"]
"""What a request includes to see what came of a call."""


def running_code(*codes: str, answer: str = "Done.") -> list[Turn]:
    """Return the script of a model that executes code, call by call, and then answers."""
    return [*(turn(calls=[call("code_interpreter", code=code)]) for code in codes), turn(answer)]


def staged(
    tmp_path: Path, steps: Sequence[Turn | str] = (), **settings: Any
) -> contextlib.AbstractContextManager[Served]:
    """Serve the app; lint every answer its clients have read."""
    return served_provider(tmp_path, "code_interpreter", steps, settings)


def executed(tmp_path: Path, *codes: str, **settings: Any) -> list[str]:
    """Let a model execute code, and return what it read of it."""
    with staged(tmp_path, running_code(*codes), **settings) as stage:
        answer = stage.client().responses.create(model="m", input="Go.", tools=[TOOL])
        assert answer.output_text == "Done."
        return outputs(stage)


def calls(response: Response) -> list[ResponseCodeInterpreterToolCall]:
    """Return the calls that a response shows."""
    return [item for item in response.output if isinstance(item, ResponseCodeInterpreterToolCall)]
