"""Input that is too long for a window: it becomes a variable, of which the model reads size, type and head."""

from collections.abc import AsyncIterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from antwort.backends.chat.request import decoded_file, file_text
from antwort.concurrency.large_work import LargeWork
from antwort.context.variables import Variable, Variables
from antwort.errors import BadRequestError, FunctionError
from antwort.storage.base import JournalEntry
from antwort.types import JSON

_HEAD = 300
"""Characters that the model reads of what is kept."""
_PIECE = 2**16
_LONGEST_KEY = 100


class LongInput:
    """Keeps the long texts and text files of a request as variables of its run, or of a sub-agent alone."""

    def __init__(
        self, variables: Variables, most: int, large_work: LargeWork, scope: Literal["run", "agent"] = "run"
    ) -> None:
        self._variables = variables
        self._scope = scope
        self._most = most
        self._large_work = large_work
        self._kept = 0

    async def shortened(self, entries: Sequence[JournalEntry]) -> list[JournalEntry]:
        """Return entries in which references stand for what is long; BadRequestError if it cannot be kept."""
        return [await self._entry(entry) for entry in entries]

    async def _entry(self, entry: JournalEntry) -> JournalEntry:
        content = entry.item.get("content")
        if entry.item.get("role") != "user" or not isinstance(content, list):
            return entry
        parts = [await self._part(part) for part in content]
        if all(new is old for new, old in zip(parts, content, strict=True)):
            return entry
        return replace(entry, item={**entry.item, "content": parts})

    async def _part(self, part: JSON) -> JSON:
        text, name = part.get("text"), str(part.get("filename") or "input")
        data = part.get("file_data")
        if part.get("type") == "input_file" and isinstance(data, str) and len(data) > self._most:
            text = await self._large_work.run(_text_of, data, name)
        if not isinstance(text, str) or len(text) <= self._most:
            return part
        self._kept += 1
        key = name[:_LONGEST_KEY] if self._kept == 1 else f"{name[:_LONGEST_KEY]} ({self._kept})"
        try:
            variable = await self._variables.write(key, _encoded(text), kind="text", scope=self._scope)
        except FunctionError as error:
            raise BadRequestError(f"The input cannot be kept: {error}", param="input") from error
        return {"type": "input_text", "text": _told(variable, text)}


def _text_of(data: str, name: str) -> str | None:
    """Return the text of a file; None of one that a model server may be able to read and we are not."""
    raw = decoded_file(data, name)
    return None if raw.startswith(b"%PDF-") else file_text(raw, name)


def _told(variable: Variable, text: str) -> str:
    shown = {"key": variable.key, **variable.reference, "size": variable.size, "type": "text", "head": text[:_HEAD]}
    return f"[This input is kept as a variable: {msgspec.json.encode(shown).decode()}]"


async def _encoded(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE].encode(errors="replace")
