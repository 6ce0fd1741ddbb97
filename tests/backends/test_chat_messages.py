"""Wire items as Chat Completions messages."""

import base64
import json
from typing import Any

import pytest

from antwort.backends.chat.request import ChatDialect, chat_messages
from antwort.errors import BadRequestError
from antwort.text.foreign_text import attached
from antwort.types import JSON


def messages(*items: JSON, instructions: str | None = None, **dialect: Any) -> list[JSON]:
    return chat_messages(items, instructions, ChatDialect(**dialect), "local")


def call(call_id: str, name: str = "add", arguments: str = "{}") -> JSON:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, value: Any = "3") -> JSON:
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def made(call_id: str, name: str = "add", arguments: str = "{}") -> JSON:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(content: Any) -> JSON:
    return {"type": "message", "role": "user", "content": content}


def assistant(text: str) -> JSON:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def thought(text: str) -> JSON:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def tool(call_id: str, content: str = "3") -> JSON:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def data_url(raw: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(raw).decode()}"


PDF = data_url(b"%PDF-1.7 \x00\xff", "application/pdf")


# --- messages -------------------------------------------------------------------------------------------------------


def test_instructions_come_first() -> None:
    assert messages(user("Hi"), instructions="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]


def test_a_message_needs_no_type_and_no_list() -> None:
    assert messages({"role": "user", "content": "Hi"}) == [{"role": "user", "content": "Hi"}]


def test_developers_speak_as_the_system_where_their_role_is_not_known() -> None:
    item = {"role": "developer", "content": "Be brief."}
    assert messages(item) == [{"role": "system", "content": "Be brief."}]
    assert messages(item, developer_role="developer") == [{"role": "developer", "content": "Be brief."}]


def test_one_text_is_sent_as_a_string_and_several_as_parts() -> None:
    one, two = {"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}
    assert messages(user([one]))[0]["content"] == "a"
    assert messages(user([one, two]))[0]["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert messages(user([]))[0]["content"] == ""


def test_what_the_assistant_said_or_refused_is_text() -> None:
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}
    assert messages(said, user("c")) == [{"role": "assistant", "content": "ab"}, {"role": "user", "content": "c"}]
    assert messages({"role": "assistant", "content": "a"}) == [{"role": "assistant", "content": "a"}]


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(BadRequestError, match="role 'critic'"):
        messages({"role": "critic", "content": "no"})


def test_items_that_mean_nothing_to_a_model_are_left_out() -> None:
    items = [{"type": "shop:basket", "id": "b"}, {"type": "item_reference", "id": "x"}, user("Hi")]
    assert messages(*items) == [{"role": "user", "content": "Hi"}]


# --- calls ----------------------------------------------------------------------------------------------------------


def test_parallel_calls_are_one_message_followed_by_their_outputs() -> None:
    items = [user("q"), call("a"), call("b", "sub"), output("b", "4"), output("a")]
    assert messages(*items)[1:] == [
        {"role": "assistant", "content": None, "tool_calls": [made("a"), made("b", "sub")]},
        tool("a"),
        tool("b", "4"),
    ]


@pytest.mark.parametrize("items", [[assistant("Let me see."), call("a")], [call("a"), assistant("Let me see.")]])
def test_text_beside_calls_is_kept(items: list[JSON]) -> None:
    assert messages(*items, output("a")) == [
        {"role": "assistant", "content": "Let me see.", "tool_calls": [made("a")]},
        tool("a"),
    ]


def test_calls_of_later_turns_are_messages_of_their_own() -> None:
    assert messages(call("a"), output("a"), call("b"), output("b"), assistant("Done.")) == [
        {"role": "assistant", "content": None, "tool_calls": [made("a")]},
        tool("a"),
        {"role": "assistant", "content": None, "tool_calls": [made("b")]},
        tool("b"),
        {"role": "assistant", "content": "Done."},
    ]


def test_an_output_that_came_late_stands_where_its_call_is() -> None:
    assert messages(call("a"), call("b"), output("a"), user("and?"), output("b", "4")) == [
        {"role": "assistant", "content": None, "tool_calls": [made("a"), made("b")]},
        tool("a"),
        tool("b", "4"),
        {"role": "user", "content": "and?"},
    ]


def test_ids_that_servers_use_again_do_not_mix_outputs_up() -> None:
    items = [call("0"), output("0", "first"), call("0"), output("0", "second")]
    assert [message["content"] for message in messages(*items) if message["role"] == "tool"] == ["first", "second"]


def test_hosted_items_between_calls_and_outputs_change_nothing() -> None:
    items = [call("a"), {"type": "shop:basket", "id": "b"}, call("b"), output("a"), output("b")]
    assert len(messages(*items)) == 3


def test_an_output_without_its_call_is_refused() -> None:
    with pytest.raises(BadRequestError, match="call_id 'z'") as caught:
        messages(call("a"), output("a"), output("z"))
    assert caught.value.param == "input"


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        (" ", "{}"),
        ('{"a": ', json.dumps({"invalid_arguments": '{"a": '}, separators=(",", ":"))),
        ("[1]", '{"invalid_arguments":"[1]"}'),
    ],
)
def test_arguments_of_earlier_calls_are_always_a_json_object(written: str, sent: str) -> None:
    assert messages(call("a", arguments=written))[0]["tool_calls"] == [made("a", arguments=sent)]


def test_text_parts_of_an_output_are_joined() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}]
    assert messages(call("a"), output("a", parts))[1] == tool("a", "a\nb")


def test_images_of_outputs_follow_after_all_outputs_of_the_turn() -> None:
    picture = [{"type": "input_text", "text": "Here."}, {"type": "input_image", "image_url": "https://x/y.png"}]
    sent = messages(call("a", "draw"), call("b"), output("a", picture), output("b"), user("Nice"))
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user", "user"]
    assert sent[1]["content"] == "Here.\n(attached to the next message as output of draw)"
    assert sent[3]["content"] == [
        {"type": "text", "text": "Output of draw:"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
    ]


# --- thoughts -------------------------------------------------------------------------------------------------------


def test_thoughts_go_back_with_the_calls_they_led_to() -> None:
    sent = messages(thought("Hm."), assistant("Let me see."), call("a"), output("a"), thought("So."), assistant("3"))
    assert sent == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Hm.",
            "tool_calls": [made("a")],
        },
        tool("a"),
        {"role": "assistant", "content": "3"},
    ]


def test_thoughts_are_kept_back_where_they_are_not_wanted() -> None:
    assert "reasoning_content" not in messages(thought("Hm."), call("a"), output("a"), reasoning=False)[0]


def test_thoughts_that_led_to_nothing_do_not_reach_a_later_turn() -> None:
    sent = messages(thought("Hm."), user("Well?"), call("a"), output("a"))
    assert "reasoning_content" not in sent[1]


def test_thoughts_nobody_can_read_are_left_out() -> None:
    sealed = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "x"}
    assert "reasoning_content" not in messages(sealed, call("a"), output("a"))[0]


# --- images and files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detail", [None, "high"])
def test_images_are_sent_by_url(detail: str | None) -> None:
    part = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": detail}
    image = {"url": "data:image/png;base64,AA=="} | ({} if detail is None else {"detail": detail})
    assert messages(user([part]))[0]["content"] == [{"type": "image_url", "image_url": image}]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("notes.md", data_url("Grüße".encode(), "text/markdown")),
        ("notes.md", base64.b64encode("Grüße".encode()).decode()),
        ("notes.md", data_url(b"\xef\xbb\xbf" + "Grüße".encode(), "application/octet-stream")),
        ("notes.md", data_url("Grüße".encode("utf-16"), "text/csv")),
        ("notes.md", "data:text/plain,Gr%C3%BC%C3%9Fe"),
    ],
)
def test_text_files_become_text(name: str, data: str) -> None:
    part = {"type": "input_file", "filename": name, "file_data": data}
    assert messages(user([part]))[0]["content"] == attached("Grüße", "notes.md")


def test_pdf_files_are_passed_to_servers_that_take_them() -> None:
    part = {"type": "input_file", "filename": "a.pdf", "file_data": PDF}
    sent = {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}
    assert messages(user([part]), pdf=True)[0]["content"] == [sent]
    bare = {**part, "file_data": PDF.partition(",")[2]}
    assert messages(user([bare]), pdf=True)[0]["content"] == [sent]


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "input_image", "file_id": "file-1"}, "Images cannot be named by `file_id` yet"),
        ({"type": "input_image"}, "no `image_url`"),
        ({"type": "input_file", "file_id": "file-1"}, "Files cannot be named by `file_id` yet"),
        ({"type": "input_file", "file_url": "https://x/y"}, "Files cannot be named by `file_url` yet"),
        ({"type": "input_file", "filename": "a"}, "no `file_data`"),
        ({"type": "input_file", "filename": "a.pdf", "file_data": PDF}, "'local' takes no PDF files"),
        ({"type": "input_file", "filename": "a.txt", "file_data": "not base64!"}, "'a.txt' is not base64"),
        ({"type": "input_file", "filename": "a.zip", "file_data": data_url(b"PK\0\0", "x/y")}, "'a.zip' is not text"),
        ({"type": "input_file", "filename": "a.png", "file_data": data_url(b"\x89PNG", "x/y")}, "'a.png' is not text"),
        ({"type": "input_audio", "data": "AA=="}, "content of the type 'input_audio'"),
    ],
)
def test_content_that_cannot_be_sent_is_refused_with_the_reason(part: JSON, reason: str) -> None:
    with pytest.raises(BadRequestError, match=reason) as caught:
        messages(user([part]))
    assert caught.value.param == "input"


def test_content_of_no_known_shape_is_refused() -> None:
    with pytest.raises(BadRequestError, match="a string or a list of parts"):
        messages(user([1]))


# --- custom tools ---------------------------------------------------------------------------------------------------


def test_calls_of_custom_tools_are_calls_of_functions_with_one_argument() -> None:
    items = [
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "a", "name": "run_sql", "input": 'select "x"'},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "1 row"},
    ]
    assert messages(*items) == [
        {"role": "assistant", "content": None, "tool_calls": [made("a", "run_sql", '{"input":"select \\"x\\""}')]},
        tool("a", "1 row"),
    ]


def test_outputs_of_custom_tools_may_be_parts() -> None:
    items: list[JSON] = [
        {"type": "custom_tool_call", "call_id": "a", "name": "run_sql", "input": ""},
        {"type": "custom_tool_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "1 row"}]},
    ]
    assert messages(*items)[1] == tool("a", "1 row")


def test_input_of_a_custom_tool_that_is_no_unicode_is_refused() -> None:
    item = {"type": "custom_tool_call", "call_id": "a", "name": "run_sql", "input": "\ud800"}
    with pytest.raises(BadRequestError, match="not valid Unicode"):
        messages(item)
