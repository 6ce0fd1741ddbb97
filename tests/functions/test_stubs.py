"""Functions as Python would declare them."""

from typing import Any

import pytest

from antwort.functions.stubs import python_name, python_stub


def stub(parameters: dict[str, Any], name: str = "find") -> str:
    return python_stub({"name": name, "description": "Find it.", "parameters": parameters}).splitlines()[0]


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "string"}, "str"),
        ({"type": ["integer", "null"]}, "int | None"),
        ({"type": "array", "items": {"type": "number"}}, "list[float]"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "dict[str, bool]"),
        ({"type": "object"}, "dict"),
        ({"enum": ["a", 1]}, "Literal['a', 1]"),
        ({"const": "a"}, "Literal['a']"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "str | None"),
        ({"$ref": "#/$defs/Size"}, "Literal['s', 'm']"),
        ({"$ref": "#/$defs/Missing"}, "Any"),
        ({"enum": ["long" * 10] * 9}, "Any"),
        ({}, "Any"),
        (True, "Any"),
    ],
)
def test_schemas_become_types(schema: Any, written: str) -> None:
    parameters = {"properties": {"x": schema}, "required": ["x"], "$defs": {"Size": {"enum": ["s", "m"]}}}
    assert stub(parameters) == f"async def find(*, x: {written}) -> Any:"


def test_a_schema_that_contains_itself_ends() -> None:
    tree = {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    assert "list[list[list[" in stub({"properties": {"x": tree}, "required": ["x"], "$defs": {"Tree": tree}})


def test_what_is_required_comes_first_and_the_rest_has_defaults() -> None:
    properties = {"b": {"type": "integer", "default": 3}, "a": {"type": "string"}, "c": {"type": "string"}}
    written = "async def find(*, a: str, b: int = 3, c: str = Ellipsis) -> Any:"
    assert stub({"properties": properties, "required": ["a"]}) == written.replace("Ellipsis", "...")


def test_names_are_those_of_python() -> None:
    assert [python_name(name) for name in ("get-weather", "class", "3d", "ok")] == [
        "get_weather",
        "class_",
        "_3d",
        "ok",
    ]
    assert stub({}, "get-weather") == "async def get_weather() -> Any:"
