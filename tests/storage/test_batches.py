"""What is kept of batches."""

from tests.storage.samples import TENANT

from antwort.storage import Store
from antwort.storage.base import OWN_RECORDS
from antwort.storage.batches import Batch, Batches


async def test_lines_that_were_answered_before_outcomes_were_told_keep_their_answers(store: Store) -> None:
    records = store.records(OWN_RECORDS)
    for line in (1, 2):
        value = {"line": line, "fine": line == 1, "answer": {"id": f"answer-{line}"}}
        await records.create(TENANT, "batch_line", f"batch_a:{line}", value, parent="batch_a")
    batches = Batches(records, Batch)
    assert await batches.answer(TENANT, "batch_a", 3, {"id": "answer-3"}, "succeeded")
    assert await batches.answered(TENANT, "batch_a") == {1: "succeeded", 2: "errored", 3: "succeeded"}
    found = {
        fine: [answer["id"] async for answer in batches.answers(TENANT, "batch_a", fine=fine)] for fine in (True, False)
    }
    assert found == {True: ["answer-1", "answer-3"], False: ["answer-2"]}
