"""HTML to text: of titles, snippets and pages."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from antwort.provider import one_line
from antwort.providers.web_search import markup
from antwort.providers.web_search.markup import plain, readable, sniffed_charset

PIECES = 100_000 if os.environ.get("ANTWORT_TEST_FULL") else 20_000


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("plain", "plain"),
        ("<b>bo</b>ld", "bold"),
        ("a<br>b<br/>c", "a b c"),
        ("<p>one</p><p>two</p>", "one two"),
        ("Tea &amp; milk &lt;3 &#252; &nbsp;x", "Tea & milk <3 ü x"),
        ("a < b and c > d", "a < b and c > d"),
        ("1<2", "1<2"),
        ('<img alt="a > b" src=x>after', "after"),
        ("<img alt='a > b'>after", "after"),
        ('<a title="it\'s > that">x</a>', "x"),
        ("<a title=it's>x</a> y's", "x y's"),
        ("<script>alert('<b>')</script>ok", "ok"),
        ("<SCRIPT>x</Script >ok", "ok"),
        ("<style>p {}</style>ok", "ok"),
        ("<!-- hidden <b> -->shown", "shown"),
        ("<!DOCTYPE html>shown", "shown"),
        ("<?xml version='1.0'?>shown", "shown"),
        ("<![CDATA[x]]>shown", "shown"),
        ("cut <b", "cut"),
        ('cut <a href="x', "cut"),
        ("cut <!-- x", "cut"),
        ("cut <script>x", "cut"),
        ("", ""),
        ("a\x00b\x07c\x1bd\x7fe\x9bf", "abcdef"),
        ("a\tb\r\nc\u2028d", "a b c d"),
        ("left\u202eright\u2066x\u2069\ufeff\u200b", "leftrightx"),
        ("hid\U000e0041den", "hidden"),
        ("&#x202e;x&#0;", "x\ufffd"),
        ("auf\u200clage", "auf\u200clage"),
        ("👩\u200d👧", "👩\u200d👧"),
        ("<nav>kept in a snippet</nav>", "kept in a snippet"),
    ],
)
def test_a_snippet_is_one_line_of_plain_text(given_text: str, expected: str) -> None:
    assert plain(given_text) == expected


PAGE = """<!doctype html><html><head><title>The &amp; title</title><style>p {}</style></head><body>
<header>Site</header><nav><a href=/>Home</a></nav>
<h1>Heading</h1><p>One
   two <b>three</b>.</p><ul><li>a</li><li>b</li></ul>
<pre>def f():
    return 1</pre><table><tr><th>k</th><td>v</td></tr></table>
<aside>Advert</aside><form><input><button>Send</button></form>
<div>Last<br>line</div><footer>Imprint</footer></body></html>"""


def test_a_page_is_readable_text_without_what_stands_around_it() -> None:
    page = readable(PAGE)
    assert page.title == "The & title"
    assert page.text == ("# Heading\n\nOne two three.\n\n- a\n- b\n\ndef f():\n    return 1\n\n| k | v\n\nLast\nline")


def test_the_main_part_stands_for_a_page_if_there_is_enough_of_it() -> None:
    long = "word " * 100
    assert readable(f"<div>around</div><main><p>{long}</p></main><div>around</div>").text == long.strip()
    assert readable("<div>around</div><main>short</main>").text == "around\nshort"


@pytest.mark.parametrize(
    ("body", "charset"),
    [
        (b'<meta charset="latin-1">', "latin-1"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">', "koi8-r"),
        (b"<p>charset=no", None),
    ],
)
def test_the_encoding_named_in_the_head_is_found(body: bytes, charset: str | None) -> None:
    assert sniffed_charset(body) == charset


@given(st.text(alphabet="<>/!-\"'= abp&#;x\n[]?\x00é") | st.text())
@example("<" * 100)
@example("<a b='" * 20)
def test_whatever_the_text_is_something_printable_comes_out(text: str) -> None:
    line = plain(text)
    assert line == one_line(line)
    assert "\n" not in line
    readable(text)


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "<",
            "<a ",
            "<!--",
            "<!",
            "<![CDATA[",
            '<a b="',
            "<a b='>",
            "<script>",
            "&",
            "&#",
            "<p>\n \n",
            "</nav>",
            "<div>",
        ),
        *("<nav><p>x", "<table><td>", "<p hidden>x", "<svg>", "<select>", "<b id=x>"),
    ],
)
def test_hostile_input_comes_to_an_end(piece: str) -> None:
    """What is quadratic here would take minutes."""
    readable(piece * PIECES)
    plain(piece * PIECES)


def steps(function: Callable[[], object]) -> int:
    """Count the calls that a function makes, of Python and of C."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("piece", ["<p>x", "<div>", "</zz>", "<!>x", "<b>x", "<p hidden>x", "<title></title>"])
def test_after_very_many_tags_a_page_takes_no_more_work(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markup, "_MOST_TAGS", 1000)
    assert steps(lambda: readable(piece * 20_000)) < 1.1 * steps(lambda: readable(piece * 2000))


def test_of_attributes_the_library_gets_only_that_they_hide() -> None:
    """The time that it needs grows with their square."""
    many = " ".join(f"a{number}" for number in range(40_000))
    source = "".join(piece.source for piece in markup._Tokens(f"<p {many}>x<p {many} STYLE='display:none'>y").pieces())
    assert source == "<p>x</p><p hidden>y"
    assert readable(f"<p {many}>x<p {many} hidden>y").text == "x"


@pytest.mark.parametrize(
    ("attributes", "hides"),
    [
        *(("hidden", True), ("HIDDEN=''", True), ("a/hidden", True), ("a='x'hidden", True), ("data-hidden", False)),
        *(("title='hidden'", False), ("aria-hidden=true", True), ('aria-hidden=" True "', True)),
        *(("aria-hidden=false", False), ("aria-hidden", False), ("style=display:none", True)),
        *(("style='display&colon;none'", True), ("style = 'color:red; visibility:hidden'", True)),
        *(("style='' style='display:none'", False), ("style='display:none' style=''", True), ("style", False)),
    ],
)
def test_an_element_is_hidden_by_what_its_attributes_say(attributes: str, hides: bool) -> None:
    assert readable(f"<p {attributes}>x</p>").text == ("" if hides else "x")


def test_an_element_whose_attributes_are_too_many_to_look_at_is_hidden_if_it_may_be() -> None:
    many = "a " * 100_001
    assert readable(f"<p {many} hidden>x</p><p {many}>y</p>").text == "y"


PAGES = Path(__file__).parent / "pages"


@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.glob("*.html")))
def test_a_page_is_read_as_a_reader_sees_it(name: str) -> None:
    """Each page has its title, an empty line and its text beside it."""
    page = readable((PAGES / f"{name}.html").read_text())
    assert f"{page.title}\n\n{page.text}\n" == (PAGES / f"{name}.txt").read_text()


def test_there_are_enough_pages_and_none_shows_what_is_hidden() -> None:
    texts = [path.read_text() for path in PAGES.glob("*.txt")]
    assert len(texts) >= 30
    assert not [text for text in texts for word in ("HIDDEN", "SCRIPT", "TEXTAREA", "COMMENT") if word in text]


TAGS = (
    "div p b i a font span table td tr tbody caption ul li dl dt dd button form h1 section article pre label select svg"
)


@given(st.lists(st.sampled_from(TAGS), max_size=6))
@example(["<div>"])
@example(["<table>", "<td>"])
@example(["<p>", "<b>", "</p>"])
@example(["<section>", "<td>"])
@example(["<ruby>", "<rt>"])
def test_however_deep_a_page_is_its_tree_is_not(tags: list[str]) -> None:
    """The time that the library needs grows with the depth: of a million elements inside each other, for hours."""
    source = "".join(piece.source for piece in markup._Tokens("".join(tags) * 400).pieces())
    assert depth(source) < 500


def depth(source: str) -> int:
    """Return how many elements are inside each other at most."""
    deepest = 0
    waiting = [(LexborHTMLParser(source).root, 1)]
    while waiting:
        node, level = waiting.pop()
        deepest = max(deepest, level)
        child = None if node is None else node.first_child
        while child is not None:
            waiting.append((child, level + 1))
            child = child.next
    return deepest


def test_what_is_hidden_deep_inside_a_page_stays_hidden() -> None:
    page = readable("<div>" * 100 + "<p hidden>HIDDEN</p><p>shown</p>" + "</div>" * 100 + "<p hidden>HIDDEN</p>")
    assert page.text == "shown"
