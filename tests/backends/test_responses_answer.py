"""Answers of the Responses API, in events or whole, fed to a sink."""

import json
from typing import Any

import pytest
from tests.backends.conftest import Notes

from antwort.backends.errors import BROKEN, DISCONNECTED, FAILED
from antwort.backends.http.transport import AnswerLimits
from antwort.backends.responses.answer import ResponsesAnswer
from antwort.errors import APIError, BadGatewayError, BadRequestError, RateLimitError
from antwort.types import JSON

LIMITS = AnswerLimits.default("local")

USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 14,
}
FED_USAGE = ("usage", 9, 5, 14)


def end(status: str = "completed", output: list[JSON] | None = None, **fields: Any) -> JSON:
    response = {"id": "resp_1", "object": "response", "status": status, "output": output or [], "usage": USAGE}
    return {"type": f"response.{status}", "response": {**response, "error": None, **fields}}


def text(delta: str, index: int = 0, part: int = 0, **fields: Any) -> JSON:
    place = {"item_id": "msg_1", "output_index": index, "content_index": part}
    return {"type": "response.output_text.delta", "delta": delta, **place, **fields}


def message(*texts: str, **fields: Any) -> JSON:
    parts = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []} for text in texts]
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": parts, **fields}


def call(call_id: str = "a", name: str = "add", arguments: str = "") -> JSON:
    return {"id": "fc", "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def added(index: int, item: JSON) -> JSON:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: JSON) -> JSON:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def arguments(index: int, delta: str) -> JSON:
    return {"type": "response.function_call_arguments.delta", "output_index": index, "delta": delta}


def read(*events: JSON | bytes, alternatives: int | None = None) -> Notes:
    notes = Notes()
    turn = ResponsesAnswer(LIMITS, notes, alternatives)
    for event in events:
        turn.take(event if isinstance(event, bytes) else json.dumps(event).encode())
    turn.end()
    return notes


def read_whole(response: Any) -> Notes:
    notes = Notes()
    turn = ResponsesAnswer(LIMITS, notes)
    turn.take_whole(response if isinstance(response, bytes) else json.dumps(response).encode())
    turn.end()
    return notes


def failure(*events: JSON | bytes) -> APIError:
    with pytest.raises(APIError) as caught:
        read(*events)
    return caught.value


# --- text -----------------------------------------------------------------------------------------------------------


def test_text_is_fed_as_it_comes_and_once() -> None:
    item = message("Hello")
    whole = {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Hello"}
    notes = read(
        {"type": "response.created", "response": {"status": "in_progress", "output": []}},
        added(0, message()),
        text("Hel"),
        text("lo"),
        whole,
        done(0, item),
        end(output=[item]),
    )
    assert notes.calls == [("text", "Hel"), ("text", "lo"), FED_USAGE, ("finish", "stop")]


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "response.output_text.done", "text": "Hello"}, done(0, message("Hello")), end()],
        [done(0, message("Hello")), end(output=[message("Hello")])],
        [end(output=[message("Hello")])],
    ],
)
def test_text_without_deltas_is_found_in_whatever_is_whole(events: list[JSON]) -> None:
    assert read(*events).calls == [("text", "Hello"), FED_USAGE, ("finish", "stop")]


def test_an_item_that_came_in_pieces_is_not_repeated_where_numbers_of_parts_disagree() -> None:
    wrong = {"type": "response.output_text.done", "output_index": 0, "content_index": 3, "text": "Hello"}
    assert read(text("Hello"), wrong, end(output=[{"type": "reasoning"}, message("Hello")])).said() == "Hello"


def test_texts_of_two_items_or_parts_are_parted() -> None:
    assert read(text("One."), text("Two.", index=1), text(" More.", index=1), end()).said() == "One.\n\nTwo. More."
    assert read_whole(end(output=[message("One.", "Two.")])["response"]).said() == "One.\n\nTwo."


def test_log_probabilities_are_in_the_shape_of_responses() -> None:
    token = {"token": "Hi", "logprob": -0.5, "top_logprobs": [{"token": "Yo", "logprob": -2.0}]}
    fed = {
        "token": "Hi",
        "logprob": -0.5,
        "bytes": [72, 105],
        "top_logprobs": [{"token": "Yo", "logprob": -2.0, "bytes": [89, 111]}],
    }
    part = {"type": "output_text", "text": "Hi", "logprobs": [token]}
    for events in ([text("Hi", logprobs=[token]), end()], [end(output=[message(content=[part])])]):
        assert read(*events, alternatives=1).calls[0] == ("text", "Hi", [fed])
        assert read(*events, alternatives=0).calls[0] == ("text", "Hi", [{**fed, "top_logprobs": []}])
        assert read(*events).calls[0] == ("text", "Hi"), "nobody asked for them"


def test_a_refusal_is_one_in_every_form() -> None:
    piece = {"type": "response.refusal.delta", "delta": "No."}
    whole = {"type": "response.refusal.done", "refusal": "No."}
    item = message(content=[{"type": "refusal", "refusal": "No."}])
    for events in ([piece, whole, done(0, item), end()], [whole, end()], [end(output=[item])]):
        assert read(*events).calls[0] == ("refusal", "No.")
        assert read(*events).said("refusal") == "No."


# --- thoughts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["response.reasoning_text", "response.reasoning"])
def test_thoughts_and_their_sealed_form_are_fed(name: str) -> None:
    item = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}], "encrypted_content": "x1"}
    notes = read(
        {"type": f"{name}.delta", "delta": "Hm", "output_index": 0},
        {"type": f"{name}.delta", "delta": ".", "output_index": 0},
        {"type": f"{name}.done", "text": "Hm.", "output_index": 0},
        done(0, item),
        text("Hi", index=1),
        end(output=[item, message("Hi")]),
    )
    assert notes.calls[:4] == [("reasoning", "Hm"), ("reasoning", "."), ("opaque", "x1"), ("text", "Hi")]


def test_parts_of_a_summary_are_parted() -> None:
    def summary(delta: str, part: int) -> JSON:
        return {"type": "response.reasoning_summary_text.delta", "delta": delta, "summary_index": part}

    notes = read(summary("One", 0), summary(".", 0), summary("Two.", 1), end())
    assert notes.said("summary") == "One.\n\nTwo."


def test_a_whole_reasoning_item_gives_all_it_has() -> None:
    item = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "So."}],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
        "encrypted_content": "x1",
    }
    assert read_whole(end(output=[item])["response"]).calls[:3] == [
        ("reasoning", "Hm."),
        ("summary", "So."),
        ("opaque", "x1"),
    ]
    whole = {"type": "response.reasoning_summary_text.done", "text": "So."}
    thought = {"type": "response.reasoning_text.done", "text": "Hm."}
    assert read(thought, whole, done(0, item), end()).calls[:3] == [
        ("reasoning", "Hm."),
        ("summary", "So."),
        ("opaque", "x1"),
    ]


def test_each_reasoning_item_gives_its_own_sealed_form() -> None:
    one: JSON = {"type": "reasoning", "summary": [], "encrypted_content": "x1"}
    two: JSON = {"type": "reasoning", "summary": [], "encrypted_content": "x2"}
    assert read(done(0, one), text("Hm", index=1), done(2, two), end()).calls[:3] == [
        ("opaque", "x1"),
        ("text", "Hm"),
        ("opaque", "x2"),
    ]


# --- calls ----------------------------------------------------------------------------------------------------------


def test_parallel_calls_are_told_apart_by_their_place() -> None:
    notes = read(
        added(1, call("a")),
        added(2, call("b", "sub")),
        arguments(2, '{"x":'),
        arguments(1, "{}"),
        arguments(2, "1}"),
        {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": '{"x":1}'},
        done(1, call("a", arguments="{}")),
        done(2, call("b", "sub", '{"x":1}')),
        end(),
    )
    assert notes.calls == [
        ("call", 0, "a", "add", ""),
        ("call", 1, "b", "sub", ""),
        ("call", 1, None, None, '{"x":'),
        ("call", 0, None, None, "{}"),
        ("call", 1, None, None, "1}"),
        FED_USAGE,
        ("finish", "tool_calls"),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [added(0, call()), {"type": "response.function_call_arguments.done", "arguments": '{"x":1}'}, end()],
        [added(0, call()), done(0, call(arguments='{"x":1}')), end()],
        [added(0, call(name="")), arguments(0, '{"x"'), done(0, call(arguments='{"x":1}')), end()],
        [added(0, call()), arguments(0, '{"x"'), done(0, call(arguments='{"x":1}')), end()],
        [added(0, call(arguments='{"x":1}')), end()],
        [done(0, call(arguments='{"x":1}')), end()],
        [end(output=[call(arguments='{"x":1}')])],
    ],
)
def test_arguments_are_complete_wherever_they_came(events: list[JSON]) -> None:
    notes = read(*events)
    calls = [fed for fed in notes.calls if fed[0] == "call"]
    assert calls[0][:4] == ("call", 0, "a", "add")
    assert "".join(fed[4] for fed in calls) == '{"x":1}'
    assert notes.calls[-1] == ("finish", "tool_calls")


def test_a_call_without_arguments_gets_empty_ones() -> None:
    assert ("call", 0, None, None, "{}") in read(done(0, call()), end()).calls


def test_a_call_that_never_gets_a_name_is_an_error() -> None:
    assert failure(done(0, call(name="")), end()).code == BROKEN


def test_pieces_of_calls_nobody_announced_are_passed_over() -> None:
    stray = {"type": "response.function_call_arguments.done", "output_index": 4, "arguments": "{}"}
    assert read(arguments(4, "{}"), stray, end()).calls == [FED_USAGE, ("finish", "stop")]


# --- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("max_output_tokens", "length"), ("content_filter", "content_filter"), ("max_turns", "length"), (None, "length")],
)
def test_an_incomplete_answer_tells_why(reason: str | None, finish: str) -> None:
    details = None if reason is None else {"reason": reason}
    assert read(text("Hi"), end("incomplete", incomplete_details=details)).calls[-1] == ("finish", finish)


def test_a_server_without_usage_reports_none() -> None:
    assert read(text("Hi"), end(usage=None)).calls == [("text", "Hi"), ("finish", "stop")]


def test_an_empty_answer_is_one() -> None:
    assert read(end()).calls == [FED_USAGE, ("finish", "stop")]


def test_unknown_events_items_and_parts_are_passed_over() -> None:
    notes = read(
        {"type": "response.web_search_call.searching", "output_index": 0},
        {"type": "acme:thing", "sequence_number": 3},
        {"type": "keepalive"},
        {},
        added(0, {"type": "web_search_call"}),
        done(0, {"type": "web_search_call"}),
        {"type": "response.output_item.done", "item": None},
        {"type": "response.output_text.delta", "delta": None},
        end(output=[{"type": "web_search_call"}, message("Hi")]),
    )
    assert notes.said() == "Hi"


@pytest.mark.parametrize("events", [[], [text("Hi")], [text("Hi"), b"[DONE]"], [b"[DONE]"]])
def test_a_stream_without_its_last_event_was_cut_off(events: list[JSON | bytes]) -> None:
    found = failure(*events)
    assert (found.status, found.code) == (502, DISCONNECTED)


def test_nothing_follows_the_last_event() -> None:
    turn = ResponsesAnswer(LIMITS, Notes())
    assert not turn.done
    turn.take(json.dumps(end()).encode())
    assert turn.done


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "kind", "code"),
    [
        ({"code": "server_error", "message": "boom"}, BadGatewayError, FAILED),
        ({"code": "rate_limit_exceeded", "message": "boom"}, RateLimitError, "rate_limit_exceeded"),
        ({"code": "invalid_prompt", "message": "boom"}, BadRequestError, "invalid_prompt"),
        ({"code": "context_length_exceeded", "message": "boom"}, BadRequestError, "context_length_exceeded"),
    ],
)
def test_errors_mean_the_same_in_every_form(report: JSON, kind: type[APIError], code: str) -> None:
    forms: list[JSON] = [
        {"type": "error", "sequence_number": 3, "param": None, **report},
        {"type": "error", "sequence_number": 3, "error": {"type": "x", **report}},
        {"error": report},
        end("failed", error=report),
    ]
    for form in forms:
        found = failure(text("Hi"), form)
        assert type(found) is kind
        assert found.code == code
        assert "boom" in found.message


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_an_answer_that_was_given_up_without_a_reason_is_an_error(status: str) -> None:
    assert failure(text("Hi"), end(status)).code == FAILED


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b"<html><title>Welcome</title></html>", BROKEN, "Welcome"),
        ({"choices": []}, BROKEN, "not one of the Responses API"),
        ([1], BROKEN, "no answer"),
        ({"error": {"message": "boom"}}, FAILED, "boom"),
        ({"detail": "boom"}, FAILED, "boom"),
        ({"status": "queued", "output": []}, FAILED, "'queued'"),
    ],
)
def test_what_is_no_answer_is_an_error_that_says_so(body: Any, code: str, message: str) -> None:
    with pytest.raises(BadGatewayError, match=message) as caught:
        read_whole(body)
    assert caught.value.code == code


def test_an_event_that_is_no_json_is_an_error() -> None:
    assert failure(b"{broken").code == BROKEN
