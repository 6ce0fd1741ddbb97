import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.testing.streams import Stream, citation, everything, frame, raw, response

from antwort.testing import LintError, lint_response, lint_stream
from antwort.types import JSON

Mutation = Callable[[list[JSON]], object]


def find(events: list[JSON], kind: str, number: int = 0) -> JSON:
    return [event for event in events if event["type"] == f"response.{kind}"][number]


def position(events: list[JSON], kind: str, number: int = 0) -> int:
    return next(i for i, event in enumerate(events) if event is find(events, kind, number))


def renumbered(events: list[JSON]) -> list[JSON]:
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def rules(error: LintError) -> set[str]:
    return {violation.rule for violation in error.violations}


def refused(body: bytes | list[bytes], **options: Any) -> LintError:
    with pytest.raises(LintError) as caught:
        lint_stream(body, **options)
    return caught.value


# --- what passes -----------------------------------------------------------------------------------------------------


def test_a_correct_stream_passes_and_is_returned() -> None:
    stream = everything()
    linted = lint_stream(stream.raw())
    assert linted.events == stream.events
    assert linted.response == stream.events[-1]["response"]
    assert linted.text == "The answer"
    assert linted.frames == len(stream.events) + 1
    assert linted.types[:2] == ["response.created", "response.in_progress"]


def test_a_stream_may_come_in_pieces_of_any_size() -> None:
    body = everything().raw()
    pieces = [body[start : start + 7] for start in range(0, len(body), 7)]
    assert lint_stream(iter(pieces)).text == "The answer"


def test_heartbeats_between_frames_are_counted() -> None:
    frames = [frame(event) for event in Stream().message("Hi").end().events]
    body = b": keep-alive\n\n" + b": keep-alive\n\n".join(frames) + b"data: [DONE]\n\n"
    assert lint_stream(body).comments == len(frames)


@pytest.mark.parametrize(
    "stream",
    [
        Stream(queued=True).message("Hi").end(),
        Stream().message("Hi", status="incomplete").end("incomplete"),
        Stream().message("Hi").end("incomplete", incomplete_details={"reason": "max_turns"}),
        Stream().message("Hi").end("failed"),
        Stream(background=True).message("Hi").end("incomplete", status="cancelled", incomplete_details=None),
        Stream(tools=[{"type": "web_search"}], tool_choice={"type": "file_search"}).search().end(),
        Stream(reasoning={"effort": "minimal", "summary": None}).message("Hi").end(),
        Stream(
            text={"format": {"type": "json_schema", "name": "n", "description": None, "schema": {}, "strict": True}}
        ).end(),
    ],
    ids=["queued", "incomplete", "max_turns", "failed", "cancelled", "hosted", "effort", "json_schema"],
)
def test_other_correct_streams_pass(stream: Stream) -> None:
    assert lint_stream(stream.raw()).response["id"] == "resp_1"


def test_an_error_may_have_the_nested_form_alone_or_both() -> None:
    nested = {"type": "server_error", "code": "server_error", "message": "It broke.", "param": None}
    for flat in ({}, {"code": "server_error", "message": "It broke.", "param": None}):
        stream = Stream()
        stream.emit("error", error=nested, **flat)
        lint_stream(stream.end("failed").raw())


def test_a_citation_of_a_file_passes_although_the_contract_knows_only_urls() -> None:
    stream = Stream().message("Hi").end()
    note = {"type": "file_citation", "file_id": "file_1", "filename": "a.txt", "index": 0}
    body = stream.raw().replace(json.dumps(citation(1)).encode(), json.dumps(note).encode())
    assert body != stream.raw()
    lint_stream(body)


def test_an_item_with_a_prefix_is_an_extension_that_clients_may_ignore() -> None:
    stream = Stream()
    blank = {"id": "x_1", "type": "antwort:function_call", "name": "add", "content": [], "status": "completed"}
    stream.done(stream.item(blank)[1])
    lint_stream(stream.end().raw())


def test_an_open_item_is_allowed_when_the_response_failed() -> None:
    stream = Stream().message("Hi")
    stream.item({"id": "msg_9", "type": "message", "role": "assistant", "content": [], "status": "completed"})
    stream.items.pop()
    lint_stream(stream.end("failed").raw())


def test_a_cancelled_stream_may_end_without_a_terminal_event() -> None:
    body = Stream().message("Hi").raw()
    assert lint_stream(body, cancelled=True).response["status"] == "in_progress"
    assert rules(refused(body)) == {"one-terminal"}


def test_a_resumed_stream_is_linted_with_what_came_earlier() -> None:
    events = everything().events
    for cut in (1, 5, len(events) - 1):
        linted = lint_stream(raw(events[cut:]), earlier=events[:cut])
        assert linted.events == events[cut:]
        lint_stream(raw(events[cut:]), starting_after=cut - 1, earlier=events)


def test_a_resumed_stream_alone_is_linted_as_far_as_possible() -> None:
    events = everything().events
    assert lint_stream(raw(events[5:]), starting_after=4).text == "The answer"
    assert rules(refused(raw(events[6:]), starting_after=4)) == {"sequence"}
    assert "first-event" in rules(refused(raw(events[5:])))


def test_a_background_response_leaves_out_what_was_cut_off() -> None:
    stream = cut_off(background=True).end()
    assert lint_stream(stream.raw()).text == "The answer"
    done = [event for event in stream.events if event["type"] != "response.output_text.done" or event["text"] != "The"]
    assert lint_stream(raw(renumbered(done))).text == "The answer"


def cut_off(status: str = "incomplete", **changes: Any) -> Stream:
    """Write a stream with a turn that was cut off."""
    stream = Stream(**changes).reasoning("Hm").message("The", status=status)
    return stream.reasoning("Hm").message("The ", "answer").left_out(0, 1)


@pytest.mark.parametrize(
    "stream",
    [
        cut_off(),
        cut_off("completed", background=True),
        cut_off(background=True).left_out(0),
        cut_off(background=True).left_out(1, 2),
        Stream(background=True).message("A").message("B", status="incomplete").message("C").left_out(0, 1, 2),
        Stream(background=True).call("{}").message("B", status="incomplete").left_out(0, 1),
    ],
)
def test_nothing_else_may_be_left_out(stream: Stream) -> None:
    assert "final-output" in rules(refused(stream.end().raw()))


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_the_text_of_an_item_that_is_not_left_out_is_done(status: str) -> None:
    stream = Stream(background=True).message("The answer", status=status).end(status)
    events = [event for event in stream.events if event["type"] != "response.output_text.done"]
    assert "text-done" in rules(refused(raw(renumbered(events))))


def test_a_response_passes_and_is_returned() -> None:
    body = everything().events[-1]["response"]
    assert lint_response(body) is body
    lint_response(response("queued", background=True))


# --- what does not ---------------------------------------------------------------------------------------------------

MUTATIONS: dict[str, tuple[str, Mutation]] = {
    "a gap in the numbers": ("sequence", lambda e: e[4].update(sequence_number=40)),
    "a number twice": ("sequence", lambda e: e[4].update(sequence_number=3)),
    "numbers that start at one": (
        "sequence",
        lambda e: [x.update(sequence_number=x["sequence_number"] + 1) for x in e],
    ),
    "created missing": ("first-event", lambda e: e.pop(0)),
    "created twice": ("repeated-event", lambda e: e.insert(1, e[0])),
    "in_progress missing": ("in-progress-first", lambda e: e.pop(1)),
    "in_progress after an item": ("in-progress-first", lambda e: e.insert(3, e.pop(1))),
    "queued after in_progress": (
        "queued-second",
        lambda e: e.insert(2, {"type": "response.queued", "response": response("queued")}),
    ),
    "no terminal event": ("one-terminal", lambda e: e.pop()),
    "two terminal events": ("one-terminal", lambda e: e.append(e[-1])),
    "an event after the terminal one": ("after-terminal", lambda e: e.append(e[4])),
    "an error without a failure": (
        "error-then-failed",
        lambda e: e.insert(-1, {"type": "error", "error": {"type": "x", "code": None, "message": "m", "param": None}}),
    ),
    "a status that is not the event's": ("snapshot-status", lambda e: e[1]["response"].update(status="queued")),
    "output in the first snapshot": (
        "snapshot-output",
        lambda e: e[0]["response"].update(output=e[-1]["response"]["output"]),
    ),
    "an id that changes": ("snapshot-stable", lambda e: e[-1]["response"].update(id="resp_2")),
    "a snapshot without a key": ("response-keys", lambda e: e[0]["response"].pop("prompt_cache_key")),
    "a snapshot with a null": ("response-nulls", lambda e: e[0]["response"].update(temperature=None)),
    "another object": ("response-object", lambda e: e[0]["response"].update(object="reply")),
    "a tool echo without strict": ("tool-echo", lambda e: e[0]["response"]["tools"][0].pop("strict")),
    "a reasoning echo without summary": ("reasoning-echo", lambda e: e[0]["response"]["reasoning"].pop("summary")),
    "completed without usage": ("usage", lambda e: e[-1]["response"].update(usage=None)),
    "tokens that do not add up": ("usage", lambda e: e[-1]["response"]["usage"].update(total_tokens=7)),
    "completed without the time": ("completed-at", lambda e: e[-1]["response"].update(completed_at=None)),
    "a time of completion at the start": ("completed-at", lambda e: e[0]["response"].update(completed_at=1)),
    "completed with an error": (
        "status-error",
        lambda e: e[-1]["response"].update(error={"code": "server_error", "message": "m"}),
    ),
    "completed with details of incompleteness": (
        "status-incomplete_details",
        lambda e: e[-1]["response"].update(incomplete_details={"reason": "max_output_tokens"}),
    ),
    "the output lacks an item": ("final-output", lambda e: e[-1]["response"]["output"].pop()),
    "the output in another order": ("final-output", lambda e: e[-1]["response"]["output"].reverse()),
    "the output with another text": (
        "final-output",
        lambda e: e[-1]["response"]["output"][2]["content"][0].update(text="The answer!"),
    ),
    "an item without a status": ("item-keys", lambda e: e[-1]["response"]["output"][0].pop("status")),
    "an item with a null phase": ("item-nulls", lambda e: e[-1]["response"]["output"][2].update(phase=None)),
    "an added item with a null": ("item-nulls", lambda e: find(e, "output_item.added")["item"].update(content=None)),
    "an item in progress at the end": (
        "item-status",
        lambda e: e[-1]["response"]["output"][2].update(status="in_progress"),
    ),
    "an incomplete item in the middle": (
        "incomplete-item",
        lambda e: e[-1]["response"]["output"][2].update(status="incomplete"),
    ),
    "an output index that jumps": ("output-index", lambda e: find(e, "output_item.added", 1).update(output_index=5)),
    "an id that is used twice": ("item-id", lambda e: find(e, "output_item.added", 1)["item"].update(id="rs_0")),
    "an item added completed": (
        "item-zero",
        lambda e: find(e, "output_item.added", 2)["item"].update(status="completed"),
    ),
    "a message added with content": (
        "item-zero",
        lambda e: find(e, "output_item.added", 2)["item"].update(content=e[-1]["response"]["output"][2]["content"]),
    ),
    "a call added with arguments": (
        "item-zero",
        lambda e: find(e, "output_item.added", 3)["item"].update(arguments="{}"),
    ),
    "an item that is never added": ("item-open", lambda e: e.pop(position(e, "output_item.added", 4))),
    "an item that is never done": ("item-done", lambda e: e.pop(position(e, "output_item.done", 4))),
    "a delta after the item is done": (
        "item-open",
        lambda e: e.insert(-1, e.pop(position(e, "output_text.delta", 1))),
    ),
    "a delta for an unknown item": ("item-open", lambda e: find(e, "output_text.delta").update(item_id="msg_99")),
    "a delta with the index of another item": (
        "item-index",
        lambda e: find(e, "output_text.delta").update(output_index=0),
    ),
    "a done item with another name": (
        "item-identity",
        lambda e: find(e, "output_item.done", 3)["item"].update(name="subtract"),
    ),
    "a done item still in progress": (
        "item-status",
        lambda e: find(e, "output_item.done", 2)["item"].update(status="in_progress"),
    ),
    "a done item with other content": (
        "item-content",
        lambda e: find(e, "output_item.done", 2)["item"]["content"][0].update(text="Another answer"),
    ),
    "a done item with another summary": (
        "item-summary",
        lambda e: find(e, "output_item.done")["item"].update(summary=[]),
    ),
    "a part index that jumps": ("part-index", lambda e: find(e, "content_part.added", 1).update(content_index=1)),
    "a part added with text": ("part-zero", lambda e: find(e, "content_part.added", 1)["part"].update(text="The")),
    "a part that is never added": ("part-open", lambda e: e.pop(position(e, "content_part.added", 1))),
    "a part that is never done": ("part-done", lambda e: e.pop(position(e, "content_part.done", 1))),
    "a summary part that is never added": ("part-open", lambda e: e.pop(position(e, "reasoning_summary_part.added"))),
    "a summary part that is never done": ("part-done", lambda e: e.pop(position(e, "reasoning_summary_part.done"))),
    "a delta after the part is done": (
        "part-open",
        lambda e: e.insert(position(e, "content_part.done", 1), e.pop(position(e, "output_text.delta", 1))),
    ),
    "a delta after the text is done": (
        "delta-after-done",
        lambda e: e.insert(position(e, "content_part.done", 1) - 1, e.pop(position(e, "output_text.delta", 1))),
    ),
    "a delta of another kind than the part": (
        "part-type",
        lambda e: find(e, "refusal.delta").update(type="response.output_text.delta", logprobs=[]),
    ),
    "a lost delta of the text": ("deltas-text", lambda e: e.pop(position(e, "output_text.delta"))),
    "a lost delta of the refusal": ("deltas-text", lambda e: e.pop(position(e, "refusal.delta"))),
    "a lost delta of the reasoning": ("deltas-text", lambda e: e.pop(position(e, "reasoning_text.delta"))),
    "a lost delta of the summary": ("deltas-text", lambda e: e.pop(position(e, "reasoning_summary_text.delta"))),
    "a text done twice": (
        "text-done-once",
        lambda e: e.insert(position(e, "output_text.done"), find(e, "output_text.done")),
    ),
    "a text that is never done": ("text-done", lambda e: e.pop(position(e, "output_text.done"))),
    "a part with another text": ("part-text", lambda e: find(e, "content_part.done", 1)["part"].update(text="x")),
    "a lost annotation": ("annotations", lambda e: e.pop(position(e, "output_text.annotation.added", 1))),
    "annotations in another order": (
        "annotations",
        lambda e: [find(e, "output_text.annotation.added", n).update(annotation=citation(1 - n)) for n in (0, 1)],
    ),
    "an annotation index that jumps": (
        "annotation-index",
        lambda e: find(e, "output_text.annotation.added").update(annotation_index=3),
    ),
    "log probabilities that are lost": (
        "logprobs",
        lambda e: find(e, "output_text.delta").update(
            logprobs=[{"token": "The ", "logprob": -1.0, "bytes": [84], "top_logprobs": []}]
        ),
    ),
    "a lost delta of the arguments": (
        "deltas-arguments",
        lambda e: e.pop(position(e, "function_call_arguments.delta")),
    ),
    "arguments that are never done": ("arguments-done", lambda e: e.pop(position(e, "function_call_arguments.done"))),
    "arguments done without the name": (
        "arguments-name",
        lambda e: find(e, "function_call_arguments.done").pop("name"),
    ),
    "an item with other arguments": (
        "item-field",
        lambda e: find(e, "output_item.done", 3)["item"].update(arguments="{}"),
    ),
    "arguments of a hosted call": (
        "item-event",
        lambda e: e.insert(
            position(e, "web_search_call.searching"),
            {"type": "response.function_call_arguments.delta", "item_id": "ws_1", "output_index": 1, "delta": "{}"},
        ),
    ),
    "a hosted call without phases": (
        "phases",
        lambda e: [e.pop(position(e, f"web_search_call.{p}")) for p in ("in_progress", "searching", "completed")],
    ),
    "phases that start late": ("phases", lambda e: e.pop(position(e, "web_search_call.in_progress"))),
    "phases that do not end": ("phases", lambda e: e.pop(position(e, "web_search_call.completed"))),
    "phases in another order": (
        "phases",
        lambda e: e.insert(position(e, "web_search_call.completed"), e.pop(position(e, "web_search_call.in_progress"))),
    ),
    "a phase after completion": (
        "phases",
        lambda e: e.insert(position(e, "web_search_call.completed") + 1, find(e, "web_search_call.searching")),
    ),
    "an event nobody knows": ("event-known", lambda e: find(e, "refusal.delta").update(type="response.denial.delta")),
    "the release's name for reasoning": (
        "event-known",
        lambda e: find(e, "reasoning_text.delta").update(type="response.reasoning.delta"),
    ),
    "an event without a field": ("openai-types", lambda e: find(e, "output_text.delta").pop("logprobs")),
    "a field only the SDK requires": (
        "openai-types",
        lambda e: e[-1]["response"]["usage"]["input_tokens_details"].pop("cache_write_tokens"),
    ),
    "a hosted item the SDK does not accept": (
        "openai-types",
        lambda e: find(e, "output_item.done", 1)["item"].pop("action"),
    ),
    "a field only the contract requires": (
        "open-responses-types",
        lambda e: e[-1]["response"].update(presence_penalty="none"),
    ),
    "a number as text": ("open-responses-types", lambda e: find(e, "output_text.done").update(content_index="0")),
    "reasoning without an index": (
        "open-responses-types",
        lambda e: find(e, "reasoning_text.delta").pop("content_index"),
    ),
    "a snapshot without a response": ("snapshot", lambda e: e[0].pop("response")),
}
_NUMBERED = {"a gap in the numbers", "a number twice", "numbers that start at one"}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_stream_breaks_a_rule_with(name: str) -> None:
    rule, mutate = MUTATIONS[name]
    events = everything().events
    mutate(events)
    if name not in _NUMBERED:
        events = renumbered(events)
    error = refused(raw(events))
    assert rule in rules(error), str(error)
    assert f"[{rule}]" in str(error)


FRAMES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "no end mark": ("done-marker", lambda b: b.removesuffix(b"data: [DONE]\n\n")),
    "an end mark with an event line": ("done-marker", lambda b: b.replace(b"data: [DONE]", b"event: x\ndata: [DONE]")),
    "a frame after the end mark": ("after-done", lambda b: b + frame({"type": "response.queued"})),
    "a comment after the end mark": ("after-done", lambda b: b + b": bye\n\n"),
    "the end mark twice": ("after-done", lambda b: b + b"data: [DONE]\n\n"),
    "a frame that does not end": ("frame-end", lambda b: b[:-1]),
    "no event line": ("frame-lines", lambda b: b.replace(b"event: response.created\n", b"")),
    "a line nobody knows": ("frame-lines", lambda b: b"retry: 1\n" + b),
    "no space after the colon": (
        "frame-lines",
        lambda b: b.replace(b"event: response.created", b"event:response.created"),
    ),
    "data before the event": ("frame-lines", lambda b: b'data: {"type": "x"}\nevent: x\n\n' + b),
    "an id": ("no-id", lambda b: b"id: 1\n" + b),
    "two data lines": ("one-data-line", lambda b: b.replace(b"data: {", b"data: {\ndata: ", 1)),
    "a comment inside a frame": ("comment-in-frame", lambda b: b": hello\n" + b),
    "another event than the type": ("event-type", lambda b: b.replace(b"event: response.created", b"event: created")),
    "data that is not JSON": ("data-json", lambda b: b.replace(b'"sequence_number": 1,', b'"sequence_number": 1', 1)),
    "data that is no object": ("data-json", lambda b: b"event: x\ndata: []\n\n" + b),
    "a number JSON does not have": ("data-json", lambda b: b.replace(b'"top_p": 1.0', b'"top_p": NaN', 1)),
    "carriage returns": ("line-end", lambda b: b.replace(b"response.created\n", b"response.created\r\n", 1)),
    "bytes that are not UTF-8": ("encoding", lambda b: b.replace(b"scripted", b"\xff\xfe", 1)),
}


@pytest.mark.parametrize("name", FRAMES)
def test_the_framing_is_broken_by(name: str) -> None:
    rule, mutate = FRAMES[name]
    body = everything().raw()
    error = refused(mutate(body))
    assert rule in rules(error), str(error)


def test_a_frame_split_over_writes_is_found_when_writes_are_given() -> None:
    frames = [frame(event) for event in Stream().message("Hi").end().events]
    writes = [frames[0] + frames[1], *frames[2:], b"data: [DONE]\n\n"]
    lint_stream(writes, whole_writes=True)
    split = [frames[0][:20], frames[0][20:], *writes[1:]]
    assert "whole-frames" in rules(refused(split, whole_writes=True))


def test_every_violation_is_told_with_its_place() -> None:
    events = everything().events
    events[4]["sequence_number"] = 40
    events[-1]["response"]["usage"] = None
    error = refused(raw(events))
    assert {"sequence", "usage"} <= rules(error)
    assert "event 40 (response.reasoning_text.delta): sequence_number is 40, expected 4" in str(error)


def test_an_empty_stream_is_refused() -> None:
    assert {"done-marker", "first-event", "one-terminal"} <= rules(refused(b""))


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("response-keys", {"store": ...}),
        ("response-nulls", {"metadata": None}),
        ("usage", {"usage": None}),
        ("status-error", {"status": "failed"}),
        ("open-responses-types", {"truncation": "sometimes"}),
        ("openai-types", {"service_tier": 1}),
    ],
)
def test_a_response_that_is_not_streamed_is_refused(rule: str, changes: JSON) -> None:
    body = {key: value for key, value in response(**changes).items() if value is not ...}
    with pytest.raises(LintError) as caught:
        lint_response(body)
    assert rule in rules(caught.value), str(caught.value)


def test_the_cause_in_a_union_is_told_and_not_every_member_of_it() -> None:
    events = everything().events
    del find(events, "output_item.done", 1)["item"]["action"]
    (told,) = [
        violation
        for violation in refused(raw(events)).violations
        if violation.rule == "openai-types" and "output_item.done" in violation.where
    ]
    assert told.message == "item.ResponseFunctionWebSearch.action: Field required"


def test_missing_types_are_named_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openresponses_types", None)
    with pytest.raises(ModuleNotFoundError, match="needs the package 'openresponses-types'; install"):
        lint_response(response())
