"""A folder of documents to answers: the search is forced, and what the model makes of the results is its own business.

With 135 million parameters it writes queries that have little to do with the question, and cites as it likes. What is
ours is that it searches, that the right document is found, and that no request is longer than its window.
"""

import io

import pytest
from openai import OpenAI
from tests.real_model.llama_server import CONTEXT, MODEL
from tests.real_model.stage import Stage

DOCUMENTS = {
    "boat.md": "# The boat\n\nThe boat of the club is called Seagull and lies at pier 7.\n",
    "bread.txt": "Rye bread is baked for 55 minutes at 210 degrees.\n",
    "budget.md": "# Budget\n\nThe budget of the library for the year is 48,000 euros.\n",
    "cat.txt": "The office cat is named Biscuit. It is fed twice a day.\n",
    "coffee.md": "# Coffee\n\nThe coffee machine on the second floor is cleaned every Thursday.\n",
    "door.txt": "The code of the side door is changed on the first Monday of each month.\n",
    "garden.md": "# Garden\n\nTomatoes in the school garden are watered in the morning.\n",
    "heating.txt": "The heating is switched off on 15 May and on again on 1 October.\n",
    "holiday.md": "# Holidays\n\nEvery employee has 30 days of holiday each year.\n",
    "invoice.md": "# Invoices\n\nInvoices are paid within 14 days of their arrival.\n",
    "lamp.txt": "The lamp of the lighthouse was replaced in 1987 by an engineer called Marta Lind.\n",
    "library.md": "# Library\n\nBooks may be borrowed for four weeks. A late book costs 20 cents a day.\n",
    "meeting.md": "# Meetings\n\nThe team meets every Tuesday at 10:30 in room Oslo.\n",
    "parking.txt": "Visitors park behind the building, in the places numbered 40 to 52.\n",
    "printer.md": "# Printer\n\nThe printer is on the third floor. Its toner is kept in cupboard B.\n",
    "server.md": "# Server\n\nBackups of the server are made every night at 02:15.\n",
    "tea.md": "# Tea\n\nGreen tea is steeped for two minutes in water of 80 degrees.\n",
    "train.txt": "The last train to Harbour Town leaves at 23:40 from platform 4.\n",
    "visa.md": "# Visas\n\nA visa for the conference is applied for at least six weeks before.\n",
    "voltage.md": "# Batteries\n\nThe batteries of the workshop are charged at 14.4 volts.\n",
}
QUESTIONS = {
    "How long is green tea steeped?": "tea.md",
    "What is the name of the office cat?": "cat.txt",
    "When does the last train to Harbour Town leave?": "train.txt",
    "Where is the toner of the printer kept?": "printer.md",
}


@pytest.fixture(scope="module")
def store(stage: Stage) -> str:
    """Make a vector store of the documents."""
    with stage.client() as client:
        store = client.vector_stores.create(name="folder")
        files = [(name, io.BytesIO(text.encode())) for name, text in DOCUMENTS.items()]
        batch = client.vector_stores.file_batches.upload_and_poll(store.id, files=files, poll_interval_ms=500)
    assert batch.file_counts.completed == len(DOCUMENTS)
    return store.id


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_model_that_must_search_finds_the_document_and_its_window_is_kept(
    client: OpenAI, store: str, question: str
) -> None:
    response = client.responses.create(
        model=MODEL,
        input=question,
        tools=[{"type": "file_search", "vector_store_ids": [store]}],
        tool_choice={"type": "file_search"},
        include=["file_search_call.results"],
        temperature=0,
        max_output_tokens=160,
    )
    search = next(item for item in response.output if item.type == "file_search_call")
    assert search.status == "completed"
    assert QUESTIONS[question] in [result.filename for result in search.results or ()][:4]
    assert response.status in {"completed", "incomplete"}
    assert response.usage is not None
    assert response.usage.total_tokens < 2 * CONTEXT  # of two turns
    for part in (part for item in response.output if item.type == "message" for part in item.content):
        assert part.type == "output_text"
        assert "tool_response" not in part.text
        assert {note.filename for note in part.annotations if note.type == "file_citation"} <= DOCUMENTS.keys()
