"""A model turn as a request to a server that speaks the Responses API."""

from typing import Any

import pytest
from tests.backends.conftest import a_request

from antwort.backends.responses.backend import count_body, responses_body, responses_input
from antwort.errors import BadRequestError
from antwort.types import JSON

TOOL = {"type": "function", "name": "add", "description": "Add.", "parameters": {"type": "object"}, "strict": None}


def body(**fields: Any) -> JSON:
    return responses_body(a_request(**fields), {})


# --- input ----------------------------------------------------------------------------------------------------------


def test_ids_and_states_stay_with_us() -> None:
    items = [
        {"id": "msg_1", "type": "message", "role": "user", "status": "completed", "content": "Hi"},
        {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "a", "name": "f", "arguments": "{}"},
        {"id": "fco_1", "type": "function_call_output", "call_id": "a", "output": "1", "status": "completed"},
    ]
    assert responses_input(items) == [
        {"type": "message", "role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
    ]


def test_what_the_assistant_said_is_plain_text_with_its_phase() -> None:
    said = [{"type": "output_text", "text": "a", "annotations": []}, {"type": "refusal", "refusal": "b"}]
    items = [{"type": "message", "role": "assistant", "content": said, "phase": "commentary"}]
    assert responses_input(items) == [
        {"type": "message", "role": "assistant", "content": "ab", "phase": "commentary"},
    ]


def test_parts_are_passed_on_with_what_servers_know_of_them() -> None:
    parts = [
        {"type": "input_text", "text": "Look:", "prompt_cache_breakpoint": {}},
        {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA==", "file_id": None},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
    ]
    assert responses_input([{"role": "user", "content": parts}])[0]["content"] == [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
    ]
    output = {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "1"}]}
    assert responses_input([output])[0]["output"] == [{"type": "input_text", "text": "1"}]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"role": "critic", "content": "no"}, "role 'critic'"),
        ({"role": "user", "content": 3}, "a string or a list"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "'input_audio' cannot be given"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}, "Images cannot be named"),
        ({"role": "user", "content": [{"type": "input_image"}]}, "The image has no `image_url`"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}, "Files cannot be named"),
        ({"role": "user", "content": [{"type": "input_file"}]}, "The file has no `file_data` or `file_url`"),
    ],
)
def test_content_that_cannot_be_passed_on_is_refused(item: JSON, message: str) -> None:
    with pytest.raises(BadRequestError, match=message) as caught:
        responses_input([item])
    assert caught.value.param == "input"


def test_sealed_thoughts_go_back_and_others_are_left_out() -> None:
    items: list[JSON] = [
        {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "So."}],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
            "encrypted_content": "x1",
        },
        {"id": "rs_2", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"id": "rs_3", "type": "reasoning", "summary": [], "encrypted_content": '{"type":"thinking"}'},
    ]
    assert responses_input(items) == [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "So."}], "encrypted_content": "x1"},
    ]


def test_items_that_mean_nothing_to_a_model_are_left_out() -> None:
    items = [
        {"type": "item_reference", "id": "x"},
        {"type": "shop:basket", "id": "b"},
        {"type": "compaction", "encrypted_content": "c"},
        {"type": "antwort:function_call", "id": "a"},
    ]
    assert responses_input(items) == []


def test_custom_tools_are_functions_upstream_and_arguments_are_json_for_certain() -> None:
    items = [
        {"type": "custom_tool_call", "call_id": "a", "name": "run", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "a b"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{broken"},
        {"type": "function_call_output", "call_id": "b"},
    ]
    assert responses_input(items) == [
        {"type": "function_call", "call_id": "a", "name": "run", "arguments": '{"input":"ls"}'},
        {"type": "function_call_output", "call_id": "a", "output": "a b"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": '{"invalid_arguments":"{broken"}'},
        {"type": "function_call_output", "call_id": "b", "output": ""},
    ]


# --- parameters -----------------------------------------------------------------------------------------------------


def test_only_what_was_asked_for_is_sent_and_nothing_is_stored() -> None:
    assert body() == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def test_parameters_keep_their_names() -> None:
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "max_output_tokens": 100,
        "user": "u",
        "service_tier": "flex",
        "prompt_cache_key": "k",
        "instructions": "Be brief.",
        "stream": True,
    }
    assert body(**fields).items() >= fields.items()


def test_tools_are_not_strict_unless_they_say_so() -> None:
    sent = body(tools=[TOOL, {"name": "sub", "strict": True}], tool_choice="required", parallel_tool_calls=False)
    assert sent["tools"] == [
        {"type": "function", "name": "add", "description": "Add.", "parameters": {"type": "object"}, "strict": False},
        {"type": "function", "name": "sub", "parameters": {"type": "object", "properties": {}}, "strict": True},
    ]
    assert (sent["tool_choice"], sent["parallel_tool_calls"]) == ("required", False)


def test_how_to_use_tools_is_not_said_without_tools() -> None:
    assert body(tool_choice="auto", parallel_tool_calls=True).keys().isdisjoint({"tool_choice", "parallel_tool_calls"})


def test_a_tool_choice_names_a_function() -> None:
    assert body(tools=[TOOL], tool_choice={"type": "function", "name": "add"})["tool_choice"] == {
        "type": "function",
        "name": "add",
    }
    with pytest.raises(BadRequestError, match="names no function"):
        body(tools=[TOOL], tool_choice={"type": "file_search"})


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"effort": "high"}, {"effort": "high", "summary": "auto"}),
        ({"effort": "low", "summary": "concise"}, {"effort": "low", "summary": "concise"}),
        ({"summary": "detailed"}, {"summary": "detailed"}),
        ({"effort": "none"}, {"effort": "none"}),
        ({}, None),
    ],
)
def test_thoughts_are_summed_up_where_somebody_asked_for_thinking(fields: JSON, reasoning: JSON | None) -> None:
    assert body(**fields).get("reasoning") == reasoning


def test_sealed_thoughts_and_log_probabilities_are_asked_for() -> None:
    assert "include" not in body(effort="none")
    assert body(top_logprobs=2)["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert body(top_logprobs=2)["top_logprobs"] == 2
    assert "include" not in responses_body(a_request(), {}, sealed_thoughts=False)


def test_text_has_a_format_and_a_verbosity() -> None:
    schema = {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}
    assert body(text_format=schema, verbosity="low")["text"] == {"format": schema, "verbosity": "low"}
    assert "text" not in body(text_format={"type": "text"})


def test_further_fields_replace_ours_and_null_leaves_one_out() -> None:
    request = a_request(temperature=0.5, extra={"top_k": 7})
    sent = responses_body(request, {"top_k": 5, "temperature": None, "include": None})
    assert sent["top_k"] == 7
    assert sent.keys().isdisjoint({"temperature", "include"})


def test_a_count_is_asked_for_what_the_model_reads() -> None:
    request = a_request(instructions="Be brief.", tools=[TOOL], effort="low", temperature=0.5, stream=True, user="u")
    assert count_body(request).keys() == {"model", "input", "instructions", "tools", "reasoning"}
