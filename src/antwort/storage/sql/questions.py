"""What runs wait for: questions to the user, and calls that need an approval.

A question is stored in the transaction that parks its run, by `ResponseStore.update`. It is answered once.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence

from antwort.errors import ConflictError, NotFoundError
from antwort.storage.base import Page, Question, QuestionStatus
from antwort.storage.sql.database import LOCK, Database, Row, Transactions, reads, snapshot, writes
from antwort.storage.sql.rows import QUESTION, encoded, question_of, question_row
from antwort.types import JSON

# It may be asked again: a run that is taken up twice parks twice.
_ASK = f"""
    INSERT INTO questions ({QUESTION}, tell_at) VALUES ({", ".join("?" * 14)})
    ON CONFLICT (id) DO NOTHING"""  # noqa: S608
_GET = f"SELECT {QUESTION} FROM questions WHERE id = ? AND tenant = ?"  # noqa: S608
_ROOT = f"SELECT 1 FROM responses WHERE id = ? AND tenant = ? {LOCK}"  # noqa: S608
# The empty text keeps SQLite from searching all questions of the tenant by the index of lists.
_OF_RESPONSE = f"""
    SELECT {QUESTION} FROM questions WHERE response_id = ? AND tenant || '' = ? ORDER BY number"""  # noqa: S608
_OF_RUN = f"""
    SELECT {QUESTION} FROM questions WHERE root_id = ? AND tenant || '' = ? ORDER BY number"""  # noqa: S608
_NUMBER = "SELECT number FROM questions WHERE id = ? AND tenant = ?"
_PAGE = f"""
    SELECT {QUESTION} FROM questions WHERE tenant = ? AND (? = '' OR status = ?)
    AND (? = '' OR ? IN (response_id, root_id)) AND number > ? AND number < ? ORDER BY number"""  # noqa: S608
_ANSWER = """
    UPDATE questions SET status = ?, answer = ?, answered_at = ?, answered_by = ?
    WHERE id = ? AND tenant = ? AND status = 'open'"""
_PARKS = "SELECT background FROM responses WHERE id = ? AND tenant || '' = ?"
_STILL_OPEN = "SELECT 1 FROM questions WHERE response_id = ? AND tenant || '' = ? AND status = 'open'"
_UNPARK = "UPDATE responses SET parked = FALSE WHERE id = ? AND tenant = ? AND parked"
# A run can go on if one of its agents has asked something and none of its questions is open.
_READY = """
    SELECT DISTINCT questions.tenant, questions.root_id FROM questions
    JOIN responses AS asking ON asking.id = questions.response_id AND asking.status IN ('queued', 'in_progress')
    JOIN responses AS root ON root.id = questions.root_id AND root.parked
    GROUP BY questions.tenant, questions.root_id, questions.response_id
    HAVING sum(CASE WHEN questions.status = 'open' THEN 1 ELSE 0 END) = 0"""
_READY_ONE = """
    SELECT 1 FROM questions
    JOIN responses AS asking ON asking.id = questions.response_id AND asking.status IN ('queued', 'in_progress')
    WHERE questions.root_id = ? AND questions.tenant || '' = ?
    GROUP BY questions.response_id HAVING sum(CASE WHEN questions.status = 'open' THEN 1 ELSE 0 END) = 0"""
_REOPENED = """
    UPDATE questions SET status = 'open' WHERE id = ? AND tenant = ? AND status = 'answered'
    AND answered_by IS NOT NULL AND answered_by NOT IN (
        SELECT id FROM responses WHERE id = questions.answered_by
        AND (questions.kind = 'approval' OR status NOT IN ('failed', 'cancelled')))"""
_ANSWERED_BY = f"""
    SELECT {QUESTION} FROM questions WHERE answered_by = ? AND tenant || '' = ? ORDER BY number"""  # noqa: S608
_EXPIRED = "SELECT tenant, id FROM questions WHERE status = 'open' AND expires_at <= ? ORDER BY expires_at LIMIT ?"
_CANCEL = """
    UPDATE questions SET status = 'cancelled', answered_at = ? WHERE root_id = ? AND tenant = ? AND status = 'open'"""
_CANCEL_OF = """
    UPDATE questions SET status = 'cancelled', answered_at = ?
    WHERE response_id = ? AND tenant = ? AND status = 'open'"""
_UNTOLD = f"""
    SELECT {QUESTION} FROM questions WHERE status = 'open' AND tell_at <= ? ORDER BY tell_at LIMIT ? {LOCK}"""  # noqa: S608
_TELL_AT = "UPDATE questions SET tell_at = ? WHERE id = ? AND tenant = ?"
_LAST = 2**63 - 1
LONGEST_SILENCE = 3600
"""Seconds between two tries to tell people of a question, at most."""


def ask(database: Database, questions: Sequence[Row]) -> None:
    """Store questions, those that are not stored yet."""
    for question in questions:
        database.execute(_ASK, question)


def asked_rows(questions: Sequence[Question]) -> list[Row]:
    """Return questions as `ask` takes them."""
    return [(*question_row(question), question.created_at) for question in questions]


class QuestionStore(Transactions):
    """Keeps questions. Each method is one transaction."""

    @reads
    def get(self, database: Database, tenant: str, question_id: str) -> Question | None:
        """Return a question of the tenant, None if there is none."""
        row = database.execute(_GET, (question_id, tenant)).fetchone()
        return None if row is None else question_of(row)

    @reads
    def of_response(self, database: Database, tenant: str, response_id: str) -> list[Question]:
        """Return the questions of a response, in the order of asking."""
        return [question_of(row) for row in database.execute(_OF_RESPONSE, (response_id, tenant)).fetchall()]

    @reads
    def of_run(self, database: Database, tenant: str, root_id: str) -> list[Question]:
        """Return the questions of a response and of its sub-agents, in the order of asking."""
        return [question_of(row) for row in database.execute(_OF_RUN, (root_id, tenant)).fetchall()]

    @reads
    def list_questions(
        self,
        database: Database,
        tenant: str,
        *,
        status: str = "",
        response_id: str = "",
        limit: int = 20,
        after: str | None = None,
        before: str | None = None,
        order: str = "desc",
    ) -> Page:
        """Return questions in the order of asking; `after` and `before` are ids, a NotFoundError if one is unknown."""
        ascending = order == "asc"
        with snapshot(database):
            start = None if after is None else _number(database, tenant, after, "after")
            end = None if before is None else _number(database, tenant, before, "before")
            low, high = (start, end) if ascending else (end, start)
            backwards = start is None and end is not None
            upwards = ascending != backwards
            bounds = (tenant, status, status, response_id, response_id, low or 0, high or _LAST, limit + 1)
            rows = database.execute(f"{_PAGE} {'' if upwards else 'DESC'} LIMIT ?", bounds).fetchall()
        found = [question_of(row) for row in rows[:limit]]
        if backwards:
            found.reverse()
        return Page(found, has_more=len(rows) > limit)

    async def answer(
        self,
        tenant: str,
        question_id: str,
        answer: JSON | None,
        *,
        status: QuestionStatus = "answered",
        by: str | None = None,
    ) -> tuple[Question, bool]:
        """End an open question; also return whether its run can go on now, since no other one of that turn is open.

        NotFoundError if there is none, ConflictError if it is not open any more, or if its response is over: an answer
        comes with the response that continues it.
        """
        text = None if answer is None else encoded(answer)
        [question], ready = await self._answer(tenant, question_id, {question_id: (status, text, int(time.time()), by)})
        return question, ready

    async def answer_together(self, tenant: str, answers: Mapping[str, JSON]) -> tuple[list[Question], bool]:
        """Answer open questions of one run, all or none; return and raise as `answer` does."""
        now = int(time.time())
        changes: dict[str, Row] = {name: ("answered", encoded(said), now, None) for name, said in answers.items()}
        return await self._answer(tenant, min(changes), changes)

    @writes
    def _answer(
        self, database: Database, tenant: str, _question_id: str, changes: Mapping[str, Row]
    ) -> tuple[list[Question], bool]:
        ready = False
        ended = [_end(database, tenant, question_id, change) for question_id, change in changes.items()]
        for question in ended:
            if database.execute(_STILL_OPEN, (question.response_id, tenant)).fetchone() is None:
                ready |= database.execute(_UNPARK, (question.root_id, tenant)).rowcount > 0
        return ended, ready

    @writes
    def cancel_all(self, database: Database, tenant: str, root_id: str, now: int) -> None:
        """Cancel the open questions of a run, because its response ends."""
        database.execute(_CANCEL, (now, root_id, tenant))

    @writes
    def cancel_of(self, database: Database, tenant: str, response_id: str, now: int) -> None:
        """Cancel the open questions of one response, because it ends."""
        database.execute(_CANCEL_OF, (now, response_id, tenant))

    @reads
    def ready(self, database: Database) -> list[tuple[str, str]]:
        """Return (tenant, root id) of runs that are parked although they have what they wait for, over all tenants."""
        return database.execute(_READY).fetchall()

    @reads
    def is_ready(self, database: Database, tenant: str, root_id: str) -> bool:
        """Tell whether an agent of a run has all that it waits for."""
        return database.execute(_READY_ONE, (root_id, tenant)).fetchone() is not None

    @writes
    def unpark(self, database: Database, tenant: str, root_id: str) -> bool:
        """Let somebody work on a run again; False if it was not parked."""
        return database.execute(_UNPARK, (root_id, tenant)).rowcount > 0

    @reads
    def get_all(self, database: Database, tenant: str, ids: Iterable[str]) -> list[Question]:
        """Return those questions of the tenant that there are, in the order of the ids."""
        rows = [database.execute(_GET, (question_id, tenant)).fetchone() for question_id in ids]
        return [question_of(row) for row in rows if row is not None]

    @reads
    def answered_by(self, database: Database, tenant: str, response_id: str) -> list[Question]:
        """Return the questions that a response has brought the answers to."""
        return [question_of(row) for row in database.execute(_ANSWERED_BY, (response_id, tenant)).fetchall()]

    async def answer_all(self, tenant: str, answers: Mapping[str, JSON], by: str) -> list[Question]:
        """Answer questions with a response that continues the one that has asked them, and return them.

        A ConflictError if one is not open any more, unless the response that brought the answer has failed. What was
        approved is not approved again then: the call may have been made.
        """
        written = {question_id: encoded(answer) for question_id, answer in answers.items()}
        return await self._answer_all(tenant, by, written, now=int(time.time()))

    @writes
    def _answer_all(
        self, database: Database, tenant: str, by: str, answers: Mapping[str, str], *, now: int
    ) -> list[Question]:
        answered = []
        for question_id, answer in answers.items():
            database.execute(_REOPENED, (question_id, tenant))
            changed = database.execute(_ANSWER, ("answered", answer, now, by, question_id, tenant)).rowcount
            question = question_of(database.execute(_GET, (question_id, tenant)).fetchone())
            if changed == 0:
                raise already_answered(question)
            answered.append(question)
        return answered

    @reads
    def expired(self, database: Database, now: int, *, limit: int = 100) -> list[tuple[str, str]]:
        """Return (tenant, id) of open questions whose time is over, over all tenants."""
        return database.execute(_EXPIRED, (now, limit)).fetchall()

    async def take_untold(self, now: int, *, retry: float, limit: int) -> list[Question]:
        """Return open questions that nobody was told of, over all tenants, and let them come again later."""
        return await self._take_untold("", "", now, retry=retry, limit=limit)

    @writes
    def _take_untold(
        self, database: Database, _tenant: str, _name: str, now: int, *, retry: float, limit: int
    ) -> list[Question]:
        untold = [question_of(row) for row in database.execute(_UNTOLD, (now, limit)).fetchall()]
        for question in untold:
            pause = min(max(math.ceil(retry), now - question.created_at), LONGEST_SILENCE)
            database.execute(_TELL_AT, (now + pause, question.id, question.tenant))
        return untold

    @writes
    def told(self, database: Database, tenant: str, question_id: str) -> None:
        """Take note that people know of a question."""
        database.execute(_TELL_AT, (None, question_id, tenant))


def _end(database: Database, tenant: str, question_id: str, change: Row) -> Question:
    """End an open question, and return it."""
    question = _get(database, tenant, question_id)
    # Those of one run are ended one after the other: each of two at a time would find the other one open.
    database.execute(_ROOT, (question.root_id, tenant)).fetchone()
    if change[0] == "answered":
        parks = database.execute(_PARKS, (question.response_id, tenant)).fetchone()
        if question.status == "open" and parks is not None and not parks[0]:
            raise answered_by_continuing(question)
    if database.execute(_ANSWER, (*change, question_id, tenant)).rowcount == 0:
        raise already_answered(_get(database, tenant, question_id))
    return _get(database, tenant, question_id)


def _get(database: Database, tenant: str, question_id: str) -> Question:
    row = database.execute(_GET, (question_id, tenant)).fetchone()
    if row is None:
        raise question_not_found(question_id)
    return question_of(row)


def question_not_found(question_id: str) -> NotFoundError:
    """Return the error for a question that is not there, or not the tenant's."""
    return NotFoundError(f"Question with id '{question_id}' not found.", param="question_id")


def already_answered(question: Question) -> ConflictError:
    """Return the error for an answer that comes too late."""
    by = f" by response '{question.answered_by}'" if question.answered_by is not None else ""
    return ConflictError(f"The question '{question.id}' is {question.status} already{by}.", code="question_not_open")


def answered_by_continuing(question: Question) -> ConflictError:
    """Return the error for an answer to a response that did not wait for it."""
    item = (
        f"an `mcp_approval_response` for '{question.id}'"
        if question.kind == "approval"
        else f"a `function_call_output` for '{question.call_id}'"
    )
    return ConflictError(
        f"The response '{question.response_id}' was not made in the background, so it does not wait. Create a response "
        f"with `previous_response_id` and {item} as input.",
        code="response_not_waiting",
    )


def _number(database: Database, tenant: str, question_id: str, param: str) -> int:
    row = database.execute(_NUMBER, (question_id, tenant)).fetchone()
    if row is None:
        raise NotFoundError(f"There is no question '{question_id}' to list from.", param=param)
    return int(row[0])
