"""A comparison as bars in an SVG that is written by hand: one panel for each row, readable on white and on black.

The bars of a panel start at zero. One that would leave nothing to see of the others is broken.
"""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from benchmarks.peers.results import NONE, Comparison, Row, shown

WIDTH, COLUMNS = 860, 3
PANEL_WIDTH, GAP = 268, 28
BAR, STEP, TITLE, BELOW = 12, 19, 24, 18
NAMES, VALUES = 98, 58
"""The room for names before the bars and for figures behind them."""
ROOM = PANEL_WIDTH - NAMES - VALUES
OWN = "antwort"
OUTLIER = 6
"""How many times the next longest bar one has to be to be broken."""

# Colours of the middle, which stand out from white and from black; text follows the reader's scheme.
STYLE = """
  text { font: 12px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #57606a }
  .title { font-weight: 600; fill: #1f2328 }
  .own { fill: #1f2328; font-weight: 600 }
  .bar { fill: #8c96a3 }
  .bar.own { fill: #2f81f7 }
  .none { font-style: italic }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 }
    .title, .own { fill: #f0f6fc }
    .bar { fill: #656c76 }
    .bar.own { fill: #4493f8 }
  }
"""


def plotted(comparison: Comparison) -> str:
    """Return the picture. A gateway without a figure has a dash and no bar."""
    names = [column.name for column in comparison.measured]
    height = TITLE + STEP * len(names) + BELOW
    panels = [
        f'<g transform="translate({index % COLUMNS * (PANEL_WIDTH + GAP)} {index // COLUMNS * height})">\n'
        + "\n".join(_panel(row, names))
        + "\n</g>"
        for index, row in enumerate(comparison.rows)
    ]
    total = -(-len(comparison.rows) // COLUMNS) * height - BELOW + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" width="{WIDTH}" height="{total}" '
        f'role="img">\n<title>{escape(_summary(comparison))}</title>\n<style>{STYLE}</style>\n'
        + "\n".join(panels)
        + "\n</svg>\n"
    )


def _summary(comparison: Comparison) -> str:
    return f"What each gateway costs, less is better; {comparison.date}, {comparison.machine}"


def _panel(row: Row, names: list[str]) -> Iterator[str]:
    yield f'<text class="title" x="0" y="14">{escape(row.what)}, {escape(row.unit)}</text>'
    values = {name: row.figures[name].value for name in names if name in row.figures}
    longest = longest_bar([value for value in values.values() if value is not None])
    for index, name in enumerate(names):
        value = values.get(name)
        top = TITLE + STEP * index
        base = top + BAR - 2
        own = " own" if name == OWN else ""
        yield f'<text class="name{own}" x="{NAMES - 8}" y="{base}" text-anchor="end">{escape(name)}</text>'
        if value is None:
            yield f'<text class="none" x="{NAMES}" y="{base}">{NONE}</text>'
            continue
        length = max(1.5, ROOM * min(1.0, value / longest))
        yield f'<path class="bar{own}" d="{_bar(top, length, broken=value > longest)}"/>'
        yield f'<text class="value{own}" x="{NAMES + length + 6:.1f}" y="{base}">{shown(value)}</text>'


def longest_bar(values: Sequence[float]) -> float:
    """Return the value that has the full length: the largest, unless it is an outlier, and then less than that."""
    ordered = sorted(values, reverse=True)
    if not ordered or not ordered[0]:
        return 1.0
    tame = next((one for one, following in pairwise([*ordered, 0.0]) if one <= OUTLIER * following), ordered[0])
    return tame if tame == ordered[0] else 1.6 * tame


def _bar(top: float, length: float, *, broken: bool) -> str:
    """Return the outline of a bar, in two pieces with a slanted gap between them if it is broken."""
    whole = f"M{NAMES} {top}h{length:.1f}v{BAR}h{-length:.1f}z"
    if not broken:
        return whole
    first = length * 0.82
    rest = length - first - 5
    return (
        f"M{NAMES} {top}h{first + 2:.1f}l-4 {BAR}h{-(first - 2):.1f}z"
        f"M{NAMES + first + 7:.1f} {top}h{rest - 2:.1f}v{BAR}h{-(rest + 2):.1f}z"
    )
