"""What went wrong, in words that may leave the process."""

import pytest
from typing_extensions import override

from antwort.functions.output import described
from antwort.observability import Redactor


class Counting(Redactor):
    """Remembers how much it had to read."""

    def __init__(self, values: tuple[str, ...] = ()) -> None:
        super().__init__(values)
        self.read = 0

    @override
    def text(self, text: str) -> str:
        self.read += len(text)
        return super().text(text)


def test_of_a_text_of_any_length_only_the_beginning_is_read() -> None:
    redactor = Counting()
    shown = described(ValueError("word " * 1_000_000), redactor)
    assert shown.startswith("ValueError: word word")
    assert len(shown) == 500
    assert redactor.read < 10_000


def test_a_secret_is_not_shown_in_part_because_the_text_was_cut_within_it() -> None:
    secret = "correct-horse-battery-staple"
    for spaces in range(4900, 5000):
        text = described(ValueError(" " * spaces + secret + " " * 5000), Counting((secret,)))
        assert text in {"ValueError: ***", "ValueError"}


@pytest.mark.parametrize("depth", [1, 4, 3000])
def test_groups_in_groups_are_described_however_deep_they_are(depth: int) -> None:
    error: Exception = ValueError("inside")
    for _ in range(depth):
        error = ExceptionGroup("outside", [error])
    expected = "ValueError: inside" if depth < 5 else "ExceptionGroup: outside (1 sub-exception)"
    assert described(error, Redactor()) == expected
