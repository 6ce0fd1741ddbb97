"""Searching by both meaning and words finds no less than either: a tenth of what `make bench-full` measures."""

from collections import Counter

import pytest

from benchmarks.retrieval import (
    KINDS,
    WAYS,
    Quality,
    opened_library,
    quality_of,
    ranked,
    read_questions,
    read_sections,
)

SOME = ("harbour", "pump-kp200", "pump-kp350")
"""Documents whose questions are asked, every second of them; two are hard to tell apart."""
CHANCE = 0.02
"""Processors round differently, so that two sections may change places."""


def test_every_section_is_a_chunk_and_has_three_questions() -> None:
    questions = read_questions()
    sections = [(section.document, section.heading) for section in read_sections()]
    assert len(questions) == 324
    assert len(set(sections)) == len(sections) == 108
    assert Counter((one.document, one.section) for one in questions) == dict.fromkeys(sections, 3)
    assert {question.kind for question in questions} == set(KINDS)
    assert len({question.text for question in questions}) == len(questions)


def test_a_rank_is_worth_less_the_further_down_it_is() -> None:
    assert quality_of([0, 0]) == Quality(1.0, 1.0)
    assert quality_of([1, None]).ndcg == pytest.approx(0.6309 / 2, abs=1e-4)
    assert quality_of([1, None]).recall == 0.5


async def test_hybrid_search_is_not_worse_than_either() -> None:
    questions = [one for one in read_questions() if one.document in SOME][::2]
    async with opened_library(read_sections(SOME)) as library:
        found = {way: quality_of(await ranked(library, questions, ranking)) for way, ranking in WAYS.items()}
    hybrid = found.pop("hybrid")
    assert hybrid.ndcg >= max(one.ndcg for one in found.values()) - CHANCE
    assert hybrid.recall >= max(one.recall for one in found.values()) - CHANCE
