"""Questions and answers: groups, codes, probabilities by tokens and by the model's word."""

import math

import pytest

from antwort.server.decisions.questions import Asked, grouped, read_answers
from antwort.types import JSON
from antwort.wire.decisions import (
    ChoiceAnswer,
    ChoiceOption,
    ChoiceQuestion,
    Level,
    PredicateAnswer,
    PredicateQuestion,
    Question,
    ScoreAnswer,
    ScoreQuestion,
)


def choice(number: int) -> ChoiceQuestion:
    return ChoiceQuestion(instructions="Which?", choices=[ChoiceOption(f"option {one}") for one in range(number)])


PREDICATE = PredicateQuestion(instructions="It rains.", name="rain")
SCORE = ScoreQuestion(instructions="How wet?", levels=[Level("dry"), Level("damp"), Level("wet")])


def token(text: str, *others: tuple[str, float]) -> JSON:
    """Return a token with what might have stood in its place; what is left is its own."""
    chance = 1 - sum(part for _, part in others)
    told = [{"token": name, "logprob": math.log(part)} for name, part in [(text, chance), *others]]
    return {**told[0], "top_logprobs": told}


def answered(question: Question, tokens: list[JSON]) -> object:
    text = "".join(one["token"] for one in tokens)
    return read_answers([Asked(0, question)], text, tokens)[0]


@pytest.mark.parametrize("question", [PREDICATE, SCORE, choice(2), choice(26), choice(27), choice(255)])
def test_no_code_of_a_question_begins_with_another(question: Question) -> None:
    codes = Asked(0, question).codes
    assert len(set(codes)) == len(codes)
    assert not any(a != b and b.startswith(a) for a in codes for b in codes)


def test_groups_have_few_questions_and_options_and_keep_the_order() -> None:
    questions: list[Question] = [PREDICATE] * 20 + [choice(255)] * 3 + [SCORE]
    groups = [*grouped(questions)]
    assert [len(group) for group in groups] == [16, 5, 1, 2]
    assert [asked.number for group in groups for asked in group] == [*range(24)]


def test_a_predicate_is_as_likely_as_the_token_that_says_yes() -> None:
    tokens = [token('{"q1": "'), token("no", ("yes", 0.25), ("maybe", 0.25)), token('"}')]
    found = answered(PREDICATE, tokens)
    assert isinstance(found, PredicateAnswer)
    assert found.name == "rain"
    assert found.probability == pytest.approx(1 / 3, abs=1e-5)


def test_the_likeliest_option_is_chosen_whichever_was_written() -> None:
    found = answered(choice(3), [token('{"q1":'), token(' "A', (' "C', 0.6), (" B", 0.1)), token('"}')])
    assert isinstance(found, ChoiceAnswer)
    assert found.choice == "option 2"
    assert found.confidence == pytest.approx(2 / 3, abs=1e-5)
    assert [one.probability for one in found.probabilities] == pytest.approx([1 / 3, 0, 2 / 3], abs=1e-5)


def test_codes_of_several_tokens_are_as_likely_as_all_of_them_together() -> None:
    tokens = [token('{"q1": "'), token("1", ("2", 0.5)), token("0"), token("4", ("5", 0.25)), token('"}')]
    found = answered(choice(255), tokens)
    assert isinstance(found, ChoiceAnswer)
    chances = {one.value: one.probability for one in found.probabilities}
    assert (chances["option 104"], chances["option 105"]) == (0.375, 0.125)
    # Nobody knows which of those that begin with a 2 it might have been.
    assert chances["option 200"] == chances["option 254"] == pytest.approx(0.5 / 55, abs=1e-5)
    assert sum(chances.values()) == pytest.approx(1, abs=1e-3)


def test_a_score_is_the_mean_of_the_levels() -> None:
    found = answered(SCORE, [token('{"q1": "'), token('2"', ('1"', 0.25), ("0", 0.25)), token("}")])
    assert isinstance(found, ScoreAnswer)
    assert (found.score, found.confidence) == (1.25, 0.5)
    assert [(one.value, one.label, one.probability) for one in found.probabilities] == [
        (0, "dry", 0.25),
        (1, "damp", 0.25),
        (2, "wet", 0.5),
    ]


def test_tokens_of_another_text_say_nothing() -> None:
    tokens = [token('{"q1": "'), token("yes"), token('"}')]
    assert read_answers([Asked(0, PREDICATE)], '{"q1": "no"}', tokens) == {}
    assert read_answers([Asked(0, PREDICATE)], '{"q1": "yes"', [token(" \n"), *tokens]) != {}


def test_without_tokens_the_model_says_how_sure_it_is_and_the_others_share_the_rest() -> None:
    group = [Asked(0, PREDICATE), Asked(1, choice(5)), Asked(2, SCORE)]
    said = 'Well:\n```json\n{"q1": "no", "p1": 90, "q2":"B","p2":"60", "q3": "0", "p3": 1000.5}\n```'
    rain, chosen, wet = read_answers(group, said, []).values()
    assert rain == PredicateAnswer(name="rain", probability=0.1)
    assert isinstance(chosen, ChoiceAnswer)
    assert [one.probability for one in chosen.probabilities] == [0.1, 0.6, 0.1, 0.1, 0.1]
    assert isinstance(wet, ScoreAnswer)
    assert (wet.score, wet.confidence) == (0.0, 1.0)


def test_what_a_model_has_chosen_is_never_less_likely_than_the_rest() -> None:
    found = read_answers([Asked(0, choice(4))], '{"q1": "D", "p1": 0}', [])[0]
    assert isinstance(found, ChoiceAnswer)
    assert {one.probability for one in found.probabilities} == {0.25}


@pytest.mark.parametrize(
    "said",
    ["", "It does.", '{"q1": "maybe", "p1": 5}', '{"q1": "yes"}', '{"q2": "yes", "p2": 5}', '{"q1": true, "p1": 5}'],
)
def test_what_is_no_answer_is_none(said: str) -> None:
    assert read_answers([Asked(0, PREDICATE)], said, []) == {}
