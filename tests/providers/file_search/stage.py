"""The shipped app with file search on a real Qdrant server, a scripted model behind it, and a server that embeds."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
from tests.http.sdk import Served
from tests.support.embeddings import EmbeddingServer
from tests.support.line import Line
from tests.support.qdrant import QdrantServer

from antwort import Antwort
from antwort.config import Config
from antwort.extensions import VectorStoreUnavailable
from antwort.providers.file_search import FileSearch
from antwort.testing import ScriptedBackend, Turn, call, running, turn
from antwort.types import JSON

__all__ = [
    "INGEST",
    "KEYS",
    "Clock",
    "answering",
    "collections",
    "mended",
    "on_loop",
    "outputs",
    "pipeline",
    "search_item",
    "searching",
    "settings_for",
    "staged",
    "tool",
    "until",
    "write",
]

T = TypeVar("T")
INGEST = Path(__file__).parents[3] / "examples" / "ingest_pipeline" / "ingest.py"
KEYS: Any = {
    "api_keys": [
        {"id": "a", "key": "key-of-alpha", "tenant": "alpha", "scopes": ["*"]},
        {"id": "b", "key": "key-of-beta", "tenant": "beta", "scopes": ["*"]},
        {"id": "r", "key": "key-of-a-reader", "tenant": "alpha", "scopes": ["vector_stores:*"]},
    ]
}


class Clock:
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now

    def pass_days(self, days: float) -> None:
        """Let time pass."""
        self.now += days * 86_400


PATIENCE = 120.0
"""Seconds after which something does not happen any more; an emulated database on a busy machine is slow."""


def settings_for(qdrant: QdrantServer | Line, embeddings: EmbeddingServer, **more: Any) -> JSON:
    """Return the settings of the provider, as a configuration has them."""
    return {
        "embedding_url": embeddings.url,
        "embedding_retries": 0,
        "vector_backend": "qdrant",
        "qdrant": {"url": qdrant.url, "timeout": PATIENCE},
        **more,
    }


@contextlib.contextmanager
def staged(
    tmp_path: Path,
    steps: Sequence[Turn | str],
    settings: Mapping[str, Any],
    *,
    provider: FileSearch | None = None,
    **sections: Any,
) -> Iterator[Served]:
    """Serve the app; lint every answer its clients have read."""
    configured = {} if provider else {"file_search": {"enabled": True, "settings": dict(settings)}}
    with ScriptedBackend(steps) as model:
        app = Antwort(
            Config(data_dir=tmp_path, **{"providers": configured, **sections}),
            backend=model,
            providers=[provider] if provider else [],
        )
        with running(app) as server, contextlib.ExitStack() as closing:
            stage = Served(server, model, closing)
            yield stage
        for tape in stage.tapes:
            tape.lint()


def on_loop(stage: Served, work: Coroutine[Any, Any, T]) -> T:
    """Do something on the loop of the app."""
    return asyncio.run_coroutine_threadsafe(work, stage.server.loop).result(60)


def collections(qdrant: QdrantServer | Line) -> set[str]:
    """Return the names of the collections of a server."""
    return {one["name"] for one in httpx.get(f"{qdrant.url}/collections").json()["result"]["collections"]}


def until(what: Callable[[], bool]) -> None:
    """Wait until something is so, by looking."""
    end, pause = time.monotonic() + PATIENCE, 0.01
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(pause)
        pause = min(1.2 * pause, 0.2)  # what takes long would only take longer if it were asked all the time


def mended(line: Line, stage: Served) -> None:
    """Mend the line to the vector database, and wait until the app has seen that: it does not look all the time."""
    registered = stage.server.app.registry.registrations()
    backend = next(one.provider._backend for one in registered if isinstance(one.provider, FileSearch))

    async def is_seen() -> bool:
        with contextlib.suppress(VectorStoreUnavailable):
            await backend.collections()
            return True
        return False

    line.mend()
    until(lambda: on_loop(stage, is_seen()))


def pipeline(
    folder: Path,
    documents: Mapping[str, str],
    store: str,
    qdrant: QdrantServer,
    embeddings: EmbeddingServer,
    tenant: str = "default",
    *more: str,
) -> str:
    """Let the example pipeline, a process of its own, index documents; return what it prints."""
    folder.mkdir(exist_ok=True)
    for name, text in documents.items():
        (folder / name).write_text(text)
    command = [sys.executable, str(INGEST), "--store", store, "--tenant", tenant, "--qdrant", qdrant.url]
    command += ["--embeddings", embeddings.url, *more, str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def write(stage: Served, store: str, *points: JSON, key: str = "none") -> None:
    """Write chunks over the route for ingestion processes; a chunk needs no more than its text."""
    filled = [{"file_id": f"file-{n}", "filename": f"{n}.txt", **point} for n, point in enumerate(points)]
    answer = stage.request(
        "POST",
        f"/vector_stores/{store}/points",
        json={"points": filled},
        headers={"authorization": f"Bearer {key}"},
    )
    assert answer.status_code == 200, answer.text


def searching(query: str = "tea", answer: str = "It is a drink [1].", **arguments: Any) -> list[Turn]:
    """Return the script of a model that searches once and answers."""
    return [turn(calls=[call("file_search", query=query, **arguments)]), turn(answer)]


def answering(*queries: str, answer: str = "Done.") -> list[Turn]:
    """Return the script of a model that searches once in each of several responses."""
    return [step for query in queries for step in searching(query, answer)]


def tool(*stores: str, **options: Any) -> Any:
    """Return the tool as a request names it."""
    return {"type": "file_search", "vector_store_ids": list(stores), **options}


def outputs(stage: Served) -> list[str]:
    """Return what the model read of its calls, in the last turn."""
    items = stage.requests[-1].items
    return [str(item["output"]) for item in items if item["type"] == "function_call_output"]


def search_item(response: Any) -> Any:
    """Return the one item of a search in a response."""
    [item] = [item for item in response.output if item.type == "file_search_call"]
    return item
