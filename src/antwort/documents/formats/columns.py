"""Pages of a PDF whose lines are drawn across two columns: in which order their parts are read.

Most programs draw one column after the other, and then what they wrote is in order. Some draw line by line.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

Box = tuple[float, float, float, float]
"""Where something is on a page: left, bottom, right, top."""

_FEWEST = 6
"""Lines of each column; fewer are no text to be read in columns."""
_FEWEST_TRIED = 2
_STEP = 3.0
"""Points by which the lines of a column may begin apart."""
_MARGIN = 0.25
"""Which part of the width of a page each column has at least."""
_WIDEST_GAP = 0.15
"""Which part of it may be between them; there is more between the columns of most tables."""
_FULL = 0.8
"""Which part of the width of its column a full line has; of a text half of them are full."""
_CELL_GAP = 1.5
"""Between the cells of a row, in heights of a line; words stand closer."""
_SIDES = ("left", "right")


def reading_order(boxes: Sequence[Box]) -> list[Box]:
    """Return the parts of a page in the order in which they are read, by the boxes of its texts as they were drawn.

    If that is the order in which they were drawn, or nobody can tell, there are none.
    """
    split = _split(boxes)
    if split is None:
        return []
    sides = [_side(box, split) for box in boxes]
    drawn = [side for side in sides if side in _SIDES]
    changes = sum(one != other for one, other in itertools.pairwise(drawn))
    if changes < _FEWEST or not _are_columns(boxes, sides, split):
        return []
    return list(_parts(boxes, split))


def may_have_columns(some: Sequence[Box]) -> bool:
    """Tell by some of the boxes whether others may begin a right column."""
    first, last = _middle_part(some)
    return sum(first < box[0] < last for box in some) >= _FEWEST_TRIED


def _middle_part(boxes: Sequence[Box]) -> tuple[float, float]:
    """Return between where and where a right column may begin."""
    left, right = min((box[0] for box in boxes), default=0.0), max((box[2] for box in boxes), default=0.0)
    return left + _MARGIN * (right - left), right - _MARGIN * (right - left)


def _split(boxes: Sequence[Box]) -> float | None:
    """Return where the right column begins: where most lines begin in the middle of the page."""
    if len(boxes) < 2 * _FEWEST:
        return None
    first, last = _middle_part(boxes)
    begins = Counter(round(box[0] / _STEP) for box in boxes if first < box[0] < last)
    if not begins or (most := max(begins.items(), key=lambda one: one[1]))[1] < _FEWEST:
        return None
    return (most[0] - 1) * _STEP


def _side(box: Box, split: float) -> str:
    if box[0] >= split:
        return "right"
    return "left" if box[2] <= split else "across"


def _are_columns(boxes: Sequence[Box], sides: Sequence[str], split: float) -> bool:
    """Tell whether there is text on both sides, and no table: lines are full, and the gap between them is small."""
    width = max(box[2] for box in boxes) - min(box[0] for box in boxes)
    lines = {side: [box for box, one in zip(boxes, sides, strict=True) if one == side] for side in _SIDES}
    if min(map(len, lines.values())) < _FEWEST:
        return False
    if split - max(box[2] for box in lines["left"]) > _WIDEST_GAP * width:
        return False
    return all(_is_text(list(_rows(column))) for column in lines.values())


def _is_text(rows: Sequence[Sequence[Box]]) -> bool:
    left, right = min(row[0][0] for row in rows), max(row[-1][2] for row in rows)
    widths = [sum(box[2] - box[0] for box in row) for row in rows]
    return 2 * sum(width >= _FULL * (right - left) for width in widths) >= len(rows) >= _FEWEST


def _rows(boxes: Sequence[Box]) -> Iterator[list[Box]]:
    """Give what stands in each line, from the top of the page, from left to right."""
    row: list[Box] = []
    for box in sorted(boxes, key=_middle, reverse=True):
        if row and _middle(box) < row[0][1]:
            yield sorted(row)
            row = []
        row.append(box)
    if row:
        yield sorted(row)


def _middle(box: Box) -> float:
    return (box[1] + box[3]) / 2


def _parts(boxes: Sequence[Box], split: float) -> Iterator[Box]:
    """Give what goes across the page, such as its title, and between that the left column before the right one."""
    rows: list[list[Box]] = []
    across = False
    for row in _rows(boxes):
        goes_across = _goes_across(row, split)
        if rows and goes_across is not across:
            yield from _read(rows, split, across=across)
            rows = []
        across = goes_across
        rows.append(row)
    if rows:
        yield from _read(rows, split, across=across)


def _goes_across(row: Sequence[Box], split: float) -> bool:
    """Tell whether a line is one of the whole page, or a row of a table that is as wide."""
    if any(_side(box, split) == "across" for box in row):
        return True
    gaps = [
        after[0] - before[2] > _CELL_GAP * (before[3] - before[1])
        for before, after in itertools.pairwise(row)
        if _side(before, split) == _side(after, split)
    ]
    return any(gaps)


def _read(rows: Sequence[Sequence[Box]], split: float, *, across: bool) -> Iterator[Box]:
    """Give the box of some lines, or the two of their columns."""
    bottom, top = min(box[1] for box in rows[-1]), max(box[3] for box in rows[0])
    left, right = min(row[0][0] for row in rows) - 1, max(box[2] for row in rows for box in row) + 1
    if across:
        yield left, bottom, right, top
        return
    if left < split:
        yield left, bottom, split - 1, top
    if right > split:
        yield split, bottom, right, top
