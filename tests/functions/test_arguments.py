"""Any JSON arguments: a result or a clear error, never an exception."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from antwort import FunctionRegistry, FunctionSpec


@dataclass
class Point:
    x: float
    y: float = 0.0


class Order(BaseModel):
    item: str
    amount: Annotated[int, Field(gt=0)] = 1


registry = FunctionRegistry()


@registry.register
async def typed(
    text: str,
    count: Annotated[int, Field(ge=0, le=10)] = 1,
    mode: Literal["a", "b"] = "a",
    point: Point | None = None,
    orders: list[Order] | dict[str, int] | None = None,
) -> str:
    """Take many types."""
    return f"{text} {count} {mode} {point} {orders}"


@registry.register(strict=True, name="strict_typed")
async def strict_typed(text: str, order: Order | None = None, count: int = 1) -> str:
    """Take a few types strictly."""
    return f"{text} {order} {count}"


registry.register(
    FunctionSpec(
        "explicit",
        "Take what a schema says.",
        {"query": {"type": "string", "minLength": 1}, "limit": {"type": "integer", "default": 5}},
        lambda params: params,
    )
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(["text", "count", "mode", "point", "orders", "query", "limit", "order", "x", ""])
arguments = st.dictionaries(names, json_values, max_size=6)


@given(st.sampled_from(["typed", "strict_typed", "explicit"]), arguments | st.text() | st.binary())
async def test_any_arguments_give_a_result_or_a_clear_error(name: str, raw: Any) -> None:
    result = await registry.execute(name, raw)
    assert result.status in {"success", "invalid_arguments"}
    if result.is_error:
        assert result.output.startswith(("Invalid arguments: ", "The arguments "))
        assert "Traceback" not in result.output


@given(json_values)
async def test_things_that_are_not_even_text_or_mappings_are_refused_as_kindly(raw: Any) -> None:
    result = await registry.execute("typed", raw)
    assert result.status in {"success", "invalid_arguments"}


@given(st.text(), st.integers(0, 10), st.sampled_from(["a", "b"]))
async def test_arguments_that_fit_are_taken(text: str, count: int, mode: str) -> None:
    result = await registry.execute("typed", {"text": text, "count": count, "mode": mode})
    assert (result.status, result.output) == ("success", f"{text} {count} {mode} None None")


async def message(name: str, raw: Any) -> str:
    return (await registry.execute(name, raw)).output


async def test_the_message_names_every_problem_and_what_is_expected() -> None:
    text = await message("typed", {"tex": "x", "count": 11, "mode": "c"})
    assert "text: missing" in text
    assert "tex: unknown argument; did you mean 'text'?" in text
    assert "count: Input should be less than or equal to 10 (got 11)" in text
    assert "mode: Input should be 'a' or 'b' (got 'c')" in text
    assert "Expected: text (string, required), count (integer, optional), mode (one of 'a', 'b', optional)" in text


async def test_the_message_names_the_place_inside_nested_arguments() -> None:
    text = await message("strict_typed", {"text": "x", "order": {"item": "nut", "amount": 0}})
    assert "order.amount: Input should be greater than 0 (got 0)" in text


async def test_broken_json_is_explained() -> None:
    assert "not valid JSON" in await message("typed", '{"text": "x"')
    assert await message("typed", "[1, 2]") == "The arguments must be a JSON object, not an array."
    assert await message("typed", "null") == "The arguments must be a JSON object, not null."


async def test_an_empty_string_means_no_arguments() -> None:
    assert "text: missing" in await message("typed", "")


async def test_a_huge_wrong_value_is_not_repeated_in_full() -> None:
    assert len(await message("typed", {"text": ["x" * 10_000]})) < 600


async def test_text_that_is_a_number_is_taken_for_one_as_models_often_send_it() -> None:
    assert await message("typed", {"text": "x", "count": "3"}) == "x 3 a None None"


async def test_defaults_of_an_explicit_schema_are_filled_in() -> None:
    assert (await registry.execute("explicit", {"query": "q"})).value == {"query": "q", "limit": 5}


async def test_explicit_schemas_are_checked_with_the_path_named() -> None:
    text = await message("explicit", {"query": "", "limit": "many", "page": 2})
    assert "page: unknown argument" in text
    assert 'limit: "many" is not of type "integer"' in text
    assert "query: " in text
