"""Citations: what a text really cites of the sources that functions found, at the right places."""

import re
from collections.abc import Mapping

from antwort.context import Source
from antwort.types import JSON

__all__ = ["annotations"]


_MARKER = re.compile(r"\[(\d{1,4}(?:, ?\d{1,4})*)\]|【(\d{1,4})[^】]*】")
_URL = re.compile(r"https?://[^\s<>\"'\])}]+")


def annotations(text: str, sources: Mapping[int, Source]) -> list[JSON]:
    """Return an annotation for each `[n]`, or number of `[n, m]`, and URL that stands for a source, in order."""
    if not sources or ("[" not in text and "【" not in text and "://" not in text):
        return []
    found: list[tuple[int, int, Source]] = []
    for match in _MARKER.finditer(text):
        for number in (match[1] or match[2]).split(","):
            source = sources.get(int(number))
            if source is not None:
                found.append((match.start(), match.end(), source))
    by_url = {source.url.rstrip("/"): source for source in sources.values() if source.url}
    for match in _URL.finditer(text):
        url = match[0].rstrip(".,;:!?")
        source = by_url.get(url.rstrip("/"))
        if source is not None:
            found.append((match.start(), match.start() + len(url), source))
    return [_annotation(start, end, source) for start, end, source in sorted(found, key=lambda place: place[:2])]


def _annotation(start: int, end: int, source: Source) -> JSON:
    if source.file_id is not None:
        return {"type": "file_citation", "file_id": source.file_id, "filename": source.title, "index": start}
    return {
        "type": "url_citation",
        "url": source.url or "",
        "title": source.title,
        "start_index": start,
        "end_index": end,
    }
