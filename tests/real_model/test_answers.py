"""Answers of a real model: text, usage, streams, conversations. No test knows what it will say."""

from openai import OpenAI
from openai.types.responses import Response
from tests.real_model.llama_server import CONTEXT, MODEL
from tests.real_model.stage import Stage

from antwort.testing import lint_stream

QUESTION = "Name three fruits."


def answer(client: OpenAI, **fields: object) -> Response:
    """Ask for a short answer that is the same each time."""
    defaults = {"model": MODEL, "temperature": 0, "max_output_tokens": 40}
    response: Response = client.responses.create(**{**defaults, **fields})  # type: ignore[call-overload]
    return response


def test_the_models_of_the_server_are_listed(client: OpenAI) -> None:
    assert MODEL in {model.id for model in client.models.list()}
    assert client.models.retrieve(MODEL).id == MODEL


def test_an_answer_has_text_and_the_usage_that_the_model_counted(client: OpenAI, stage: Stage) -> None:
    response = answer(client, input=QUESTION, instructions="Be brief.")
    assert response.model == MODEL
    assert response.output_text
    usage = response.usage
    assert usage is not None
    expected = stage.tokens({"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION})
    assert usage.input_tokens == expected
    assert 0 < usage.output_tokens <= 40
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


def test_a_prompt_that_was_seen_before_is_counted_as_cached(client: OpenAI) -> None:
    answer(client, input="What is a tomato?", max_output_tokens=16)
    again = answer(client, input="What is a tomato?", max_output_tokens=16)
    assert again.usage is not None
    assert 0 < again.usage.input_tokens_details.cached_tokens <= again.usage.input_tokens


def test_a_request_without_a_model_gets_the_default_one(client: OpenAI) -> None:
    response = client.responses.create(input="Hi", max_output_tokens=16)
    assert response.model == MODEL


def test_a_stream_has_a_delta_for_nearly_every_token_and_ends_with_the_same_text(client: OpenAI) -> None:
    stream = client.responses.create(
        model=MODEL, input="Tell me a story.", temperature=0, max_output_tokens=60, stream=True
    )
    events = list(stream)
    assert [event.type for event in events[:4]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    last = events[-1]
    assert last.type in {"response.completed", "response.incomplete"}
    assert "".join(deltas) == last.response.output_text
    assert last.response.usage is not None
    assert len(deltas) > last.response.usage.output_tokens // 2


def test_a_stream_says_what_the_whole_answer_says(client: OpenAI) -> None:
    whole = answer(client, input=QUESTION)
    with client.responses.stream(model=MODEL, input=QUESTION, temperature=0, max_output_tokens=40) as stream:
        streamed = stream.get_final_response()
    assert streamed.output_text == whole.output_text
    assert streamed.status == whole.status


def test_an_answer_that_is_cut_off_is_incomplete_and_has_exactly_the_tokens_allowed(client: OpenAI) -> None:
    response = answer(client, input="Tell me a long story about a dragon.", max_output_tokens=16)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None
    assert response.usage.output_tokens == 16
    assert response.output_text


def test_a_response_is_kept_as_it_was_told(client: OpenAI) -> None:
    response = answer(client, input=QUESTION)
    assert client.responses.retrieve(response.id) == response


def test_a_conversation_goes_on_from_the_response_before(client: OpenAI, stage: Stage) -> None:
    first = answer(client, input="My name is Ada.")
    second = answer(client, input="What is my name?", previous_response_id=first.id)
    expected = stage.tokens(
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "What is my name?"},
    )
    assert second.usage is not None
    assert second.usage.input_tokens == expected
    third = answer(client, input="Thank you.", previous_response_id=second.id)
    assert third.usage is not None
    assert third.usage.input_tokens > expected


def test_input_tokens_are_those_of_the_models_own_tokenizer(client: OpenAI, stage: Stage) -> None:
    counted = client.responses.input_tokens.count(model=MODEL, input=QUESTION, instructions="Be brief.")
    expected = stage.tokens({"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION})
    assert counted.input_tokens == expected
    response = answer(client, input=QUESTION, instructions="Be brief.", max_output_tokens=16)
    assert response.usage is not None
    assert response.usage.input_tokens == expected


def test_a_conversation_that_is_too_long_for_the_model_is_refused(client: OpenAI, stage: Stage) -> None:
    refused = stage.post("/responses", {"model": MODEL, "input": "word " * (CONTEXT + 100)})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert answer(client, input="Hi", max_output_tokens=16).output_text


def test_logprobs_of_the_model_reach_the_client(client: OpenAI) -> None:
    response = answer(
        client, input="Hi", max_output_tokens=16, top_logprobs=2, include=["message.output_text.logprobs"]
    )
    (message,) = response.output
    assert message.type == "message"
    (part,) = message.content
    assert part.type == "output_text"
    assert part.logprobs
    assert "".join(logprob.token for logprob in part.logprobs).startswith(part.text)
    assert all(len(logprob.top_logprobs) == 2 for logprob in part.logprobs)


def test_a_chat_completion_passes_through(client: OpenAI, stage: Stage) -> None:
    completion = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=16
    )
    assert completion.choices[0].message.content
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == stage.tokens({"role": "user", "content": QUESTION})


def test_a_chat_completion_streams_through(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": QUESTION}],
            temperature=0,
            max_tokens=16,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    texts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    assert len(texts) > 4
    assert chunks[-1].usage is not None
    assert 0 < chunks[-1].usage.completion_tokens <= 16


def test_the_bytes_of_a_stream_keep_every_rule(stage: Stage) -> None:
    body = {"model": MODEL, "input": QUESTION, "temperature": 0, "max_output_tokens": 40, "stream": True}
    linted = lint_stream(stage.post("/responses", body).content)
    assert linted.text == "".join(event["delta"] for event in linted.events if event["type"].endswith("text.delta"))
