"""Points as pipelines of others write them."""

import math
from typing import Any

import pytest

from antwort.extensions import Hit, Scalar
from antwort.providers.file_search.vectors.points import hit_of

NOTHING = Hit("1", 0.5, "", "", "", 0, {})


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {},
        {"text": None, "file_id": None, "filename": None, "chunk_index": None, "attributes": None},
        {"text": 5, "file_id": ["a"], "filename": {"a": 1}, "chunk_index": "3", "attributes": ["a"]},
        {"text": ["x"], "chunk_index": math.nan, "attributes": "a"},
        {"chunk_index": math.inf, "attributes": {"a": None, "b": [], "c": {}, "d": math.nan, "e": -math.inf}},
        {"attributes": {"huge": 10**400}},
    ],
)
def test_what_cannot_be_used_is_left_out(payload: dict[str, Any] | None) -> None:
    assert hit_of("1", 0.5, payload) == NOTHING


def test_what_can_be_used_stays() -> None:
    attributes: dict[str, Scalar] = {"text": "a", "number": 1, "fraction": 0.5, "large": 2**60, "flag": False}
    payload = {"text": "t", "file_id": "f", "filename": "n", "chunk_index": 3.0}
    hit = hit_of("1", 0.5, {**payload, "attributes": {**attributes, "tags": ["a"], "none": None}})
    assert hit == Hit("1", 0.5, "t", "f", "n", 3, attributes)
    assert isinstance(hit.index, int)


@pytest.mark.parametrize(
    ("kept", "exact", "shown"),
    [
        (1702754332.6375277, {"n": "1702754332.6375275"}, 1702754332.6375275),
        (1702754332.6375277, {"n": "1702754333.5"}, 1702754332.6375277),  # a pipeline has changed the number only
        (2.5, {"n": "many"}, 2.5),
        (2.5, {"n": 2.5000000000000004}, 2.5),
        (2.5, ["2.5000000000000004"], 2.5),
        (2, {"n": "2.0000000000000004"}, 2),
        ("2.5", {"n": "2.5000000000000004"}, "2.5"),
    ],
)
def test_a_fraction_is_shown_as_it_was_written(kept: Scalar, exact: Any, shown: Scalar) -> None:
    hit = hit_of("1", 0.5, {"attributes": {"n": kept}, "exact": exact})
    assert hit.attributes == {"n": shown}
    assert type(hit.attributes["n"]) is type(shown)
