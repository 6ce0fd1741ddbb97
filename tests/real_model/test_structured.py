"""Structured output: the schema of a request becomes the grammar of the model."""

import json
from typing import Any, Literal

import jsonschema_rs
import pytest
from openai import OpenAI
from pydantic import BaseModel, Field
from tests.real_model.llama_server import MODEL

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "country": {"enum": ["France", "Italy", "Spain"]},
        "capital": {"type": "boolean"},
        "districts": {"type": "integer"},
    },
    "required": ["city", "country", "capital", "districts"],
    "additionalProperties": False,
}


class Animal(BaseModel):
    name: str = Field(max_length=20)
    kind: Literal["bird", "fish", "mammal"]
    legs: int = Field(ge=0, le=8)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_follows_the_schema(client: OpenAI, stream: bool) -> None:
    fields: dict[str, Any] = {
        "model": MODEL,
        "input": "Describe Paris as JSON.",
        "temperature": 0,
        "max_output_tokens": 200,
        "text": {"format": {"type": "json_schema", "name": "city", "schema": SCHEMA, "strict": True}},
    }
    if stream:
        *_, last = client.responses.create(**fields, stream=True)
        response = last.response
    else:
        response = client.responses.create(**fields)
    assert response.status == "completed"
    assert response.text.format.type == "json_schema"
    jsonschema_rs.validate(SCHEMA, json.loads(response.output_text))


def test_an_answer_is_parsed_into_a_model_of_pydantic(client: OpenAI) -> None:
    response = client.responses.parse(
        model=MODEL, input="Describe a dog as JSON.", temperature=0, max_output_tokens=200, text_format=Animal
    )
    assert isinstance(response.output_parsed, Animal)


def test_a_stream_is_parsed_into_a_model_of_pydantic(client: OpenAI) -> None:
    with client.responses.stream(
        model=MODEL, input="Describe an eagle as JSON.", temperature=0, max_output_tokens=200, text_format=Animal
    ) as stream:
        response = stream.get_final_response()
    assert isinstance(response.output_parsed, Animal)


def test_an_answer_is_a_json_object_if_nothing_more_is_asked(client: OpenAI) -> None:
    response = client.responses.create(
        model=MODEL,
        input='Answer with {"answer": "yes"} or {"answer": "no"}. Is the sky blue?',
        temperature=0,
        max_output_tokens=100,
        text={"format": {"type": "json_object"}},
    )
    assert isinstance(json.loads(response.output_text), dict)
