"""A comparison as a table: for the terminal, and in Markdown for the README."""

from collections.abc import Iterator, Sequence

from benchmarks.gateway import REFERENCE
from benchmarks.measure import BenchmarkError
from benchmarks.peers.results import NONE, Comparison, Figure, Row, shown

START, END = "<!-- measured: peers -->", "<!-- end -->"


class Notes:
    """Footnotes: each text once, numbered in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, text: str) -> str:
        return f"[{self._numbers.setdefault(text, len(self._numbers) + 1)}]" if text else ""

    def lines(self) -> Iterator[str]:
        for text, number in self._numbers.items():
            yield f"[{number}] {text}"


def cells(comparison: Comparison) -> tuple[list[list[str]], Notes]:
    """Return the rows of the table, the head first, and what its marks mean."""
    notes = Notes()
    names = [column.name for column in comparison.columns]
    marks = [notes.mark(column.missing or column.note) for column in comparison.columns]
    heads = [f"{column.head} {mark}".rstrip() for column, mark in zip(comparison.columns, marks, strict=True)]
    table = [["", *heads]]
    for row in comparison.rows:
        figures = [_cell(row.figures.get(name, Figure()), notes) for name in names]
        table.append([f"{row.what}, {row.unit}", *figures])
    return table, notes


def _cell(figure: Figure, notes: Notes) -> str:
    value = NONE if figure.value is None else shown(figure.value)
    return f"{value} {notes.mark(figure.note)}".rstrip()


def about(comparison: Comparison) -> str:
    """Return when and how the figures were taken."""
    taken = "one round" if comparison.rounds == 1 else f"medians of {comparison.rounds} interleaved rounds"
    return (
        f"{comparison.date}, {comparison.machine}; {taken}. µs are CPU time, "
        "user and system, of the gateway per request, or per event of a stream."
    )


def terminal(comparison: Comparison) -> str:
    """Return the table for a terminal."""
    table, notes = cells(comparison)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join([line[0].ljust(widths[0]), *_right(line[1:], widths[1:])]).rstrip() for line in table]
    return "\n".join([about(comparison), "", *lines, "", *notes.lines()])


def _right(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]


def markdown(comparison: Comparison, *, plot: str = "") -> str:
    """Return the part of the README: the plot, if it has an address, the table, and what its marks mean."""
    table, notes = cells(comparison)
    head, *lines = (f"| {' | '.join(line)} |" for line in _best_in_bold(table, comparison))
    rule = f"|---|{'---:|' * len(comparison.columns)}"
    picture = [f"![CPU time, memory and start of each gateway]({plot})", ""] if plot else []
    footnotes = [f"{note}." for note in notes.lines()]
    parts = [
        *picture,
        head,
        rule,
        *lines,
        "",
        about(comparison),
        *(["", "<br>\n".join(footnotes)] if footnotes else []),
    ]
    return "\n".join(parts)


def _best_in_bold(table: Sequence[Sequence[str]], comparison: Comparison) -> Iterator[list[str]]:
    """Give the lines with the least figure of a real gateway in bold; R does too little to count."""
    names = [column.name for column in comparison.columns]
    yield list(table[0])
    for (what, *line), row in zip(table[1:], comparison.rows, strict=True):
        least = _least(row)
        yield [what, *(_bold(cell, least, name) for name, cell in zip(names, line, strict=True))]


def _least(row: Row) -> str:
    values = [figure.value for name, figure in row.figures.items() if name != REFERENCE and figure.value is not None]
    return shown(min(values)) if values else ""


def _bold(cell: str, least: str, name: str) -> str:
    number, _, mark = cell.partition(" ")
    return f"**{number}** {mark}".rstrip() if number == least and name != REFERENCE else cell


def replaced(page: str, part: str) -> str:
    """Return a page with the part between the two marks replaced."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise BenchmarkError(f"the page has no part between {START} and {END}")
    return f"{before}{start}\n{part}\n{end}{after}"
