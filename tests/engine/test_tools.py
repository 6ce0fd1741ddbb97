"""What is offered, and what `tool_choice` means."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from antwort import Context, FunctionRegistry
from antwort.context import Agent
from antwort.engine.tools import targets as tools
from antwort.engine.tools.parameters import read_choice
from antwort.engine.tools.targets import Toolset
from antwort.engine.tools.toolsets import ToolsetBuilder
from antwort.errors import BadRequestError, PermissionDeniedError
from antwort.functions import FunctionSpec, Scope, ToolResult
from antwort.provider import Hosted, Provider, function

CTX = Context("t", scopes=frozenset({"*"}))
CLIENT = {"type": "function", "name": "mine", "parameters": {"type": "object"}}


class Search(Provider):
    @function(hosted=Hosted(types=("find", "find_preview"), item="find_call", tool_defaults={"depth": 3}))
    async def find(self, query: str) -> str:
        """Find something."""
        return query


class Quiet(Provider):
    @function
    async def whisper(self) -> str:
        """Say something quietly."""
        return "psst"


@pytest.fixture
def toolsets() -> ToolsetBuilder:
    registry = FunctionRegistry()
    registry.register(Search())
    registry.register(Quiet(), offer="on_request")
    return ToolsetBuilder([registry])


def toolset(toolsets: ToolsetBuilder, *tools: dict[str, Any], functions: list[str] | None = None) -> Toolset:
    return toolsets.build(tools, CTX, functions)


def test_functions_of_enabled_providers_are_offered_to_every_request(toolsets: ToolsetBuilder) -> None:
    assert list(toolset(toolsets).targets) == ["find"]
    assert toolset(toolsets).echo == []


def test_a_list_of_tools_even_an_empty_one_says_which_hosted_types_are_wanted(toolsets: ToolsetBuilder) -> None:
    registry = FunctionRegistry()
    registry.register(Search())
    registry.register(Quiet())
    builder = ToolsetBuilder([registry])
    offered = {
        "none": builder.build([], CTX),
        "empty": builder.build([], CTX, listed=True),
        "own": builder.build([CLIENT], CTX, listed=True),
        "type": builder.build([{"type": "find"}], CTX, listed=True),
        "name": builder.build([{"type": "function", "name": "find"}], CTX, listed=True),
        "profile": builder.build([CLIENT], CTX, ["find"], listed=True),
    }
    assert {how: sorted(found.targets) for how, found in offered.items()} == {
        "none": ["find", "whisper"],
        "empty": ["whisper"],
        "own": ["mine", "whisper"],
        "type": ["find", "whisper"],
        "name": ["find", "whisper"],
        "profile": ["find", "mine"],
    }


def test_what_is_required_is_a_call_of_what_the_request_lists(toolsets: ToolsetBuilder) -> None:
    registry = FunctionRegistry()
    registry.register(Quiet())
    builder = ToolsetBuilder([registry])
    choice = read_choice("required", builder.build([CLIENT], CTX, listed=True), listed=True)
    assert choice.allowed == choice.among == frozenset({"mine"})
    assert choice.relaxed().permits("whisper")
    with pytest.raises(BadRequestError, match="there are no tools"):
        read_choice("required", builder.build([], CTX, listed=True), listed=True)
    assert read_choice("required", builder.build([], CTX)).allowed is None


def test_on_request_means_only_when_named(toolsets: ToolsetBuilder) -> None:
    found = toolset(toolsets, {"type": "function", "name": "whisper"})
    assert not found.targets["whisper"].is_client
    assert found.echo[0]["description"] == "Say something quietly."


def test_a_function_that_is_only_named_and_misspelt_is_told_with_the_right_name(toolsets: ToolsetBuilder) -> None:
    with pytest.raises(BadRequestError, match=r"no function 'wisper'; did you mean 'whisper'?") as caught:
        toolset(toolsets, {"type": "function", "name": "wisper"})
    assert (caught.value.param, caught.value.code) == ("tools[0].name", "unknown_function")


def test_only_some_names_are_held_against_ours(toolsets: ToolsetBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(tools, "did_you_mean", lambda name, *_, **__: compared.append(name))
    toolset(toolsets, *({"type": "function", "name": f"mine_{number}"} for number in range(100)))
    assert len(compared) == 10


@pytest.mark.parametrize(
    "own", [{"name": "ping"}, {"name": "wisper", "parameters": {}}, {"name": "wisper", "strict": None}]
)
def test_a_function_of_the_client_may_resemble_ours(toolsets: ToolsetBuilder, own: dict[str, Any]) -> None:
    assert toolset(toolsets, {"type": "function", **own}).targets[own["name"]].is_client


@pytest.mark.parametrize("kind", ["find", "find_preview"])
def test_every_type_a_function_answers_is_expanded_to_its_definition(toolsets: ToolsetBuilder, kind: str) -> None:
    found = toolset(toolsets, {"type": kind, "filters": {"a": 1}})
    assert found.definitions[0]["type"] == "function"
    assert found.definitions[0]["name"] == "find"
    assert found.targets["find"].options == {"type": kind, "filters": {"a": 1}}
    assert found.echo == [{"depth": 3, "type": kind, "filters": {"a": 1}}]


def test_a_hosted_type_nobody_serves_is_a_clear_400(toolsets: ToolsetBuilder) -> None:
    with pytest.raises(BadRequestError, match=r"type 'fly' are not available here; available: apply_patch, .*, find, "):
        toolset(toolsets, {"type": "fly"})


def test_a_hosted_type_nobody_serves_is_left_out_if_the_operator_wants_it_so() -> None:
    registry = FunctionRegistry()
    registry.register(Search())
    found = toolset(ToolsetBuilder([registry], ignores_unavailable=True), {"type": "fly"}, {"type": "find"})
    assert [tool["type"] for tool in found.echo] == ["find"]


def test_a_function_with_parameters_is_the_clients_own_and_hides_ours(toolsets: ToolsetBuilder) -> None:
    found = toolset(toolsets, {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}})
    assert found.targets["find"].is_client
    assert list(found.targets) == ["find"] or "hosted_find" not in found.targets


def test_a_hosted_type_beside_a_client_function_of_its_name_gets_another_name(toolsets: ToolsetBuilder) -> None:
    client = {"type": "function", "name": "find", "parameters": {"type": "object"}}
    found = toolset(toolsets, {"type": "find"}, client)
    assert found.targets["find"].is_client
    assert not found.targets["hosted_find"].is_client
    assert found.types == {"find": "hosted_find"}


def test_a_function_without_parameters_that_nobody_has_is_the_clients(toolsets: ToolsetBuilder) -> None:
    found = toolset(toolsets, {"type": "function", "name": "nobody"})
    assert found.targets["nobody"].is_client
    assert found.echo == [
        {"type": "function", "description": None, "parameters": None, "strict": None, "name": "nobody"}
    ]


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([{"type": "function"}], "tools[0].name"),
        ([{"type": "function", "name": "a b"}], "tools[0].name"),
        ([CLIENT, CLIENT], "tools[1].name"),
        ([{}], "tools[0].type"),
    ],
)
def test_bad_tools_are_named(toolsets: ToolsetBuilder, tools: list[dict[str, Any]], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        toolset(toolsets, *tools)
    assert caught.value.param == param


def test_an_agents_functions_are_all_it_is_offered(toolsets: ToolsetBuilder) -> None:
    assert list(toolset(toolsets, functions=["whisper"]).targets) == ["whisper"]
    assert list(toolset(toolsets, CLIENT, functions=[]).targets) == ["mine"]


def test_the_first_executor_with_a_name_wins() -> None:
    one, two = FunctionRegistry(), FunctionRegistry()
    for registry in (one, two):
        registry.register(FunctionSpec("f", "Do.", {}, lambda params: "x"))
    assert ToolsetBuilder([one, two]).build((), CTX).targets["f"].executor is one


# --- made once -------------------------------------------------------------------------------------------------


async def no_handler(params: Any) -> str:
    return ""


class Changing:
    """An executor that has no version and other functions for each tenant."""

    def __init__(self) -> None:
        self.specs: dict[str, list[FunctionSpec]] = {}

    def discovered_tools(self, ctx: Context | None = None) -> Sequence[FunctionSpec]:
        return self.specs.get("" if ctx is None else ctx.tenant, [])

    def can_execute(self, name: str) -> bool:
        return True

    async def execute(self, name: str, params: Any, ctx: Context | None = None) -> ToolResult:
        return ToolResult(name)

    async def close(self) -> None:
        """Give nothing back."""


def test_a_toolset_is_made_once_until_functions_change() -> None:
    registry = FunctionRegistry()
    registry.register(Search())
    toolsets = ToolsetBuilder([registry])
    first = toolsets.build((), CTX)
    assert toolsets.build((), CTX.with_(tenant="u", request_id="r")) is first
    registry.register(FunctionSpec("late", "Come late.", {}, no_handler))
    assert list(toolsets.build((), CTX).targets) == ["find", "late"]
    registry.disable("late")
    assert list(toolsets.build((), CTX).targets) == ["find"]
    registry.enable("late")
    registry.disable("search")
    assert list(toolsets.build((), CTX).targets) == ["late"]
    registry.unregister("late")
    assert not toolsets.build((), CTX).targets
    assert list(first.targets) == ["find"]


def test_agents_have_toolsets_of_their_own() -> None:
    registry = FunctionRegistry()
    registry.register(FunctionSpec("all", "For all.", {}, no_handler))
    registry.register(FunctionSpec("few", "For one.", {}, no_handler, agents=frozenset({"one"})))
    registry.register(FunctionSpec("root", "For those who talk to users.", {}, no_handler, scope=Scope.USER))
    toolsets = ToolsetBuilder([registry])

    def offered(agent: Agent, **scopes: frozenset[str]) -> list[str]:
        return list(toolsets.build((), CTX.with_(agent=agent, **scopes)).targets)

    for _ in range(2):
        assert offered(Agent("one")) == ["all", "few", "root"]
        assert offered(Agent("two")) == ["all", "root"]
        assert offered(Agent("one", depth=1)) == ["all", "few"]
        assert offered(Agent("one"), scopes=frozenset({"responses:write"})) == []


def test_an_agents_functions_and_those_that_are_named_make_toolsets_of_their_own(toolsets: ToolsetBuilder) -> None:
    for _ in range(2):
        assert list(toolset(toolsets).targets) == ["find"]
        assert list(toolset(toolsets, functions=["whisper", "find"]).targets) == ["find", "whisper"]
        named = toolset(toolsets, {"type": "find", "limit": 1}, functions=["whisper", "find"])
        assert list(named.targets) == [tool["name"] for tool in named.definitions] == ["find", "whisper"]
        assert named.targets["find"].options == {"type": "find", "limit": 1}
        assert (len(named.targets), named.targets.get("mine"), "whisper" in named.targets) == (2, None, True)


def test_the_tools_of_requests_that_only_name_functions_are_put_together_once() -> None:
    registry = FunctionRegistry()
    registry.register(Quiet(), offer="on_request")
    toolsets = ToolsetBuilder([registry])
    named = {"type": "function", "name": "whisper"}
    first = toolset(toolsets, named)
    assert toolsets.build([{**named}], CTX.with_(tenant="u")) is first
    for other in ([named, {"type": "function", "name": "mine"}], [{**named, "strict": True}], [CLIENT], []):
        assert toolset(toolsets, *other) is not first
    assert toolset(toolsets, named, functions=[]) is not first
    with pytest.raises(PermissionDeniedError, match="functions:call"):
        toolsets.build([named], CTX.with_(scopes=frozenset({"responses:write"})))
    for _ in range(2):
        with pytest.raises(BadRequestError, match="two functions"):
            toolset(toolsets, named, named)
        with pytest.raises(BadRequestError, match=r"Invalid type for 'tools\[0\]\.name'"):
            toolset(toolsets, {"type": "function", "name": ["whisper"]})
    registry.disable("whisper")
    assert toolset(toolsets, named).targets["whisper"].is_client


def test_the_tools_of_clients_are_put_together_once(toolsets: ToolsetBuilder) -> None:
    custom = {"type": "custom", "name": "write"}
    first = toolset(toolsets, CLIENT, custom)
    assert toolset(toolsets, {**CLIENT}, {**custom}) is first
    assert toolset(toolsets, custom, CLIENT) is not first
    assert toolset(toolsets, CLIENT, {**custom, "description": "Write."}) is not first
    hosted = toolset(toolsets, CLIENT, {"type": "find"})
    assert toolset(toolsets, CLIENT, {"type": "find"}) is not hosted, "its options are those of the request"
    for _ in range(2):
        with pytest.raises(BadRequestError, match=r"Invalid type for 'tools\[0\]\.strict'"):
            toolset(toolsets, {**CLIENT, "strict": "red"})


def test_fields_of_a_tool_that_nobody_knows_are_ignored(toolsets: ToolsetBuilder) -> None:
    found = toolset(toolsets, {**CLIENT, "colour": "red"}, {"type": "custom", "name": "write", "colour": "red"})
    assert "colour" not in str([*found.echo, *found.definitions])


def test_an_executor_without_a_version_is_asked_with_every_request() -> None:
    registry, other = FunctionRegistry(), Changing()
    registry.register(FunctionSpec("here", "Do it here.", {}, no_handler))
    toolsets = ToolsetBuilder([registry, other])
    assert list(toolsets.build((), CTX).targets) == ["here"]
    other.specs["t"] = [FunctionSpec("there", "Do it there.", {}, no_handler)]
    first = toolsets.build((), CTX)
    assert list(first.targets) == ["here", "there"]
    assert first.targets["there"].executor is other
    assert list(toolsets.build((), CTX.with_(tenant="u")).targets) == ["here"]
    assert list(toolsets.build((), CTX).targets) == ["here", "there"]
    other.specs["t"] = [FunctionSpec("there", "Do it better.", {}, no_handler)]
    assert [tool["description"] for tool in toolsets.build((), CTX).definitions] == ["Do it here.", "Do it better."]


def test_definitions_are_written_once_for_all_requests(toolsets: ToolsetBuilder) -> None:
    written: list[str] = []

    def shaped(tool: dict[str, Any]) -> dict[str, Any]:
        written.append(tool["name"])
        return {"called": tool["name"]}

    for _ in range(2):
        assert msgspec.json.encode(toolset(toolsets).definitions.encoded(shaped)) == b'[{"called":"find"}]'
        mixed = toolset(toolsets, CLIENT).definitions.encoded(shaped)
        assert msgspec.json.encode(mixed) == b'[{"called":"mine"},{"called":"find"}]'
    assert written == ["find", "mine"]


def test_what_is_kept_is_bounded() -> None:
    registry = FunctionRegistry()
    for n in range(20):
        registry.register(FunctionSpec(f"f{n}", "Do.", {}, no_handler))
    toolsets = ToolsetBuilder([registry])
    for n in range(20):
        assert len(toolset(toolsets, {"type": "function", "name": f"f{n}"}).targets) == 20
    for n in range(40):
        toolset(toolsets, {**CLIENT, "description": f"{n}" * 100_000})
    assert len(toolsets._sent._kept) < 20
    assert sum(len(key[2]) for key in toolsets._sent._kept) < 2_500_000
    toolset(toolsets, {**CLIENT, "description": "x" * 3_000_000})
    assert not toolsets._sent._kept
    for n in range(200):
        toolsets.build((), CTX.with_(agent=Agent(f"a{n}")))
    kept = toolsets._offers.values()
    assert len(kept) <= 64
    assert all(len(offer.toolsets) <= 8 for offer in kept)


# --- tool_choice -----------------------------------------------------------------------------------------------


def test_choices_in_words(toolsets: ToolsetBuilder) -> None:
    tools = toolset(toolsets, CLIENT)
    assert read_choice(None, tools).upstream is None or read_choice(None, tools).echo == "auto"
    assert read_choice("auto", tools).upstream == "auto"
    assert read_choice("required", tools).upstream == "required"
    none = read_choice("none", tools)
    assert (none.upstream, none.permits("mine")) == ("none", False)


def test_a_forced_function_and_a_forced_hosted_tool(toolsets: ToolsetBuilder) -> None:
    tools = toolset(toolsets, CLIENT, {"type": "find"})
    assert read_choice({"type": "function", "name": "mine"}, tools).upstream == {"type": "function", "name": "mine"}
    hosted = read_choice({"type": "find"}, tools)
    assert (hosted.upstream, hosted.echo) == ({"type": "function", "name": "find"}, {"type": "find"})


def test_what_was_required_is_relaxed_once_it_was_done(toolsets: ToolsetBuilder) -> None:
    tools = toolset(toolsets, CLIENT)
    assert read_choice("required", tools).relaxed().upstream == "auto"
    assert read_choice({"type": "function", "name": "mine"}, tools).relaxed().upstream == "auto"
    assert read_choice("none", tools).relaxed().upstream == "none"


def test_allowed_tools_leave_all_visible_and_permit_some(toolsets: ToolsetBuilder) -> None:
    tools = toolset(toolsets, CLIENT, {"type": "find"})
    choice = read_choice({"type": "allowed_tools", "mode": "required", "tools": [{"type": "find"}]}, tools)
    assert choice.upstream == "required"
    assert (choice.permits("find"), choice.permits("mine")) == (True, False)
    assert choice.relaxed().permits("mine") is False
    assert isinstance(choice.echo, dict)
    assert choice.echo["mode"] == "required"


@pytest.mark.parametrize(
    "choice",
    [
        "sometimes",
        {"type": "function", "name": "unknown"},
        {"type": "unknown"},
        {"type": "allowed_tools", "tools": []},
        {"type": "allowed_tools", "tools": [{"type": "function", "name": "unknown"}]},
        {"type": "allowed_tools", "mode": "maybe", "tools": [{"type": "function", "name": "mine"}]},
    ],
)
def test_a_choice_that_cannot_be_served_is_a_400(toolsets: ToolsetBuilder, choice: Any) -> None:
    with pytest.raises(BadRequestError) as caught:
        read_choice(choice, toolset(toolsets, CLIENT))
    assert str(caught.value.param).startswith("tool_choice")


def test_required_without_tools_is_a_400() -> None:
    with pytest.raises(BadRequestError, match="there are no tools"):
        read_choice("required", Toolset())
