"""The provider: search the web, open a page, find a text in it."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from typing_extensions import override

from antwort.extensions import SEARCH_ENGINES, Findings, SearchEngine, SearchError, SearchResult
from antwort.provider import (
    JSON,
    Context,
    Counter,
    Field,
    FunctionError,
    Histogram,
    HostedCall,
    HostedTool,
    HtmlPage,
    HttpAnswer,
    LargeWork,
    OutboundError,
    Provider,
    Slots,
    ToolResult,
    decoded_html,
    function,
    html_line,
    printable,
    read_html,
)
from antwort.providers.web_search import report
from antwort.providers.web_search.options import SearchOptions, Size, normalised, within
from antwort.providers.web_search.settings import WebSearchSettings

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = frozenset({"application/json", "application/xml", "application/yaml", "application/javascript", ""})
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+_-]{1,60}")
_ACCEPT = "text/html, application/xhtml+xml, text/plain;q=0.9, text/*;q=0.8, application/json;q=0.7"


class PageReading:
    """Turns what servers answer into text: one page at a time on a thread of its own, with turns between tenants.

    Others' threads have to be there for what is waited for, such as addresses of names; and two pages at once would
    only keep the event loop waiting for its turn.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._work = LargeWork()

    def close(self) -> None:
        """Let the thread end, after the page that it reads."""
        self._work.close()

    async def read(self, tenant: str, read: Callable[[HttpAnswer], HtmlPage], answer: HttpAnswer) -> HtmlPage:
        """Return what is made of an answer, when it is the tenant's turn."""
        async with self._slots.taken_by(tenant):
            return await self._work.run(read, answer)


async def read_page(ctx: Context, url: str, admit: Callable[[str], bool], reading: PageReading) -> HtmlPage:
    """Return a page as text; raise FunctionError if it cannot be had or is no text."""
    answer = await ctx.http.fetch(url, headers={"accept": _ACCEPT}, admit=admit)
    if answer.status >= 400:
        raise FunctionError(f"The page could not be opened: its server answered with status {answer.status}.")
    kind = answer.content_type
    if kind in _HTML:
        return await reading.read(ctx.tenant, _read_html, answer)
    if kind.startswith("text/") or kind in _TEXT or kind.endswith(("+json", "+xml")):
        return await reading.read(ctx.tenant, _read_text, answer)
    shown = f"of type {kind}" if _MEDIA_TYPE.fullmatch(kind) else "of a type that is none"
    raise FunctionError(f"The page is {shown}, which cannot be read as text.")


def _read_html(answer: HttpAnswer) -> HtmlPage:
    return read_html(decoded_html(answer.body, answer.charset))


def _read_text(answer: HttpAnswer) -> HtmlPage:
    if b"\0" in answer.body:
        raise FunctionError("The page is not text and cannot be read.")
    return HtmlPage("", printable(answer.text()))


_SITES = 5
"""Domains that a query names; with more of them the results are only sifted."""
_SIFTED = 20
"""Results to ask for when some will be dropped."""
_LONGEST_QUERY = 2000
_LONGEST_URL = 2000
"""Characters of a result's address: a longer one no model repeats, and few servers take."""
_LONGEST_FIELD = 20_000
"""Characters of a title or snippet that are looked at: with its markup it is longer than what is shown of it."""


class WebSearchTool(HostedTool):
    """OpenAI's `web_search`, of which the functions with pages are actions, too."""

    types = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")
    item = "web_search_call"
    phases = ("in_progress", "searching")
    includes: Mapping[str, str] = {
        "web_search_call.action.sources": "action.sources",
        "web_search_call.results": "results",
    }
    offered_with: tuple[str, ...] = ("open_page", "find_in_page")

    @override
    def check(self, tool: Mapping[str, Any]) -> SearchOptions:
        return SearchOptions.read(tool)

    @override
    def begin(self, call: HostedCall) -> JSON:
        return {"action": _search_action(call.text("query"))}

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> JSON | None:
        action = _action(item, "search")
        if action is None:
            return None
        queries = action.get("queries") or ()
        return {"query": action.get("query") or "; ".join(str(query) for query in queries)}

    @override
    def read_output(self, item: Mapping[str, Any]) -> str | None:
        return report.read_results(item)


class PageTool(WebSearchTool):
    """Something done with a page, of which the item shows some arguments."""

    offered_with = ()

    def __init__(self, action: str, *arguments: str) -> None:
        self._kind = action
        self._arguments = arguments

    @override
    def begin(self, call: HostedCall) -> JSON:
        return {"action": {"type": self._kind, **{name: call.text(name) for name in self._arguments}}}

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> JSON | None:
        action = _action(item, self._kind)
        return None if action is None else {name: action.get(name) or "" for name in self._arguments}


def _search_action(query: str) -> JSON:
    return {"type": "search", "query": query, "queries": [query]}


def _search_item(query: str, found: Sequence[SearchResult], size: Size) -> JSON:
    """Return the fields of the item of a search that was made, with all that a request may ask for."""
    action = _search_action(query)
    action["sources"] = [{"type": "url", "url": one.url} for one in found]
    results = [
        {"type": "url", "title": one.title, "url": one.url, "snippet": report.snippet(one, size)} for one in found
    ]
    return {"action": action, "results": results}


def _action(item: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    action = item.get("action")
    return action if isinstance(action, Mapping) and action.get("type") == kind else None


class WebSearch(Provider[WebSearchSettings]):
    """Search the web, and read what is found."""

    aliases: ClassVar = {"search_engine_url": "url"}

    queries = Counter(
        documentation="Searches, by how they ended.",
        labelnames=["backend", "status"],
        full_name="antwort_websearch_queries_total",
    )
    returned = Histogram(
        documentation="Results of a search that the model got.",
        labelnames=["backend"],
        full_name="antwort_websearch_results_returned",
        buckets=(0, 1, 2, 3, 5, 10, 20, 50),
    )
    duration = Histogram(
        documentation="Seconds that a search took.",
        labelnames=["backend"],
        full_name="antwort_websearch_duration_seconds",
    )
    pages = Counter(
        documentation="Pages opened, by how it ended.",
        labelnames=["status"],
        full_name="antwort_websearch_pages_total",
    )

    def __init__(self, settings: WebSearchSettings | None = None, *, adapter: SearchEngine | None = None) -> None:
        super().__init__(settings)
        chosen = self.settings.backend
        self._engine = (chosen if isinstance(chosen, str) else chosen.name).rpartition(":")[2]
        self._adapter = adapter or SEARCH_ENGINES.make(chosen, key="backend", around=dict(self.settings))

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        self._slots = self.slots(self.settings.concurrency)
        self._reading = PageReading(self.slots(1))
        try:
            yield
        finally:
            self._reading.close()

    @override
    async def examine(self) -> Sequence[str]:
        try:
            await self._adapter.search(Context("check", http=self.services.http), "antwort", 1)
        except FunctionError as error:
            return [str(error)]
        return []

    @override
    def offers(self, name: str) -> bool:
        return self.settings.open_pages != "none" or name == "web_search"

    @function(idempotent=True, spill=False, hosted=WebSearchTool())
    async def web_search(
        self, ctx: Context, query: Annotated[str, Field(description="What to look for, in a few words.")]
    ) -> ToolResult:
        """Search the web. Returns numbered results with title, URL and snippet; cite them by number, as in [1]."""
        options = SearchOptions.of(ctx)
        query = " ".join(query.split())[:_LONGEST_QUERY]
        if not query:
            raise FunctionError("The query is empty. Say what to look for (empty query).")
        if not options.live:
            return ToolResult(report.not_live("Nothing was searched"), item=_search_item(query, (), options.size))
        said = await self._search_measured(ctx, query, options)
        found = self._sifted(said, options)
        self.returned.labels(self._engine).observe(len(found))
        text = report.results(ctx, query, found, said, options)
        return ToolResult(text, item=_search_item(query, found, options.size))

    async def _search_measured(self, ctx: Context, query: str, options: SearchOptions) -> Findings:
        """Search, count how it ended, and take the time."""
        backend, limit = self._engine, self.settings.timeout
        started, status = time.perf_counter(), "error"
        try:
            async with asyncio.timeout(limit), self._slots.taken_by(ctx.tenant):
                said = await self._search(ctx, query, options)
            status = "success"
        except TimeoutError:
            status = "timeout"
            raise SearchError(f"The search backend did not answer within {round(limit, 3):g} s.", status) from None
        except SearchError as error:
            status = error.outcome
            raise
        finally:
            self.queries.labels(backend, status).inc()
            self.duration.labels(backend).observe(time.perf_counter() - started)
        return said

    async def _search(self, ctx: Context, query: str, options: SearchOptions) -> Findings:
        wanted = options.allowed_domains or self.settings.allow_domains
        sifts = bool(wanted or self.settings.deny_domains)
        if 0 < len(wanted) <= _SITES:
            query = f"{query} {' OR '.join(f'site:{name}' for name in wanted)}"
        found = await self._adapter.search(ctx, query, _SIFTED if sifts else self.settings.max_results)
        said = found if isinstance(found, Findings) else Findings(found)
        if not said and not said.answers and said.silent:
            raise SearchError(report.no_engine(said))
        return said

    def _sifted(self, said: Findings, options: SearchOptions) -> list[SearchResult]:
        """Return the results to show: clean, each page once, of wanted domains, as many as there may be."""
        most = self.settings.max_results
        if options.size == "low":
            most = max(1, most // 2)
        found: dict[str, SearchResult] = {}
        for one in said:
            url = normalised(one.url)
            if url is None or len(url) > _LONGEST_URL or not self._admits(urlsplit(url).hostname or "", options):
                continue
            key = url.partition("://")[2].rstrip("/")
            if key not in found:
                title = report.cut(html_line(one.title[:_LONGEST_FIELD]) or url, report.LONGEST_TITLE)
                found[key] = SearchResult(title, url, html_line(one.snippet[:_LONGEST_FIELD]), one.published)
            if len(found) == most:
                break
        return list(found.values())

    def _admits(self, host: str, options: SearchOptions) -> bool:
        own = self.settings
        if within(host, own.deny_domains):
            return False
        return all(within(host, wanted) for wanted in (own.allow_domains, options.allowed_domains) if wanted)

    @function(
        idempotent=True,
        spill=False,
        hosted=PageTool("open_page", "url"),
    )
    async def open_page(
        self,
        ctx: Context,
        url: Annotated[str, Field(description="The address of the page, such as that of a search result.")],
        start: Annotated[int, Field(ge=0, description="The character to start at, for the next piece.")] = 0,
    ) -> ToolResult:
        """Open a web page and read its text."""
        options = SearchOptions.of(ctx)
        if not options.live:
            return ToolResult(report.not_live("The page was not opened"))
        url, page = await self._open(ctx, url, options)
        return ToolResult(report.page(ctx, url, page, start, self.settings.page_length))

    @function(
        idempotent=True,
        spill=False,
        hosted=PageTool("find_in_page", "url", "pattern"),
    )
    async def find_in_page(
        self,
        ctx: Context,
        url: Annotated[str, Field(description="The address of the page.")],
        pattern: Annotated[str, Field(min_length=1, description="The text to find; capitals do not matter.")],
    ) -> ToolResult:
        """Find a text in a web page; returns the places where it stands."""
        options = SearchOptions.of(ctx)
        if not options.live:
            return ToolResult(report.not_live("The page was not opened"))
        url, page = await self._open(ctx, url, options)
        return ToolResult(report.matches(ctx, url, page, pattern))

    async def _open(self, ctx: Context, url: str, options: SearchOptions) -> tuple[str, HtmlPage]:
        """Open a page; also return its address in its one spelling."""
        url = normalised(url) or url
        if self.settings.open_pages == "results" and not any(s.url == url for s in ctx.sources.numbered().values()):
            self.pages.labels("denied").inc()
            raise FunctionError("Only results of a search in this conversation can be opened; search first.")
        status = "error"
        try:
            page = await read_page(ctx, url, lambda host: self._admits(host, options), self._reading)
            status = "success"
        except OutboundError as error:
            status = error.status
            raise
        finally:
            self.pages.labels(status).inc()
        return url, page
