"""What a parent may choose for a sub-agent: its model and turns; and what an agent is in its next task."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.providers.sub_agents.stage import ask, does, output, outputs, stage, tree
from tests.providers.sub_agents.test_started import Step, agent, asked

from antwort.backends.base import ModelRequest
from antwort.testing import Turn, call, matching, turn


def of_many(**options: Any) -> Turn:
    return does("spawn_many", configs=[{"prompt": "A", **options}])


def of_one(**options: Any) -> Turn:
    return does("spawn_agent", prompt="A", **options)


BOTH = pytest.mark.parametrize("spawn", [of_one, of_many])


# --- models ----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("models", [None, ["other"], ["large-*"]])
def test_a_model_that_is_not_declared_is_refused(
    tmp_path: Path, spawn: Callable[..., Turn], models: list[str] | None
) -> None:
    engine: dict[str, Any] = {} if models is None else {"run": {"models": models}}
    with stage(tmp_path, [spawn(model="small"), "I see."], engine=engine) as app:
        assert ask(app, stream=False).output_text == "I see."
        told = outputs(app)[-1]
        assert "You may not choose the model 'small'" in told
        assert (str(models)[1:-1] if models else "none") in told


@BOTH
@pytest.mark.parametrize("models", [["small"], ["sm*"], ["*"]])
def test_a_declared_model_answers(tmp_path: Path, spawn: Callable[..., Turn], models: list[str]) -> None:
    steps: list[Turn | str] = [spawn(model="small"), "A.", "Done."]
    with stage(tmp_path, steps, engine={"run": {"models": models}}) as app:
        response = ask(app, stream=False)
        assert [request.model for request in app.requests] == ["scripted", "small", "scripted"]
        assert tree(app, response.id)["data"][1]["model"] == "small"


@pytest.mark.parametrize("declared", [False, True])
def test_an_agent_has_the_models_of_its_own_profile(tmp_path: Path, *, declared: bool) -> None:
    """What requests may choose that ask for no agent is nothing to it; its own model and its parent's it may."""
    boss: dict[str, Any] = {
        "functions": ["spawn_agent"],
        "model": "large",
        **({"models": ["small"]} if declared else {}),
    }
    first: list[Turn | str] = [of_one(model="small"), *(["A."] if declared else [])]
    steps = [*first, of_one(model="large"), "B.", "Done."]
    with stage(tmp_path, steps, agents={"boss": boss}, engine={"run": {"models": ["small"]}}) as app:
        ask(app, stream=False, extra_body={"agent": "boss"})
        models = [request.model for request in app.requests]
        assert models == ["large", *(["small"] if declared else []), "large", "large", "large"]
        assert ("may not choose the model 'small'" in outputs(app)[0]) is not declared


def test_a_model_that_is_chosen_comes_before_that_of_the_profile(tmp_path: Path) -> None:
    agents: dict[str, Any] = {
        "boss": {"functions": ["spawn_agent"], "agents": ["critic"], "models": ["small"]},
        "critic": {"model": "large", "functions": []},
    }
    steps: list[Turn | str] = [of_one(agent="critic"), "A.", of_one(agent="critic", model="small"), "B.", "Done."]
    with stage(tmp_path, steps, agents=agents) as app:
        ask(app, stream=False, extra_body={"agent": "boss"})
        assert [request.model for request in app.requests] == ["scripted", "large", "scripted", "small", "scripted"]


def test_agents_below_one_with_another_model_have_that_model(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        of_one(model="small"),
        turn(calls=[call("spawn_agent", prompt="B")], by=matching(last="A")),
        turn("B.", by=matching(last="B")),
        "A.",
        "Done.",
    ]
    with stage(tmp_path, steps, engine={"run": {"models": ["small"]}}) as app:
        ask(app, stream=False)
        assert [request.model for request in app.requests] == ["scripted", "small", "small", "small", "scripted"]


# --- another model for call_llm --------------------------------------------------------------------------------------


@pytest.mark.parametrize("pinned", [False, True])
def test_call_llm_asks_the_model_of_the_settings(tmp_path: Path, *, pinned: bool) -> None:
    """Also where the agent has a model of its own; sub-agents have the agent's."""
    functions = ["call_llm", "call_llm_many", "spawn_agent"]
    agents: dict[str, Any] = {"boss": {"functions": functions, **({"model": "scripted"} if pinned else {})}}
    steps: list[Turn | str] = [
        does("call_llm", prompt="A"),
        "A.",
        does("call_llm_many", prompts=["B", "C"]),
        turn("B.", by=matching(last="B")),
        turn("C.", by=matching(last="C")),
        of_one(),
        "D.",
        "Done.",
    ]
    with stage(tmp_path, steps, agents=agents, sub_agents={"call_model": "small"}) as app:
        ask(app, stream=False, extra_body={"agent": "boss"})
        small = [number for number, request in enumerate(app.requests) if request.model == "small"]
        assert small == [1, 3, 4]
        assert {request.model for request in app.requests} == {"scripted", "small"}


def test_a_model_that_is_asked_once_knows_the_prompt_and_not_what_the_agent_is_told(tmp_path: Path) -> None:
    agents: dict[str, Any] = {"boss": {"functions": ["call_llm"], "instructions": "Use your functions."}}
    with stage(tmp_path, [does("call_llm", prompt="A"), "A.", "Done."], agents=agents) as app:
        ask(app, stream=False, extra_body={"agent": "boss"})
        assert [request.instructions for request in app.requests] == [
            *("Use your functions.", None, "Use your functions.")
        ]


# --- turns -----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("own", "asked_for", "turns"), [(50, 2, 2), (3, 100, 3)])
def test_turns_are_those_that_were_asked_for_and_never_more_than_the_parent_has(
    tmp_path: Path, spawn: Callable[..., Turn], own: int, asked_for: int, turns: int
) -> None:
    steps: list[Turn | str] = [
        spawn(max_turns=asked_for),
        *(turn(calls=[call("remember", text=str(number))]) for number in range(turns)),
        "Done.",
    ]
    with stage(tmp_path, steps, engine={"max_turns": own}) as app:
        assert ask(app, stream=False).output_text == "Done."
        found = output(app)
        found = found if isinstance(found, dict) else found[0]
        assert (found["status"], found["reason"]) == ("incomplete", "max_turns")
        assert len(app.requests) == turns + 2


@pytest.mark.parametrize("options", [{"max_turns": 0}, {"timeout": 0}, {"output_schema": "text"}, {"model": 5}])
@BOTH
def test_wrong_options_are_told(tmp_path: Path, spawn: Callable[..., Turn], options: dict[str, Any]) -> None:
    with stage(tmp_path, [spawn(**options), "I see."]) as app:
        assert ask(app, stream=False).output_text == "I see."
        assert next(iter(options)) in outputs(app)[-1]


# --- further tasks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stream", "store"), [(False, True), (True, True), (True, False)])
def test_an_agent_keeps_its_profile_model_and_functions(tmp_path: Path, *, stream: bool, store: bool) -> None:
    seen: list[ModelRequest] = []
    steps: list[Step] = [
        lambda _: does(
            "spawn_agent", prompt="first", agent="critic", model="small", functions=["call_llm"], wait=False
        ),
        lambda told: does("wait_agent", agents=[agent(told)]),
        lambda told: does("followup_task", agent=agent(told), prompt="second"),
        lambda told: does("followup_task", agent=agent(told), prompt="third", wait=False),
        lambda told: does("wait_agent", agents=[agent(told)]),
    ]
    agents = {"critic": {"instructions": "Find faults.", "functions": ["call_llm", "list_agents"], "model": "large"}}
    settings: dict[str, Any] = {"agents": agents, "engine": {"run": {"agents": ["critic"], "models": ["small"]}}}
    with asked(tmp_path, steps, str, stream=stream, store=store, seen=seen, **settings) as (_, told):
        assert [one.get("result") for one in told] == [None, "first", "second", None, "third"]
        assert [request.model for request in seen] == ["small"] * 3
        assert [request.instructions for request in seen] == ["Find faults."] * 3
        names = [[tool["name"] for tool in request.tools] for request in seen]
        assert names == [["return_result", "call_llm"]] * 3


def test_an_agent_that_was_waited_for_keeps_what_its_profile_has(tmp_path: Path) -> None:
    seen: list[ModelRequest] = []
    steps: list[Step] = [
        lambda _: does("spawn_agent", prompt="first", agent="critic"),
        lambda told: does("followup_task", agent=agent(told), prompt="second"),
    ]
    agents = {"critic": {"instructions": "Find faults.", "functions": [], "model": "large"}}
    settings: dict[str, Any] = {"agents": agents, "engine": {"run": {"agents": ["critic"]}}}
    with asked(tmp_path, steps, str, stream=False, store=True, seen=seen, **settings) as (_, told):
        assert [one["result"] for one in told] == ["first", "second"]
        assert [(request.model, request.instructions) for request in seen] == [("large", "Find faults.")] * 2
