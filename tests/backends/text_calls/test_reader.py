"""Calls that models write as text, in all their ways of writing them; and text that only looks like a call."""

import json
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antwort.backends.text_calls.formats import TextCall
from antwort.backends.text_calls.sinks import CallReader, Piece
from antwort.types import JSON

ADD: JSON = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "label": {"type": "string"}}},
}
LOOK: JSON = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}

CALL = '{"name": "add", "arguments": {"a": 1}}'
OTHER = '{"name": "look_up", "arguments": {}}'
STRANGE = '{"name": "subtract", "arguments": {"a": 1}}'


def read(pieces: Iterable[str], *, several: bool = True) -> list[Piece]:
    """Return what is read of a text, texts that follow each other as one."""
    reader = CallReader([ADD, LOOK], several=several)
    found: list[Piece] = [part for piece in pieces for part in reader.take(piece)]
    joined: list[Piece] = []
    for piece in [*found, *reader.end()]:
        if joined and isinstance(piece, str) and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def shape(pieces: Iterable[Piece]) -> list[object]:
    """Return texts, and calls as names with their arguments."""
    return [piece if isinstance(piece, str) else (piece.name, json.loads(piece.arguments)) for piece in pieces]


ONE = [("add", {"a": 1})]

WRITTEN = {
    "bare": CALL,
    "bare, with blanks": f"\n\n  {CALL}\n",
    "bare, of Llama": '{"type": "function", "name": "add", "parameters": {"a": 1}}',
    "bare, of OpenAI": '{"id": "x", "type": "function", "function": {"name": "add", "arguments": "{\\"a\\": 1}"}}',
    "a list of OpenAI's": f'{{"tool_calls": [{{"function": {CALL}}}]}}',
    "a list": f"[{CALL}]",
    "Hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "Hermes, not closed": f"<tool_call>{CALL}",
    "Hermes, closed twice": f"<tool_call>\n{CALL}}}\n</tool_call>",
    "Hermes, in a list": f"<tool_call>[{CALL}]</tool_call>",
    "a function call": f"<function_call>{CALL}</function_call>",
    "Mistral": f"[TOOL_CALLS] [{CALL}]",
    "Mistral, by name": '[TOOL_CALLS]add{"a": 1}',
    "Mistral, by name and mark": '[TOOL_CALLS]add[ARGS]{"a": 1}',
    "Granite": f"<|tool_call|>[{CALL}]",
    "Llama's tag": f"<|python_tag|>{CALL}",
    "Llama's function": '<function=add>{"a": 1}</function>',
    "Llama's function, not closed": '<function=add>{"a": 1}',
    "Qwen Coder": "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "a fence": f"```json\n{CALL}\n```",
    "a fence without a language": f"```\n{CALL}\n```",
    "a fence for calls": f"```tool_call\n{CALL}\n```",
    "a fence that is not closed": f"```json\n{CALL}",
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN.keys())
def test_a_call_is_read_however_it_is_written(written: str) -> None:
    assert shape(read([written])) == ONE
    assert shape(read(written)) == ONE
    assert shape(read(["Let me see.", f"\n\n{written}"])) == ["Let me see.", *ONE]


@pytest.mark.parametrize(
    "written",
    [
        f"{CALL}\n{OTHER}",
        f"{CALL}, {OTHER}",
        f"{CALL}; {OTHER}",
        f"[{CALL}, {OTHER}]",
        f"<tool_call>{CALL}</tool_call>\n<tool_call>{OTHER}</tool_call>",
        f"<tool_call>{CALL}\n{OTHER}</tool_call>",
        f"<tool_call>{CALL}</tool_call>{OTHER}",
        f"[TOOL_CALLS][{CALL}, {OTHER}]",
        '[TOOL_CALLS]add{"a": 1}[TOOL_CALLS]look_up{}',
        '<function=add>{"a": 1}</function><function=look_up></function>',
        f"```json\n[{CALL}, {OTHER}]\n```",
        f"```json\n{CALL}\n{OTHER}\n```",
    ],
)
def test_several_calls_are_read(written: str) -> None:
    assert shape(read(written)) == [*ONE, ("look_up", {})]
    assert shape(read(written, several=False)) == ONE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "Hello, world.\n\nIs 1 < 2? [Yes]. {so it is} `code` ```python\nx = {}\n``` <b>bold</b> <tool",
        STRANGE,
        f"<tool_call>{STRANGE}</tool_call>",
        f"```json\n{STRANGE}\n```",
        f"[{CALL}, {STRANGE}]",
        '<function=subtract>{"a": 1}</function>',
        '[TOOL_CALLS]subtract{"a": 1}',
        '{"name": "add"}',
        '{"name": "Ada", "arguments": ["for", "and against"]}',
        '{"first": {"name": "add", "arguments": {}}}',
        f"The call would be {CALL}, I think.",
        "<tool_call>I would rather not.</tool_call>",
        '{"name": "add", "argum',
        "{",
        "[TOOL_CA",
        "``",
    ],
)
def test_what_only_looks_like_a_call_is_text_to_the_letter(text: str) -> None:
    assert "".join(str(piece) for piece in read(text)) == text
    assert all(isinstance(piece, str) for piece in read(text))


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<tool_response>\nTwo minutes.\n</tool_response>", "\nTwo minutes."),
        ('<tool_response name="add">3</tool_response>', "3"),
        ("It is <tool_response>3", "It is3"),
        ("<tool_respond>3", "<tool_respond>3"),
        ("</tool_resp", "</tool_resp"),
    ],
)
def test_the_marks_of_a_result_without_a_call_are_left_out(text: str, shown: str, size: int) -> None:
    reader = CallReader([ADD])
    pieces = [piece for start in range(0, len(text), size) for piece in reader.take(text[start : start + size])]
    assert "".join(map(str, pieces + reader.end())) == shown


def test_text_before_a_call_flows_at_once() -> None:
    reader = CallReader([ADD])
    assert reader.take("Let me") == ["Let me"]
    assert reader.take(" see: is 1 <") == [" see: is 1"]
    assert reader.take(" 2?\n<tool") == [" < 2?"]
    assert reader.take(f"_call>{CALL}") == []
    assert reader.take("</tool_call> Now") == [TextCall("add", '{"a":1}'), "Now"]
    assert reader.end() == []


def test_json_that_is_no_call_flows_on_after_its_first_key() -> None:
    reader = CallReader([ADD])
    assert reader.take('{"ci') == []
    assert reader.take('ty": ') == ['{"city":']
    assert reader.take('"Bonn"}') == [' "Bonn"}']


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('<tool_call>{"name": "add", "arguments": {"a": 1,}}</tool_call>', '{"a": 1,}}'),
        ('<tool_call>{"name": "add", "arguments": {"a": 1</tool_call>', '{"a": 1'),
        ('<tool_call>{"name": "add", "arguments": {\'a\': 1}}</tool_call>', "{'a': 1}}"),
        ('<tool_call>{"name": "add", "arguments": {"a": "1}}</tool_call>', '{"a": "1}}'),
        ('{"name": "add", "arguments": {"a": ', '{"a":'),
        ('<function=add>{"a": 1,</function>', '{"a": 1,'),
        ("<function=add>one</function>", "one"),
    ],
)
def test_arguments_that_are_no_json_go_to_whoever_can_say_so(text: str, arguments: str) -> None:
    assert read(text) == [TextCall("add", arguments)]


def test_a_missing_bracket_at_the_end_is_no_harm() -> None:
    assert shape(read('<tool_call>{"name": "add", "arguments": {"a": 1}</tool_call>')) == ONE


def test_what_closes_a_call_may_stand_in_its_arguments() -> None:
    arguments = {"label": "</tool_call> ``` </function> }"}
    for before, after in (("<tool_call>", "</tool_call>"), ("```json\n", "\n```"), ("", "")):
        text = f"{before}{json.dumps({'name': 'add', 'arguments': arguments})}{after}"
        assert shape(read(text)) == [("add", arguments)]
    assert shape(read(f"<function=add>{json.dumps(arguments)}</function>")) == [("add", arguments)]


def test_tagged_parameters_have_the_types_of_the_schema() -> None:
    text = (
        "<function=add><parameter=a>7</parameter><parameter=label>7</parameter><parameter=x>[1]</parameter></function>"
    )
    assert shape(read(text)) == [("add", {"a": 7, "label": "7", "x": [1]})]


def test_results_that_a_model_makes_up_are_left_out() -> None:
    text = (
        f"<tool_call>{CALL}</tool_call>\n<tool_response>\n5\n</tool_response>\nIt is 5. <tool_call>{OTHER}</tool_call>"
    )
    assert shape(read(text)) == ONE
    assert shape(read([text])) == ONE


def test_text_behind_a_call_is_kept_if_there_may_be_several() -> None:
    text = f"<tool_call>{CALL}</tool_call>\nThat is it."
    assert shape(read(text)) == [*ONE, "That is it."]
    assert shape(read(text, several=False)) == ONE


FRAGMENTS = [
    *(CALL, OTHER, STRANGE, "Hello", " ", "\n", ",", ";", "}", "]", '"', "\\", "<", "[", "{", "`", "```", "```json\n"),
    *("<tool_call>", "</tool_call>", "<function=add>", "<function=no>", "</function>", "[TOOL_CALLS]", "[ARGS]", "add"),
    *('{"name": "add", "arguments": {"a": ', '{"a": 1}', "<parameter=a>", "</parameter>", "<tool_response>"),
    *("<|python_tag|>", "<|tool_call|>", "<function_call>", '{"id": 1}', '{"city": "Bonn"}', "[1, 2]"),
]


@given(
    text=st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=12).map("".join),
    cuts=st.lists(st.integers(0, 300), max_size=12),
    several=st.booleans(),
)
@example(text=f"[TOOL_CALLS][{CALL}]", cuts=[1, 2, 5], several=True)
@example(text="```\n\n```json\n" + CALL, cuts=[1, 2, 3, 4, 5, 9], several=True)
def test_how_a_stream_is_cut_never_changes_what_is_read(text: str, cuts: list[int], several: bool) -> None:
    whole = read([text], several=several)
    places = sorted({0, *(cut % (len(text) + 1) for cut in cuts), len(text)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert read(pieces, several=several) == whole
    assert read(text, several=several) == whole


def test_long_arguments_are_read_in_many_small_pieces() -> None:
    arguments = {"label": "x{}<`[\n" * 20_000}
    text = f"<tool_call>{json.dumps({'name': 'add', 'arguments': arguments})}</tool_call>"
    pieces = [text[start : start + 4] for start in range(0, len(text), 4)]
    assert shape(read(pieces)) == [("add", arguments)]
