"""Chunks have every character, are true ranges, keep their size, and follow the structure."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antwort.documents.chunking import TokenRuler, chunked
from antwort.documents.document import BlockKind, Document, DocumentBuilder

WORDS = st.text(alphabet="ab \n.,;!?é漢字1_\t", min_size=1, max_size=400)
KINDS = st.sampled_from(["heading", "paragraph", "table", "code"])


def document_of(parts: list[tuple[str, str]]) -> Document:
    builder = DocumentBuilder()
    for number, (kind, text) in enumerate(parts):
        builder.page = 1 + number // 3
        if kind == "heading":
            builder.heading(text, 1 + number % 3)
        else:
            block: BlockKind = "table" if kind == "table" else "code" if kind == "code" else "paragraph"
            builder.add(text, block)
    return builder.document()


@given(parts=st.lists(st.tuples(KINDS, WORDS), max_size=12), size=st.integers(1, 120), share=st.floats(0, 0.5))
def test_chunks_cover_the_text_and_keep_their_size(parts: list[tuple[str, str]], size: int, share: float) -> None:
    document = document_of(parts)
    overlap = min(int(size * share), size - 1)
    chunks = chunked(document, size=size, overlap=overlap)
    ruler = TokenRuler(document.text)
    end = 0
    for number, chunk in enumerate(chunks):
        assert chunk.index == number
        header = chunk.text.removesuffix(document.text[chunk.start : chunk.end])
        assert len(header) + chunk.end - chunk.start == len(chunk.text)
        assert ruler.count(chunk.start, chunk.end) + TokenRuler(header).count(0, len(header)) == chunk.tokens <= size
        assert chunk.start <= end < chunk.end, "a gap, or nothing but a repetition"
        assert ruler.count(chunk.start, end) <= overlap
        end = chunk.end
    assert end == len(document.text)


@given(st.text(max_size=500))
def test_every_character_is_in_one_token(text: str) -> None:
    ruler = TokenRuler(text)
    whole = ruler.count(0, len(text))
    assert (whole == 0) == (text == "")
    place, tokens = 0, 0
    while place < len(text):
        place, tokens = ruler.after(place, 1), tokens + 1
    assert tokens == whole


def test_a_thousand_characters_are_not_a_thousand_chunks() -> None:
    builder = DocumentBuilder()
    builder.add("word " * 200)
    assert len(chunked(builder.document())) <= 2
    assert len(chunked(builder.document(), size=100, overlap=50)) <= 5


def test_the_default_is_chunks_of_one_vector_that_repeat_nothing() -> None:
    builder = DocumentBuilder()
    builder.add("word " * 2_000)
    chunks = chunked(builder.document())
    assert 190 <= max(chunk.tokens for chunk in chunks) <= 200
    assert all(chunk.start == before.end for before, chunk in pairwise(chunks))


def test_a_section_begins_a_chunk_of_its_own_if_the_one_before_is_half_full() -> None:
    builder = DocumentBuilder()
    builder.heading("First", 1)
    builder.add("one " * 60)
    builder.heading("Second", 1)
    builder.page = 2
    builder.add("two " * 30)
    builder.heading("Below", 2)
    builder.add("three " * 5)
    chunks = chunked(builder.document(), size=100, overlap=20)
    assert [chunk.headings for chunk in chunks] == [("First",), ("Second",)]
    assert chunks[1].text.startswith("Second\n")
    assert (chunks[1].page, chunks[1].last_page) == (None, 2)
    assert chunks[1].context("guide.md") == "guide.md > Second"


def test_a_heading_is_not_left_behind_at_the_end_of_a_chunk() -> None:
    builder = DocumentBuilder()
    builder.add("one " * 20)
    builder.heading("What follows", 1)
    builder.add("two " * 70)
    chunks = chunked(builder.document(), size=80, overlap=0)
    assert [chunk.text.split()[0] for chunk in chunks] == ["one", "What"]


def test_a_table_stays_whole_if_it_fits() -> None:
    builder = DocumentBuilder()
    builder.add("one " * 70)
    builder.table([["a", "b"]] * 15)
    chunks = chunked(builder.document(), size=100, overlap=0)
    assert [chunk.text.count("a | b") for chunk in chunks] == [0, 15]


def test_an_overlap_is_smaller_than_a_chunk() -> None:
    with pytest.raises(ValueError, match="larger than their overlap"):
        chunked(document_of([("paragraph", "x")]), size=10, overlap=10)


HEADER = "Article | Name | Price"
PRICES = [["Article", "Name", "Price"], *([f"KX-{number}", f"Pump no. {number}", "12.90 EUR"] for number in range(400))]


@pytest.mark.parametrize(("size", "overlap"), [(200, 0), (100, 50), (800, 400), (40, 0)])
def test_every_chunk_of_a_table_begins_with_its_header_and_no_row_is_parted(size: int, overlap: int) -> None:
    builder = DocumentBuilder()
    builder.add("Our prices are these.")
    builder.table(PRICES)
    builder.add("All of them with taxes.")
    chunks = chunked(builder.document(), size=size, overlap=overlap)
    assert len(chunks) > 5
    for number, chunk in enumerate(chunks):
        lines = chunk.text.strip().splitlines()
        rows = [line for line in lines if line.startswith("KX-")]
        if rows:
            assert HEADER in lines[: 3 if number == 0 else 1], "rows without their header"
        assert bool(rows) == (HEADER in lines), "a header without rows"
        assert all(line.endswith("12.90 EUR") for line in rows)
        assert chunk.tokens <= size
    found = [row for row in "\n".join(chunk.text for chunk in chunks).splitlines() if row.startswith("KX-259 |")]
    assert set(found) == {"KX-259 | Pump no. 259 | 12.90 EUR"}


def test_a_header_that_is_longer_than_half_a_chunk_is_repeated_in_part() -> None:
    builder = DocumentBuilder()
    builder.table([[f"column {number}" for number in range(60)], *([f"{row}"] * 60 for row in range(20))])
    chunks = chunked(builder.document(), size=100)
    inside = [chunk for chunk in chunks if chunk.start > len(" | ".join(f"column {n}" for n in range(60)))]
    assert all(chunk.text.startswith("column 0 | column 1 |") and chunk.tokens <= 100 for chunk in inside)


def test_the_header_of_a_table_in_markdown_has_a_rule_below_it() -> None:
    builder = DocumentBuilder()
    builder.add("| a | b |\n|:--|---|\n" + "| some | words |\n" * 200, "table")
    chunks = chunked(builder.document())
    assert len(chunks) > 3
    assert all(chunk.text.startswith("| a | b |\n|:--|---|\n| some") for chunk in chunks)


def test_a_header_is_not_left_behind_at_the_end_of_a_chunk() -> None:
    builder = DocumentBuilder()
    builder.add("one " * 90)
    builder.table([["a", "b"], *[["some", "words"]] * 60])
    assert [chunk.text.split()[0] for chunk in chunked(builder.document(), size=100)][:2] == ["one", "a"]


def test_a_definition_begins_a_chunk_of_its_own_if_the_one_before_is_half_full() -> None:
    builder = DocumentBuilder()
    for name in ("first", "second"):
        builder.enter(name, 1)
        builder.add(f"def {name}():\n" + "    work()\n" * 15, "code")
    assert [chunk.headings for chunk in chunked(builder.document(), size=100)] == [("first",), ("second",)]
