"""The function registry of the RLM specification: its interface, its example, its translation, its scopes."""

from collections.abc import Mapping
from typing import Any

import pytest

from antwort import Agent, Context, FunctionRegistry, FunctionSpec
from antwort.errors import DefinitionError, UnknownFunctionError
from antwort.functions import Scope

ROOT = Context("t")
SUB_AGENT = Context("t", agent=Agent("worker", depth=1))
LEAF = Context("t", agent=Agent("leaf", depth=3, can_spawn=False))


def registry_of_all_scopes() -> FunctionRegistry:
    registry = FunctionRegistry()
    for scope in Scope:

        async def handler(params: Mapping[str, Any], scope: Scope = scope) -> str:
            return scope.value

        registry.register(FunctionSpec(f"{scope}_function", "Tell the scope.", {}, handler, scope=scope))
    return registry


async def test_the_register_example_in_python_form() -> None:
    registry = FunctionRegistry()

    async def handler(params: Mapping[str, Any]) -> list[str]:
        return [f"result for {params['query']}"]

    registry.register(
        {
            "name": "search_web",
            "description": "Search the web for information",
            "parameters": {"query": {"type": "string", "description": "Search query"}},
            "handler": handler,
        }
    )
    result = await registry.execute("search_web", {"query": "antwort"})
    assert result.output == '["result for antwort"]'
    assert result.value == ["result for antwort"]
    assert registry.get("search_web").scope is Scope.CUSTOM


def test_a_function_becomes_the_documented_tool_definition() -> None:
    registry = FunctionRegistry()
    description = (
        "Ask the human user a question. The user is a function in this system. "
        "Use this when you need human input or judgment."
    )

    async def handler(question: str) -> str:
        return question

    registry.register(
        FunctionSpec(
            "ask_user",
            description,
            {"question": {"type": "string", "description": "The question to ask"}},
            handler,
            scope=Scope.USER,
        )
    )
    assert registry.to_tool_definitions("anthropic") == [
        {
            "name": "ask_user",
            "description": description,
            "input_schema": {
                "type": "object",
                "properties": {"question": {"type": "string", "description": "The question to ask"}},
                "required": ["question"],
            },
        }
    ]


def test_the_same_function_in_the_shapes_of_openai() -> None:
    registry = FunctionRegistry()
    registry.register({"name": "f", "description": "Do.", "parameters": {}, "handler": lambda params: "x"})
    parameters = {"type": "object", "properties": {}, "required": []}
    inner = {"name": "f", "description": "Do.", "parameters": parameters, "strict": False}
    assert registry.to_tool_definitions() == [{"type": "function", **inner}]
    assert registry.to_tool_definitions("chat") == [{"type": "function", "function": inner}]


def test_unregister_removes_a_function_and_get_then_fails() -> None:
    registry = FunctionRegistry()
    registry.register({"name": "f", "description": "Do.", "parameters": {}, "handler": lambda params: "x"})
    registry.unregister("f")
    with pytest.raises(UnknownFunctionError, match="There is no function 'f'"):
        registry.get("f")
    with pytest.raises(UnknownFunctionError):
        registry.unregister("f")


def test_list_filters_by_scope() -> None:
    registry = registry_of_all_scopes()
    assert [spec.name for spec in registry.list()] == [f"{scope}_function" for scope in Scope]
    assert [spec.name for spec in registry.list(scope="user")] == ["user_function"]
    with pytest.raises(ValueError, match="nobody"):
        registry.list(scope="nobody")


async def test_core_functions_are_for_every_agent() -> None:
    registry = registry_of_all_scopes()
    for ctx in (ROOT, SUB_AGENT, LEAF):
        assert (await registry.execute("core_function", {}, ctx)).output == "core"


async def test_agent_functions_are_for_agents_that_can_spawn() -> None:
    registry = registry_of_all_scopes()
    assert (await registry.execute("agent_function", {}, SUB_AGENT)).output == "agent"
    denied = await registry.execute("agent_function", {}, LEAF)
    assert (denied.is_error, denied.status) == (True, "denied")
    assert denied.output == "agent_function is not available to this agent (scope 'agent')."


async def test_user_functions_are_for_root_agents_and_that_is_enforced_at_execution() -> None:
    registry = registry_of_all_scopes()
    assert (await registry.execute("user_function", {}, ROOT)).output == "user"
    assert (await registry.execute("user_function", {}, SUB_AGENT)).status == "denied"
    assert "user_function" not in [spec.name for spec in registry.discovered_tools(SUB_AGENT)]


async def test_custom_functions_are_global_or_per_agent() -> None:
    registry = FunctionRegistry()

    @registry.register(agents=["worker"])
    async def private() -> str:
        """Only for one agent."""
        return "yes"

    @registry.register
    async def shared() -> str:
        """For all."""
        return "yes"

    assert [spec.name for spec in registry.discovered_tools(ROOT)] == ["shared"]
    assert [spec.name for spec in registry.discovered_tools(SUB_AGENT)] == ["private", "shared"]
    denied = await registry.execute("private", {}, ROOT)
    assert denied.status == "denied"
    assert denied.output == "private is not available to this agent (it is for agents of other names)."
    assert (await registry.execute("private", {}, SUB_AGENT)).output == "yes"


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"description": "d", "handler": print}, "needs 'name'"),
        ({"name": "f", "handler": print}, "needs 'description'"),
        ({"name": "f", "description": "d"}, "needs 'handler'"),
        ({"name": "two words", "description": "d", "handler": print}, "'two words' is not a function name"),
        ({"name": "f", "description": " ", "handler": print}, "has no description"),
        ({"name": "f", "description": "d", "handler": 3}, "not callable"),
        ({"name": "f", "description": "d", "handler": print, "scop": "core"}, "did you mean 'scope'"),
        ({"name": "f", "description": "d", "handler": print, "scope": "everyone"}, "not one of core, agent, user"),
        ({"name": "f", "description": "d", "handler": print, "parameters": {"q": "string"}}, "must be a mapping"),
        ({"name": "f", "description": "d", "handler": print, "parameters": {"q": {"type": "text"}}}, "JSON Schema"),
    ],
)
def test_a_bad_registration_says_what_is_wrong(described: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        FunctionRegistry().register(described)


async def test_execute_never_raises_for_an_unknown_function_or_bad_params() -> None:
    registry = registry_of_all_scopes()
    unknown = await registry.execute("core_functon", {})
    assert "did you mean 'core_function'?" in unknown.output
    for params in ("[1]", "{", "null", '{"x": 1}'):
        assert (await registry.execute("core_function", params)).status == "invalid_arguments"
