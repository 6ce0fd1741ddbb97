"""What the model reads: results and pages as text, all that strangers wrote marked as coming from outside."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from antwort.extensions import Findings, SearchResult
from antwort.provider import Context, HtmlPage, Source, fenced, html_line, one_line, steady_mark
from antwort.providers.web_search.options import Options, Size

_ORIGIN = "the web"
_BLANK = "\n\n"
_SNIPPETS = {"low": 200, "medium": 500, "high": 2000}
LONGEST_TITLE = 300
"""Characters of a title that are shown: more than any page needs to be told from others."""
_WHOLE = 80_000
"""Characters of all results together; if they are longer, snippets are cut evenly."""
_ASIDES = 5
"""Answers and suggestions that are shown at most."""
_ASIDE_LENGTH = 1000
_AROUND = 200
"""Characters that are shown on either side of a match."""
_MATCHES = 10


def not_live(what: str) -> str:
    """Say that nothing was fetched."""
    return f"{what}: live web access is off for this request (external_web_access is false). Go on without it."


def number_of(ctx: Context, title: str, url: str) -> int:
    """Return the number under which an answer cites a page; a page keeps the one it has."""
    for source in ctx.sources.numbered().values():
        if source.url == url:
            return ctx.sources.add(source)
    return ctx.sources.add(Source(title, url=url))


def results(ctx: Context, query: str, found: Sequence[SearchResult], said: Findings, options: Options) -> str:
    """Return the results of a search, one entry for each: number, title, URL, snippet."""
    near = f" (the user is near {options.location})" if options.location else ""
    head = f'Results of a web search for "{one_line(query)}"{near}.'
    parts = [f"Answer: {one}" for one in _lines(said.answers)]
    most = _length_of_each(found)
    for one in found:
        number = number_of(ctx, one.title, one.url)
        dated = f"\nPublished: {one_line(one.published[:10])}" if one.published else ""
        parts.append(f"[{number}] {one.title}\nURL: {one.url}{dated}\n{cut(snippet(one, options.size), most)}")
    if said.suggestions:
        parts.append(f"Related searches: {', '.join(_lines(said.suggestions))}")
    if said.silent:
        parts.append(f"Search engines that did not answer: {', '.join(_lines(said.silent))}")
    if found:
        head += " Cite a result by its number in square brackets, such as [1]."
    else:
        head += " No results were found. Try other words, or say that nothing was found."
    return f"{head}\n\n{fenced(_BLANK.join(parts), _ORIGIN)}" if parts else head


def no_engine(said: Findings) -> str:
    """Say that no search engine answered, and which ones."""
    return f"No search engine answered.\n\n{fenced(', '.join(_lines(said.silent)), _ORIGIN)}"


def read_results(item: Mapping[str, Any]) -> str | None:
    """Return what the model reads of a search whose item a client sends back; None if that does not show what it found.

    Numbers to cite by are not among it: they belong to the response that has made the search.
    """
    found = item.get("results")
    if found is None:
        found = (item.get("action") or {}).get("sources")
    if found is None:
        return None
    texts = [_read_entry(one) for one in found]
    inner = _BLANK.join(text for text in texts if text)
    return fenced(inner, _ORIGIN, mark=steady_mark(inner)) if texts else "No results were found."


def _read_entry(one: Mapping[str, Any]) -> str:
    url, title, words = (str(one.get(name) or "") for name in ("url", "title", "snippet"))
    return "\n".join(part for part in (one_line(title), f"URL: {one_line(url)}" if url else "", words) if part)


def page(ctx: Context, url: str, found: HtmlPage, start: int, length: int) -> str:
    """Return a piece of a page."""
    title = _title(found, url)
    number = number_of(ctx, title, url)
    whole = len(found.text)
    piece = found.text[start : start + length]
    if not piece:
        piece = "(no text here)"
    until = min(start + length, whole)
    head = f"Page [{number}]: characters {min(start, whole)} to {until}"
    more = f" Call again with start={start + length} for more." if start + length < whole else ""
    return f"{head} of {whole}.{more}\n\n{_fenced_page(title, url, piece)}"


def matches(ctx: Context, url: str, found: HtmlPage, pattern: str) -> str:
    """Return the places of a page where a text stands."""
    title = _title(found, url)
    number = number_of(ctx, title, url)
    positions = [match.start() for match in re.finditer(re.escape(pattern), found.text, re.IGNORECASE)]
    head = f'Page [{number}]: "{cut(one_line(pattern), _AROUND)}" stands in {len(positions)} places'
    if not positions:
        return f"{head}. Try other words, or open the page.\n\n{_fenced_page(title, url)}"
    shown = [
        f"({position}) …{one_line(found.text[max(0, position - _AROUND) : position + len(pattern) + _AROUND])}…"
        for position in positions[:_MATCHES]
    ]
    only = f"; the first {_MATCHES} are" if len(positions) > _MATCHES else ":"
    return f"{head}{only}\n\n{_fenced_page(title, url, chr(10).join(shown))}"


def _fenced_page(title: str, url: str, *parts: str) -> str:
    return fenced(_BLANK.join((f"Title: {title}\nURL: {one_line(url)}", *parts)), _ORIGIN)


def snippet(one: SearchResult, size: Size) -> str:
    """Return as much of a result's text as a request of this size wants."""
    return cut(one.snippet, _SNIPPETS[size])


def _title(found: HtmlPage, url: str) -> str:
    return cut(found.title or url, LONGEST_TITLE)


def _lines(given: Sequence[str]) -> list[str]:
    lines = [cut(html_line(one), _ASIDE_LENGTH) for one in given[:_ASIDES]]
    return [line for line in lines if line]


def _length_of_each(found: Sequence[SearchResult]) -> int:
    """Return how long each snippet may be, so that all results are not too long together."""
    heads = sum(len(one.title) + len(one.url) for one in found)
    return max(0, _WHOLE - heads) // max(1, len(found))


def cut(text: str, length: int) -> str:
    """Return a text, or its beginning if it is longer than that."""
    return text if len(text) <= length else f"{text[:length].rstrip()}…"
