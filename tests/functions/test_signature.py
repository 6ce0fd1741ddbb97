"""Parameters and JSON Schema from type hints."""

import functools
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Union

import pytest
from pydantic import BaseModel, Field

from antwort import Context
from antwort.errors import DefinitionError
from antwort.functions import FunctionSpec
from antwort.functions.signature import HandlerKind


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Address(BaseModel):
    city: str
    code: str | None = None


class Filter(TypedDict):
    field: str
    value: NotRequired[int]


class Nested(TypedDict):
    filters: list[Filter]


def properties(handler: Any) -> dict[str, Any]:
    found: dict[str, Any] = FunctionSpec.of(handler).parameters["properties"]
    return found


def test_plain_types_defaults_and_required() -> None:
    def f(text: str, count: int = 3, ratio: float = 0.5, *, flag: bool = False) -> None:
        """Do something."""

    spec = FunctionSpec.of(f)
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer", "default": 3},
            "ratio": {"type": "number", "default": 0.5},
            "flag": {"type": "boolean", "default": False},
        },
        "required": ["text"],
    }


def test_annotated_fields_carry_bounds_and_descriptions() -> None:
    def f(days: Annotated[int, Field(ge=1, le=7, description="How many days")] = 1) -> None:
        """Do something."""

    assert properties(f)["days"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 7,
        "description": "How many days",
        "default": 1,
    }


def test_a_field_as_default_value_is_understood_and_its_default_reaches_the_handler() -> None:
    def f(days: int = Field(2, ge=1), tags: list[str] = Field(default_factory=list)) -> tuple[int, list[str]]:  # noqa: B008
        """Do something."""
        return days, tags

    spec = FunctionSpec.of(f)
    assert spec.parameters["required"] == []
    assert spec.call(Context("t"), spec.arguments.validate({})) == (2, [])


def test_literals_enums_unions_and_optionals() -> None:
    def f(
        mode: Literal["fast", "slow"],
        colour: Colour,
        either: int | str,
        maybe: Optional[int],  # noqa: UP045 - the old spelling must work too
        old: Union[int, None] = None,  # noqa: UP007
    ) -> None:
        """Do something."""

    spec = FunctionSpec.of(f)
    assert spec.parameters["properties"]["mode"] == {"enum": ["fast", "slow"], "type": "string"}
    assert spec.parameters["$defs"]["Colour"]["enum"] == ["red", "blue"]
    assert spec.parameters["properties"]["either"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert spec.parameters["required"] == ["mode", "colour", "either", "maybe"]
    assert "default" not in spec.parameters["properties"]["old"]
    arguments = spec.arguments.validate({"mode": "fast", "colour": "blue", "either": "x", "maybe": None})
    assert arguments["colour"] is Colour.BLUE


def test_dataclasses_models_and_typed_dictionaries_become_what_they_are() -> None:
    def f(point: Point, address: Address, filters: Filter, nested: list[Nested]) -> None:
        """Do something."""

    spec = FunctionSpec.of(f)
    arguments = spec.arguments.validate(
        {
            "point": {"x": 1},
            "address": {"city": "Bonn"},
            "filters": {"field": "a"},
            "nested": [{"filters": [{"field": "b", "value": 2}]}],
        }
    )
    assert arguments["point"] == Point(1, 0)
    assert arguments["address"] == Address(city="Bonn")
    assert arguments["filters"] == {"field": "a"}
    assert arguments["nested"][0]["filters"][0]["value"] == 2
    assert spec.parameters["$defs"]["Filter"]["required"] == ["field"]


def test_a_parameter_called_title_keeps_its_name_and_generated_titles_go() -> None:
    def f(title: str, json: str, self_: int = 0, _private: int = 1) -> None:
        """Do something."""

    assert properties(f) == {
        "title": {"type": "string"},
        "json": {"type": "string"},
        "self_": {"type": "integer", "default": 0},
        "_private": {"type": "integer", "default": 1},
    }


@pytest.mark.parametrize(
    "docstring",
    [
        "Look it up.\n\nArgs:\n    city: The city\n        to look at.\n\nReturns:\n    text",
        "Look it up.\n\n:param city: The city to look at.\n:returns: text",
        "Look it up.\n\nParameters\n----------\ncity : str\n    The city to look at.\n",
    ],
)
def test_parameter_descriptions_come_from_the_docstring(docstring: str) -> None:
    def f(city: str) -> str:
        return city

    f.__doc__ = docstring
    spec = FunctionSpec.of(f)
    assert spec.description == "Look it up."
    assert spec.parameters["properties"]["city"]["description"] == "The city to look at."


def test_the_context_is_found_by_its_type_and_is_not_a_parameter() -> None:
    async def f(city: str, where: Context) -> str:
        """Do something."""
        return f"{where.tenant} {city}"

    async def g(ctx: Context | None = None) -> None:
        """Do something."""

    assert list(properties(f)) == ["city"]
    assert properties(g) == {}


def test_a_default_that_json_cannot_express_is_left_to_python() -> None:
    sentinel = object()

    def f(value: Annotated[Any, Field(description="x")] = sentinel) -> bool:
        """Do something."""
        return value is sentinel

    spec = FunctionSpec.of(f)
    assert "default" not in spec.parameters["properties"]["value"]
    assert spec.call(Context("t"), spec.arguments.validate({})) is True


def no_docstring(x: int) -> None: ...


def no_hint(x) -> None:  # type: ignore[no-untyped-def]
    """Do something."""


def star_args(*xs: int) -> None:
    """Do something."""


def star_kwargs(**xs: int) -> None:
    """Do something."""


def positional(x: int, /) -> None:
    """Do something."""


def two_contexts(a: Context, b: Context) -> None:
    """Do something."""


def opaque(x: functools.partial[int]) -> None:
    """Do something."""


def unresolved(x: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Do something."""


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (no_docstring, "'no_docstring' has no docstring"),
        (no_hint, "parameter 'x' has no type hint"),
        (star_args, r"'\*xs: int' cannot be offered"),
        (star_kwargs, r"'\*\*xs: int' cannot be offered"),
        (positional, "'x' is positional-only"),
        (two_contexts, r"more than one parameter is a Context \(a, b\)"),
        (opaque, r"parameter 'x' has a type \(partial\) that JSON cannot express"),
        (unresolved, "cannot be resolved"),
    ],
)
def test_a_definition_a_model_cannot_use_is_an_error_that_says_so(handler: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        FunctionSpec.of(handler)


def test_partials_and_callable_objects_are_functions_too() -> None:
    async def f(x: int, y: int) -> int:
        """Add."""
        return x + y

    class Adder:
        async def __call__(self, x: int) -> int:
            """Add one."""
            return x + 1

    spec = FunctionSpec.of(functools.partial(f, y=2), {"name": "add_two"})
    assert (spec.name, spec.description, spec.kind) == ("add_two", "Add.", HandlerKind.ASYNC)
    called = FunctionSpec.of(Adder())
    assert (called.name, called.description, called.kind) == ("Adder", "Add one.", HandlerKind.ASYNC)
