"""Calls that a call makes itself: the same path and limits as any other, kept, answered, and made once."""

import asyncio
import math
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.http.sdk import CLIENT_TOOL, create, done
from tests.providers.user.stage import answer, asked, begun, outputs, served_user
from tests.runs.embedded import TENANT, Embedded, embedded

from antwort.context import Context
from antwort.engine.window import INTERRUPTED
from antwort.functions import FunctionSpec
from antwort.testing import call, turn
from antwort.types import JSON


class Shop:
    """Functions, and one that calls them."""

    def __init__(self) -> None:
        self.counted: list[str | None] = []
        self.at_once = 0
        self.most_at_once = 0
        self.rounds = 0

    async def add(self, ctx: Context, a: int, b: int = 1) -> dict[str, int]:
        """Add numbers."""
        self.counted.append(ctx.call_id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return {"sum": a + b}

    async def say(self) -> str:
        """Say something."""
        return '{"no": "JSON"}'

    async def nothing(self) -> None:
        """Do nothing."""

    async def refund(self, order: str) -> str:
        """Give money back."""
        return f"refunded {order}"

    async def each(self, ctx: Context, calls: list[dict[str, Any]]) -> list[Any]:
        """Make calls, all at once, and return what they have given."""
        self.rounds += 1
        made = [ctx.call_function(made["name"], made.get("arguments"), key=f"k{n}") for n, made in enumerate(calls)]
        results = await asyncio.gather(*made, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result.value for result in results if not isinstance(result, BaseException)]

    @property
    def specs(self) -> list[FunctionSpec]:
        return [
            FunctionSpec.of(self.add),
            FunctionSpec.of(self.say),
            FunctionSpec.of(self.nothing),
            FunctionSpec.of(self.refund, {"approval": "always"}),
            FunctionSpec.of(self.each, {"attach": True, "timeout": math.inf, "calls_functions": True}),
        ]


def each(*calls: JSON) -> Any:
    return turn(calls=[call("each", calls=list(calls), call_id="call_1")])


def nested(name: str, **arguments: Any) -> JSON:
    return {"name": name, "arguments": arguments}


ASK: Any = {"type": "function", "name": "ask_user"}
EACH: Any = {"type": "function", "name": "each"}
FINAL: Any = {"type": "function", "name": "final_answer"}
QUESTION = nested("ask_user", question="Which one?")


def stage_of(tmp_path: Path, shop: Shop, steps: list[Any], **options: Any) -> Any:
    return served_user(tmp_path, steps, functions=shop.specs, **options)


# --- results and limits ----------------------------------------------------------------------------------------------


def test_results_are_values_where_they_are_json_and_texts_where_they_are_texts(tmp_path: Path) -> None:
    shop = Shop()
    with stage_of(tmp_path, shop, [each(nested("add", a=1), nested("say"), nested("nothing")), "Done."]) as stage:
        create(stage, False, input="Go!")
        assert outputs(stage) == ['[{"sum":2},"{\\"no\\": \\"JSON\\"}",null]']
        assert shop.counted == ["call_1.k0"]


def test_what_is_wrong_is_a_result(tmp_path: Path) -> None:
    calls = [nested("add", a="x"), nested("nope"), nested("each", calls=[])]
    with stage_of(tmp_path, Shop(), [each(*calls), "Done."]) as stage:
        create(stage, False, input="Go!")
        [output] = outputs(stage)
        assert output.count("can be called from here") == 2
        assert "valid integer" in output


def test_a_call_that_ends_the_run_ends_it_when_the_one_that_makes_it_is_over(tmp_path: Path) -> None:
    shop = Shop()
    calls = [nested("final_answer", result="x"), nested("add", a=1)]
    with stage_of(tmp_path, shop, [each(*calls)]) as stage:
        response = create(stage, False, input="Go!", tools=[EACH, FINAL])
        assert (response.status, response.output_text) == ("completed", "x")
        assert shop.counted == ["call_1.k1"]
        assert len(stage.requests) == 1


def test_no_more_run_at_once_than_may(tmp_path: Path) -> None:
    shop = Shop()
    calls = [nested("add", a=n) for n in range(40)]
    with stage_of(tmp_path, shop, [each(*calls), "Done."], engine={"parallel_calls": 4}) as stage:
        create(stage, False, input="Go!")
    assert (len(shop.counted), shop.most_at_once) == (40, 4)


def test_they_count_for_the_limit_of_calls(tmp_path: Path) -> None:
    shop = Shop()
    with stage_of(tmp_path, shop, [each(*[nested("add", a=n) for n in range(9)]), "Done."]) as stage:
        create(stage, False, input="Go!", max_tool_calls=4)
        assert outputs(stage)[0].count("limit of function calls") == 6
    assert len(shop.counted) == 3


def test_calls_are_shown_with_who_has_made_them_to_requests_that_want_to_see_them(tmp_path: Path) -> None:
    with stage_of(tmp_path, Shop(), [each(nested("add", a=1)), "Done."], engine={"show_calls": True}) as stage:
        output = stage.request("POST", "/responses", json={"input": "Go!"}).json()["output"]
    assert [item.get("name") for item in output] == ["each", "add", None]
    assert output[1]["caller"] == {"type": "program", "caller_id": "call_1"}


# --- who may call what -----------------------------------------------------------------------------------------------


def test_a_function_is_called_by_whom_the_request_says(tmp_path: Path) -> None:
    tools: Any = [
        {"type": "function", "name": "add", "allowed_callers": ["programmatic"]},
        {"type": "function", "name": "say", "allowed_callers": ["direct"]},
        EACH,
    ]
    steps = [each(nested("add", a=1), nested("say")), turn(calls=[call("add", a=1)]), "Done."]
    with stage_of(tmp_path, Shop(), steps) as stage:
        response = create(stage, False, input="Go!", tools=tools)
        offered = {str(tool["name"]): tool for tool in stage.requests[0].tools}
        assert "add" not in offered
        assert "async def add(*, a: int, b: int = 1) -> Any:" in offered["each"]["description"]
        assert outputs(stage, 1) == ['[{"sum":2},"There is no function \'say\' that can be called from here."]']
        assert outputs(stage, 2)[-1] == "add may only be called by a program."
        assert response.to_dict()["tools"][0]["allowed_callers"] == ["programmatic"]  # type: ignore[index]


def test_callers_that_there_are_not_are_refused(tmp_path: Path) -> None:
    tool: Any = {"type": "function", "name": "add", "allowed_callers": ["everybody"]}
    with stage_of(tmp_path, Shop(), []) as stage, pytest.raises(openai.BadRequestError, match="allowed_callers"):
        create(stage, False, input="Go!", tools=[tool])


# --- waiting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_a_question_ends_the_response_and_the_call_goes_on_with_the_answer(tmp_path: Path, *, stream: bool) -> None:
    shop = Shop()
    with stage_of(tmp_path, shop, [each(nested("add", a=1), QUESTION), "Blue it is.", "Bye."]) as stage:
        first = create(stage, stream, input="Go!", tools=[ASK, EACH])
        [item] = as_items(first)
        assert (item["type"], item["name"], item["call_id"]) == ("function_call", "ask_user", "call_1.k1")
        assert item["caller"] == {"type": "program", "caller_id": "call_1"}
        with pytest.raises(openai.BadRequestError, match=r"No tool output found for function call call_1\.k1"):
            create(stage, stream, input="Hello?", previous_response_id=first.id)
        said: Any = {"type": "function_call_output", "call_id": "call_1.k1", "output": "The blue one."}
        second = create(stage, stream, input=[said], previous_response_id=first.id, tools=[ASK, EACH])
        assert second.output_text == "Blue it is."
        assert outputs(stage) == ['[{"sum":2},"The blue one."]']
        with pytest.raises(openai.ConflictError):
            create(stage, stream, input=[said], previous_response_id=first.id)
        third = create(stage, stream, input="Thanks!", previous_response_id=second.id)
        assert third.output_text == "Bye."
        assert outputs(stage) == ['[{"sum":2},"The blue one."]']
    assert (shop.counted, shop.rounds) == (["call_1.k0"], 2)


def test_functions_of_the_client_are_called_if_they_are_meant_for_it(tmp_path: Path) -> None:
    weather: Any = {**CLIENT_TOOL, "allowed_callers": ["programmatic"]}
    with stage_of(tmp_path, Shop(), [each(nested("get_weather", city="Rome")), "Sunny."]) as stage:
        first = create(stage, False, input="Go!", tools=[weather, EACH])
        [item] = as_items(first)
        assert (item["name"], item["arguments"]) == ("get_weather", '{"city":"Rome"}')
        said: Any = {"type": "function_call_output", "call_id": item["call_id"], "output": "22 degrees"}
        create(stage, False, input=[said], previous_response_id=first.id, tools=[weather, EACH])
        assert outputs(stage) == ['["22 degrees"]']


def test_a_background_run_waits_and_the_call_goes_on_with_the_answers(tmp_path: Path) -> None:
    shop = Shop()
    steps = [each(nested("add", a=1), QUESTION, nested("refund", order="7")), "Blue it is."]
    with stage_of(tmp_path, shop, steps) as stage:
        response_id = begun(stage)
        for question in asked(stage, 2):
            answer(stage, question, **({"approve": True} if question["kind"] == "approval" else {"answer": "Blue."}))
        assert done(stage, response_id)["status"] == "completed"
        assert outputs(stage) == ['[{"sum":2},"Blue.","refunded 7"]']
        types = [item["type"] for item in stage.resume(response_id).response["output"]]
        assert types == ["mcp_approval_request", "function_call", "message"]
    assert shop.counted == ["call_1.k0"]


def test_what_a_call_has_left_behind_calls_nothing(tmp_path: Path) -> None:
    shop, met = Shop(), asyncio.Event()
    left: list[asyncio.Task[Any]] = []

    async def leave(ctx: Context) -> str:
        """Leave a task behind."""

        async def ask_late() -> None:
            await met.wait()
            await ctx.call_function("refund", {"order": "7"})

        left.append(asyncio.create_task(ask_late()))
        return "left"

    async def meet() -> str:
        """Wait for what was left behind."""
        met.set()
        [error] = await asyncio.gather(*left, return_exceptions=True)
        return str(error)

    steps: list[Any] = [turn(calls=[call("leave")]), turn(calls=[call("meet")]), "Done."]
    specs = [*shop.specs, FunctionSpec.of(leave, {"calls_functions": True}), FunctionSpec.of(meet)]
    with served_user(tmp_path, steps, functions=specs) as stage:
        response = create(stage, False, input="Go!")
        assert [item.type for item in response.output] == ["message"]
        assert outputs(stage) == ["left", "What makes the call is over."]


# --- after a crash ---------------------------------------------------------------------------------------------------


async def test_what_was_done_is_not_done_again_and_what_is_not_known_is_told(tmp_path: Path) -> None:
    shop, hanging = Shop(), asyncio.Event()

    async def hang(ctx: Context) -> str:
        """Take long."""
        shop.counted.append(ctx.call_id)
        hanging.set()
        await asyncio.sleep(math.inf)
        return "late"

    steps = [each(nested("add", a=1), nested("hang")), "Done."]
    specs = [*shop.specs, FunctionSpec.of(hang, {"timeout": math.inf})]
    async with embedded(tmp_path, steps, specs) as app:
        response_id = await app.accept()
        await hanging.wait()
    async with embedded(tmp_path, ["Done."], specs) as app:
        response, _ = await app.result(response_id)
        assert response["status"] == "completed"
        assert read_by(app) == [f'[{{"sum":2}},"{INTERRUPTED}"]']
        assert [entry.direction for entry in await app.store.journal(TENANT, response_id)].count("nested") == 2
        kept = await app.store.journals(TENANT, [response_id])
        assert {entry.direction for entry in kept[response_id]} == {"input", "output"}
    assert shop.counted == ["call_1.k0", "call_1.k1"]


async def test_outside_of_a_response_nothing_can_be_called() -> None:
    with pytest.raises(Exception, match="needs a call of a response"):
        await Context(TENANT).call_function("add")


def read_by(app: Embedded) -> list[str]:
    items = app.model.script.requests[-1].items
    return [item["output"] for item in items if item["type"] == "function_call_output"]


def as_items(response: Any) -> list[JSON]:
    return list(response.to_dict()["output"])
