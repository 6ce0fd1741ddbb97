"""Parameters and JSON Schema from type hints."""

import functools
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Union
from unittest.mock import Mock

import pytest
from pydantic import BaseModel, Field

from antwort import Context
from antwort.callables import HandlerKind
from antwort.errors import DefinitionError
from antwort.functions import FunctionSpec


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


class StrictModel(BaseModel, strict=True):
    when: datetime
    colour: Colour


def test_a_model_in_strict_mode_can_be_called_with_json() -> None:
    def f(model: StrictModel) -> None:
        """Do something."""

    arguments = FunctionSpec.of(f).arguments.validate('{"model": {"when": "2026-01-02T03:04:05Z", "colour": "red"}}')
    assert arguments["model"].colour is Colour.RED


def test_a_parameter_with_an_alias_is_offered_under_it() -> None:
    def f(from_: Annotated[str, Field(alias="from")] = "x") -> str:
        """Do something."""
        return from_

    spec = FunctionSpec.of(f)
    assert list(spec.parameters["properties"]) == ["from"]
    assert spec.call(Context("t"), spec.arguments.validate({"from": "y"})) == "y"


class Recursive(TypedDict):
    children: "list[Recursive]"


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ("int |", "cannot be resolved"),
        ("pytest.nope", "cannot be resolved"),
        (Annotated[str, Field(pattern="(")], "parameter 'x'"),
        (Recursive, "parameter 'x'"),
    ],
)
def test_a_hint_that_cannot_be_read_is_a_definition_error(hint: Any, message: str) -> None:
    def f(x: Any) -> None:
        """Do something."""

    f.__annotations__["x"] = hint
    with pytest.raises(DefinitionError, match=message):
        FunctionSpec.of(f)


def test_a_mock_is_no_endless_partial() -> None:
    with pytest.raises(DefinitionError):
        FunctionSpec.of(Mock(), {"name": "mock"})


async def test_explicit_parameters_fit_handlers_of_every_kind() -> None:
    parameters = {"q": {"type": "string"}, "limit": {"type": "integer", "default": 5}}
    ctx = Context("acme")

    def whole(params: dict[str, Any]) -> Any:
        return params["q"], params["limit"]

    def with_context_first(ctx: Context, params: dict[str, Any]) -> Any:
        return params["q"], params["limit"]

    def by_name(q: str, limit: int) -> Any:
        return q, limit

    def by_name_with_default(q: str, limit: int = 10) -> Any:
        return q, limit

    def anything(**params: Any) -> Any:
        return params["q"], params["limit"]

    for handler in (whole, with_context_first, by_name, by_name_with_default, anything):
        spec = FunctionSpec("f", "Do.", parameters, handler)
        spec.check()
        assert spec.call(ctx, spec.arguments.validate({"q": "x"})) == ("x", 5), handler.__name__


def test_a_handler_that_does_not_fit_its_parameters_is_refused() -> None:
    def too_few(q: str) -> None: ...
    def too_many(params: dict[str, Any], more: int) -> None: ...

    for handler in (too_few, too_many):
        with pytest.raises(DefinitionError, match="does not fit the parameters"):
            FunctionSpec("f", "Do.", {"q": {}, "limit": {}}, handler).check()
