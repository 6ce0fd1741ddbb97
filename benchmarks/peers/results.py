"""What a comparison has found: a figure, or the reason why there is none, for every gateway in every row."""

import msgspec

NONE = "\N{EN DASH}"
"""Stands where there is no figure."""


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A figure with what has to be known of it, or the reason why there is none."""

    value: float | None = None
    note: str = ""


class Row(msgspec.Struct, frozen=True):
    """What was measured, and the figure of every gateway that was started; the bars of its plot start at zero."""

    what: str
    unit: str
    figures: dict[str, Figure]


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A gateway: its version, what holds for all its figures, and why it has none."""

    name: str
    version: str = ""
    note: str = ""
    missing: str = ""

    @property
    def head(self) -> str:
        return f"{self.name} {self.version}".rstrip()


class Comparison(msgspec.Struct, frozen=True):
    """A whole run."""

    date: str
    machine: str
    rounds: int
    columns: list[Column]
    rows: list[Row]

    @property
    def measured(self) -> list[Column]:
        return [column for column in self.columns if not column.missing]


def shown(value: float) -> str:
    """Return a figure with the digits that mean something."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"
