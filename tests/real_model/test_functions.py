"""Functions: `tool_choice` becomes a grammar, and the model calls what it is made to call.

SmolLM2 was not taught to call functions. The template that llama.cpp is started with shows it a few calls, and the
grammar of `required` leaves it no other end than a call that follows the schema.
"""

import json
from typing import Any

import jsonschema_rs
import pytest
from openai import OpenAI
from openai.types.responses import Response
from tests.real_model.llama_server import MODEL
from tests.real_model.stage import Stage

CALCULATE: Any = {"type": "function", "name": "calculate"}
"""A function of the server."""
CHAT_TOOL = {"type": "function", "function": {"name": "calculate", "parameters": {"type": "object"}}}
"""The same for the model server."""
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer"},
        },
        "required": ["city", "unit", "days"],
        "additionalProperties": False,
    },
    "strict": True,
}
"""A function of the client."""


def forced(client: OpenAI, *, stream: bool = False, **fields: Any) -> Response:
    """Create a response that must begin with a call."""
    request = {"model": MODEL, "temperature": 0, "max_output_tokens": 120, "tool_choice": "required", **fields}
    if not stream:
        response: Response = client.responses.create(**request)
        return response
    *_, last = client.responses.create(**request, stream=True)
    final: Response = last.response
    return final


@pytest.mark.parametrize("stream", [False, True])
def test_a_function_of_the_server_is_executed_and_the_model_goes_on(client: OpenAI, stage: Stage, stream: bool) -> None:
    before = stage.executions("calculate")
    response = forced(client, stream=stream, input="Call calculate for 12*7.", tools=[CALCULATE])
    assert stage.executions("calculate") > before
    assert response.output[-1].type == "message"
    one_turn = stage.tokens({"role": "user", "content": "Call calculate for 12*7."}, tools=[CHAT_TOOL])
    assert response.usage is not None
    assert response.usage.input_tokens > one_turn
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_of_the_clients_function_follows_its_schema(client: OpenAI, stream: bool) -> None:
    response = forced(client, stream=stream, input="Call get_weather for Paris.", tools=[WEATHER])
    assert response.status == "completed"
    calls = [item for item in response.output if item.type == "function_call"]
    assert calls
    for call in calls:
        assert call.name == "get_weather"
        jsonschema_rs.validate(WEATHER["parameters"], json.loads(call.arguments))


def test_the_schema_rules_even_when_the_question_is_for_another_function(client: OpenAI) -> None:
    response = forced(client, input="Call calculate for 12*7.", tools=[WEATHER])
    calls = [item for item in response.output if item.type == "function_call" and item.status == "completed"]
    assert calls
    for call in calls:
        assert call.name == "get_weather"
        jsonschema_rs.validate(WEATHER["parameters"], json.loads(call.arguments))


def test_the_result_of_a_call_is_answered(client: OpenAI) -> None:
    first = forced(client, input="Call get_weather for Paris.", tools=[WEATHER])
    outputs: Any = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "sunny, 21 degrees"}
        for item in first.output
        if item.type == "function_call"
    ]
    second = client.responses.create(
        model=MODEL,
        input=outputs,
        previous_response_id=first.id,
        tools=[WEATHER],
        tool_choice="none",
        temperature=0,
        max_output_tokens=40,
    )
    assert second.output_text
    assert [item.type for item in second.output] == ["message"]
