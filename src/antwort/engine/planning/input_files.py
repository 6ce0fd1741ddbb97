"""Files and images of a request that are named by an id or a URL, or that only we can read: they become content.

What a model server reads by itself is left to it. The rest is read once, when the request comes, and kept with it: the
response goes on, and can be continued, though the file is deleted meanwhile. What clients add to a conversation is read
by each response in it: who reads it, and so what has to become of it, is not known before.
"""

import base64
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from antwort.backends.base import FileReading
from antwort.backends.chat.request import begins_as_text, decoded_file, is_text_file
from antwort.concurrency.large_work import MUCH, LargeWork
from antwort.concurrency.slots import Queue, QueueFullError, Slots
from antwort.context import Context
from antwort.context.http_client import HttpClient
from antwort.documents.document import UnreadableError
from antwort.documents.parser import DocumentParser
from antwort.errors import BadRequestError, FunctionError, NotFoundError, RateLimitError
from antwort.files.base import Files
from antwort.storage.base import JournalEntry
from antwort.types import JSON

# --- URLs of images and files: the model server fetches them, and stands where no stranger does ----------------------


CheckUrl = Callable[[str], Awaitable[None]]
"""Raises a FunctionError unless a model server may be given a URL."""
Link = tuple[str, str]
"""Where a URL stands, and the URL."""

_DATA = "data:"
_TEXTS = frozenset({"input_text", "output_text", "text", "refusal", "summary_text"})
MOST = 200
"""URLs of one request that are looked up: each costs a question to the resolver."""


def item_links(item: JSON, where: str) -> Iterator[Link]:
    """Give the URLs in the content or output of an item."""
    for name in ("content", "output"):
        value = item.get(name)
        if isinstance(value, list):
            for index, part in enumerate(value):
                yield from part_links(part, f"{where}.{name}[{index}]")
        elif isinstance(value, dict):
            yield from part_links(value, f"{where}.{name}")


def part_links(part: Any, where: str) -> Iterator[Link]:
    """Give the URLs of a content part: fields such as `image_url`, a text or an object with a `url`."""
    if not isinstance(part, dict) or (isinstance(kind := part.get("type"), str) and kind in _TEXTS):
        return
    for name, value in part.items():
        if name.endswith("_url"):
            url = value.get("url") if isinstance(value, dict) else value
            if isinstance(url, str) and url[: len(_DATA)].lower() != _DATA:
                yield f"{where}.{name}", url


async def check_links(links: Iterable[Link], check: CheckUrl) -> None:
    """Check each URL once; BadRequestError with the place of the first that may not be passed on."""
    first_seen: dict[str, str] = {}
    for where, url in links:
        first_seen.setdefault(url, where)
        if len(first_seen) > MOST:
            raise BadRequestError(
                f"Invalid value for '{where}': it is one too many; a request names up to {MOST} URLs.",
                param=where,
                code="too_many_urls",
            )
    for url, where in first_seen.items():
        try:
            await check(url)
        except FunctionError as error:
            raise BadRequestError(f"Invalid value for '{where}': {error}", param=where, code="invalid_url") from None


# --- files and images ------------------------------------------------------------------------------------------------


FILES_READ = "files:read"
MOST_BYTES = 50 * 1024**2
"""Of all files that one request names."""
MOST_TEXT = 8 * 1024**2
"""Bytes of all texts of files that one request gives a model: more than one reads, and each step with them is short."""
MOST_KEPT_TEXT = 128 * 1024**2
"""The same where long texts become variables, of which the model reads parts."""
MOST_DOCUMENTS = 20
"""Files of one request that are fetched from somewhere, or whose text is taken out: each may take a while."""
_AT_ONCE = 2
"""Documents that are read at the same time, of all requests: each keeps a processor busy."""
MOST_KEPT = 16 * 1024**2
"""Characters of texts of documents that are kept, of all requests."""
_IMAGES = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}
_PDF = b"%PDF-"
_DOCUMENTS = ("UEsDB", "JVBERi")
"""How documents begin in base64 that are no text: archives, as which all but PDF are written, and PDF."""
_LONGEST_HEAD = 200
"""Characters before the comma of a data URL."""


class InputFiles:
    """Reads the files that requests name."""

    def __init__(
        self,
        files: Files,
        http: HttpClient,
        check_url: CheckUrl,
        parser: DocumentParser,
        large_work: LargeWork,
        *,
        queue: Queue,
    ) -> None:
        self._files = files
        self._http = http
        self._check_url = check_url
        self._parser = parser
        self._large_work = large_work
        self._slots = Slots(_AT_ONCE, queue)
        self._texts = _RecentTexts()

    async def resolved(
        self,
        entries: list[JournalEntry],
        ctx: Context,
        reading: Callable[[], Awaitable[FileReading]],
        *,
        kept: bool = False,
    ) -> list[JournalEntry]:
        """Return entries with the content of what they name; BadRequestError says which part cannot be read.

        `reading` is asked only if there is a file: what the model server reads by itself. With `kept` long
        texts become variables afterwards, and may be longer than what a model reads.
        """
        if not any(_named(part) for entry in entries for _, parts in _lists(entry.item) for part in parts):
            return entries
        request = _RequestFiles(self, ctx, await reading(), MOST_KEPT_TEXT if kept else MOST_TEXT, _named)
        return [await request.entry(entry, f"input[{index}]") for index, entry in enumerate(entries)]

    async def resolved_history(
        self, history: Sequence[JournalEntry], ctx: Context, reading: Callable[[], Awaitable[FileReading]]
    ) -> list[JournalEntry]:
        """Return the items of a conversation likewise: what clients have added to it was not read then.

        What responses were given is there with its content, and is not counted once more.
        """
        request = _RequestFiles(self, ctx, await reading(), MOST_TEXT, _unread)
        return [await request.entry(entry, f"conversation[{entry.item.get('id')}]") for entry in history]

    async def stored(self, ctx: Context, file_id: str, room: int, where: str) -> tuple[str, bytes]:
        """Return the name and the content of a file of the tenant."""
        ctx.require(FILES_READ, param=where, purpose="to read a file")
        try:
            file = await self._files.get(ctx.tenant, file_id)
            if file.bytes > room:
                raise _too_large(where)
            pieces = [piece async for piece in await self._files.read(ctx.tenant, file_id)]
        except NotFoundError as error:
            raise BadRequestError(error.message, param=where, code="file_not_found") from None
        return file.filename, b"".join(pieces)

    async def fetched(self, url: str, room: int, where: str) -> tuple[str, bytes]:
        """Return the name and the content of what a URL leads to."""
        try:
            await self._check_url(url)
            answer = await self._http.fetch(url, max_bytes=room)
        except FunctionError as error:
            raise BadRequestError(f"Invalid value for '{where}': {error}", param=where, code="invalid_url") from None
        if answer.status >= 300:
            raise BadRequestError(
                f"Invalid value for '{where}': the server there answers with {answer.status}.",
                param=where,
                code="invalid_url",
            )
        return unquote(urlsplit(url).path.rpartition("/")[2]) or "file", answer.body

    async def decoded(self, data: str, name: str) -> bytes:
        """Return the bytes of `file_data`."""
        return await self._large_work.run(decoded_file, data, name)

    async def text_url(self, tenant: str, raw: bytes, name: str, where: str) -> str:
        """Return the text of a document, as a data URL."""
        key = (await self._large_work.run(_fingerprint, raw), name)  # the name may say what it is
        found = self._texts.get(key)
        if found is None:
            try:
                await self._slots.acquire(tenant)
            except QueueFullError as error:
                raise RateLimitError(str(error), retry_after=1, code="queue_full") from None
            try:
                found = await self._read(raw, name, where)
            finally:
                self._slots.release(tenant)
            self._texts.keep(key, found)
        return found

    async def _read(self, raw: bytes, name: str, where: str) -> str:
        try:
            document = await self._parser.parse(raw, name)
        except UnreadableError as error:
            raise BadRequestError(
                f"The file '{name}' cannot be read: {error}", param=where, code="unsupported_file"
            ) from None
        return await self.data_url("text/plain;charset=utf-8", document.with_warnings().encode(errors="replace"))

    async def is_text(self, raw: bytes) -> bool:
        """Tell whether a file is a text as it is; of one that is too long for that, whether it begins like one."""
        if len(raw) > MOST_TEXT:
            return begins_as_text(raw)
        return await self._large_work.run_if(len(raw) >= MUCH, is_text_file, raw)

    async def data_url(self, media_type: str, raw: bytes) -> str:
        """Return bytes as a data URL."""
        return await self._large_work.run(_data_url, media_type, raw)


class _RecentTexts:
    """Texts of the documents that were asked for last, by what the documents are.

    A client that has the server keep nothing sends the same ones with each request, and each would be read in a process
    of its own.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[bytes, str], str] = OrderedDict()
        self._size = 0

    def get(self, key: tuple[bytes, str]) -> str | None:
        """Return a text if it is kept."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, key: tuple[bytes, str], text: str) -> None:
        """Keep a text, and drop what there is no room for; what is read at the same time twice is kept once."""
        self._size += len(text) - len(self._kept.pop(key, ""))
        self._kept[key] = text
        while self._size > MOST_KEPT:
            self._size -= len(self._kept.popitem(last=False)[1])


class _RequestFiles:
    """One request, and how much of its files was read."""

    def __init__(
        self,
        source: InputFiles,
        ctx: Context,
        reading: FileReading,
        most_text: int,
        is_wanted: Callable[[Any], bool],
    ) -> None:
        self._source = source
        self._is_wanted = is_wanted
        self._ctx = ctx
        self._reading = reading
        self._room = MOST_BYTES
        self._most_text = self._text_room = most_text
        self._documents = 0

    async def entry(self, entry: JournalEntry, where: str) -> JournalEntry:
        """Return an entry with the content of what it names."""
        changed: JSON = {}
        for name, parts in _lists(entry.item):
            new = [
                await self._part(part, f"{where}.{name}[{index}]") if self._is_wanted(part) else part
                for index, part in enumerate(parts)
            ]
            if any(now is not before for now, before in zip(new, parts, strict=True)):
                changed[name] = new
        return replace(entry, item={**entry.item, **changed}) if changed else entry

    async def _part(self, part: JSON, where: str) -> JSON:
        if part["type"] == "input_image":
            return await self._image(part, f"{where}.file_id")
        return await self._file(part, where)

    async def _image(self, part: JSON, where: str) -> JSON:
        name, raw = await self._counted(self._source.stored(self._ctx, part["file_id"], self._room, where))
        kind = "webp" if raw[8:12] == b"WEBP" else next((_IMAGES[mark] for mark in _IMAGES if raw.startswith(mark)), "")
        if not kind:
            raise BadRequestError(
                f"The file '{name}' is no image: PNG, JPEG, GIF and WebP are.", param=where, code="unsupported_image"
            )
        return {**part, "image_url": await self._source.data_url(f"image/{kind}", raw)}

    async def _file(self, part: JSON, where: str) -> JSON:
        """Return a file with its content: as it is if the model server reads it, or it is a text; else its text."""
        given = _text(part, "file_data")
        name, raw, field = str(part.get("filename") or "file"), b"", "file_data"
        if given:
            raw = await self._source.decoded(given, name)
        elif file_id := _text(part, "file_id"):
            field = "file_id"
            stored = self._source.stored(self._ctx, file_id, self._room, f"{where}.file_id")
            name, raw = await self._counted(stored)
        elif self._reading != "any":
            field = "file_url"
            self._count(f"{where}.file_url")
            found, raw = await self._counted(
                self._source.fetched(_text(part, "file_url"), self._room, f"{where}.file_url")
            )
            name = str(part.get("filename") or found)
        else:
            return part
        kept = {key: value for key, value in part.items() if key != "file_url"}
        if not await self._is_read(raw):
            if field != "file_url":
                self._count(f"{where}.{field}")
            url = await self._source.text_url(self._ctx.tenant, raw, name, f"{where}.{field}")
            # A small file may have a text that is ten thousand times as long.
            self._count_text(len(url) * 3 // 4, f"{where}.{field}")
            return {**kept, "filename": name, "file_data": url}
        if self._reading != "any" and not raw.startswith(_PDF):
            self._count_text(len(raw), f"{where}.{field}")
        if given:
            return part
        media_type = "application/pdf" if raw.startswith(_PDF) else "application/octet-stream"
        return {**kept, "filename": name, "file_data": await self._source.data_url(media_type, raw)}

    async def _is_read(self, raw: bytes) -> bool:
        """Tell whether the model server, or its backend here, reads a file."""
        if self._reading == "any":
            return True
        return self._reading == "pdf" if raw.startswith(_PDF) else await self._source.is_text(raw)

    def _count_text(self, size: int, where: str) -> None:
        self._text_room -= size
        if self._text_room < 0:
            raise _too_large(where, "texts of the ", self._most_text)

    def _count(self, where: str) -> None:
        self._documents += 1
        if self._documents > MOST_DOCUMENTS:
            raise BadRequestError(
                f"A request has up to {MOST_DOCUMENTS} files that are fetched or turned into text here.",
                param=where,
                code="too_many_files",
            )

    async def _counted(self, reading: Awaitable[tuple[str, bytes]]) -> tuple[str, bytes]:
        name, raw = await reading
        self._room -= len(raw)
        return name, raw


def _lists(item: JSON) -> Sequence[tuple[str, list[Any]]]:
    """Return the lists of parts that an item has, with their names."""
    return [(name, item[name]) for name in ("content", "output") if isinstance(item.get(name), list)]


def _named(part: Any) -> bool:
    """Tell whether a part has something to be read here."""
    if not isinstance(part, dict):
        return False
    if part.get("type") == "input_image":
        return bool(_text(part, "file_id")) and not part.get("image_url")
    return part.get("type") == "input_file" and any(_text(part, name) for name in ("file_data", "file_id", "file_url"))


def names_files(entry: JournalEntry) -> bool:
    """Tell whether an item of a conversation has something to be read here."""
    return any(_unread(part) for _, parts in _lists(entry.item) for part in parts)


def _unread(part: Any) -> bool:
    """Tell whether a part has something to be read that no response has read yet."""
    if not _named(part):
        return False
    data = _text(part, "file_data")
    return not data or data.startswith(_DOCUMENTS, data.find(",", 0, _LONGEST_HEAD) + 1)


def _text(part: JSON, name: str) -> str:
    value = part.get(name)
    return value if isinstance(value, str) else ""


def _fingerprint(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()


def _data_url(media_type: str, raw: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(raw).decode()}"


def _too_large(where: str, whose: str = "", most: int | None = None) -> BadRequestError:
    return BadRequestError(
        f"The {whose}files of a request have {most or MOST_BYTES:,} bytes at most.", param=where, code="file_too_large"
    )
