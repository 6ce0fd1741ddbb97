"""Filters as OpenAI writes them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import ComparisonFilter, CompoundFilter

from antwort.errors import BadRequestError
from antwort.extensions import Comparison, Compound, FilterError, Scalar, matches, parse_filter, storable


def test_a_comparison_is_read() -> None:
    assert parse_filter({"type": "eq", "key": "kind", "value": "report"}) == Comparison("kind", "eq", "report")
    assert parse_filter({"type": "in", "key": "year", "value": [2023, 2024]}) == Comparison("year", "in", (2023, 2024))


def test_a_whole_number_stays_one() -> None:
    found = parse_filter({"type": "in", "key": "n", "value": [47, 1904729410800015, 2**60 + 1, 0.5]})
    assert isinstance(found, Comparison)
    assert repr(found.value) == f"(47, 1904729410800015, {2**60 + 1}, 0.5)"


def test_a_compound_is_read_to_its_depth() -> None:
    year, public = {"type": "gte", "key": "year", "value": 2020}, {"type": "ne", "key": "public", "value": False}
    found = parse_filter({"type": "or", "filters": [year, {"type": "and", "filters": [public, year]}]})
    first, second = Comparison("year", "gte", 2020.0), Comparison("public", "ne", False)
    assert found == Compound("or", (first, Compound("and", (second, first))))


def test_the_types_of_the_openai_package_are_read() -> None:
    inner = ComparisonFilter(key="year", type="nin", value=[2023, 2024])
    outer = CompoundFilter(type="and", filters=[inner, ComparisonFilter(key="a", type="lt", value=3)])
    found = parse_filter(outer.model_dump())
    assert found == Compound("and", (Comparison("year", "nin", (2023, 2024)), Comparison("a", "lt", 3)))


NESTED: dict[str, Any] = {"type": "eq", "key": "a", "value": 1}
for _ in range(8):
    NESTED = {"type": "and", "filters": [NESTED]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "filters must be an object."),
        ([], "filters must be an object."),
        ({}, "filters.type must be one of eq, ne, gt, gte, lt, lte, in, nin, and, or."),
        ({"type": ["eq"]}, "filters.type must be one of"),
        ({"type": "like", "key": "a", "value": 1}, "filters.type must be one of"),
        ({"type": "eq", "value": 1}, "filters.key must be the name of an attribute"),
        ({"type": "eq", "key": "", "value": 1}, "filters.key must be the name of an attribute"),
        ({"type": "eq", "key": 'a"b', "value": 1}, "filters.key must be the name of an attribute"),
        ({"type": "eq", "key": "a\\b", "value": 1}, 'filters.key must be the name of an attribute, without " and \\.'),
        ({"type": "eq", "key": "a" * 257, "value": 1}, "filters.key must be the name of an attribute"),
        ({"type": "eq", "key": "a"}, "filters.value is missing."),
        ({"type": "eq", "key": "a", "value": None}, "filters.value must be a text, a number, true or false."),
        ({"type": "eq", "key": "a", "value": [1]}, "filters.value must be a text, a number, true or false."),
        ({"type": "eq", "key": "a", "value": float("nan")}, "filters.value must be a text, a number, true or false."),
        ({"type": "eq", "key": "a", "value": 10**400}, "filters.value is too large a number."),
        ({"type": "gt", "key": "a", "value": "b"}, "filters.value must be a number for 'gt'."),
        ({"type": "lte", "key": "a", "value": True}, "filters.value must be a number for 'lte'."),
        ({"type": "in", "key": "a", "value": "b"}, "filters.value must be a list for 'in'."),
        ({"type": "nin", "key": "a", "value": ["b", {}]}, "filters.value[1] must be a text, a number, true or false."),
        ({"type": "and", "filters": []}, "filters.filters must be a list with at least one filter."),
        ({"type": "or", "filters": [NESTED, {"type": "eq"}]}, "is nested deeper than 8 levels."),
        (
            {"type": "or", "filters": [{"type": "eq", "key": "a", "value": 1}, {"type": "and", "filters": [7]}]},
            "filters.filters[1].filters[0] must be an object.",
        ),
        ({"type": "in", "key": "a", "value": list(range(201))}, "a filter has 200 values at most."),
    ],
)
def test_a_mistake_is_named_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(value)
    assert message in str(caught.value)
    assert str(caught.value).startswith(caught.value.where)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "key", "value", "filters", "x"]), inner, max_size=4)
        | st.builds(lambda kind, key, value: {"type": kind, "key": key, "value": value, "filters": value},
                    st.sampled_from(["eq", "in", "gt", "and", "or"]), st.text(max_size=3), inner)
    ),
    max_leaves=20,
)  # fmt: skip


@given(json_values)
def test_anything_is_read_or_refused(value: Any) -> None:
    try:
        found = parse_filter(value)
    except (FilterError, BadRequestError):
        return
    assert isinstance(matches(found, {"a": 1}), bool)


@pytest.mark.parametrize(
    ("op", "value", "yes", "no"),
    [
        ("eq", 1.0, [1, 1.0], ["1", True, None, 2]),
        ("eq", True, [True], [1, "true", None, False]),
        ("eq", "a", ["a"], ["A", None, 1]),
        ("ne", 1.0, ["1", True, None, 2], [1, 1.0]),
        ("gt", 1.0, [2, 1.5], [1, "2", True, None]),
        ("gte", 1.0, [1, 2], [0, "2", True, None]),
        ("lt", 1.0, [0, -1], [1, "0", False, None]),
        ("lte", 1.0, [1, 0.5], [2, "0", False, None]),
        ("in", ("a", 1.0), ["a", 1], ["b", True, None]),
        ("in", (), [], ["a", 1, None]),
        ("nin", ("a", 1.0), ["b", True, None], ["a", 1]),
        ("nin", (), ["a", 1, None], []),
    ],
)
def test_what_operators_mean(op: Any, value: Any, yes: list[Scalar | None], no: list[Scalar | None]) -> None:
    for found, wanted in [(one, True) for one in yes] + [(one, False) for one in no]:
        attributes: dict[str, Scalar] = {} if found is None else {"key": found}
        assert matches(Comparison("key", op, value), attributes) is wanted, found


def test_text_that_no_database_keeps_is_replaced() -> None:
    assert storable("plain") == "plain"
    assert storable("a\0b") == "a\ufffdb"
    assert storable("\ud800 🦊 ü") == "\ufffd 🦊 ü"
