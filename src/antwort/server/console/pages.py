"""The console: one page at `/`, and the files it is made of.

They are the same for everybody and hold no data, so they need no credentials: whatever the page shows it asks of the
API, with the key that its user gives it.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.responses import Response

from antwort.concurrency.single_flight import SingleFlight
from antwort.web.routes import Route

FOLDER = Path(__file__).with_name("static")
_PAGE = "index.html"
FILES = (
    "administration.js",
    "answer.js",
    "api.js",
    "app.js",
    "charts.js",
    "chat.js",
    "client_traces.js",
    "compare.js",
    "composer.js",
    "console.css",
    "dom.js",
    "files.js",
    "functions.js",
    "icon.svg",
    "icons.js",
    "inbox.js",
    "items.js",
    "markdown.js",
    "metrics.js",
    "passages.js",
    "questions.js",
    "run_list.js",
    "runs.js",
    "schema_form.js",
    "server.js",
    "snippets.js",
    "store.js",
    "story.js",
    "text.js",
    "turn.js",
)
"""What the page is made of, besides itself. They are named here so that nobody has to look for them at a start."""
_PRELOADED = ", ".join(f"</console/{name}>; rel=modulepreload" for name in FILES if name.endswith(".js"))
"""Said with the page, so that a browser asks for all scripts at once, and not for each when it reads of it."""
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; "  # pictures that models have made, and those that are about to be uploaded
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"  # text becomes a part of the page as text only
)
"""What the page may do: run its own files and ask its own server."""
_GUARDS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class _File(Struct, frozen=True):
    content: bytes
    kind: str
    tag: str


class ConsolePages:
    """Serves the page to browsers, and what was at its path before to all others."""

    def __init__(self, index: Callable[[], Awaitable[Struct]]) -> None:
        self._index = index
        self._files: Mapping[str, _File] | None = None
        self._reading = SingleFlight(self._read)
        self.public = frozenset(f"/console/{name}" for name in FILES)
        """The paths that need no credentials, besides `/`."""

    def routes(self) -> list[Route]:
        """Return the routes. They are for one page and no part of the API, so nobody describes them."""
        files = [Route("GET", f"/console/{name}", self._server_of(name), "A file of the console.") for name in FILES]
        return [Route("GET", "/", self.page), *files]

    async def page(self, headers: Headers) -> Struct | Response:
        """Return the page to whoever wants to see one, and to programs where to go."""
        if "text/html" not in headers.get("accept", ""):
            return await self._index()
        answer = await self._answer(_PAGE, headers)
        answer.headers["link"] = _PRELOADED
        return answer

    def _server_of(self, name: str) -> Callable[[Headers], Awaitable[Response]]:
        async def serve(headers: Headers) -> Response:
            return await self._answer(name, headers)

        return serve

    async def _answer(self, name: str, headers: Headers) -> Response:
        """Return a file; only that it is still the same, if the browser has it."""
        if self._files is None:
            await self._reading.outcome()
        assert self._files is not None  # noqa: S101 - it was just read
        file = self._files[name]
        # Browsers ask each time whether a file is still the same, so that a page is never made of two releases.
        sent = {**_GUARDS, "etag": file.tag, "cache-control": "no-cache", "vary": "accept"}
        if file.tag in headers.get("if-none-match", ""):
            return Response(status_code=304, headers=sent)
        return Response(file.content, headers=sent, media_type=file.kind)

    async def _read(self) -> None:
        """Read the files when somebody opens the page first: on a server without such people they cost nothing."""
        self._files = await asyncio.to_thread(_read_all)


def _read_all() -> Mapping[str, _File]:
    return {name: _read_file(FOLDER / name) for name in (_PAGE, *FILES)}


def _read_file(path: Path) -> _File:
    content = path.read_bytes()
    return _File(content, _KINDS[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
