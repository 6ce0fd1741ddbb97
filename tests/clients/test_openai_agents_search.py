"""`FileSearchTool` of `openai-agents` on the shipped server: from an upload to a citation that leads to the file."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseFileSearchToolCall, ResponseOutputText
from tests.providers.file_search.ingestion.test_kill import stop
from tests.runs.processes import ServerProcess

from antwort.lazy_imports import imported_on_use

if TYPE_CHECKING:
    import agents
    from tests.clients import openai_agents as script
else:
    agents = imported_on_use("agents")
    script = imported_on_use("tests.clients.openai_agents")

TEA = ("tea.md", b"# Tea\n\nGreen tea grows in Uji near Kyoto.")
MILK = ("milk.md", b"# Milk\n\nMilk comes last.")
QUESTION = "Where does green tea grow?"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    providers: dict[str, Any] = {"file_search": {"enabled": True}, "files": {"enabled": True}}
    # Without a backend, the demo model answers: it searches for the question, and cites what it finds.
    made = ServerProcess(tmp_path_factory.mktemp("search"), "", providers=providers, sections={"backends": {}})
    made.start()
    yield made
    stop(made)


def found(items: "list[agents.RunItem]") -> tuple[list[str], list[str]]:
    """Return the files that a run has found, and those that it cites, by their ids."""
    calls = [item.raw_item for item in items if isinstance(item, agents.ToolCallItem)]
    results = [hit for call in calls if isinstance(call, ResponseFileSearchToolCall) for hit in call.results or []]
    parts = [part for item in items if isinstance(item, agents.MessageOutputItem) for part in item.raw_item.content]
    notes = [note for part in parts if isinstance(part, ResponseOutputText) for note in part.annotations]
    return [hit.file_id or "" for hit in results], [note.file_id for note in notes if note.type == "file_citation"]


async def test_a_file_is_found_and_cited(server: ServerProcess) -> None:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        store = await client.vector_stores.create(name="drinks")
        files = [await client.files.create(file=file, purpose="assistants") for file in (TEA, MILK)]
        for file in files:
            attached = await client.vector_stores.files.create_and_poll(file.id, vector_store_id=store.id)
            assert (attached.status, attached.last_error) == ("completed", None)
        agent = script.searcher(
            client, agents.FileSearchTool([store.id], max_num_results=1, include_search_results=True)
        )
        run = await agents.Runner.run(agent, QUESTION)
        assert "Uji near Kyoto" in run.final_output
        assert found(run.new_items) == ([files[0].id], [files[0].id])
        assert (await client.files.retrieve(files[0].id)).filename == "tea.md"
        assert (await client.files.content(files[0].id)).content == TEA[1]

        further: agents.TResponseInputItem = {"role": "user", "content": "When does milk come?"}
        streamed = agents.Runner.run_streamed(agent, [*run.to_input_list(), further])
        async for _ in streamed.stream_events():
            pass
        assert "Milk comes last" in streamed.final_output
        assert found(streamed.new_items) == ([files[1].id], [files[1].id])
