"""The estimate of tokens for servers that do not count."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.backends.conftest import a_request

from antwort.backends import estimate_tokens
from antwort.backends.tokens import ANSWER, DISTANT_FILE, IMAGE, IMAGE_LOW, OVERHEAD, estimate_text
from antwort.types import JSON


def of(*items: JSON, **fields: Any) -> int:
    return estimate_tokens(a_request(items=items, **fields))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("word word", 3),
        ("12345678", 8),
        ('{"a":1}', 4),
        ("日本語", 3),
        ("привет", 3),
        ("👍👍", 4),
        ("\ud800", 1),
        ("naïve", 2),
    ],
)
def test_characters_count_by_what_they_are(text: str, tokens: int) -> None:
    assert estimate_text(text) == tokens


@given(st.text(st.characters(exclude_categories=()), min_size=1), st.text())
def test_every_text_has_tokens_and_more_text_has_no_fewer(text: str, more: str) -> None:
    tokens = estimate_text(text)
    assert 1 <= tokens <= 2 * len(text)
    assert tokens <= estimate_text(text + more) <= tokens + estimate_text(more)


def test_every_part_of_a_request_counts() -> None:
    empty = of()
    assert empty == ANSWER
    parts: list[JSON] = [
        {"items": [{"role": "user", "content": "word"}]},
        {"items": [{"role": "user", "content": [{"type": "input_text", "text": "word"}]}]},
        {"items": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "word"}]}]},
        {"items": [{"type": "function_call_output", "call_id": "a", "output": "word"}]},
        {"items": [{"type": "custom_tool_call_output", "call_id": "a", "output": "word"}]},
        {"instructions": "word"},
    ]
    for part in parts:
        assert estimate_tokens(a_request(**{"items": [], **part})) == empty + OVERHEAD + 1
    assert of({"type": "function_call", "name": "word", "arguments": "word"}) == empty + OVERHEAD + 2
    assert of({"type": "custom_tool_call", "name": "word", "input": "word"}) > empty + OVERHEAD + 2
    assert of(tools=[{"type": "function", "name": "word"}]) > empty + OVERHEAD
    assert of(text_format={"type": "json_schema", "schema": {"type": "object"}}) > empty
    assert of(text_format={"type": "text"}) == empty


def test_thoughts_count_as_text_or_by_the_length_of_their_seal() -> None:
    told = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "word"}], "encrypted_content": "x" * 60}
    assert of(told) == ANSWER + 1
    assert of({"type": "reasoning", "summary": [], "encrypted_content": "x" * 60}) == ANSWER + 10
    assert of({"type": "reasoning", "summary": []}) == ANSWER


def test_images_count_by_their_detail_and_files_by_their_size() -> None:
    def part(**fields: Any) -> int:
        return of({"role": "user", "content": [fields]}) - ANSWER - OVERHEAD

    assert part(type="input_image", image_url="x" * 9999, detail="low") == IMAGE_LOW
    assert part(type="input_image", image_url="x") == IMAGE
    text = base64.b64encode(b"word" * 300).decode()
    assert part(type="input_file", filename="a", file_data=text) == OVERHEAD + 300
    assert part(type="input_file", filename="a", file_data=f"data:text/plain;base64,{text}") == OVERHEAD + 300
    pdf = base64.b64encode(b"%PDF-1.7" + b"x" * 1592).decode()
    assert abs(part(type="input_file", filename="a", file_data=pdf) - OVERHEAD - 100) <= 1
    assert part(type="input_file", filename="a", file_data="?") == OVERHEAD
    assert part(type="input_file", file_url="https://example.org/a") == DISTANT_FILE


def test_what_no_model_is_given_does_not_count() -> None:
    assert of({"type": "item_reference", "id": "x"}, {"type": "shop:basket", "content": "word"}) == ANSWER
    assert of({"role": "user", "content": None}, {"role": "user", "content": [3]}) == ANSWER + 2 * OVERHEAD


def test_the_estimate_is_the_same_every_time() -> None:
    items = [{"role": "user", "content": "Straße 12, 東京 👍"}]
    assert len({of(*items) for _ in range(5)}) == 1


@pytest.mark.parametrize("text", ["word and more ", "日本語", 'é{"k": 12}👍'])
def test_ten_megabytes_are_counted_like_a_kilobyte(text: str) -> None:
    once, repeats = estimate_text(text * 1000), 10_000_000 // len(text.encode()) // 1000
    assert once * (repeats - 1) <= estimate_text(text * 1000 * repeats) <= once * repeats
