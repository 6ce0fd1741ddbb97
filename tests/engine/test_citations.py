"""Only what a text really cites, at the right characters."""

from hypothesis import given
from hypothesis import strategies as st

from antwort.context import Source, Sources
from antwort.engine.citations import annotations

PAGE = Source("A page", url="https://example.org/page")
FILE = Source("notes.txt", file_id="file_1")
SOURCES = {1: PAGE, 2: FILE}


def test_a_marker_becomes_a_citation_of_its_place() -> None:
    text = "Grass is green [1]. Ünïcödé comes 【2†source】 too."
    url, file = annotations(text, SOURCES)
    assert url == {
        "type": "url_citation",
        "url": "https://example.org/page",
        "title": "A page",
        "start_index": 15,
        "end_index": 18,
    }
    assert text[url["start_index"] : url["end_index"]] == "[1]"
    assert file["type"] == "file_citation"
    assert (file["file_id"], file["filename"]) == ("file_1", "notes.txt")
    assert text[file["index"]] == "【"


def test_a_url_in_the_text_is_a_citation_without_the_full_stop_behind_it() -> None:
    text = "See https://example.org/page. Or (https://example.org/page/)."
    first, second = annotations(text, SOURCES)
    assert text[first["start_index"] : first["end_index"]] == "https://example.org/page"
    assert text[second["start_index"] : second["end_index"]] == "https://example.org/page/"


def test_several_numbers_in_one_marker_are_several_citations() -> None:
    url, file = annotations("Both [1, 2].", SOURCES)
    assert (url["url"], url["start_index"], url["end_index"]) == ("https://example.org/page", 5, 11)
    assert (file["file_id"], file["index"]) == ("file_1", 5)


def test_a_slash_at_the_end_of_a_url_makes_no_difference() -> None:
    [found] = annotations("See https://example.org.", {1: Source("Home", url="https://example.org/")})
    assert found["url"] == "https://example.org/"


def test_what_is_not_cited_is_not_annotated() -> None:
    assert annotations("Nothing here, not even [3] or [x] or https://elsewhere.example.", SOURCES) == []
    assert annotations("An array[1] of a text without sources", {}) == []


def test_the_same_source_keeps_its_number() -> None:
    sources = Sources()
    assert [sources.add(PAGE), sources.add(FILE), sources.add(Source("A page", url="https://example.org/page"))] == [
        1,
        2,
        1,
    ]
    assert sources.numbered() == SOURCES


@given(st.text())
def test_any_text_gives_ranges_inside_it(text: str) -> None:
    for found in annotations(f"{text}[1]{text}", SOURCES):
        if found["type"] == "url_citation":
            assert 0 <= found["start_index"] < found["end_index"] <= 2 * len(text) + 3
