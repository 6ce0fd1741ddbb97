"""HTML to text: of titles, snippets and pages."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from antwort.documents.child import parsed
from antwort.documents.document import UnreadableError
from antwort.documents.formats.html import HtmlLimits, _Tokens, decoded_html, html_charset, html_line, read_html
from antwort.provider import one_line

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
    assert html_line(given_text) == expected


PAGE = """<!doctype html><html><head><title>The &amp; title</title><style>p {}</style></head><body>
<header>Site</header><nav><a href=/>Home</a></nav>
<h1>Heading</h1><p>One
   two <b>three</b>.</p><ul><li>a</li><li>b</li></ul>
<pre>def f():
    return 1</pre><table><tr><th>k</th><td>v</td></tr></table>
<aside>Advert</aside><form><input><button>Send</button></form>
<div>Last<br>line</div><footer>Imprint</footer></body></html>"""


def test_a_page_is_readable_text_without_what_stands_around_it() -> None:
    page = read_html(PAGE)
    assert page.title == "The & title"
    assert page.text == ("# Heading\n\nOne two three.\n\n- a\n- b\n\ndef f():\n    return 1\n\nk | v\n\nLast\nline")


def test_the_main_part_stands_for_a_page_if_there_is_enough_of_it() -> None:
    long = "word " * 100
    assert read_html(f"<div>around</div><main><p>{long}</p></main><div>around</div>").text == long.strip()
    assert read_html("<div>around</div><main>short</main>").text == "around\nshort"


@pytest.mark.parametrize(
    ("body", "charset"),
    [
        (b'<meta charset="latin-1">', "latin-1"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">', "koi8-r"),
        (b"<p>charset=no", None),
    ],
)
def test_the_encoding_named_in_the_head_is_found(body: bytes, charset: str | None) -> None:
    assert html_charset(body) == charset


@given(st.text(alphabet="<>/!-\"'= abp&#;x\n[]?\x00é") | st.text())
@example("<" * 100)
@example("<a b='" * 20)
def test_whatever_the_text_is_something_printable_comes_out(text: str) -> None:
    line = html_line(text)
    assert line == one_line(line)
    assert "\n" not in line
    read_html(text)


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
    read_html(piece * PIECES)
    html_line(piece * PIECES)


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
def test_after_very_many_tags_a_page_takes_no_more_work(piece: str) -> None:
    few = HtmlLimits(tags=1000)
    assert steps(lambda: read_html(piece * 20_000, few)) < 1.1 * steps(lambda: read_html(piece * 2000, few))


def test_of_attributes_the_library_gets_only_that_they_hide() -> None:
    """The time that it needs grows with their square."""
    many = " ".join(f"a{number}" for number in range(40_000))
    source = "".join(
        piece.source for piece in _Tokens(f"<p {many}>x<p {many} STYLE='display:none'>y", HtmlLimits()).pieces()
    )
    assert source == "<p>x</p><p hidden>y"
    assert read_html(f"<p {many}>x<p {many} hidden>y").text == "x"


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
    assert read_html(f"<p {attributes}>x</p>").text == ("" if hides else "x")


def test_an_element_whose_attributes_are_too_many_to_look_at_is_hidden_if_it_may_be() -> None:
    many = "a " * 100_001
    assert read_html(f"<p {many} hidden>x</p><p {many}>y</p>").text == "y"


PAGES = Path(__file__).parent / "pages"


@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.glob("*.html")))
def test_a_page_is_read_as_a_reader_sees_it(name: str) -> None:
    """Each page has its title, an empty line and its text beside it."""
    page = read_html((PAGES / f"{name}.html").read_text())
    assert f"{page.title}\n\n{page.text}\n" == (PAGES / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.glob("*.html")))
def test_an_uploaded_file_has_the_text_of_the_page_that_it_was(name: str) -> None:
    data = (PAGES / f"{name}.html").read_bytes()
    page = read_html(decoded_html(data))
    if not page.text:
        with pytest.raises(UnreadableError, match="There is no text in it"):
            parsed(data, f"{name}.html")
        return
    document = parsed(data, f"{name}.html")
    assert (document.title, document.text.rstrip("\n")) == (page.title, page.text)
    assert [block.start for block in document.blocks] == [0, *(block.end for block in document.blocks[:-1])]


def test_headings_tables_and_code_are_known_as_such() -> None:
    document = parsed(PAGE.encode(), "page.html")
    kinds = {document.text[block.start : block.end].strip(): block.kind for block in document.blocks}
    assert kinds["# Heading"] == "heading"
    assert kinds["k | v"] == "table"
    assert kinds["def f():\n    return 1"] == "code"
    assert kinds["- a\n- b"] == "paragraph"
    assert {block.headings for block in document.blocks} == {("Heading",)}


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ("<td>a<td><p>b<p>c<tr><td colspan=2>d", "a | b c\nd"),
        ("<td>a<br>b<td><a href=x>c</a>", "a b | c"),
        ("<td hidden>HIDDEN<td>a<tr hidden><td>HIDDEN", "a"),
        ("<td>a<td><ul><li>b<li>c</ul>", "a\n\n- b\n- c"),
        ("<td>a<td><table><tr><td>b<td>c</table>", "a\n\nb | c"),
        ("<td><h1>a</h1>b", "# a\n\nb"),
        (f"<td>a<td>{'word ' * 201}", f"a\n{'word ' * 201}".strip()),
        ("<td><td>", ""),
    ],
)
def test_a_table_with_data_has_a_line_for_each_row_and_one_for_the_layout_has_none(cells: str, text: str) -> None:
    assert read_html(f"<table><tr>{cells}</table>").text == text


def test_a_file_is_read_to_its_end_and_a_page_as_far_as_it_may_take() -> None:
    words = "word " * 500_000
    assert parsed(f"<html><p>{words}<p>end".encode(), "long.html").text.endswith("end\n\n")
    assert 1_990_000 < len(read_html(f"<p>{words}<p>end").text) < 2_000_000
    assert read_html("<p>x" * 300, HtmlLimits(tags=200)).text.count("x") == 199


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
    source = "".join(piece.source for piece in _Tokens("".join(tags) * 400, HtmlLimits()).pieces())
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


def test_a_file_that_is_nested_very_deeply_is_read() -> None:
    assert parsed(b"<html><body>" + b"<div>" * 5_000 + b"deep", "nested.html").text == "deep\n\n"


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        (b"caf\xe9", None, "café"),
        (b"caf\xc3\xa9", None, "café"),
        (b"caf\xe9", "latin-1", "café"),
        (b"caf\xc3\xa9", "nonsense", "café"),
        (b"caf\xc3\xa9", "punycode", "café"),
        (b"caf\xc3\xa9", "hex", "café"),
        (b'<meta charset="latin-1">caf\xe9', "utf-8", '<meta charset="latin-1">caf\ufffd'),
    ],
)
def test_a_page_is_decoded_as_it_says_or_as_its_server_says(data: bytes, charset: str | None, text: str) -> None:
    assert decoded_html(data, charset) == text


def test_what_is_hidden_deep_inside_a_page_stays_hidden() -> None:
    page = read_html("<div>" * 100 + "<p hidden>HIDDEN</p><p>shown</p>" + "</div>" * 100 + "<p hidden>HIDDEN</p>")
    assert page.text == "shown"
