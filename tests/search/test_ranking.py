"""Scores and the joining of orders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antwort.extensions import FEWEST, Hit, Query, cosine_score, finish, fused, saturated, word_shares


def hits(names: str, score: float = 0.5) -> list[Hit]:
    return [Hit(name, score, name, "file", "file.txt", 0, {}) for name in names]


def test_what_leads_both_scores_one_and_what_leads_one_its_weight() -> None:
    found = {hit.id: hit.score for hit in fused(hits("ab"), hits("ac"), (1.0, 1.0))}
    assert found["a"] == pytest.approx(1.0)
    assert found["b"] == found["c"] == pytest.approx(11 / 12 / 2)
    found = {hit.id: hit.score for hit in fused(hits("a"), hits("b"), (3.0, 1.0))}
    assert found == {"a": pytest.approx(0.75), "b": pytest.approx(0.25)}


def test_without_weights_scores_count_by_their_distance_to_the_best_and_the_last() -> None:
    near = hits("a", 0.8) + hits("b", 0.5) + hits("c", 0.4)
    found = {hit.id: hit for hit in fused(near, hits("a", 0.75) + hits("d", 0.5), None)}
    scores = {name: hit.score for name, hit in found.items()}
    assert scores == {name: pytest.approx(score) for name, score in {"a": 1, "b": 0.1, "c": 0, "d": 0.2}.items()}
    assert [found[name].likeness for name in "abcd"] == [0.8, 0.5, 0.4, 0.4]
    assert fused([], hits("a"), None)[0].score == pytest.approx(0.6)
    assert fused(hits("a"), [], None)[0].score == pytest.approx(0.4)
    assert fused([], [], None) == []


def test_without_weights_no_more_than_a_certain_number_is_compared() -> None:
    """Else the score of a text would depend on how many are asked for."""
    near = [Hit(str(number), 1 - number / 1000, "", "file", "file.txt", 0, {}) for number in range(100)]
    few, many = ({hit.id: hit.score for hit in fused(near[:size], [], None)} for size in (FEWEST, 100))
    assert few.items() <= many.items()


def test_weights_of_nothing_count_as_none_given() -> None:
    assert fused(hits("a"), hits("b"), (0.0, 0.0)) == fused(hits("a"), hits("b"), None)
    assert [hit.id for hit in fused(hits("a"), hits("b"), (0.0, 2.0))] == ["b"]


def test_only_the_ratio_of_weights_counts() -> None:
    assert fused(hits("ab"), hits("ba"), (1e308, 1e308)) == fused(hits("ab"), hits("ba"), (1.0, 1.0))


def test_a_rank_by_words_counts_as_much_as_the_text_has_of_the_words() -> None:
    texts = {"a": "My laptop was stolen.", "b": "Lost devices are reported.", "c": "A laptop bag", "d": "It was late."}
    one = {name: Hit(name, 0.5, text, "file", "file.txt", 0, {}) for name, text in texts.items()}
    near, worded = [one["b"], one["a"], one["c"], one["d"]], [one["d"], one["a"], one["c"]]
    found = {hit.id: hit.score for hit in fused(near, worded, (1.0, 1.0), "stolen laptop was reported by mail")}
    assert max(found, key=lambda name: found[name]) == "a"
    assert found["b"] > found["d"]
    by_words_alone = fused(near, worded, (0.0, 1.0), "stolen laptop was reported by mail")
    assert [hit.id for hit in by_words_alone] == ["d", "a", "c"]


def test_shares_of_words_are_those_of_the_rare_ones_in_all_their_endings() -> None:
    query, texts = "the foxes", ["The fox lives.", "the hen", "Foxing", "party"]
    both, common, rare, none = word_shares(query, texts)
    assert (both, none) == (1.0, 0.0)
    assert rare == pytest.approx(common)  # two texts have each
    assert word_shares("art", ["party", "an art"]) == [0.0, 1.0]
    assert word_shares("KP-2107", ["KP-2140", "part KP-2107"])[1] == 1.0


@pytest.mark.parametrize("query", ["", "?", "\N{CJK UNIFIED IDEOGRAPH-6E2F}\N{CJK UNIFIED IDEOGRAPH-53E3}"])
def test_where_no_word_is_recognised_all_texts_have_all(query: str) -> None:
    assert word_shares(query, ["a", "b"]) == [1.0, 1.0]
    assert word_shares(query, []) == []


def test_the_end_is_in_order_within_limit_and_threshold() -> None:
    every = hits("d", 0.1) + hits("b", 0.9) + hits("ca", 0.5)
    assert [hit.id for hit in finish(every, Query("t", text="x", limit=3))] == ["b", "a", "c"]
    assert [hit.id for hit in finish(every, Query("t", text="x", threshold=0.5))] == ["b", "a", "c"]


@given(st.floats(-2, 2) | st.just(float("nan")), st.floats(0, 1e9), st.floats(1e-3, 100))
def test_scores_are_between_zero_and_one(cosine: float, raw: float, half: float) -> None:
    assert 0.0 <= cosine_score(cosine) <= 1.0
    assert 0.0 <= saturated(raw, half) <= 1.0
    assert saturated(raw, half) <= saturated(raw * 2, half)
