"""Opening a page: fetched through the guarded client, turned into text."""

import asyncio
import re
from collections.abc import Callable

from antwort.provider import Context, FunctionError, HttpAnswer, printable
from antwort.providers.web_search.markup import PageText, readable, sniffed_charset

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = frozenset({"application/json", "application/xml", "application/yaml", "application/javascript", ""})
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+_-]{1,60}")
_ACCEPT = "text/html, application/xhtml+xml, text/plain;q=0.9, text/*;q=0.8, application/json;q=0.7"


async def read_page(ctx: Context, url: str, admit: Callable[[str], bool]) -> PageText:
    """Return a page as text; raise FunctionError if it cannot be had or is no text."""
    answer = await ctx.http.fetch(url, headers={"accept": _ACCEPT}, admit=admit)
    if answer.status >= 400:
        raise FunctionError(f"The page could not be opened: its server answered with status {answer.status}.")
    kind = answer.content_type
    if kind in _HTML:
        # A large page takes a while: not on the event loop.
        return await asyncio.to_thread(_read_html, answer)
    if kind.startswith("text/") or kind in _TEXT or kind.endswith(("+json", "+xml")):
        if b"\0" in answer.body:
            raise FunctionError("The page is not text and cannot be read.")
        return PageText("", printable(answer.text()))
    shown = f"of type {kind}" if _MEDIA_TYPE.fullmatch(kind) else "of a type that is none"
    raise FunctionError(f"The page is {shown}, which cannot be read as text.")


def _read_html(answer: HttpAnswer) -> PageText:
    return readable(answer.text(answer.charset or sniffed_charset(answer.body)))
