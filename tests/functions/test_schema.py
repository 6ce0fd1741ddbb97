"""Explicit parameters, strict mode, and the way back from it."""

from typing import Annotated, Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from antwort import FunctionRegistry
from antwort.functions import FunctionSpec, tool_definition
from antwort.functions.signature import drop_nulls, object_schema, strict_schema


def test_an_explicit_mapping_requires_what_has_no_default() -> None:
    schema, closed = object_schema(
        {
            "query": {"type": "string"},
            "limit": {"type": "integer", "default": 5},
            "language": {"type": "string", "required": False},
            "region": {"type": "string", "optional": True},
            "options": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        }
    )
    assert closed
    assert schema["required"] == ["query", "options"]
    assert schema["properties"]["options"]["required"] == ["a"]
    assert schema["properties"]["language"] == {"type": "string"}


def test_a_whole_schema_is_taken_as_it_is() -> None:
    whole = {"type": "object", "properties": {"type": {"type": "string"}}, "additionalProperties": True}
    assert object_schema(whole) == (whole, False)


def test_a_parameter_called_type_is_not_taken_for_a_schema() -> None:
    schema, _ = object_schema({"type": {"type": "string"}})
    assert schema["properties"] == {"type": {"type": "string"}}


class Inner(BaseModel):
    name: str
    note: str | None = None
    size: int = 3


def test_strict_mode_closes_objects_and_makes_optional_properties_nullable() -> None:
    def f(inner: Inner, items: list[Inner], mode: str = "fast", maybe: int | None = None) -> None:
        """Do something."""

    definition = tool_definition(FunctionSpec.of(f, {"strict": True}))
    assert definition["strict"] is True
    schema = definition["parameters"]
    assert schema["required"] == ["inner", "items", "mode", "maybe"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["mode"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert schema["properties"]["maybe"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    inner = schema["$defs"]["Inner"]
    assert (inner["required"], inner["additionalProperties"]) == (["name", "note", "size"], False)
    assert "default" not in str(schema)


async def test_nulls_of_strict_mode_become_defaults_at_every_depth() -> None:
    registry = FunctionRegistry()

    @registry.register(strict=True)
    async def f(inner: Inner, items: list[Inner], mode: str = "fast") -> str:
        """Do something."""
        return f"{inner.size} {items[0].size} {items[0].note} {mode}"

    arguments = {
        "inner": {"name": "a", "note": None, "size": None},
        "items": [{"name": "b", "note": None, "size": None}],
        "mode": None,
    }
    assert (await registry.execute("f", arguments)).output == "3 3 None fast"


@pytest.mark.parametrize(
    "free_form",
    [
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {}, "patternProperties": {"^x": {"type": "string"}}},
    ],
)
def test_free_form_objects_have_no_strict_form_and_the_definition_says_so(free_form: dict[str, Any]) -> None:
    assert strict_schema(free_form) is None
    definition = tool_definition(FunctionSpec("f", "Do.", free_form, print, strict=True))
    assert definition["strict"] is False
    assert definition["parameters"] == free_form


leaves: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": ["string", "null"]}]
)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Any]:
        names = draw(st.lists(st.sampled_from("abcd"), unique=True))
        return {
            "type": "object",
            "properties": {name: draw(inner) for name in names},
            "required": draw(st.lists(st.sampled_from(names), unique=True)) if names else [],
        }

    return build()


schemas = objects(
    st.recursive(leaves, lambda inner: objects(inner) | inner.map(lambda s: {"type": "array", "items": s}))
)


def example_of(schema: dict[str, Any]) -> Any:
    """Return what a strict-mode model sends when it leaves everything optional out."""
    if "anyOf" in schema:
        return None
    kind = schema["type"]
    if kind == "object":
        return {name: example_of(part) for name, part in schema["properties"].items()}
    return {"array": [], "string": "x", "integer": 1, "boolean": True}.get(kind if isinstance(kind, str) else "")


@given(schemas)
def test_what_fits_the_strict_form_fits_the_original_once_nulls_are_dropped(schema: dict[str, Any]) -> None:
    strict = strict_schema(schema)
    assert strict is not None
    value = example_of(strict)
    jsonschema_rs.validate(strict, value)
    jsonschema_rs.validate(schema, drop_nulls(value, schema))


class Tagged(BaseModel):
    kind: Literal["tagged"] = "tagged"
    limit: int = 3


class Other(BaseModel):
    kind: Literal["other"] = "other"
    name: str = "x"


async def test_nulls_inside_unions_become_defaults_too() -> None:
    registry = FunctionRegistry()

    @registry.register(strict=True)
    async def f(
        maybe: Inner | None = None,
        either: Annotated[Tagged | Other, Field(discriminator="kind")] = Tagged(),  # noqa: B008
        items: list[Tagged | Other] | None = None,
    ) -> str:
        """Do something."""
        return f"{maybe and maybe.size} {either} {items}"

    definition = registry.to_tool_definitions()[0]
    assert definition["strict"] is True
    arguments = {
        "maybe": {"name": "a", "note": None, "size": None},
        "either": {"kind": "tagged", "limit": None},
        "items": [{"kind": "other", "name": None}],
    }
    result = await registry.execute("f", arguments)
    assert result.output == "3 kind='tagged' limit=3 [Other(kind='other', name='x')]"


def test_a_set_has_a_strict_form() -> None:
    def f(tags: set[str]) -> None:
        """Do something."""

    assert tool_definition(FunctionSpec.of(f, {"strict": True}))["strict"] is True


def test_a_definition_can_be_changed_without_changing_the_function() -> None:
    def f(a: int) -> None:
        """Do something."""

    spec = FunctionSpec.of(f, {"strict": True})
    tool_definition(spec)["parameters"]["properties"].clear()
    assert list(tool_definition(spec)["parameters"]["properties"]) == ["a"]
