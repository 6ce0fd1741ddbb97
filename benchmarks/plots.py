"""Plots of costs as SVG, on logarithmic axes: what is linear rises by a decade per decade, what is flat does not rise.

Colours are of a middle brightness and there is no background, so that a page may be white or dark.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 76, 604, 58, 284
INK = "#7d8590"
COLOURS = ("#3b82f6", "#e0823d", "#3fa266")
STYLE = f"""\
text {{ font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: {INK} }}
.title {{ font-size: 14px; font-weight: 600 }}
.grid {{ stroke: {INK}; stroke-opacity: 0.25 }}
.fine {{ stroke: {INK}; stroke-opacity: 0.1 }}
.axis {{ stroke: {INK}; stroke-opacity: 0.8 }}
.line {{ fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }}"""


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its name, and its points in ascending order of x, a number and CPU microseconds."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Plot:
    """What is drawn: CPU time per request over something that there are more and more of."""

    title: str
    x: str
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Axis:
    """Whole decades of numbers, two of them at least, laid out between two places."""

    low: int
    high: int
    start: float
    end: float

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float) -> "Axis":
        low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
        return cls(low, max(high, low + 2), start, end)

    def place(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def decades(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]

    def between(self) -> list[float]:
        return [factor * decade for decade in self.decades()[:-1] for factor in range(2, 10)]


def plotted(plot: Plot) -> str:
    """Return a plot as an SVG document."""
    points = [point for series in plot.series for point in series.points]
    across = Axis.of([x for x, _ in points], LEFT, RIGHT)
    up = Axis.of([y for _, y in points], BOTTOM, TOP)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    lines = zip(plot.series, COLOURS, strict=False)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(plot.title)}">',
        f"<style>\n{STYLE}\n</style>",
        f'<text class="title" x="{LEFT}" y="20">{escape(plot.title)}</text>',
        *_legend(plot.series),
        *_grid(across, up),
        f'<text x="{(LEFT + RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(plot.x)}</text>',
        *(part for series, colour in lines for part in _line(series, colour, across, up)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend(series: Sequence[Series]) -> Iterator[str]:
    at = LEFT
    for one, colour in zip(series, COLOURS, strict=False):
        yield f'<circle cx="{at + 4}" cy="38" r="4" fill="{colour}"/>'
        yield f'<text x="{at + 14}" y="42">{escape(one.name)}</text>'
        at += 14 + 7 * len(one.name) + 20


def _grid(across: Axis, up: Axis) -> Iterator[str]:
    for kind, xs, ys in (("fine", across.between(), up.between()), ("grid", across.decades(), up.decades())):
        for x in map(across.place, xs):
            yield f'<line class="{kind}" x1="{x}" y1="{TOP}" x2="{x}" y2="{BOTTOM}"/>'
        for y in map(up.place, ys):
            yield f'<line class="{kind}" x1="{LEFT}" y1="{y}" x2="{RIGHT}" y2="{y}"/>'
    yield f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"/>'
    for value in across.decades():
        yield f'<text x="{across.place(value)}" y="{BOTTOM + 18}" text-anchor="middle">{value:,.0f}</text>'
    for value in up.decades():
        yield f'<text x="{LEFT - 8}" y="{up.place(value) + 4}" text-anchor="end">{shown_time(value)}</text>'


def _line(series: Series, colour: str, across: Axis, up: Axis) -> Iterator[str]:
    places = [(across.place(x), up.place(y)) for x, y in series.points]
    path = " ".join(f"{x},{y}" for x, y in places)
    yield f'<polyline class="line" stroke="{colour}" points="{path}"/>'
    for (x, y), (number, cost) in zip(places, series.points, strict=True):
        title = f"{number:,.0f}: {shown_time(cost)}"
        yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"><title>{title}</title></circle>'


def shown_time(microseconds: float) -> str:
    """Return a time as one reads it."""
    for unit, size in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)):
        if microseconds >= size:
            return f"{float(f'{microseconds / size:.3g}'):g} {unit}"
    return f"{microseconds:.2g} µs"
