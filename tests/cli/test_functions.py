import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Cli = Callable[..., Result]
Plugin = Callable[[str, str], None]
Write = Callable[[str], Path]
PLUGINS = ("--plugins-dir", "plugins")


@pytest.fixture
def tools(plugin: Plugin) -> None:
    plugin(
        "tools",
        '''
        from typing import Annotated, Literal

        class Tools(Provider):
            @function(
                timeout=2.5,
                max_output=2000,
                concurrency=3,
                hosted=Hosted(types=("look_up",), item="look_up_call"),
            )
            async def look_up(
                self,
                word: Annotated[str, Field(description="The word")],
                kind: Literal["noun", "verb"] = "noun",
                others: list[int] | None = None,
            ) -> str:
                """Look a word up.

                In a very large book.
                """
                return word

            @function
            async def who(self, ctx: Context) -> dict[str, str]:
                """Tell for whom it runs."""
                return {"tenant": ctx.tenant, "subject": ctx.subject}

            @function
            async def wait(self) -> str:
                """Wait for ever."""
                import asyncio
                await asyncio.Event().wait()
                return ""

            @function
            async def count(self) -> str:
                """Count."""
                yield Progress("counting", 0.5)
                yield "done"
        ''',
    )


def test_a_call_prints_the_result_and_nothing_else(cli: Cli) -> None:
    result = cli("functions", "call", "calculate", '{"expression": "12*7"}')
    assert (result.exit_code, result.stdout, result.stderr) == (0, "84\n", "")


@pytest.mark.parametrize("argument", [["-"], []])
def test_arguments_may_be_piped_in(cli: Cli, argument: list[str]) -> None:
    result = cli("functions", "call", "calculate", *argument, stdin='{"expression": "1+1"}')
    assert (result.exit_code, result.stdout) == (0, "2\n")


def test_without_arguments_the_object_is_empty(cli: Cli) -> None:
    result = cli("functions", "call", "current_time")
    assert json.loads(result.stdout)["timezone"] == "UTC"


def test_piped_bytes_that_are_not_text_are_invalid_arguments(cli: Cli) -> None:
    result = cli("functions", "call", "calculate", "--json", stdin=b"\xff\xfe")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["status"] == "invalid_arguments"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calculate", '{"expression": "1/0"}'], "divides by zero"),
        (["calculate", "{"], "not valid JSON"),
        (["calculate", "{}"], "expression"),
        (["calcualte", "{}"], "did you mean 'calculate'?"),
    ],
)
def test_an_error_result_goes_to_standard_error_and_the_exit_code_is_1(
    cli: Cli, arguments: list[str], message: str
) -> None:
    result = cli("functions", "call", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr


def test_as_json_a_result_says_how_it_went(cli: Cli) -> None:
    good = cli("functions", "call", "calculate", '{"expression": "2*3"}', "--json")
    assert json.loads(good.stdout) == {"status": "success", "is_error": False, "output": "6"}
    bad = cli("functions", "call", "calculate", "{}", "--json")
    assert bad.exit_code == 1
    answer = json.loads(bad.stdout)
    assert (answer["status"], answer["is_error"]) == ("invalid_arguments", True)


@pytest.mark.usefixtures("tools")
def test_a_call_is_for_the_tenant_that_was_given(cli: Cli) -> None:
    result = cli("functions", "call", "who", "--tenant", "acme", *PLUGINS)
    assert json.loads(result.stdout) == {"tenant": "acme", "subject": "cli"}
    result = cli("functions", "call", "who", *PLUGINS)
    assert json.loads(result.stdout)["tenant"] == "default"


@pytest.mark.usefixtures("tools")
def test_a_call_ends_after_the_time_that_was_given(cli: Cli) -> None:
    result = cli("functions", "call", "wait", "--timeout", "0.05", *PLUGINS)
    assert result.exit_code == 1
    assert result.stderr.startswith("antwort: wait did not finish within 0.0")


@pytest.mark.usefixtures("tools")
def test_progress_goes_to_standard_error(cli: Cli) -> None:
    result = cli("functions", "call", "count", *PLUGINS)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "done\n", "counting (50%)\n")


@pytest.mark.usefixtures("tools")
def test_the_list_shows_what_is_in_service(cli: Cli) -> None:
    result = cli("functions", "list", "--json", *PLUGINS)
    assert result.exit_code == 0
    rows = {(row["name"], row["provider"]): row for row in json.loads(result.stdout)}
    assert rows["look_up", "tools"] == {
        "name": "look_up",
        "provider": "tools",
        "scope": "core",
        "state": "offered",
        "description": "Look a word up.\nIn a very large book.",
        "tools": ["look_up"],
    }
    assert rows["calculate", "basics"]["state"] == "offered"  # the demo model would answer


def test_the_default_set_is_offered_on_request_where_a_model_is_configured(cli: Cli, config: Write) -> None:
    config("backends:\n  one:\n    url: http://127.0.0.1:9/v1\n")
    rows = json.loads(cli("functions", "list", "--json").stdout)
    assert {row["name"]: row["state"] for row in rows}["calculate"] == "offered on request"


def test_the_list_says_what_models_find_first(cli: Cli, config: Write) -> None:
    config("engine:\n  tool_search:\n    above: 1\nproviders:\n  variables:\n    enabled: true\n")
    rows = {row["name"]: row for row in json.loads(cli("functions", "list", "--json").stdout)}
    assert rows["store_set"]["state"] == "offered once found"
    assert rows["store_get"]["state"] == "offered"  # by it a model reads on what is long


def test_with_all_the_list_names_who_shadows_a_function(cli: Cli, plugin: Plugin) -> None:
    plugin("rival", "@function\ndef calculate() -> str:\n    '''Calculate otherwise.'''\n    return ''\n")
    result = cli("functions", "list", "--all", *PLUGINS)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["NAME", "PROVIDER", "SCOPE", "STATE", "DESCRIPTION"]
    assert ["calculate", "rival", "core", "shadowed", "by", "basics", "Calculate", "otherwise."] in lines
    assert "registered by 'basics' and again by 'rival'" in result.stderr
    assert "rival" not in cli("functions", "list", *PLUGINS).stdout


def test_an_empty_list_says_so_and_what_to_do(cli: Cli, config: Callable[[str], Path]) -> None:
    config("providers: {}\n")
    result = cli("functions", "list")
    assert result.exit_code == 0
    assert result.stdout.startswith("There are no functions.")
    assert "antwort providers list" in result.stdout
    assert json.loads(cli("functions", "list", "--json").stdout) == []


@pytest.mark.usefixtures("tools")
def test_a_function_is_shown_with_its_parameters_limits_and_wire_face(cli: Cli) -> None:
    result = cli("functions", "show", "look_up", *PLUGINS)
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for line in (
        "Look a word up.",
        "word string required The word",
        'kind "noun" | "verb" "noun"',
        "others array of integer | null -",
        "provider tools",
        "scope core",
        "timeout 2.5 seconds",
        "output 2,000 characters",
        "concurrency 3 calls",
        "idempotent no",
        "effect none",
        "tool types look_up, output item look_up_call",
    ):
        assert line in lines


def test_limits_a_function_does_not_set_are_those_of_the_configuration(cli: Cli, config: Callable[[str], Path]) -> None:
    config("functions:\n  timeout: null\n  max_output: 5000\n")
    lines = [" ".join(line.split()) for line in cli("functions", "show", "current_time").stdout.splitlines()]
    assert "timeout no limit (default)" in lines
    assert "output 5,000 characters (default)" in lines


@pytest.mark.parametrize("shape", ["responses", "chat", "anthropic"])
def test_a_tool_definition_has_the_shape_that_was_asked_for(cli: Cli, shape: str) -> None:
    definition = json.loads(cli("functions", "show", "calculate", "--shape", shape).stdout)
    inner = definition["function"] if shape == "chat" else definition
    schema = inner["input_schema" if shape == "anthropic" else "parameters"]
    assert inner["name"] == "calculate"
    assert schema["required"] == ["expression"]


def test_as_json_a_function_is_its_tool_definition(cli: Cli) -> None:
    definition = json.loads(cli("functions", "show", "calculate", "--json").stdout)
    assert (definition["type"], definition["name"]) == ("function", "calculate")


def test_an_unknown_function_is_told_with_a_suggestion(cli: Cli) -> None:
    result = cli("functions", "show", "calcualte")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("antwort: There is no function 'calcualte'; did you mean 'calculate'?")


@pytest.mark.parametrize(
    "command",
    [
        ("functions", "list"),
        ("functions", "show", "calculate"),
        ("functions", "call", "calculate", '{"expression": "1+1"}'),
        ("providers", "list"),
    ],
)
def test_what_needs_only_functions_leaves_no_trace_on_the_disk(cli: Cli, command: tuple[str, ...]) -> None:
    assert cli(*command).exit_code == 0
    assert list(Path().iterdir()) == []
