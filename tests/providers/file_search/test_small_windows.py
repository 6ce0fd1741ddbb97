"""File search with models of small windows: as much is shown as fits, the rest is told of and can be read on."""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from tests.providers.sub_agents.brain import Brain, size_of, texts
from tests.providers.sub_agents.stage import does
from tests.support.embeddings import EmbeddingServer
from typing_extensions import override

from antwort import Antwort
from antwort.backends.base import ModelRequest, TurnSink
from antwort.config import Config
from antwort.errors import BadRequestError
from antwort.testing import Turn, running
from antwort.types import JSON

WINDOW = 4096
"""Tokens, as Ollama has them if nobody says otherwise."""
QUESTION = "Which tea is from Place7?"
DOCUMENTS = [
    f"Name{n} tea is from Place{n}. " + f"It is picked in month {n} and steeped for {n} minutes. " * 25
    for n in range(1, 14)
]
LEFT_OUT = re.compile(
    r"no room for all: [\d,]+ characters of \d+ results are left out\. To read on, if the answer is not here, "
    r'search for "(Which tea is from Place7\? offset:\d+)"\.'
)


class SmallModel(Brain):
    """A model with a small window, which its server tells or does not; three bytes are a token."""

    def __init__(self, decide: Callable[[ModelRequest], Turn | str], window: int, *, tells: bool) -> None:
        super().__init__(decide)
        self._window = window
        self._tells = tells
        self.refused = 0

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        if size_of(request) // 3 > self._window:
            self.refused += 1
            raise BadRequestError("The conversation is too long.", param="input", code="context_length_exceeded")
        await super().run(request, sink)

    @override
    async def context_window(self, model: str) -> int | None:
        return self._window if self._tells else None


class Stage:
    """A served app that has thirteen small documents."""

    def __init__(self, url: str, model: SmallModel) -> None:
        self._url = url
        self.model = model
        store = self._post("/vector_stores", {"name": "teas"})["id"]
        points = [
            {"file_id": f"file-{n}", "filename": f"{n}.txt", "text": text, "chunk_index": 0}
            for n, text in enumerate(DOCUMENTS)
        ]
        self._post(f"/vector_stores/{store}/points", {"points": points})

    def _post(self, path: str, body: JSON) -> Any:
        found = httpx.post(f"{self._url}/v1{path}", json=body, timeout=60)
        assert found.status_code == 200, found.text
        return found.json()

    def ask(self) -> JSON:
        """Ask which tea it is."""
        include = ["file_search_call.results"]
        body = {"model": "scripted", "input": QUESTION, "tools": [{"type": "file_search"}], "include": include}
        found: JSON = self._post("/responses", body)
        return found

    @property
    def read(self) -> list[str]:
        """What the model has read of its calls last."""
        return [str(item["output"]) for item in self.model.read[-1] if item["type"] == "function_call_output"]


@contextlib.contextmanager
def staged(
    folder: Path,
    embeddings: EmbeddingServer,
    decide: Callable[[ModelRequest], Turn | str],
    *,
    window: int = WINDOW,
    tells: bool = True,
) -> Iterator[Stage]:
    settings = {"embedding_url": embeddings.url, "embedding_retries": 0, "vector_backend": "embedded"}
    config = {"data_dir": folder, "providers": {"file_search": {"enabled": True, "settings": settings}}}
    model = SmallModel(decide, window, tells=tells)
    with running(Antwort(Config.model_validate(config), backend=model)) as server:
        yield Stage(server.url, model)


def search_once(request: ModelRequest) -> Turn | str:
    """Search, and answer."""
    return "Name7 [1]." if texts(request) else does("file_search", query=QUESTION)


def test_the_first_question_is_answered(tmp_path: Path, embeddings: EmbeddingServer) -> None:
    with staged(tmp_path, embeddings, search_once) as stage:
        response = stage.ask()
        assert response["status"] == "completed"
        [found] = stage.read
        results = response["output"][0]["results"]
        assert results[0]["text"].strip() in found
        assert LEFT_OUT.search(found)
        assert stage.model.refused == 0
        assert len(results) == len(DOCUMENTS)  # clients see all of it


def test_what_was_left_out_can_be_read_on(tmp_path: Path, embeddings: EmbeddingServer) -> None:
    told: list[str] = []

    def decide(request: ModelRequest) -> Turn | str:
        if not (outputs := texts(request)):
            return does("file_search", query=QUESTION)
        told.append(outputs[-1])
        left_out = LEFT_OUT.search(outputs[-1])
        return "All." if left_out is None else does("file_search", query=left_out[1])

    with staged(tmp_path, embeddings, decide) as stage:
        assert stage.ask()["status"] == "completed"
        assert stage.model.refused == 0
    assert len(told) > 3
    shown = "".join(told)
    assert len(set(re.findall(r"(Name\d+) tea", shown))) == len(DOCUMENTS)
    assert len(DOCUMENTS) * 25 - len(told) <= shown.count("minutes.") <= len(DOCUMENTS) * 25


def test_a_window_that_nobody_tells_is_measured(tmp_path: Path, embeddings: EmbeddingServer) -> None:
    with staged(tmp_path, embeddings, search_once, tells=False) as stage:
        response = stage.ask()
        assert response["status"] == "completed"
        assert response["output"][0]["results"][0]["text"][:500] in stage.read[0]
        refused = stage.model.refused
        assert refused == 1
        assert stage.ask()["status"] == "completed"
        assert LEFT_OUT.search(stage.read[0])
        assert stage.model.refused == refused  # nothing is refused any more


def test_where_there_is_room_all_of_it_is_read(tmp_path: Path, embeddings: EmbeddingServer) -> None:
    with staged(tmp_path, embeddings, search_once, window=100_000) as stage:
        stage.ask()
        [found] = stage.read
        assert "no room" not in found
        assert len(set(re.findall(r"(Name\d+) tea", found))) == len(DOCUMENTS)
