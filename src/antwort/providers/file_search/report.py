"""What the model reads: chunks as text, marked as coming from documents."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
from typing_extensions import override

from antwort.provider import Context, Source, fenced, one_line, printable, steady_mark
from antwort.providers.file_search.search import FoundChunk, SearchOutcome

_ORIGIN = "documents"
_LONGEST_TITLE = 300
"""Characters of a document's name that are shown: a pipeline may have written any number."""
_HEADER = 100
"""Characters of an entry besides its text, about."""
_LEAST = 300
"""Characters of a text that is shown in part, at least."""
_GO_ON = re.compile(r"\s+offset:(\d{1,9})$")
_WHOLE = 80_000
"""Characters of all chunks together; what is longer is cut evenly."""


def results(ctx: Context, query: str, findings: SearchOutcome, *, room: int | None = None, offset: int = 0) -> str:
    """Return what was found, one entry for each chunk: number, document, where it stands there, score, text.

    With `room` the best of it, in about so many characters, and how to go on with the rest: from `offset` on, which
    counts characters of the texts that were found.
    """
    head = f'Results of a file search for "{one_line(query)}".'
    found = findings.found
    if not found:
        empty = "No results were found; other words may find some."
        return "\n\n".join([head, empty, *findings.notes])
    head += " Cite a document by its number in square brackets, such as [1]."
    notes = findings.notes
    if room is None and not offset:
        most = _length_of_each(found)
        parts = [_entry(ctx, one, most) for one in found]
    else:
        parts, left_out = _fitted(ctx, found, min(room or _WHOLE, _WHOLE), offset)
        if left_out:
            more = msgspec.json.encode(f"{one_line(query)} offset:{left_out.start}").decode()
            notes = [*notes, f"{left_out} To read on, if the answer is not here, search for {more}."]
    return "\n\n".join([head, *notes, fenced(chr(10).join(parts), _ORIGIN)])


def read_query(query: str) -> tuple[str, int]:
    """Return what a query looks for, and from where on its results are read: an earlier search may have said so."""
    found = _GO_ON.search(query)
    return (query, 0) if found is None else (query[: found.start()], int(found[1]))


class _LeftOut(NamedTuple):
    """What there was no room for."""

    start: int
    characters: int
    results: int

    @override
    def __str__(self) -> str:
        return f"There was no room for all: {self.characters:,} characters of {self.results} results are left out."


def _fitted(ctx: Context, found: Sequence[FoundChunk], room: int, offset: int) -> tuple[list[str], _LeftOut | None]:
    """Return the entries that there is room for, from an offset on, and what is left out."""
    parts: list[str] = []
    end = reached = 0
    left_out = 0
    for one in found:
        start, end = end, end + len(one.hit.text)
        if end <= offset:
            continue
        begin = max(start, offset)
        fits = max(room - _HEADER, 0 if parts else _LEAST)
        if fits < min(_LEAST, end - begin):
            left_out += 1
            room = 0
            continue
        reached = min(end, begin + fits)
        piece = replace(one, hit=replace(one.hit, text=one.hit.text[begin - start : reached - start]))
        parts.append(_entry(ctx, piece, reached - begin, cut=reached < end))
        left_out += reached < end
        room -= reached - begin + _HEADER
    if not parts:
        return [f"There is nothing behind {offset}: what was found has {end} characters."], None
    return parts, None if reached == end else _LeftOut(reached, end - reached, left_out)


def read_results(item: Mapping[str, Any]) -> str | None:
    """Return what the model reads of a search whose item a client sends back; None if that does not show what it found.

    Numbers to cite by are not among it: they belong to the response that has made the search.
    """
    found = item.get("results")
    if found is None:
        return None
    parts = [_read_entry(one) for one in found]
    inner = "\n\n".join(parts)
    return fenced(inner, _ORIGIN, mark=steady_mark(inner)) if parts else "No results were found."


def _read_entry(one: Mapping[str, Any]) -> str:
    title = one_line(str(one.get("filename") or one.get("file_id") or ""))[:_LONGEST_TITLE]
    return f"{title}\n{printable(str(one.get('text') or '')).strip()}".strip()


def _entry(ctx: Context, one: FoundChunk, most: int, *, cut: bool = False) -> str:
    hit = one.hit
    title = one_line(hit.filename or hit.file_id)[:_LONGEST_TITLE]
    number = ctx.sources.add(Source(title, file_id=hit.file_id))
    text = printable(hit.text).strip()
    if cut or len(text) > most:
        text = f"{text[:most].rstrip()}…"
    position = "" if one.position is None else str(one.position)
    where = f"{one_line(position)[:_LONGEST_TITLE]}, " if position else ""
    chunks = f"chunk {hit.index}" if one.last_index is None else f"chunks {hit.index}-{one.last_index}"
    return f"[{number}] {title} ({where}{chunks}, score {hit.score:.2f})\n{text}\n"


def _length_of_each(found: Sequence[FoundChunk]) -> int:
    """Return how long each text may be, so that all of them are not too long together."""
    whole = sum(len(one.hit.text) for one in found)
    return whole if whole <= _WHOLE else _WHOLE // len(found)
