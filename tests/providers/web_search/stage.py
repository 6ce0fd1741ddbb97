"""The shipped app with web search configured, a scripted model behind it, and a server that speaks SearXNG's JSON."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.http.sdk import Served
from tests.support.site import Reply

from antwort import Antwort, Context, FunctionRegistry, ToolResult
from antwort.config import Config, OutboundConfig
from antwort.outbound import Outbound
from antwort.providers.web_search import WebSearch
from antwort.testing import ScriptedBackend, Turn, call, running, turn
from antwort.types import JSON

__all__ = ["TYPES", "called", "found", "outputs", "page", "registered", "result", "searching", "staged"]

TYPES = ["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"]


def result(name: str = "tea", **fields: Any) -> JSON:
    """Return a result as SearXNG writes it."""
    written = {
        "url": f"https://example.org/{name}",
        "title": f"All about {name}",
        "content": f"What there is to know about {name}.",
        "engine": "library",
        "template": "default.html",
        "parsed_url": ["https", "example.org", f"/{name}", "", "", ""],
        "img_src": "",
        "thumbnail": "",
        "priority": "",
        "engines": ["library"],
        "positions": [1],
        "score": 1.0,
        "category": "general",
        "publishedDate": None,
    }
    return {**written, **fields}


def found(*results: Any, **fields: Any) -> Reply:
    """Return an answer of SearXNG."""
    body = {
        "query": "q",
        "results": list(results),
        "answers": [],
        "corrections": [],
        "infoboxes": [],
        "suggestions": [],
        "unresponsive_engines": [],
        **fields,
    }
    return Reply(json.dumps(body), type="application/json")


def page(text: str, title: str = "A page") -> Reply:
    """Return a web page."""
    return Reply(f"<!doctype html><html><head><title>{title}</title></head><body>{text}</body></html>")


def searching(query: str = "tea", answer: str = "It is a drink [1].") -> list[Turn]:
    """Return the script of a model that searches once and answers."""
    return [turn(calls=[call("web_search", query=query)]), turn(answer)]


@contextlib.contextmanager
def staged(tmp_path: Path, steps: Sequence[Turn | str], settings: JSON, **sections: Any) -> Iterator[Served]:
    """Serve the app; lint every answer its clients have read."""
    # A real backend is late when processors are busy, most of all with its first answer.
    providers = {"web_search": {"enabled": True, "settings": {"timeout": 120.0, **settings}}}
    with ScriptedBackend(steps) as model:
        app = Antwort(Config(data_dir=tmp_path, **{"providers": providers, **sections}), backend=model)
        with running(app) as server, contextlib.ExitStack() as closing:
            stage = Served(server, model, closing)
            yield stage
        for tape in stage.tapes:
            tape.lint()


def outputs(stage: Served) -> list[str]:
    """Return what the model read of its calls, in the last turn."""
    items = stage.requests[-1].items
    return [str(item["output"]) for item in items if item["type"] == "function_call_output"]


@contextlib.asynccontextmanager
async def registered(settings: JSON, *, allow: Sequence[str] = ()) -> AsyncIterator[FunctionRegistry]:
    """Give a registry with the provider alone, which may reach some places of this machine."""
    client = Outbound(OutboundConfig(allow=list(allow)))
    registry = FunctionRegistry(http=client)
    registry.register(WebSearch.from_settings(settings))
    try:
        async with registry:
            yield registry
    finally:
        await client.close()


async def called(
    settings: JSON, name: str, arguments: JSON, options: JSON | None = None, *, allow: Sequence[str] = ()
) -> tuple[ToolResult, Context]:
    """Call one function, and return its result and the context it had."""
    ctx = Context("default", options=options or {})
    async with registered(settings, allow=allow) as registry:
        return await registry.execute(name, arguments, ctx), ctx
