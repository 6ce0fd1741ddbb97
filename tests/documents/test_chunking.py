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
        assert chunk.text == document.text[chunk.start : chunk.end]
        assert chunk.tokens == ruler.count(chunk.start, chunk.end) <= size
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
