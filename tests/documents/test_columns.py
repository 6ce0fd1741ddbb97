"""Pages in two columns are read column by column, however they were drawn; tables stay tables."""

import random
from collections.abc import Iterator

from tests.documents import samples
from tests.documents.samples import PlacedText

from antwort.documents.child import parsed

WORDS = [
    "tea",
    "water",
    "leaf",
    "cup",
    "kettle",
    "green",
    "black",
    "steeped",
    "minutes",
    "garden",
    "harvest",
    "roll",
    "dry",
]
TITLE = (50, 740, 18, "A title that goes across both of the columns")
NOTE = (50, 60, 8, "* A note that goes across the whole page and says where all of this comes from, in many words.")


def lines(x: float, name: str, count: int, length: int = 42, top: float = 700) -> Iterator[PlacedText]:
    """Give the lines of a column, from the top."""
    drawn = random.Random(name)
    for number in range(count):
        words = f"{name}{number}"
        while len(words) < length:
            words += f" {drawn.choice(WORDS)}"
        yield x, top - 14 * number, 10, words


def read(*texts: PlacedText) -> list[str]:
    """Return the first word of each line of a page, in the order in which it is read."""
    text = parsed(samples.pdf(list(texts)), "a.pdf").text
    assert sorted(text.split()) == sorted(" ".join(said for *_, said in texts).split()), "nothing is lost"
    return [line.split()[0] for line in text.splitlines() if line]


def across(*columns: Iterator[PlacedText]) -> list[PlacedText]:
    """Return texts of columns in the order in which they stand side by side."""
    return [text for row in zip(*columns, strict=True) for text in row]


LEFT, RIGHT = [f"L{number}" for number in range(40)], [f"R{number}" for number in range(40)]


def test_columns_that_are_drawn_line_by_line_are_read_one_after_the_other() -> None:
    both = across(lines(50, "L", 40), lines(320, "R", 40))
    assert read(TITLE, *both, NOTE) == ["A", *LEFT, *RIGHT, "*"]
    assert read(NOTE, *both) == [*LEFT, *RIGHT, "*"]


def test_columns_that_are_drawn_one_after_the_other_stay_as_they_are() -> None:
    assert read(TITLE, *lines(50, "L", 40), *lines(320, "R", 40), NOTE) == ["A", *LEFT, *RIGHT, "*"]


def test_what_goes_across_the_page_parts_the_columns_and_so_does_a_table() -> None:
    above = across(lines(50, "A", 12), lines(320, "B", 12))
    below = across(lines(50, "C", 12, top=300), lines(320, "D", 12, top=300))
    rows = [
        (x, 480 - 14 * number, 10, f"{name}{number}")
        for number in range(8)
        for x, name in ((50, "x"), (180, "y"), (320, "z"), (450, "u"))
    ]
    names = [f"{name}{number}" for name in "AB" for number in range(12)]
    assert read(*above, *rows, *below) == [
        *names,
        *(f"x{number}" for number in range(8)),
        *(f"{name}{number}" for name in "CD" for number in range(12)),
    ]


def test_a_table_is_read_row_by_row() -> None:
    wide = [(x, 700 - 14 * row, 10, f"{name}{row}") for row in range(40) for x, name in ((50, "KX-"), (320, "Pump-"))]
    assert read(TITLE, *wide) == ["A", *(f"KX-{row}" for row in range(40))]
    three = across(lines(50, "a", 40, 8), lines(250, "b", 40, 20), lines(450, "c", 40, 5))
    assert read(*three) == [f"a{row}" for row in range(40)]
    uneven = [
        (x, 700 - 14 * row, 10, f"{name}{row} {'word ' * (1 + (row * step) % 7)}".strip())
        for row in range(40)
        for x, name, step in ((50, "L", 3), (320, "R", 5))
    ]
    assert read(*uneven) == LEFT


def test_a_page_of_very_many_texts_is_read_as_it_was_drawn() -> None:
    many = [(50 + 20 * (number % 25), 750 - 7 * (number // 25), 6, f"w{number}") for number in range(2500)]
    assert len(parsed(samples.pdf(many), "a.pdf").text.split()) == 2500
