from antwort.cli.output import table


def test_columns_are_aligned_and_lines_end_without_blanks() -> None:
    text = table(("name", "what"), [("a", "first"), ("long", "")], width=None)
    assert text == "NAME  WHAT\na     first\nlong"


def test_a_table_that_is_too_wide_loses_the_end_of_its_flexible_column() -> None:
    text = table(("name", "what"), [("a", "x" * 50), ("b", "short")], width=30)
    lines = text.splitlines()
    assert lines[1] == "a     " + "x" * 23 + "…"
    assert max(map(len, lines)) == 30
    assert lines[2] == "b     short"


def test_a_middle_column_can_be_the_flexible_one() -> None:
    text = table(("k", "v", "o"), [("key", "y" * 50, "origin")], width=40, flexible=1)
    assert text.splitlines()[1] == "key  " + "y" * 26 + "…  origin"


def test_a_terminal_that_is_very_narrow_still_shows_something() -> None:
    text = table(("name", "what"), [("n" * 40, "x" * 50)], width=20)
    assert text.splitlines()[1].endswith("  " + "x" * 11 + "…")


def test_a_cell_cannot_move_the_cursor_or_start_a_line() -> None:
    assert table(("a",), [("one\ntwo\x1b[2J",)], width=None).splitlines()[1] == "one two\\x1b[2J"
