"""A docstring without sections is read without the parser, and as the parser reads it."""

import inspect
from collections.abc import Callable

import docstring_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antwort.callables import read_docstring

PLAIN = ["", "Look it up.", "  Indented.", "Note: it costs.", "a - b", "Args", "Parameters", "name : str", "at 1:2"]
MARKED = [
    "Args:",
    "    name: What.",
    ":param name: What.",
    "@param name: What.",
    "----------",
    "Returns:",
    "=====",
    "x:",
]
LINES = st.sampled_from(PLAIN + MARKED)


def documented(text: str) -> Callable[[str], str]:
    def handler(name: str) -> str:
        return name

    handler.__doc__ = text
    return handler


def parsed(text: str) -> tuple[str, dict[str, str]]:
    text = inspect.cleandoc(text)
    found = docstring_parser.parse(text)
    description = "\n".join(part for part in (found.short_description, found.long_description) if part)
    return description.strip() or text.strip(), {
        one.arg_name: " ".join((one.description or "").split()) for one in found.params
    }


@given(st.lists(LINES, min_size=1, max_size=8).map("\n".join).map(str.strip).filter(bool))
def test_it_is_read_as_the_parser_reads_it(text: str) -> None:
    assert read_docstring(documented(text)) == parsed(text)


@pytest.mark.parametrize(
    "text",
    [
        "Greet.\n\nArgs:\n    name: Whom.",
        "Greet.\n\nParameters\n----------\nname : str\n    Whom.",
        "Greet.\n\n:param name: Whom.",
        "Greet.\n\n@param name: Whom.",
    ],
)
def test_every_style_is_known(text: str) -> None:
    assert read_docstring(documented(text)) == ("Greet.", {"name": "Whom."})
