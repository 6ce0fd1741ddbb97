"""Scanners find in a stream what they would find in the whole, however it is cut into pieces."""

import contextlib
import itertools
import json
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antwort.errors import FunctionError
from antwort.providers.variables.json_grammar import parse_path
from antwort.providers.variables.json_scanner import JsonScanner, NotJsonError
from antwort.text.partial_reading import (
    SLOW,
    GrepScanner,
    LineScanner,
    Pattern,
    Scanner,
    parse_lines,
    size_of,
    text_of,
    whole_characters,
)

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))

values = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text('a"\\ü{}[],: \n', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "ü c", "]"]), inner),
    max_leaves=20,
)
texts = st.lists(st.text("ab ü\r", max_size=8), max_size=12).map("\n".join)
sizes = st.integers(1, 12)


def feed(scanner: Scanner, data: bytes, size: int) -> None:
    for start in range(0, len(data), size):
        if not scanner.feed(data[start : start + size]):
            return
    scanner.end()


def leaves(value: Any, path: str = "$") -> list[tuple[str, Any]]:
    found = [(path, value)]
    if isinstance(value, dict):
        for name, part in value.items():
            found += leaves(part, f"{path}['{name}']")
    elif isinstance(value, list):
        for position, part in enumerate(value):
            found += leaves(part, f"{path}[{position}]")
    return found


@given(value=values, size=sizes, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))
@settings(max_examples=150 if FULL else 40, deadline=None)
def test_every_part_of_a_document_is_found_by_its_path(
    value: Any, size: int, ascii_only: bool, indent: int | None
) -> None:
    document = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    for path, part in leaves(value)[:20]:
        scanner = JsonScanner(parse_path(path), 100_000)
        feed(scanner, document, size)
        assert [json.loads(found) for found in scanner.found] == [part], path
    every = JsonScanner(parse_path("$.*"), 100_000, counts=True)
    feed(every, document, size)
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    assert [json.loads(found) for found in every.found] == parts
    assert every.children == len(parts)


@given(garbage=st.binary(max_size=60) | st.text('[{"a\\:,}]', max_size=40).map(str.encode), size=sizes)
@settings(max_examples=150 if FULL else 40, deadline=None)
def test_what_is_no_json_does_no_harm(garbage: bytes, size: int) -> None:
    for path in ("$", "$.a", "$[0][1]", "$.*"):
        with contextlib.suppress(NotJsonError):
            feed(JsonScanner(parse_path(path), 10), garbage, size)


def test_deep_documents_are_passed_over() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    scanner = JsonScanner(parse_path("$.last"), 100)
    feed(scanner, b'{"first":' + deep + b',"last":1}', 1000)
    assert scanner.found == [b"1"]


def test_what_fits_is_cut_where_it_is_too_long() -> None:
    scanner = JsonScanner(parse_path("$[*]"), 10)
    feed(scanner, json.dumps(["aaaa", "bbbb", "cccc"]).encode(), 3)
    assert scanner.is_cut
    assert sum(map(len, scanner.found)) == 10


@given(text=texts, size=sizes, first=st.integers(1, 14), count=st.integers(0, 14))
@settings(max_examples=150 if FULL else 40, deadline=None)
def test_lines_are_those_of_the_text(text: str, size: int, first: int, count: int) -> None:
    scanner = LineScanner(first, first + count, 10_000)
    feed(scanner, text.encode(), size)
    lines = text.split("\n")
    expected = "\n".join(lines[first - 1 : first + count])
    reaches_end = first + count >= len(lines)  # an empty line after the last line end is none
    assert scanner.text() == (expected.removesuffix("\n") if reaches_end else expected)
    rest = LineScanner(first, None, 10_000)
    feed(rest, text.encode(), size)
    assert rest.text() == "\n".join(text.split("\n")[first - 1 :]).removesuffix("\n")


@given(text=texts, size=sizes, pattern=st.sampled_from(["a", "^a", "b$", r"\Ab", "ü", "^$", "a.b", r"b\s*a", "[^a]b"]))
@settings(max_examples=200 if FULL else 50, deadline=None)
def test_grep_finds_the_lines_that_match(text: str, size: int, pattern: str) -> None:
    scanner = GrepScanner(pattern, 10_000)
    feed(scanner, text.encode(), size)
    lines = text.removesuffix("\n").split("\n") if text else []
    expected = [
        f"{number}: {line.removesuffix(chr(13))}"
        for number, line in enumerate(lines, 1)
        if re.search(pattern, line.removesuffix("\r")) is not None
    ]
    assert scanner.shown == expected
    assert scanner.count == len(expected)


@given(text=st.text("aü€😀", min_size=1, max_size=20), start=st.integers(0, 80), size=st.integers(4, 40))
def test_parts_of_a_text_have_no_halves_of_characters(text: str, start: int, size: int) -> None:
    data = text.encode()
    part = data[start : start + size]
    shown = text_of(part, from_start=start == 0, to_end=start + size >= len(data))
    assert shown in text
    lead, kept = whole_characters(part, from_start=start == 0, to_end=start + size >= len(data))
    assert len(part) - len(kept) <= 6
    assert lead <= 3


@pytest.mark.parametrize("path", ["$..a", "$[", "$[-1]", "$.a b", "$[1:2:3]"])
def test_a_path_that_cannot_be_read_is_told(path: str) -> None:
    with pytest.raises(FunctionError, match="cannot be read at"):
        parse_path(path)


@pytest.mark.parametrize("number", ["1" * 5000, "9" * 19])
def test_numbers_without_end_are_no_numbers(number: str) -> None:
    for path in (f"$[{number}]", f"$[0:{number}]", f"$[{number}:]"):
        with pytest.raises(FunctionError, match="cannot be read at"):
            parse_path(path)
    for lines in (number, f"1-{number}"):
        with pytest.raises(FunctionError, match="is no range of lines"):
            parse_lines(lines)


def test_ranges_may_end_far_beyond_the_array() -> None:
    scanner = JsonScanner(parse_path(f"$[1:{'9' * 18}]"), 100)
    feed(scanner, b"[1,2,3]", 2)
    assert scanner.found == [b"2", b"3"]


@pytest.mark.parametrize(
    "pattern",
    [
        "[ab]*a[ab]{400}[cd]",
        "(?:a?){5000}b",
        "(?:(?:a?){100}){100}b",
        r"\w{300}x",
        r"(?:\p{L}{20}-){20}",
        "a{99999999}",
    ],
)
def test_a_pattern_that_would_hold_everybody_up_is_refused(pattern: str) -> None:
    with pytest.raises(FunctionError, match="too large"):
        GrepScanner(pattern, 100)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}",
        "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        r"(?i)^\s*(error|warn\w*):",
        "{",
    ],
)
def test_patterns_that_people_write_are_not_too_large(pattern: str) -> None:
    assert size_of(pattern) < 1500


@pytest.mark.parametrize(("pause", "looks"), [(2 * SLOW, 1), (SLOW / 2, 201)])
def test_a_pattern_that_takes_too_long_is_given_up(pause: float, looks: int) -> None:
    times = itertools.count()
    scanner = GrepScanner("ab+c", 100, clock=lambda: next(times) * pause)
    with pytest.raises(FunctionError, match="takes too long"):
        feed(scanner, b"a line of text\n" * 100_000, 2**16)
    assert next(times) == 2 * looks


def test_little_text_is_looked_at_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    timed = Pattern._timed

    def noted(self: Pattern, matches: Callable[[str], bool], text: str) -> bool:
        sizes.append(len(text))
        return timed(self, matches, text)

    monkeypatch.setattr(Pattern, "_timed", noted)
    for lines in (b"short\n" * 50_000, b"x" * 300_000 + b"\n", b"y" * 300_000):
        feed(GrepScanner("nothing", 100), lines, 2**18)
    assert max(sizes) <= 4096
