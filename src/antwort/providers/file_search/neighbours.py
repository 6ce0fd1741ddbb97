"""Chunks of a file that overlap become one result, and so do those that follow each other in the file and in rank.

A reader gets the passage then, not its pieces, and nothing twice. Those that only follow each other in the file stay
apart: in front of the best chunk, or behind it, they would take the room of better ones.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from antwort.providers.file_search.search import RankedChunk

_Ranked = tuple[int, RankedChunk]


def with_neighbours_joined(found: Sequence[RankedChunk]) -> list[RankedChunk]:
    """Join neighbours, where it is known where in their file they stand; each result has the rank of its best chunk."""
    files: dict[tuple[str, str], list[_Ranked]] = defaultdict(list)
    results: list[_Ranked] = []
    for rank, one in enumerate(found):
        if one.position is None:
            results.append((rank, one))
        else:
            files[one.store.id, one.hit.file_id].append((rank, one))
    for chunks in files.values():
        results += map(_joined, _runs(chunks))
    return [one for _, one in sorted(results, key=lambda ranked: ranked[0])]


def _runs(chunks: Sequence[_Ranked]) -> Iterator[list[_Ranked]]:
    """Part the chunks of a file where there is text between them, or another result between their ranks."""
    run: list[_Ranked] = []
    end = 0
    for ranked in sorted(chunks, key=lambda ranked: _span(ranked[1])):
        start, last = _span(ranked[1])
        if run and (start > end or (start == end and abs(ranked[0] - run[-1][0]) > 1)):
            yield run
            run = []
        end = max(end, last) if run else last
        run.append(ranked)
    if run:
        yield run


def _joined(run: Sequence[_Ranked]) -> _Ranked:
    """Return chunks as one: the text of all, without what they repeat, and the best score."""
    rank, best = min(run, key=lambda ranked: ranked[0])
    first, position = run[0][1], run[0][1].position
    if len(run) == 1 or position is None:
        return rank, best
    text, end, last_page = first.hit.text, position.end, position.last_page
    for _, one in run[1:]:
        last = _span(one)[1]
        text += one.hit.text[end - last :] if last > end else ""  # in front may be the header of a table
        end = max(end, last)
        last_page = max(last_page, one.position.last_page if one.position else 0)
    hit = replace(best.hit, text=text, index=first.hit.index, score=max(one.hit.score for _, one in run))
    whole = msgspec.structs.replace(position, end=end, last_page=last_page)
    return rank, replace(best, hit=hit, position=whole, last_index=max(one.hit.index for _, one in run))


def _span(one: RankedChunk) -> tuple[int, int]:
    return (one.position.start, one.position.end) if one.position is not None else (0, 0)
