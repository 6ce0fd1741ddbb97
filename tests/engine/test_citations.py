"""Only what a text really cites, at the right characters."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antwort.context import Source, Sources
from antwort.engine.output.writers import annotations

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


def test_a_call_sees_all_sources_and_notes_its_own() -> None:
    sources = Sources()
    sources.add(PAGE)
    one, other = sources.noting(), sources.noting()
    assert [one.add(FILE), other.add(PAGE), other.add(Source("New"))] == [2, 1, 3]
    assert one.noted() == {2: FILE}
    assert other.noted() == {1: PAGE, 3: Source("New")}
    assert one.numbered() == sources.numbered() == {1: PAGE, 2: FILE, 3: Source("New")}


def test_sources_from_before_keep_their_numbers_and_new_ones_go_on_from_the_largest() -> None:
    sources = Sources()
    sources.restore({7: FILE, 3: PAGE})
    assert [sources.add(PAGE), sources.add(Source("New")), sources.add(FILE)] == [3, 8, 7]
    assert sources.numbered() == {3: PAGE, 7: FILE, 8: Source("New")}


def test_of_two_sources_with_one_number_the_later_has_it_and_the_other_gets_a_new_one() -> None:
    sources = Sources()
    sources.restore({1: PAGE, 2: Source("Two")})
    sources.restore({1: FILE})
    assert sources.numbered() == {1: FILE, 2: Source("Two")}
    assert [sources.add(FILE), sources.add(PAGE)] == [1, 3]


def test_a_source_with_two_numbers_can_be_cited_by_both() -> None:
    sources = Sources()
    sources.restore({1: PAGE})
    sources.restore({2: PAGE})
    assert sources.numbered() == {1: PAGE, 2: PAGE}
    assert sources.add(PAGE) == 2
    sources.restore({1: FILE})
    assert sources.add(PAGE) == 2


def test_functions_in_threads_never_share_a_number() -> None:
    sources = Sources()
    found = [Source(f"Page {n % 500}") for n in range(2000)]
    with ThreadPoolExecutor(8) as threads:
        numbers = list(threads.map(lambda source: sources.noting().add(source), found))
    assert sorted(set(numbers)) == list(range(1, 501))
    assert [sources.numbered()[number] for number in numbers] == found


def test_a_source_can_be_stored_whatever_its_texts_are() -> None:
    sources = Sources()
    assert sources.add(Source("a \ud800 b", url="https://example.org/\udfff")) == 1
    assert sources.numbered() == {1: Source("a ? b", url="https://example.org/?")}


@pytest.mark.parametrize(
    "fields", [{"title": None}, {"title": 7}, {"title": "x", "url": b"x"}, {"title": "x", "file_id": 1}]
)
def test_a_source_that_has_no_texts_is_refused(fields: Any) -> None:
    sources = Sources()
    with pytest.raises(TypeError, match="of a source are texts, not "):
        sources.add(Source(**fields))
    assert sources.numbered() == {}


@given(st.text())
def test_any_text_gives_ranges_inside_it(text: str) -> None:
    for found in annotations(f"{text}[1]{text}", SOURCES):
        if found["type"] == "url_citation":
            assert 0 <= found["start_index"] < found["end_index"] <= 2 * len(text) + 3
