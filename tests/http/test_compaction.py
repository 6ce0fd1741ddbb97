"""Long conversations: compacted on request, at a threshold, or by dropping what is oldest."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, NotFoundError
from openai.types.responses import ResponseCompactionItem
from tests.http.sdk import CLIENT_TOOL, Served, create, served
from tests.support.postgres import on_one_store

from antwort.testing import Gate, call, fail, lint_response, matching, turn
from antwort.types import JSON
from antwort.wire.responses import Usage

pytestmark = on_one_store()

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
LONG = turn(error=fail(400, "This model's maximum context length is 100 tokens.", code="context_length_exceeded"))


def used(tokens: int) -> Usage:
    return Usage(input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)


def said(role: str, text: str) -> Any:
    return {"type": "message", "role": role, "content": text}


OVER = [said("user", "Hi"), said("assistant", "Hello.")]
"""A conversation in which nothing is open."""


def texts(stage: Served, number: int) -> list[str]:
    """Return the texts of the messages a model read."""
    return [
        part["text"]
        for item in stage.requests[number].items
        for part in item.get("content", ())
        if item["type"] == "message"
    ]


# --- on request ------------------------------------------------------------------------------------------------------


def test_a_window_is_compacted_into_one_item_that_is_accepted_back_verbatim(tmp_path: Path) -> None:
    steps = [turn("They want a blue bicycle.", usage=used(40)), turn("Blue.", expect=matching(last="Which colour?"))]
    with served(tmp_path, steps) as stage:
        client = stage.client()
        window = [said("user", "I want a bicycle."), said("assistant", "Which one?"), said("user", "A blue one.")]
        compacted = client.responses.compact(model="scripted", input=window)
        assert compacted.object == "response.compaction"
        (item,) = compacted.output
        assert isinstance(item, ResponseCompactionItem)
        assert compacted.usage.total_tokens == 41
        returned: list[Any] = [one.model_dump(mode="json") for one in compacted.output]
        response = client.responses.create(model="scripted", input=[*returned, said("user", "Which colour?")])
        assert response.output_text == "Blue."
    summary, unanswered, question = texts(stage, 1)
    assert "They want a blue bicycle." in summary
    assert "- I want a bicycle." in summary
    assert (unanswered, question) == ("A blue one.", "Which colour?")


def test_what_is_compacted_is_really_encrypted(tmp_path: Path) -> None:
    with served(tmp_path, ["The password is swordfish."]) as stage:
        window = [said("user", "swordfish"), said("assistant", "Noted.")]
        body = stage.request("POST", "/responses/compact", json={"model": "scripted", "input": window}).json()
    sealed = body["output"][0]["encrypted_content"]
    assert sealed.startswith("aw1.")
    assert "swordfish" not in json.dumps(body)


def test_a_stored_conversation_is_compacted_by_the_id_of_its_last_response(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two", "They counted."]) as stage:
        client = stage.client()
        first = client.responses.create(model="scripted", input="Count to one")
        second = client.responses.create(model="scripted", input="And on", previous_response_id=first.id)
        client.responses.compact(model="scripted", previous_response_id=second.id)
    (record,) = texts(stage, 2)
    assert record == "USER: Count to one\n\nASSISTANT: One\n\nUSER: And on\n\nASSISTANT: Two"


def test_calls_and_their_results_are_in_the_record_and_long_ones_are_cut(tmp_path: Path) -> None:
    window = [
        said("system", "Be kind."),
        said("user", "Weather?"),
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": '{"city":"Bonn"}'},
        {"type": "function_call_output", "call_id": "c", "output": "x" * 10_000},
        {"type": "custom_tool_call", "call_id": "d", "name": "note", "input": "rain"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "noted"}]},
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": "data:image/png;base64,aaaa", "detail": "auto"}],
        },
        said("assistant", "A cloud."),
    ]
    with served(tmp_path, ["It rains."]) as stage:
        answer = stage.request("POST", "/responses/compact", json={"model": "scripted", "input": window})
        assert answer.status_code == 200
    (record,) = texts(stage, 0)
    assert 'CALL get_weather({"city":"Bonn"})' in record
    assert "6,000 characters left out" in record
    assert "CALL note(rain)\n\nRESULT: noted\n\nUSER: [image]" in record
    assert "Be kind." not in record


def test_a_record_that_does_not_fit_loses_its_older_half(tmp_path: Path) -> None:
    with served(tmp_path, [LONG, LONG, "Short."]) as stage:
        window = [*(said("user", f"message {number}") for number in range(8)), said("assistant", "Yes?")]
        answer = stage.request("POST", "/responses/compact", json={"model": "scripted", "input": window})
        assert answer.status_code == 200
    assert texts(stage, 2) == ["[…]\n\nUSER: message 6\n\nUSER: message 7\n\nASSISTANT: Yes?"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"input": "Hi"}, 400, "model"),
        ({"model": "scripted"}, 400, "input"),
        ({"model": "m", "input": "Hi", "stream": True}, 400, "stream"),
        ({"model": "m", "input": "Hi", "previous_response_id": "resp_none"}, 400, "previous_response_id"),
        ({"model": "m", "input": [{"type": "compaction", "encrypted_content": "gAAAAAforeign"}]}, 400, "input"),
        ({"model": "m", "input": [{"type": "compaction"}]}, 400, "input[0].encrypted_content"),
    ],
)
def test_what_cannot_be_compacted_is_a_clear_error(tmp_path: Path, body: JSON, status: int, param: str) -> None:
    with served(tmp_path, []) as stage:
        answer = stage.request("POST", "/responses/compact", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def test_an_empty_summary_is_an_error_of_the_model(tmp_path: Path) -> None:
    with served(tmp_path, [turn(" ")]) as stage:
        answer = stage.request("POST", "/responses/compact", json={"model": "scripted", "input": OVER})
    assert answer.status_code == 502
    assert "no summary" in answer.json()["error"]["message"]


def test_another_tenant_cannot_use_a_compacted_window(tmp_path: Path) -> None:
    keys = [{"id": name, "key": f"key-{name}", "tenant": name} for name in ("ann", "bob")]
    with served(tmp_path, ["A secret.", "Fine."], auth={"api_keys": keys}) as stage:
        (item,) = stage.client("key-ann").responses.compact(model="scripted", input=OVER).output
        sealed: Any = item.model_dump(mode="json")
        with pytest.raises(BadRequestError, match="belongs to somebody else"):
            stage.client("key-bob").responses.create(model="scripted", input=[sealed])
        assert stage.client("key-ann").responses.create(model="scripted", input=[sealed]).output_text == "Fine."


def test_the_key_outlives_the_server_and_can_be_replaced(tmp_path: Path) -> None:
    with served(tmp_path, ["Summary."]) as stage:
        (item,) = stage.client().responses.compact(model="scripted", input=OVER).output
        sealed: Any = item.model_dump(mode="json")
    key = (tmp_path / "encryption.key").read_text()
    with served(tmp_path, ["One"]) as stage:
        assert stage.client().responses.create(model="scripted", input=[sealed]).output_text == "One"
    new = "another key, which is long enough for this"
    with served(tmp_path, ["Two"], encryption={"key": new, "previous_keys": [key]}) as stage:
        assert stage.client().responses.create(model="scripted", input=[sealed]).output_text == "Two"
    with (
        served(tmp_path, [], encryption={"key": new}) as stage,
        pytest.raises(BadRequestError, match="a key that this server does not have"),
    ):
        stage.client().responses.create(model="scripted", input=[sealed])


@BOTH_WAYS
def test_a_trigger_compacts_the_conversation_and_nothing_else(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, ["One", "They counted.", "Two"]) as stage:
        first = create(stage, stream, input="Count")
        trigger: Any = {"type": "compaction_trigger"}
        compacted = create(stage, stream, input=[trigger], previous_response_id=first.id)
        assert [item.type for item in compacted.output] == ["compaction"]
        create(stage, stream, input="Go on", previous_response_id=compacted.id)
    summary, question = texts(stage, 2)
    assert "They counted." in summary
    assert question == "Go on"


def test_a_trigger_must_come_last(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage, pytest.raises(BadRequestError, match="must be the last"):
        create(stage, False, input=[{"type": "compaction_trigger"}, said("user", "Hi")])


# --- at a threshold --------------------------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("background", [False, True])
def test_the_window_is_compacted_when_it_reaches_the_threshold(tmp_path: Path, stream: bool, background: bool) -> None:
    async def look_up(word: str) -> str:
        """Look a word up."""
        return f"{word} is a word"

    steps = [
        turn(calls=[call("look_up", word="a")], usage=used(50)),
        turn(calls=[call("look_up", word="b")], usage=used(250)),
        turn("Looked up a.", usage=used(10)),
        turn("Two words.", usage=used(20)),
        turn("You are welcome."),
    ]
    manage: Any = [{"type": "compaction", "compact_threshold": 220}]
    with served(tmp_path, steps, functions=[look_up]) as stage:
        body: JSON = {"model": "scripted", "input": "Look up a and b", "instructions": "Be brief."}
        if stream:
            seen = stage.stream(**body, context_management=manage, background=background)
            kinds = [event["type"] for event in seen.events]
            place = kinds.index("response.compaction.compacting")
            assert kinds[place - 1 : place + 2] == [
                "response.output_item.added",
                "response.compaction.compacting",
                "response.output_item.done",
            ]
            response = seen.response
        else:
            client = stage.client()
            created = client.responses.create(**body, context_management=manage, background=background)
            while created.status in {"queued", "in_progress"}:
                created = client.responses.retrieve(created.id)
            response = json.loads(created.model_dump_json())
        assert [item["type"] for item in response["output"]] == ["compaction", "message"]
        assert response["usage"]["total_tokens"] == 51 + 251 + 11 + 21
        follow_up = stage.request(
            "POST", "/responses", json={"input": "Thanks", "previous_response_id": response["id"]}
        ).json()
    assert stage.requests[3].instructions == "Be brief."
    # What the model is about to use stays as it is: the question, and the last call with its output.
    kept = ["message", "message", "function_call", "function_call_output"]
    assert [item["type"] for item in stage.requests[3].items] == kept
    assert "Looked up a." in texts(stage, 3)[0]
    assert texts(stage, 3)[1] == "Look up a and b"
    assert stage.requests[3].items[3]["output"] == "b is a word"
    assert "CALL look_up" in texts(stage, 2)[0]
    assert follow_up["status"] == "completed"
    assert [item["type"] for item in stage.requests[4].items] == [*kept, "message", "message"]


def test_without_a_threshold_the_size_of_the_model_decides(tmp_path: Path) -> None:
    steps = [turn("Short.", usage=used(3)), turn("Answer.", usage=used(3))]
    manage: Any = [{"type": "compaction"}]
    with served(tmp_path, steps, over_http=True, backend={"context_window": 100}) as stage:
        window = [said("user", "word " * 100), said("assistant", "Yes?"), said("user", "Go on.")]
        response = create(stage, False, input=window, context_management=manage)
        assert [item.type for item in response.output] == ["compaction", "message"]


def test_the_users_own_words_never_fill_the_new_window(tmp_path: Path) -> None:
    steps = [turn(f"Summary {number}.", usage=used(3)) for number in range(4)]
    manage: Any = [{"type": "compaction", "compact_threshold": 1000}]
    window = [said("user", "My name is Ada. " * 1000), said("assistant", "Hello."), said("user", "Go on.")]
    with served(tmp_path, steps) as stage:
        first = create(stage, False, input=window, context_management=manage)
        assert [item.type for item in first.output] == ["compaction", "message"]
        second = create(stage, False, input="And on.", previous_response_id=first.id, context_management=manage)
        assert [item.type for item in second.output] == ["message"]
        trigger: Any = {"type": "compaction_trigger"}
        create(stage, False, input=[trigger], previous_response_id=second.id)
    assert texts(stage, 3)[0].count("[The earlier part") == 1


@BOTH_WAYS
def test_a_question_is_never_compacted_however_long_it_is(tmp_path: Path, stream: bool) -> None:
    image: Any = {"type": "input_image", "image_url": "data:image/png;base64,aaaa", "detail": "auto"}
    question: Any = {"role": "user", "content": [{"type": "input_text", "text": "word " * 5000}, image]}
    manage: Any = [{"type": "compaction", "compact_threshold": 100}]
    with served(tmp_path, ["Summary.", "Answer."]) as stage:
        create(stage, stream, input=[said("developer", "Be kind."), *OVER, question], context_management=manage)
    instruction, _, asked = stage.requests[1].items
    assert instruction["content"][0]["text"] == "Be kind."
    assert asked["content"] == question["content"]


def test_instructions_survive_a_compaction(tmp_path: Path) -> None:
    with served(tmp_path, ["Summary.", "Oui."]) as stage:
        client = stage.client()
        window = [said("developer", "Always speak French."), *OVER]
        (item,) = client.responses.compact(model="scripted", input=window).output
        sealed: Any = item.model_dump(mode="json")
        client.responses.create(model="scripted", input=[window[0], sealed, said("user", "Hi")])
    instruction, _, question = texts(stage, 1)
    assert (instruction, question) == ("Always speak French.", "Hi")


def test_a_window_in_which_all_is_open_needs_no_summary(tmp_path: Path) -> None:
    with served(tmp_path, ["Fine."]) as stage:
        client = stage.client()
        (item,) = client.responses.compact(model="scripted", input="Hi").output
        sealed: Any = item.model_dump(mode="json")
        client.responses.create(model="scripted", input=[sealed])
    assert texts(stage, 0) == ["Hi"]


def test_what_functions_return_counts_too(tmp_path: Path) -> None:
    async def read(page: int) -> str:
        """Read a page."""
        return "word " * 5000 if page == 2 else "short"

    steps = [turn(calls=[call("read", page=page)], usage=used(55)) for page in (1, 2)]
    manage: Any = [{"type": "compaction", "compact_threshold": 1000}]
    with served(tmp_path, [*steps, turn("Summary."), turn("Read.")], functions=[read]) as stage:
        response = create(stage, False, input="Read two pages", context_management=manage)
    assert [item.type for item in response.output] == ["compaction", "message"]


def test_a_window_that_cannot_get_shorter_is_compacted_once(tmp_path: Path) -> None:
    async def tick(n: int) -> str:
        """Tick."""
        return "tock"

    ticks = [turn(calls=[call("tick", n=number)], usage=used(5)) for number in range(2)]
    manage: Any = [{"type": "compaction", "compact_threshold": 5}]
    with served(tmp_path, [turn("Summary. " * 400), *ticks, turn("Done.")], functions=[tick]) as stage:
        response = create(stage, False, input=[*OVER, said("user", "Go")], context_management=manage)
    assert [item.type for item in response.output] == ["compaction", "message"]


def test_a_summary_does_not_eat_the_answer(tmp_path: Path) -> None:
    steps = [turn("Summary.", usage=(10, 400)), turn("Answer.", usage=(10, 5))]
    manage: Any = [{"type": "compaction", "compact_threshold": 5}]
    with served(tmp_path, steps) as stage:
        window = [*OVER, said("user", "Go on.")]
        response = create(stage, False, input=window, context_management=manage, max_output_tokens=200)
    assert stage.requests[1].max_output_tokens == 200
    assert response.usage is not None
    assert response.usage.output_tokens == 405


def test_without_a_summary_the_answer_is_made_all_the_same(tmp_path: Path) -> None:
    manage: Any = [{"type": "compaction", "compact_threshold": 5}]
    with served(tmp_path, [turn(" "), turn("Answer.")]) as stage:
        response = create(stage, False, input=[*OVER, said("user", "Go on.")], context_management=manage)
    assert [item.type for item in response.output] == ["message"]
    assert len(stage.requests[1].items) == 3


def test_summaries_are_turns_in_the_metrics(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Summary.", usage=(1000, 100))]) as stage:
        stage.client().responses.compact(model="scripted", input=OVER)
        metrics = httpx.get(f"{stage.server.url}/metrics").text
    assert 'gen_ai_client_token_usage_sum{gen_ai_request_model="scripted",gen_ai_token_type="input"} 1000.0' in metrics


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ([{"type": "other"}], "context_management[0].type"),
        ([{"type": "compaction", "compact_threshold": 0}], "context_management[0].compact_threshold"),
        ("compaction", "context_management"),
    ],
)
def test_other_ways_to_manage_the_context_are_refused(tmp_path: Path, value: Any, param: str) -> None:
    with served(tmp_path, []) as stage:
        answer = stage.request("POST", "/responses", json={"input": "Hi", "context_management": value})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


# --- truncation ------------------------------------------------------------------------------------------------------

TURNS = [said("developer", "Be kind."), *(said("user", f"message {number} " + "x" * 40) for number in range(20))]


@BOTH_WAYS
def test_truncation_drops_the_oldest_messages_of_a_window_that_is_too_long(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, [LONG, LONG, "Fine."]) as stage:
        response = create(stage, stream, input=TURNS, truncation="auto")
        assert response.output_text == "Fine."
        assert lint_response(stage.request("GET", f"/responses/{response.id}").json())["truncation"] == "auto"
    whole, shorter, shortest = (texts(stage, number) for number in range(3))
    assert len(whole) > len(shorter) > len(shortest) > 1
    assert shortest[0] == "Be kind."
    assert shortest[1:] == whole[-len(shortest) + 1 :]


def test_without_truncation_a_window_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, [LONG]) as stage, pytest.raises(BadRequestError) as caught:
        create(stage, False, input=TURNS)
    assert caught.value.code == "context_length_exceeded"


def test_a_window_whose_last_message_alone_is_too_long_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, [LONG]) as stage, pytest.raises(BadRequestError) as caught:
        create(stage, False, input="word " * 100, truncation="auto")
    assert caught.value.code == "context_length_exceeded"


def test_a_known_window_is_kept_to_before_the_model_is_asked(tmp_path: Path) -> None:
    with served(tmp_path, ["Fine."], over_http=True, backend={"context_window": 200}) as stage:
        create(stage, False, input=TURNS, truncation="auto")
    (body,) = stage.bodies
    assert body["messages"][0]["content"] == "Be kind."
    assert 1 < len(body["messages"]) < len(TURNS)
    assert body["messages"][-1]["content"].startswith("message 19")


def test_truncation_never_parts_a_call_from_its_output(tmp_path: Path) -> None:
    window: list[Any] = []
    for number in range(6):
        window += [
            said("user", f"question {number}"),
            {"type": "function_call", "call_id": f"c{number}", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{number}", "output": "wet " * 20},
        ]
    with served(tmp_path, [LONG, "Fine."]) as stage:
        create(stage, False, input=window, tools=[CLIENT_TOOL], truncation="auto")
    items = stage.requests[1].items
    assert len(items) < len(window)
    assert [item["call_id"] for item in items if item["type"] == "function_call"] == [
        item["call_id"] for item in items if item["type"] == "function_call_output"
    ]


def test_an_unknown_conversation_is_not_found(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage, pytest.raises(NotFoundError) as caught:
        create(stage, False, input="Hi", conversation="conv_none")
    assert "'conv_none' not found" in caught.value.message


def test_a_window_is_never_compacted_while_nobody_asks(tmp_path: Path) -> None:
    gate = Gate()
    gate.open()
    with served(tmp_path, [turn("Fine.", usage=used(1_000_000), wait_for=gate)]) as stage:
        assert create(stage, False, input="Hi").output_text == "Fine."
