"""What is asked of FAQs, and what counts as an answer; the FAQs themselves are fetched by `make bench-full` only."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.faqs import FAQS, FaqDocument, documents_of, faq_documents
from benchmarks.finding import Asked, Corpus, Piece
from benchmarks.measure import BenchmarkError

POD = """=head1 NAME

perlfaq - questions

=head2 How do I X<tea>steep C<green> tea?

(contributed by somebody)

Pour it over with L<water|http://example.com> of 80 degrees, and wait for I<two> minutes.

=head2 Is it cold?

See above.

=head1 AUTHOR

Nobody
"""
RST = """=======
Tea FAQ
=======

.. only:: html

   .. contents::


How long does green
tea steep?
-------------------

Two minutes, says :mod:`tea`, since it is bitter afterwards, and nobody likes that.

Milk
----

No milk is poured into it, whatever the neighbours say, or they would be right.
"""
DEBIAN = """Contents

1. Tea
    1.1. How is it?

Chapter\u00a01.\u00a0Tea

1.1.\u00a0How long does green tea
steep?

    Two minutes, since it is bitter afterwards, and nobody likes it.

Chapter\u00a02.\u00a0Coffee

2.1.\u00a0Is it hot?

    It is, or somebody has forgotten it where nobody has looked for it.
"""


def read(number: int, text: str) -> list[FaqDocument]:
    return list(documents_of("tea", FAQS[number].read(text)))


def test_questions_are_asked_and_not_in_the_text_that_is_searched() -> None:
    [python], [perl], [tea, coffee] = read(0, RST), read(1, POD), read(2, DEBIAN)
    for document, question, answer in (
        (python, "How long does green tea steep?", "Two minutes, says tea, since"),
        (perl, "How do I steep green tea?", "(contributed by somebody)"),
        (tea, "How long does green tea steep?", "Two minutes, since"),
        (coffee, "Is it hot?", "It is, or somebody"),
    ):
        [asked] = document.answers
        assert asked.question == question
        assert document.text[asked.start : asked.end].startswith(answer)
        assert question not in document.text
    assert "No milk" in python.text
    assert (tea.title, coffee.title) == ("Tea", "Coffee")
    assert "AUTHOR" not in perl.text
    assert "with water of 80 degrees, and wait for two minutes" in perl.text


def test_a_piece_answers_if_half_of_it_is_the_answer_or_half_of_the_answer_is_in_it() -> None:
    asked = Asked("?", 0, 100, 200)
    assert asked.is_answered_by(Piece(0, 0, 150, ""))
    assert not asked.is_answered_by(Piece(0, 0, 149, ""))
    assert asked.is_answered_by(Piece(0, 190, 210, ""))
    assert not asked.is_answered_by(Piece(1, 100, 200, ""))


def test_half_of_an_answer_must_be_in_the_first_tokens() -> None:
    text = "tea " * 50
    asked = Asked("?", 0, 100, 200)
    pieces = [Piece(0, 200, 400, text), Piece(0, 0, 200, text)]
    assert asked.is_within(pieces, 51 + 38)
    assert not asked.is_within(pieces, 51 + 37)
    assert not asked.is_within(pieces[:1], 1000)


def test_the_best_order_is_worth_one() -> None:
    [document] = read(0, RST)
    corpus = Corpus([document], size=20, overlap=0)
    [asked] = corpus.asked
    right = [piece for piece in corpus.pieces if asked.is_answered_by(piece)]
    wrong = [piece for piece in corpus.pieces if not asked.is_answered_by(piece)]
    assert right and wrong  # noqa: PT018 - both are needed
    best, share = corpus.rows("tea", [right + wrong], [1000])
    worst, _ = corpus.rows("tea", [wrong], [1000])
    assert best.value == pytest.approx(1.0)
    assert share.value == 100.0
    assert worst.value == 0.0


def test_a_set_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="the package no-such-package-at-all of Debian cannot be fetched"):
        faq_documents(replace(FAQS[0], package="no-such-package-at-all"), tmp_path)
