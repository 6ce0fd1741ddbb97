"""What the model reads: chunks as text, marked as coming from documents."""

from collections.abc import Mapping, Sequence
from typing import Any

from antwort.provider import Context, Source, fenced, one_line, printable, steady_mark
from antwort.providers.file_search.search import FoundChunk, SearchOutcome

_ORIGIN = "documents"
_LONGEST_TITLE = 300
"""Characters of a document's name that are shown: a pipeline may have written any number."""
_WHOLE = 80_000
"""Characters of all chunks together; what is longer is cut evenly."""


def results(ctx: Context, query: str, findings: SearchOutcome) -> str:
    """Return what was found, one entry for each chunk: number, document, where it stands there, score, text."""
    head = f'Results of a file search for "{one_line(query)}".'
    found = findings.found
    if not found:
        empty = "No results were found. Try other words, or say that nothing was found."
        return "\n\n".join([head, empty, *findings.notes])
    head += " Cite a document by its number in square brackets, such as [1]."
    most = _length_of_each(found)
    parts = [_entry(ctx, one, most) for one in found]
    return "\n\n".join([head, *findings.notes, fenced(chr(10).join(parts), _ORIGIN)])


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


def _entry(ctx: Context, one: FoundChunk, most: int) -> str:
    hit = one.hit
    title = one_line(hit.filename or hit.file_id)[:_LONGEST_TITLE]
    number = ctx.sources.add(Source(title, file_id=hit.file_id))
    text = printable(hit.text).strip()
    if len(text) > most:
        text = f"{text[:most].rstrip()}…"
    place = "" if one.place is None else str(one.place)
    where = f"{one_line(place)[:_LONGEST_TITLE]}, " if place else ""
    chunks = f"chunk {hit.index}" if one.last_index is None else f"chunks {hit.index}-{one.last_index}"
    return f"[{number}] {title} ({where}{chunks}, score {hit.score:.2f})\n{text}\n"


def _length_of_each(found: Sequence[FoundChunk]) -> int:
    """Return how long each text may be, so that all of them are not too long together."""
    whole = sum(len(one.hit.text) for one in found)
    return whole if whole <= _WHOLE else _WHOLE // len(found)
