"""Opening a page: fetched through the guarded client, turned into text."""

import re
from collections.abc import Callable

from antwort.provider import (
    Context,
    FunctionError,
    HtmlPage,
    HttpAnswer,
    LargeWork,
    Slots,
    decoded_html,
    printable,
    read_html,
)

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
