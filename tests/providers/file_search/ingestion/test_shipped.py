"""The shipped server with its worker, through the SDK: from an upload to an answer whose citation leads to the file."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from tests.documents import samples
from tests.providers.file_search.ingestion.test_kill import stop
from tests.runs.processes import ServerProcess


@pytest.fixture
def server(tmp_path: Path, every_backend: dict[str, Any]) -> Iterator[ServerProcess]:
    providers = {"file_search": {"enabled": True, "settings": every_backend}, "files": {"enabled": True}}
    # Without a backend, the demo model answers: it searches for the question, and cites what it finds.
    made = ServerProcess(tmp_path, "", providers=providers, sections={"backends": {}})
    made.start()
    yield made
    stop(made)


def test_an_uploaded_file_is_found_and_cited(server: ServerProcess, tmp_path: Path) -> None:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        store = client.vector_stores.create(name="handbook")
        report = client.vector_stores.files.upload_and_poll(
            vector_store_id=store.id, file=("report.pdf", samples.pdf("Oolong is steeped for three minutes"))
        )
        assert (report.status, report.last_error) == ("completed", None)
        # The worker has the priority of everything else, and is told how much it may use.
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in server.children()} == {own}
        assert (tmp_path / "data" / "providers" / "file_search" / "share").exists()
        pages = [
            ("a.md", b"# Milk\n\nMilk comes last."),
            ("b.html", b"<h1>Sugar</h1><p>Sugar is a matter of taste.</p>"),
        ]
        batch = client.vector_stores.file_batches.upload_and_poll(vector_store_id=store.id, files=pages)
        assert (batch.status, batch.file_counts.completed) == ("completed", 2)
        tools: Any = [{"type": "file_search", "vector_store_ids": [store.id]}]
        answer = client.responses.create(model="antwort-demo", input="How long is oolong steeped?", tools=tools)
        message = next(item for item in answer.output if isinstance(item, ResponseOutputMessage))
        (text,) = (part for part in message.content if isinstance(part, ResponseOutputText))
        assert "three minutes" in text.text
        cited = [note.file_id for note in text.annotations if note.type == "file_citation"]
        assert cited[0] == report.id
        assert client.files.retrieve(cited[0]).filename == "report.pdf"
        client.files.delete(report.id)
        left = client.vector_stores.search(store.id, query="oolong steeped", max_num_results=10)
        assert {hit.filename for hit in left} <= {"a.md", "b.html"}
        assert client.vector_stores.retrieve(store.id).file_counts.total == 2
