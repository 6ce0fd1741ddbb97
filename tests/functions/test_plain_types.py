"""Functions of plain types are registered without a look at pydantic, and offered as if it had looked."""

import inspect
import json
import math
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter

from antwort.errors import DefinitionError, InvalidArgumentsError
from antwort.functions import FunctionRegistry, FunctionSpec
from antwort.functions.signature import Signature, plain_schema, tidy

NAMES = ("city", "title", "_private", "schema", "model_config", "type", "required", "properties", "self_")
DEFAULTS: dict[str, Any] = {"none": None, "number": 3, "text": "a", "list": ["a"], "object": object()}

OLD_NAMES = (typing.List, typing.Dict)  # noqa: UP006

literals = st.one_of(
    st.lists(st.text(max_size=5), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(), min_size=1, max_size=4, unique=True),
).map(lambda values: Literal[tuple(values)])
hints = st.recursive(
    st.sampled_from([str, int, float, bool, None, Any, list, dict, *OLD_NAMES]) | literals,
    lambda inner: st.one_of(
        inner.map(lambda hint: Union[hint, None]),  # noqa: UP007
        inner.map(lambda hint: list[hint]),  # type: ignore[valid-type]
        inner.map(lambda hint: dict[str, hint]),  # type: ignore[valid-type]
        st.lists(inner, min_size=1, max_size=3).map(lambda some: Union[tuple(some)]),  # noqa: UP007
    ),
    max_leaves=5,
)
described = st.one_of(
    hints, st.tuples(hints, st.text(min_size=1)).map(lambda pair: Annotated[pair[0], Field(description=pair[1])])
)
parameters = st.lists(
    st.tuples(st.sampled_from(NAMES), described, st.none() | st.sampled_from(sorted(DEFAULTS))),
    max_size=4,
    unique_by=lambda one: one[0],
)


def handler(taken: Sequence[tuple[str, Any, str | None]]) -> Callable[..., None]:
    """Return a function with parameters of these names, hints and defaults."""

    def made(**_: Any) -> None:
        """Do something."""

    made.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if default is None else DEFAULTS[default],
            )
            for name, _, default in taken
        ]
    )
    made.__annotations__ = {name: hint for name, hint, _ in taken}
    return made


@given(parameters)
def test_the_schema_is_the_one_that_pydantic_makes(taken: list[tuple[str, Any, str | None]]) -> None:
    signature = Signature(handler(taken), name="made")
    expected = tidy(signature.adapter.json_schema())
    found = {name: {**part} for name, part in signature.schema["properties"].items()}
    for name, _, default in taken:
        shown = found[name].pop("default", None)
        assert shown == (DEFAULTS[default] if default not in {None, "object"} else None)
    assert json.dumps(found, sort_keys=True) == json.dumps(expected.get("properties", {}), sort_keys=True)
    assert signature.schema["required"] == expected.get("required", [])
    assert signature.schema.keys() == {"properties", "required", "type"}


@pytest.mark.parametrize(
    "hint",
    [str, *OLD_NAMES, dict[str, list[int]], int | None, Literal["a", "b"], list[Literal[1, 2] | None], Any, dict],
)
def test_hints_of_plain_types_are_read_without_pydantic(hint: Any) -> None:
    assert plain_schema(hint) == tidy(TypeAdapter(hint).json_schema())


@pytest.mark.parametrize(
    "hint",
    [
        set[str],
        dict[int, str],
        Literal["a", 1],
        Literal[True],
        list[set[str]],
        bytes,
        Union,
        Literal,
        object,
        list.__class_getitem__((str, int)),
        dict.__class_getitem__(str),
        [str],
        list[list[list[list[list[list[list[list[list[int]]]]]]]]],
        Annotated[int, Field(ge=1)],
    ],
)
def test_other_hints_are_left_to_pydantic(hint: Any) -> None:
    assert plain_schema(hint) is None


def test_to_register_functions_of_plain_types_builds_no_validator(monkeypatch: pytest.MonkeyPatch) -> None:
    built = 0
    build = TypeAdapter.__init__

    def counted(self: TypeAdapter[Any], *args: Any, **options: Any) -> None:
        nonlocal built
        built += 1
        build(self, *args, **options)

    monkeypatch.setattr(TypeAdapter, "__init__", counted)

    def weather(city: str, days: int = 3, unit: Literal["c", "f"] = "c", tags: list[str] | None = None) -> str:
        """Tell the weather.

        Args:
            city: Where.
            days: For how long.
        """
        return f"{city} {days} {unit} {tags}"

    def nearby(city: Annotated[str, Field(description="Where.")], within: float = math.inf) -> str:
        """Tell what is near."""
        return f"{city} {within}"

    registry = FunctionRegistry()
    registry.register(weather)
    registry.register(nearby)
    spec = FunctionSpec.of(weather)
    assert spec.parameters["properties"]["city"] == {"description": "Where.", "type": "string"}
    assert built == 0
    assert spec.arguments.validate('{"city": "Ulm", "days": "4"}') == {"city": "Ulm", "days": 4}
    with pytest.raises(InvalidArgumentsError, match="town: unknown argument"):
        spec.arguments.validate('{"town": "Ulm"}')
    assert built == 1


def test_what_a_model_could_not_use_is_still_refused_when_it_is_registered() -> None:
    def plain_and_not(city: str, stop: Callable[[], set[type]], other: object = None) -> None:
        """Do something."""

    class Odd:
        pass

    def odd(city: str, thing: Odd) -> None:
        """Do something."""

    for refused, name in ((plain_and_not, "stop"), (odd, "thing")):
        with pytest.raises(DefinitionError, match=f"parameter '{name}'"):
            FunctionRegistry().register(refused)
