"""Questions in each store: who is told of them, who answers them, and once."""

import asyncio
import os

import pytest
from tests.storage.samples import record

from antwort.errors import ConflictError, NotFoundError
from antwort.storage import Question, Store


async def asked(store: Store, *, background: bool = True, kind: str = "question") -> Question:
    made = record(status="in_progress", background=background, tenant="t")
    await store.create(made, [])
    question = Question(
        id="question_1",
        tenant="t",
        response_id=made.id,
        call_id="call_1",
        root_id=made.id,
        kind="question",
        body={},
        created_at=1000,
    )
    question.kind = "approval" if kind == "approval" else "question"
    await store.update(made, questions=[question])
    return question


async def test_a_question_is_told_until_it_is_taken(store: Store) -> None:
    question = await asked(store)
    questions = store.questions
    assert await questions.take_untold(999, retry=10, limit=5) == []
    assert await questions.take_untold(1000, retry=10, limit=5) == [question]
    assert await questions.take_untold(1009, retry=10, limit=5) == []
    assert await questions.take_untold(1020, retry=10, limit=5) == [question]
    assert await questions.take_untold(1039, retry=10, limit=5) == []  # it waits as long as it was open
    await questions.told("t", question.id)
    assert await questions.take_untold(10_000, retry=10, limit=5) == []


@pytest.mark.parametrize("kind", ["question", "approval"])
async def test_an_answer_counts_unless_the_response_that_brought_it_is_not_there(store: Store, kind: str) -> None:
    question = await asked(store, background=False, kind=kind)
    questions = store.questions
    [answered] = await questions.answer_all("t", {question.id: {"text": "a"}}, by="resp_lost")
    assert (answered.status, answered.answered_by) == ("answered", "resp_lost")
    await store.create(record("resp_2", status="failed", tenant="t"), [])
    await questions.answer_all("t", {question.id: {"text": "b"}}, by="resp_2")
    assert [q.id for q in await questions.answered_by("t", "resp_2")] == [question.id]
    if kind == "approval":  # the call may have been made
        with pytest.raises(ConflictError):
            await questions.answer_all("t", {question.id: {"text": "c"}}, by="resp_3")
    else:
        await questions.answer_all("t", {question.id: {"text": "c"}}, by="resp_3")


async def test_the_questions_of_a_response_are_also_those_below_it(store: Store) -> None:
    question = await asked(store)
    for response_id, found in ((question.root_id, [question]), ("resp_other", [])):
        page = await store.questions.list_questions("t", response_id=response_id, status="open")
        assert list(page.data) == found


async def test_of_two_questions_that_are_answered_at_once_the_later_one_lets_the_run_go_on(store: Store) -> None:
    for number in range(200 if os.environ.get("ANTWORT_TEST_FULL") else 20):
        made = record(f"resp_{number}", status="in_progress", background=True, tenant="t")
        await store.create(made, [])
        both = [
            Question(
                id=f"question_{number}_{which}",
                tenant="t",
                response_id=made.id,
                call_id=f"call_{which}",
                root_id=made.id,
                kind="question",
                body={},
                created_at=1000,
            )
            for which in range(2)
        ]
        made.parked = True
        await store.update(made, questions=both)
        ends = await asyncio.gather(*(store.questions.answer("t", one.id, {"text": "a"}) for one in both))
        assert sorted(ready for _, ready in ends) == [False, True]


async def test_several_questions_are_answered_together_or_none_of_them(store: Store) -> None:
    question = await asked(store)
    with pytest.raises(NotFoundError):
        await store.questions.answer_together("t", {question.id: {"text": "a"}, "question_9": {"text": "b"}})
    [found] = await store.questions.of_run("t", question.root_id)
    assert found.status == "open"
    [ended], _ = await store.questions.answer_together("t", {question.id: {"text": "a"}})
    assert (ended.status, ended.answer) == ("answered", {"text": "a"})
