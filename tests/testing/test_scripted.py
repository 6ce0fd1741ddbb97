import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from antwort.backends.base import ModelBackend, ModelRequest, TurnSink, WholeTurn
from antwort.errors import (
    APIError,
    BadGatewayError,
    BadRequestError,
    ConfigError,
    DefinitionError,
    InternalServerError,
    RateLimitError,
)
from antwort.testing import Gate, ScriptedBackend, ScriptError, call, fail, matching, raw, turn
from antwort.wire.responses import InputTokensDetails, Usage

ADD: dict[str, Any] = {"type": "function", "name": "add", "description": "Add.", "parameters": {}, "strict": None}


@dataclass
class Sink:
    """Takes a turn, and remembers what came between flushes."""

    now: list[Any] = field(default_factory=list)
    flushes: list[list[Any]] = field(default_factory=list)
    tokens: Usage | None = None
    reason: str | None = None

    def whole_turn(self, turn: WholeTurn) -> None:
        turn.feed(self)

    def text(self, delta: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        self.now.append(delta if logprobs is None else (delta, logprobs))

    def text_burst(self, deltas: Sequence[str]) -> None:
        self.now += deltas

    def reasoning(self, delta: str) -> None:
        self.now.append(("reasoning", delta))

    def summary(self, delta: str) -> None:
        self.now.append(("summary", delta))

    def opaque(self, content: str) -> None:
        self.now.append(("opaque", content))

    def refusal(self, delta: str) -> None:
        self.now.append(("refusal", delta))

    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        self.now.append((index, call_id, name, arguments))

    def usage(self, usage: Usage) -> None:
        self.tokens = usage

    def finish(self, reason: str) -> None:
        self.reason = reason

    async def flush(self) -> None:
        if self.now:
            self.flushes.append(self.now)
            self.now = []


def ask(text: str = "Hi", **changes: Any) -> ModelRequest:
    items = [{"type": "message", "role": "user", "content": text}]
    return ModelRequest(**{"model": "scripted", "items": items, "tools": [ADD], "stream": True, **changes})


async def played(backend: ModelBackend, request: ModelRequest | None = None) -> Sink:
    sink = Sink()
    typed: TurnSink = sink
    await backend.run(request or ask(), typed)
    return sink


# --- what a turn says ------------------------------------------------------------------------------------------------


async def test_a_turn_is_fed_delta_by_delta() -> None:
    with ScriptedBackend([turn(["The ", "answer"], reasoning="Hm.")]) as backend:
        sink = await played(backend)
    assert sink.flushes == [[("reasoning", "Hm.")], ["The "], ["answer"]]
    assert (sink.reason, sink.tokens) == ("stop", Usage(input_tokens=10, output_tokens=5, total_tokens=15))


async def test_a_step_may_be_plain_text() -> None:
    with ScriptedBackend(["Hello"]) as backend:
        assert (await played(backend)).flushes == [["Hello"]]


async def test_deltas_of_a_burst_arrive_together() -> None:
    with ScriptedBackend([turn(["a", "b", "c"], burst=2)]) as backend:
        assert (await played(backend)).flushes == [["a", "b"], ["c"]]


async def test_a_request_without_stream_gets_all_at_once() -> None:
    with ScriptedBackend([turn(["a", "b"], refusal="No.")]) as backend:
        sink = await played(backend, ask(stream=False))
    assert sink.flushes == [[("refusal", "No."), "a", "b"]]


async def test_calls_have_ids_names_and_arguments_in_pieces() -> None:
    calls = [call("add", a=1), call("add", ['{"a"', ": 2}"], call_id="call_x"), call("add", "not JSON"), call("add")]
    with ScriptedBackend(["Hi", turn(calls=calls)]) as backend:
        await played(backend)
        sink = await played(backend)
    assert sink.flushes == [
        [(0, "call_2_0", "add", '{"a": 1}')],
        [(1, "call_x", "add", '{"a"')],
        [(1, None, None, ": 2}")],
        [(2, "call_2_2", "add", "not JSON")],
        [(3, "call_2_3", "add", "{}")],
    ]
    assert sink.reason == "tool_calls"


async def test_usage_and_finish_can_be_given() -> None:
    usage = Usage(1, InputTokensDetails(1), 2, total_tokens=3)
    steps = [turn("a", usage=usage, finish="length"), turn("b", usage=(3, 4)), turn("c", usage=None)]
    with ScriptedBackend(steps) as backend:
        first, second, third = [await played(backend) for _ in steps]
    assert (first.tokens, first.reason) == (usage, "length")
    assert second.tokens == Usage(input_tokens=3, output_tokens=4, total_tokens=7)
    assert third.tokens is None


async def test_log_probabilities_come_if_they_are_asked_for() -> None:
    with ScriptedBackend([turn("Hi", logprobs=True)] * 2) as backend:
        assert (await played(backend)).flushes == [["Hi"]]
        ((delta, (log,)),) = (await played(backend, ask(top_logprobs=2))).flushes[0]
    assert (delta, log["token"], log["bytes"], log["logprob"] < 0) == ("Hi", "Hi", [72, 105], True)


async def test_it_lists_its_models_and_notes_that_it_was_closed() -> None:
    backend = ScriptedBackend([], name="double", models=["a", "b"])
    assert [(model.id, model.owned_by) for model in await backend.models()] == [("a", "double"), ("b", "double")]
    assert not backend.closed
    await backend.close()
    assert backend.closed


# --- strictness ------------------------------------------------------------------------------------------------------


async def test_a_call_beyond_the_script_fails_the_caller_and_the_script() -> None:
    backend = ScriptedBackend(["Hello"])
    await played(backend)
    with pytest.raises(InternalServerError, match="call 2 is unexpected: all 1 steps were played") as caught:
        await played(backend, ask("Again"))
    assert "tools add, 1 items" in caught.value.message
    assert "Again" in caught.value.message
    with pytest.raises(ScriptError, match="call 2 is unexpected"):
        backend.assert_done()
    assert [request.items[0]["content"] for request in backend.requests] == ["Hi", "Again"]


async def test_a_step_nobody_asked_for_fails_the_block() -> None:
    steps = [turn("Hello"), turn(calls=[call("add")]), turn("Bye")]
    told = r"- step 2 \(calls add\) was not played\n- step 3 \(text 'Bye'\)"
    with pytest.raises(ScriptError, match=told), ScriptedBackend(steps) as backend:
        await played(backend)


async def test_another_error_leaves_the_block_with_a_note_about_the_script() -> None:
    with pytest.raises(ValueError, match="other") as caught, ScriptedBackend(["Hello"]):
        raise ValueError("other")
    assert caught.value.__notes__ == ["The script: step 1 (text 'Hello') was not played"]


@pytest.mark.parametrize(
    ("expect", "told"),
    [
        (matching(tools=["subtract"]), "tools: expected 'subtract' among [\"add\"]"),
        (matching(without_tools=["add"]), "without_tools: 'add' is offered"),
        (matching(last="Bye"), 'last: expected "Bye" in {"type": "message", "role": "user", "content": "Hi"}'),
        (matching(last={"role": "tool"}), 'last: expected {"role": "tool"} in'),
        (matching(text="Bye"), 'text: expected "Bye" in [{'),
        (matching(types=["message", "function_call"]), 'types: expected ["message", "function_call"], got ["message"]'),
        (matching(model="other", tool_choice="none"), 'model: expected "other", got "scripted"; tool_choice: expected'),
        (lambda request: request.model == "other", "<lambda> returned False"),
    ],
)
async def test_a_request_that_is_not_as_expected_fails_with_the_reason(expect: Any, told: str) -> None:
    backend = ScriptedBackend([turn("Hello", expect=expect)])
    with pytest.raises(InternalServerError) as caught:
        await played(backend)
    assert f"step 1 (text 'Hello') expected another request: {told}" in caught.value.message
    with pytest.raises(ScriptError) as failed:
        backend.assert_done()
    assert told in str(failed.value)


async def test_an_assertion_or_a_mistake_in_a_matcher_is_told() -> None:
    def polite(request: ModelRequest) -> None:
        assert "please" in request.items[0]["content"], "it did not say please"

    def clumsy(request: ModelRequest) -> bool:
        return bool(request.items[7])

    backend = ScriptedBackend([turn("a", expect=polite), turn("b", expect=clumsy)])
    with pytest.raises(APIError, match="it did not say please"):
        await played(backend)
    with pytest.raises(APIError, match="clumsy raised IndexError"):
        await played(backend)


async def test_a_request_that_is_as_expected_is_answered() -> None:
    expect = matching(
        tools=["add"], without_tools=["x"], last="H", text="Hi", types=["message"], model="scripted", temperature=0.5
    )
    with ScriptedBackend([turn("a", expect=expect), turn("b", expect=lambda request: None)]) as backend:
        await played(backend, ask(temperature=0.5))
        await played(backend)


def test_an_expectation_of_something_requests_do_not_have_is_refused() -> None:
    with pytest.raises(DefinitionError, match="a request has no 'modle'; did you mean 'model'"):
        matching(modle="x")


@pytest.mark.parametrize("key", ["id", "call_id"])
def test_no_text_is_found_in_an_id(key: str) -> None:
    request = ModelRequest("scripted", [{"type": "function_call_output", key: "fc_0842", "output": "7"}])
    assert matching(last="84").mismatches(request)
    assert matching(text="84").mismatches(request)
    assert not matching(last={key: "fc_0842"}, text="7").mismatches(request)


async def test_steps_are_chosen_by_the_request_whatever_the_order() -> None:
    steps = [turn("A", by=matching(last="alpha")), turn("first"), turn("B", by=matching(last="beta")), turn("second")]
    with ScriptedBackend(steps) as backend:
        asked = ["beta", "gamma", "alpha", "alpha"]
        said = [(await played(backend, ask(text))).flushes[0][0] for text in asked]
    assert said == ["B", "first", "A", "second"]


async def test_a_chosen_step_that_nobody_chose_is_left_over_and_fits_no_other_request() -> None:
    backend = ScriptedBackend([turn("A", by=matching(last="alpha"))])
    with pytest.raises(APIError, match="it fits none of the steps left, 1"):
        await played(backend)
    with pytest.raises(ScriptError, match=r"step 1 \(text 'A'\) was not played"):
        backend.assert_done()


# --- errors and gates ------------------------------------------------------------------------------------------------


async def test_an_error_comes_before_or_after_some_deltas() -> None:
    error = fail(502, "It broke.", after=1)
    with ScriptedBackend([turn(error=fail(400, code="odd")), turn(["a", "b"], error=error)], name="double") as backend:
        with pytest.raises(BadRequestError, match=r"Backend 'double': The script answers 400\.") as bad:
            await played(backend)
        sink = Sink()
        with pytest.raises(BadGatewayError, match=r"Backend 'double': It broke\."):
            await backend.run(ask(), sink)
    assert bad.value.code == "odd"
    assert (sink.flushes, sink.reason) == ([["a"]], None)


async def test_an_error_without_a_class_of_its_own_keeps_its_status() -> None:
    with ScriptedBackend([turn(error=fail(418))]) as backend, pytest.raises(APIError) as caught:
        await played(backend)
    assert caught.value.status == 418
    assert APIError.status == 500


async def test_a_rate_limit_says_when_to_come_back() -> None:
    step = turn(error=fail(429, headers={"retry-after": "7"}))
    with ScriptedBackend([step]) as backend, pytest.raises(RateLimitError) as caught:
        await played(backend)
    assert caught.value.retry_after == 7


async def test_a_closed_connection_is_a_bad_gateway() -> None:
    with ScriptedBackend([turn(["a", "b"], close_after=1)]) as backend:
        sink = Sink()
        with pytest.raises(BadGatewayError, match="closed the connection"):
            await backend.run(ask(), sink)
    assert sink.flushes == [["a"]]


async def test_a_gate_holds_the_stream_until_it_is_opened() -> None:
    before, among = Gate(), Gate()
    with ScriptedBackend([turn(["Hel", among, "lo"], wait_for=before)]) as backend:
        sink = Sink()
        running = asyncio.ensure_future(backend.run(ask(), sink))
        await before.reached()
        assert sink.flushes == []
        before.open()
        await among.reached()
        assert sink.flushes == [["Hel"]]
        among.open()
        await running
    assert sink.flushes == [["Hel"], ["lo"]]


async def test_a_gate_works_from_another_thread_and_an_event_will_do_too() -> None:
    gate, event = Gate(), asyncio.Event()
    event.set()

    def open_when_reached() -> None:
        gate.wait_reached()
        gate.open()

    thread = threading.Thread(target=open_when_reached)
    thread.start()
    with ScriptedBackend([turn(["a", gate, "b", event, "c"])]) as backend:
        assert (await played(backend)).flushes == [["a"], ["b"], ["c"]]
    thread.join()


async def test_a_turn_that_is_cancelled_is_noticed() -> None:
    gate = Gate()
    with ScriptedBackend([turn(["a", gate])]) as backend:
        running = asyncio.ensure_future(played(backend))
        await gate.reached()
        running.cancel()
        await gate.abandoned()
        with pytest.raises(asyncio.CancelledError):
            await running
    gate.wait_abandoned()
    assert backend.cancelled == [1]
    assert repr(gate) == "<Gate reached>"


def test_waiting_for_a_gate_in_vain_fails() -> None:
    with pytest.raises(AssertionError, match=r"the gate was not reached within 0\.01 seconds"):
        Gate().wait_reached(0.01)


async def test_a_turn_hangs_until_it_is_cancelled() -> None:
    sink, flushed = Sink(), asyncio.Event()
    flush = sink.flush

    async def told() -> None:
        await flush()
        flushed.set()

    sink.flush = told  # type: ignore[method-assign]
    with ScriptedBackend([turn(["a", "b"], hang_after=1)]) as backend:
        running = asyncio.ensure_future(backend.run(ask(), sink))
        await flushed.wait()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert (sink.flushes, backend.cancelled) == ([["a"]], [1])


def test_raw_bytes_are_only_for_a_server() -> None:
    with pytest.raises(DefinitionError, match="step 2: raw bytes only travel over HTTP; use ScriptServer"):
        ScriptedBackend(["a", raw(b"x")])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: call("add", "{}", a=1), "as keywords or as one value, not both"),
        (lambda: turn("a", burst=0), "burst must be at least 1, not 0"),
        (lambda: turn("a", dialect="olama"), "there is no dialect 'olama'; did you mean 'ollama'"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        make()


# --- files -----------------------------------------------------------------------------------------------------------


def written(folder: Path, text: str) -> Path:
    path = folder / "script.yaml"
    path.write_text(dedent(text), encoding="utf-8")
    return path


async def test_a_script_can_be_read_from_a_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        models: [one, two]
        steps:
          - text: Hello
            reasoning: ["Greet ", back.]
            usage: {input: 12, output: 3, cached: 2, reasoning: 1}
            expect: {tools: [add], last: Hi, model: scripted}
          - calls:
              - {name: add, arguments: {a: 1}, id: call_1}
              - {name: add, arguments: raw}
            usage: null
          - error: {status: 429, message: Slow down., headers: {retry-after: "2"}}
          - text: [chosen]
            by: {last: Choose}
        """,
    )
    with ScriptedBackend.from_yaml(path) as backend:
        assert (await played(backend, ask("Choose"))).flushes == [["chosen"]]
        first, second = await played(backend), await played(backend)
        with pytest.raises(RateLimitError, match=r"Slow down\."):
            await played(backend)
    assert first.flushes == [[("reasoning", "Greet ")], [("reasoning", "back.")], ["Hello"]]
    assert first.tokens is not None
    assert (first.tokens.total_tokens, first.tokens.input_tokens_details.cached_tokens) == (15, 2)
    assert first.tokens.output_tokens_details.reasoning_tokens == 1
    assert second.flushes == [[(0, "call_1", "add", '{"a": 1}')], [(1, "call_2_1", "add", "raw")]]
    assert second.tokens is None
    assert [model.id for model in await backend.models()] == ["one", "two"]


def test_a_file_may_be_a_bare_list(tmp_path: Path) -> None:
    backend = ScriptedBackend.from_yaml(written(tmp_path, "- text: a\n- text: b\n"))
    assert len(backend.script.steps) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- text: a\n- txt: b", "step 2: txt: unknown key; did you mean 'text'?"),
        ("- calls: [{nmae: add}]", "step 1: calls[0].nmae: unknown key; did you mean 'name'? (and 1 more)"),
        ("- calls: [{name: add, x: {}}]", "step 1: calls[0].x: unknown key (known: name, arguments, id)"),
        ("- usage: {inputs: 3}", "step 1: usage.inputs: unknown key; did you mean 'input'?"),
        ("- usage: [3, 4]", "step 1: usage: should be a mapping of input, output, cached, reasoning"),
        ("- burst: 0", "step 1: burst: input should be greater than or equal to 1"),
        ("- error: {status: 200}", "step 1: error.status: input should be greater than or equal to 400"),
        ("- expect: {modle: x}", "step 1: expect: a request has no 'modle'; did you mean 'model'?"),
        ("- by: {lst: x}", "step 1: by: a request has no 'lst'; did you mean 'last'?"),
        ("- dialect: vlm", "step 1: there is no dialect 'vlm'; did you mean 'vllm'?"),
        ("- dialect: {like: vllm, dne: true}", "step 1: dialect.dne: unknown key; did you mean 'done'?"),
        ("- dialect: {usage: never}", "step 1: dialect.usage: input should be 'chunk', 'finish' or 'after'"),
        ("- text: a\n  status: 500", "step 1: status: belongs to a step with 'raw'; for an error write 'error'"),
        ("models: [a]", "steps: field required"),
        ("just text", "a script is a list of steps, or a mapping with 'steps'"),
        ("- [", "the script is not YAML: "),
    ],
)
def test_a_mistake_in_a_file_is_told_with_file_step_and_key(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        ScriptedBackend.from_yaml(path)
    assert str(caught.value).startswith(f"{path}: {told}")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: the script cannot be read: No such file"):
        ScriptedBackend.from_yaml(tmp_path / "nowhere.yaml")


async def test_summaries_and_sealed_thoughts_are_fed_before_the_answer() -> None:
    with ScriptedBackend([turn("Hi.", summary=["So", "."], opaque="x1", reasoning="Hm.")]) as backend:
        sink = await played(backend)
    assert sink.flushes == [
        [("reasoning", "Hm.")],
        [("summary", "So")],
        [("summary", ".")],
        [("opaque", "x1")],
        ["Hi."],
    ]
