"""Functions in words: the server is given none, and what the model writes is read as calls.

SmolLM2 was not taught to call functions, and its server is not told about any. `tool_choice` becomes a schema of the
answer, so that the first turn is a call; what the model makes of the result is its own business. Left the choice, this
model calls nothing, in whatever words it is told: with 135 million parameters it answers any question itself.
"""

from pathlib import Path

import pytest
from tests.real_model.llama_server import MODEL
from tests.real_model.stage import Stage

from antwort import Antwort
from antwort.config import BackendConfig, Config
from antwort.types import JSON
from antwort.wire.items import Message


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "tell_weather"}])
async def test_a_function_of_the_server_is_executed_on_a_model_that_knows_none(
    stage: Stage, tmp_path: Path, choice: str | JSON
) -> None:
    asked: list[str] = []

    async def tell_weather(city: str) -> str:
        """Tell the weather in a city."""
        asked.append(city)
        return "sunny, 21 degrees"

    backends = {"local": BackendConfig(url=f"{stage.model_url}/v1", tool_calls="prompted")}
    async with Antwort(Config(data_dir=tmp_path, backends=backends), functions=[tell_weather]) as app:
        response = await app.run(
            "How is the weather in Paris?",
            model=MODEL,
            tools=[{"type": "function", "name": "tell_weather"}],
            tool_choice=choice,
            temperature=0,
            max_output_tokens=120,
        )
    assert asked
    assert response.usage is not None
    assert response.usage.output_tokens > 0
    assert response.status in {"completed", "incomplete"}


async def test_the_model_reads_the_result_as_a_message(stage: Stage, tmp_path: Path) -> None:
    backends = {"local": BackendConfig(url=f"{stage.model_url}/v1", tool_calls="prompted")}
    history = [
        {"role": "user", "content": "How is the weather in Paris?"},
        {"type": "function_call", "call_id": "c1", "name": "tell_weather", "arguments": '{"city": "Paris"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny, 21 degrees"},
    ]
    async with Antwort(Config(data_dir=tmp_path, backends=backends)) as app:
        response = await app.run(history, model=MODEL, temperature=0, max_output_tokens=40)
    (message,) = response.output
    assert isinstance(message, Message)
    assert message.content
