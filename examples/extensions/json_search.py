"""A search engine in one file: it searches a list of pages that somebody else has written, as JSON.

    providers:
      web_search:
        enabled: true
        backend: {use: examples/extensions/json_search.py:JsonIndex, index: pages.json}

The file has a list of objects with `title`, `url` and `text`.
"""

import asyncio
import json
import re
from pathlib import Path

from typing_extensions import override

from antwort.extensions import Findings, SearchEngine, SearchError, SearchResult, Settings
from antwort.provider import Context, Field

SNIPPET = 300


class JsonIndexSettings(Settings):
    index: Path = Field(description="The file.")


class JsonIndex(SearchEngine):
    def __init__(self, settings: JsonIndexSettings) -> None:
        self._index = settings.index

    @override
    async def search(self, ctx: Context, query: str, max_results: int) -> Findings:
        wanted = words(query)
        try:
            pages = await asyncio.to_thread(read, self._index)
        except (OSError, ValueError) as error:
            raise SearchError("The index cannot be read. Go on without web search.") from error
        scored = [(len(wanted & words(f"{page['title']} {page['text']}")), page) for page in pages]
        best = sorted((one for one in scored if one[0]), key=lambda one: -one[0])[:max_results]
        return Findings(SearchResult(page["title"], page["url"], page["text"][:SNIPPET]) for _, page in best)


def read(index: Path) -> list[dict[str, str]]:
    pages: list[dict[str, str]] = json.loads(index.read_text(encoding="utf-8"))
    return pages


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))
