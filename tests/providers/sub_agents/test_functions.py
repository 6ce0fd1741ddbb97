"""Each function: what it takes, what the model reads of it, its errors and its scope; JSON and streamed."""

from pathlib import Path
from typing import Any

import pytest
from tests.providers.sub_agents.stage import TOOLS, ask, does, offered, output, outputs, prompt_of, stage, tree

from antwort import Context
from antwort.provider import Variable
from antwort.providers.sub_agents import contexts
from antwort.testing import Turn, call, fail, matching, turn

pytestmark = pytest.mark.parametrize("stream", [False, True], ids=["json", "streamed"])


def by(text: str, answer: str, **options: Any) -> Turn:
    """Answer the request in which a text stands."""
    return turn(answer, by=matching(last=text), **options)


@pytest.mark.parametrize(
    ("name", "arguments", "missing"),
    [
        ("spawn_agent", {"context": "x"}, "prompt"),
        ("spawn_many", {"configs": []}, "configs"),
        ("return_result", {}, "value"),
        ("call_llm", {"prompt": 5}, "prompt"),
        ("call_llm_many", {"prompts": "one"}, "prompts"),
    ],
)
def test_wrong_arguments_are_told_and_the_agent_goes_on(
    tmp_path: Path, name: str, arguments: dict[str, Any], missing: str, *, stream: bool
) -> None:
    with stage(tmp_path, [does(name, **arguments), "I see."]) as app:
        response = ask(app, stream=stream)
        assert response.output_text == "I see."
        assert missing in outputs(app)[-1]
        assert len(tree(app, response.id)["data"]) == 1


# --- spawn_agent -----------------------------------------------------------------------------------------------------


def test_spawn_agent_returns_what_the_agent_says(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [does("spawn_agent", prompt="Count the words."), "There are 7.", "Seven."]
    with stage(tmp_path, steps) as app:
        response = ask(app, stream=stream)
        assert response.output_text == "Seven."
        found = output(app)
        assert (found["status"], found["result"]) == ("completed", "There are 7.")
        assert prompt_of(app, 1) == "Count the words."
        root, child = tree(app, response.id)["data"]
        assert (child["id"], child["parent_id"], child["depth"]) == (found["agent"], root["id"], 1)


def test_spawn_agent_gives_its_agent_texts_and_references(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [
        does("remember", text="x" * 5000),
        turn(
            calls=[
                call("spawn_agent", {"prompt": "Read.", "context": {"note": "short", "book": {"$ref": "remembered"}}})
            ]
        ),
        "Read it.",
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        reference = output(app, 1)["$ref"]
        prompt = prompt_of(app, 2)
        assert "note:\nshort" in prompt
        assert f'book, by reference:\n{{"$ref":"{reference}","size":5000,"type":"text","head":"xxx' in prompt
        assert len(prompt) < 1000


def test_a_long_text_for_an_agent_is_kept_and_given_by_reference(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [does("spawn_agent", prompt="Read.", context="word " * 1000), "Read it.", "Done."]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        assert '"size":5000,"type":"text","head":"word ' in prompt_of(app, 1)
        assert len(prompt_of(app, 1)) < 1000


def test_a_long_answer_is_kept_and_shown_by_reference(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [does("spawn_agent", prompt="Write."), "tale " * 1000, "Done."]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        result = output(app)["result"]
        assert (result["size"], result["type"]) == (5000, "text")
        assert len(outputs(app)[-1]) < 700


def test_a_long_answer_is_cut_where_the_model_could_not_read_it_on(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [does("spawn_agent", prompt="Write."), "tale " * 1000, "Done."]
    with stage(tmp_path, steps, variables=False) as app:
        ask(app, stream=stream)
        assert "[… 3000 characters left out …]" in output(app)["result"]


def test_spawn_agent_can_give_fewer_functions_and_none_that_its_agent_does_not_have(
    tmp_path: Path, *, stream: bool
) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="A", functions=["call_llm"]),
        "A.",
        does("spawn_agent", prompt="B", functions=["launch"]),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        assert sorted(offered(app, 1)) == ["call_llm", "return_result"]
        assert "There is no function 'launch' here" in outputs(app)[-1]


def test_spawn_agent_takes_a_profile_of_the_configuration(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="A", agent="critic"),
        "Bad.",
        does("spawn_agent", prompt="B", agent="nobody"),
        "Done.",
    ]
    agents = {"critic": {"instructions": "Find faults.", "functions": []}}
    with stage(tmp_path, steps, agents=agents, engine={"run": {"agents": ["critic"]}}) as app:
        ask(app, stream=stream)
        assert app.requests[1].instructions == "Find faults."
        assert offered(app, 1) == ["return_result"]
        assert "There is no agent 'nobody'" in outputs(app)[-1]


def test_an_agent_whose_model_fails_is_told_as_failed(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [does("spawn_agent", prompt="A"), turn(error=fail(400, "Too hard.")), "Done."]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        found = output(app)
        assert found["status"] == "failed"
        assert "Too hard." in found["reason"]


@pytest.mark.parametrize("function", ["spawn_agent", "spawn_many", "list_agents", "followup_task"])
def test_an_agent_at_the_deepest_level_is_neither_offered_nor_allowed_to_start_others(
    tmp_path: Path, function: str, *, stream: bool
) -> None:
    steps: list[Turn | str] = [does("spawn_agent", prompt="A"), does(function, prompt="B"), "I work myself.", "Done."]
    with stage(tmp_path, steps, engine={"run": {"max_depth": 1}}) as app:
        ask(app, stream=stream)
        assert function in offered(app, 0)
        assert function not in offered(app, 1)
        assert {"call_llm", "return_result", "budget_remaining"} <= set(offered(app, 1))
        assert f"There is no function '{function}' here" in outputs(app, 2)[-1]
        assert output(app)["result"] == "I work myself."


# --- spawn_many ------------------------------------------------------------------------------------------------------


def test_spawn_many_keeps_the_order_and_tells_each_status(tmp_path: Path, *, stream: bool) -> None:
    configs = [{"prompt": "one"}, {"prompt": "two"}, {"prompt": "three", "context": "the third"}]
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_many", {"configs": configs})]),
        by("two", "", error=fail(400, "No.")),
        by("the third", "drei"),
        by("one", "eins"),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        found = output(app)
        assert [one["status"] for one in found] == ["completed", "failed", "completed"]
        assert [one.get("result") for one in found] == ["eins", None, "drei"]
        assert "No." in found[1]["reason"]


def test_spawn_many_refuses_wrong_configs_with_the_cure(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [turn(calls=[call("spawn_many", {"configs": [{"promt": "one"}]})]), "Done."]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        assert "prompt" in outputs(app)[-1]


# --- return_result ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "result"), [("42", "42"), ({"answer": 42}, '{"answer":42}'), (["a"], '["a"]'), (None, "null")]
)
def test_return_result_ends_the_agent_with_a_value(tmp_path: Path, value: Any, result: str, *, stream: bool) -> None:
    steps: list[Turn | str] = [does("spawn_agent", prompt="A"), does("return_result", value=value), "Done."]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        assert output(app)["result"] == result


def test_a_returned_reference_stays_one(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="A"),
        does("remember", text="long " * 1000),
        turn(calls=[call("return_result", {"value": {"$ref": "remembered"}})]),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        result = output(app)["result"]
        assert result["$ref"] == output(app, 2)["$ref"]
        assert (result["size"], result["head"][:5]) == (5000, "long ")


def test_at_the_root_return_result_is_the_answer(tmp_path: Path, *, stream: bool) -> None:
    with stage(tmp_path, [does("return_result", value="The answer.")]) as app:
        response = ask(app, stream=stream)
        assert (response.status, response.output_text) == ("completed", "The answer.")


# --- call_llm --------------------------------------------------------------------------------------------------------


def test_call_llm_asks_once_and_without_functions(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [does("call_llm", prompt="Translate.", context="Guten Tag"), "Good day", "Done."]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        assert offered(app, 1) == []
        assert prompt_of(app, 1) == "Translate.\n\nContext:\nGuten Tag"
        assert outputs(app)[-1] == "Good day"


def test_call_llm_reads_references_out_up_to_a_limit(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [
        does("remember", text="a" * 3000),
        turn(calls=[call("call_llm", {"prompt": "Sum up.", "context": [{"$ref": "remembered"}, "b"]})]),
        "Many letters.",
        does("remember", text="b" * 1000, times=101),
        turn(calls=[call("call_llm", {"prompt": "Sum up.", "context": {"$ref": "remembered"}})]),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        assert prompt_of(app, 2) == f"Sum up.\n\nContext 1:\n{'a' * 3000}\n\nContext 2:\nb"
        assert "more than 100,000 bytes" in outputs(app)[-1]


def test_call_llm_tells_why_there_is_no_answer(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [does("call_llm", prompt="A"), turn(error=fail(400, "Too hard.")), "Done."]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        assert "The model has not answered: " in outputs(app)[-1]
        assert "Too hard." in outputs(app)[-1]


def test_call_llm_many_keeps_the_order(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [
        does("call_llm_many", prompts=["one", "two"], context="all"),
        by("two", "zwei"),
        by("one", "eins"),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        assert [one["result"] for one in output(app)] == ["eins", "zwei"]


def test_the_deepest_agent_can_still_ask_a_model(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [does("call_llm", prompt="A"), "Answer.", "Done."]
    with stage(tmp_path, steps, engine={"run": {"max_depth": 0}}) as app:
        ask(app, stream=stream)
        assert outputs(app)[-1] == "Answer."


# --- budget_remaining ------------------------------------------------------------------------------------------------


def test_budget_remaining_counts_over_the_whole_tree(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="A"),
        turn(calls=[call("budget_remaining")], usage=(70, 30)),
        "Fine.",
        does("budget_remaining"),
        "Done.",
    ]
    limits = {"max_agents": 10, "max_tokens": 1000, "max_calls": 20, "max_cost": 5}
    with stage(tmp_path, steps, engine={"run": limits, "prices": {"another": {"input": 1}}}) as app:
        ask(app, stream=stream)
        below = output(app, 2)
        assert (below["agents"], below["tokens"], below["calls"], below["depth"]) == (8, 885, 18, 4)
        assert output(app)["depth"] == 5
        assert output(app)["tokens"] == 855


def test_what_agents_cost_is_added_up_and_bounds_the_run(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_many", configs=[{"prompt": "one"}, {"prompt": "two"}])], usage=(1_000_000, 0)),
        by("one", "eins", usage=(0, 1_000_000)),
        by("two", "zwei", usage=(0, 1_000_000)),
        turn(calls=[call("budget_remaining")], usage=(1_000_000, 0)),
        turn(calls=[call("spawn_agent", prompt="three")], usage=(2_000_000, 0)),
        "One and two are counted.",
    ]
    engine = {"run": {"max_cost": 10, "max_tokens": 10**9}, "prices": {"scripted": {"input": 1.0, "output": 3.0}}}
    with stage(tmp_path, steps, engine=engine) as app:
        body = {"model": "scripted", "input": "Do it!", "tools": TOOLS}  # the reason is none that the SDK knows
        response = app.stream(**body).response if stream else app.request("POST", "/responses", json=body).json()
        assert output(app, 4)["cost"] == 10 - (1 + 3 + 3 + 1)
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "budget"})
        statuses = [agent["status"] for agent in tree(app, response["id"])["data"]]
        assert statuses == ["incomplete", "completed", "completed"]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("call_llm_many", {"prompts": ["Hm?"] * 10}),
        ("spawn_many", {"configs": [{"prompt": "Hm?", "context": "x" * 5000}] * 10}),
    ],
)
def test_nothing_is_read_or_kept_for_more_agents_than_there_may_be(
    tmp_path: Path, function: str, arguments: dict[str, Any], *, stream: bool
) -> None:
    given = {"context": {"$ref": f"var_{'0' * 48}"}} if function == "call_llm_many" else {}
    steps: list[Turn | str] = [does(function, **arguments, **given), does("store_list"), "Done."]
    with stage(tmp_path, steps, engine={"run": {"max_agents": 10}}) as app:
        ask(app, stream=stream, tools=[{"type": "function", "name": "store_list"}])
        refused, listed = outputs(app)
        assert "10 are too many" in refused
        kept = [line for line in listed.splitlines() if not line.startswith("arguments_")]  # which left the window
        assert kept in ([], ["There are no variables yet."])


def test_what_many_questions_share_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    reads: list[str] = []
    read = contexts._text

    async def noted(ctx: Context, variable: Variable) -> str:
        reads.append(variable.key)
        return await read(ctx, variable)

    monkeypatch.setattr(contexts, "_text", noted)
    steps: list[Turn | str] = [
        does("remember", text="known to all"),
        does("call_llm_many", prompts=["one", "two"], context={"$ref": "remembered"}),
        by("two", "zwei"),
        by("one", "eins"),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream, tools=[{"type": "function", "name": "remember"}])
        assert [one["result"] for one in output(app)] == ["eins", "zwei"]
        assert all("known to all" in prompt_of(app, number) for number in (2, 3))
    assert reads == ["remembered"]
