"""References in arguments are resolved at execution; long results become references."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antwort.config import Config
from antwort.context import Context
from antwort.context.variables import Reference, VariableView
from antwort.errors import DefinitionError
from antwort.functions import FunctionRegistry, FunctionSpec, ToolResult
from antwort.storage import SqliteStore
from antwort.storage.streamed_values import ValueLimits
from antwort.storage.variables import StoredValues

CTX = Context(
    "t", run_id="resp_a", agent_id="resp_a", conversation_id="conv", call_id="call_1", follows_references=True
)
LONG = "start " + "x" * 10_000 + " end"


@pytest.fixture
async def values(tmp_path: Path) -> AsyncIterator[StoredValues]:
    store = SqliteStore.open(tmp_path / "antwort.db")
    yield StoredValues(store.values, ValueLimits(tenant=1_000_000))
    await store.close()


@pytest.fixture
def registry(values: StoredValues) -> FunctionRegistry:
    registry = FunctionRegistry(max_referenced=50_000)
    registry.bind(values.of)
    return registry


def echoing(registry: FunctionRegistry, **options: Any) -> None:
    @registry.register(**options)
    async def echo(value: Any) -> str:
        """Say what was given."""
        return json.dumps(value)


@pytest.fixture
def variables(values: StoredValues) -> VariableView:
    return values.of(CTX)


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["a text", {"a": [1, 2]}, [None], 5, b"bytes that are text"])
async def test_a_reference_stands_for_any_argument(
    registry: FunctionRegistry, variables: VariableView, value: Any
) -> None:
    echoing(registry)
    made = await variables.set("key", value)
    meant = value.decode() if isinstance(value, bytes) else value
    for arguments in ({"value": made.reference}, json.dumps({"value": made.reference})):
        assert json.loads((await registry.execute("echo", arguments, CTX)).output) == meant
    nested = {"value": {"deep": [made.reference, "as it is"]}}
    assert json.loads((await registry.execute("echo", nested, CTX)).output) == {"deep": [meant, "as it is"]}


async def test_a_text_is_no_reference(registry: FunctionRegistry, variables: VariableView) -> None:
    echoing(registry)
    text = json.dumps((await variables.set("key", "secret")).reference)
    assert json.loads((await registry.execute("echo", {"value": [text]}, CTX)).output) == [text]


async def test_of_what_a_function_calls_with_only_what_it_names_is_a_reference(
    registry: FunctionRegistry, variables: VariableView
) -> None:
    echoing(registry)
    named, data = [(await variables.set(key, key)).reference for key in ("named", "data")]
    ctx = CTX.with_(references=[named["$ref"]])
    found = await registry.execute("echo", {"value": [named, data]}, ctx)
    assert json.loads(found.output) == ["named", data]


async def test_the_value_is_checked_like_any_argument(registry: FunctionRegistry, variables: VariableView) -> None:
    @registry.register
    async def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    good, bad = await variables.set("good", 21), await variables.set("bad", "no number")
    assert (await registry.execute("double", {"number": good.reference}, CTX)).output == "42"
    refused = await registry.execute("double", {"number": bad.reference}, CTX)
    assert refused.status == "invalid_arguments"


async def test_a_reference_means_its_version_for_ever(registry: FunctionRegistry, variables: VariableView) -> None:
    echoing(registry)
    made = await variables.set("key", "old")
    await variables.set("key", "new")
    assert (await registry.execute("echo", {"value": made.reference}, CTX)).output == '"old"'


@pytest.mark.parametrize(
    "other", [CTX.with_(tenant="other"), CTX.with_(run_id="resp_b", conversation_id="resp_b"), Context("t")]
)
async def test_a_reference_out_of_reach_is_not_found(
    registry: FunctionRegistry, variables: VariableView, other: Context
) -> None:
    echoing(registry)
    made = await variables.set("key", "secret")
    result = await registry.execute("echo", {"value": made.reference}, other)
    assert result.is_error
    assert "There is no value" in result.output
    assert "secret" not in result.output


async def test_what_only_looks_like_a_reference_stays(registry: FunctionRegistry) -> None:
    echoing(registry)
    for value in ({"$ref": "#/$defs/a"}, {"$ref": 5}, {"$ref": "var_1"}, {"$ref": f"var_{'0' * 48}", "more": 1}):
        assert json.loads((await registry.execute("echo", {"value": value}, CTX)).output) == value


async def test_what_references_stand_for_has_a_limit(registry: FunctionRegistry, variables: VariableView) -> None:
    echoing(registry)
    made = [await variables.set("key", str(number) * 30_000) for number in range(2)]
    result = await registry.execute("echo", {"value": [one.reference for one in made]}, CTX)
    assert result.is_error
    assert "at most 50,000" in result.output
    once = await registry.execute("echo", {"value": [made[0].reference]}, CTX.with_(follows_references=False))
    assert not once.is_error
    # Whoever writes the arguments, as a client of another server does, writes each of them.
    bomb = await registry.execute("echo", {"value": [made[0].reference] * 1000}, CTX)
    assert "stand for 30,000,000 bytes; at most 50,000" in bomb.output


async def test_bytes_that_are_no_text_cannot_be_given(registry: FunctionRegistry, variables: VariableView) -> None:
    echoing(registry)
    made = await variables.set("key", b"\xff")
    assert "is binary" in (await registry.execute("echo", {"value": made.reference}, CTX)).output


@pytest.mark.parametrize("references", [True, ("own",)])
async def test_a_function_may_follow_references_itself(
    registry: FunctionRegistry, variables: VariableView, references: bool | tuple[str, ...]
) -> None:
    given: list[Any] = []

    @registry.register(references=references)
    async def take(own: Any, value: Any) -> None:
        """Take what is given."""
        given[:] = [own, value]

    inner = await variables.set("inner", 1)
    made = await variables.set("key", {"own": inner.reference})
    arguments = {"own": [made.reference, {"$ref": "key"}], "value": {"own": made.reference, "other": made.reference}}
    await registry.execute("take", arguments, CTX)
    value = {"own": inner.reference}
    assert given[0] == [Reference(made.id), Reference("key")]
    assert given[1] == {"own": Reference(made.id), "other": Reference(made.id) if references is True else value}


async def test_a_function_with_a_schema_of_its_own_may_follow_references_itself(
    registry: FunctionRegistry, variables: VariableView
) -> None:
    given: list[Any] = []
    schema = {"type": "object", "properties": {"own": {"type": "object"}}}

    async def take(own: Any) -> None:
        given.append(own)

    registry.register(FunctionSpec("take", "Take it.", schema, take, references=["own"]))
    made = await variables.set("key", 1)
    assert not (await registry.execute("take", {"own": made.reference}, CTX)).is_error
    assert given == [Reference(made.id)]
    refused = await registry.execute("take", {"own": "a text"}, CTX)
    assert refused.status == "invalid_arguments"


def test_names_of_arguments_are_not_one_text() -> None:
    with pytest.raises(DefinitionError, match=r"takes names as a tuple: \('own',\)"):
        FunctionSpec("take", "Take it.", {}, references="own")


async def test_without_an_app_arguments_are_what_they_are() -> None:
    registry = FunctionRegistry()
    echoing(registry)
    reference = {"$ref": f"var_{'0' * 48}"}
    assert json.loads((await registry.execute("echo", {"value": reference}, CTX)).output) == reference


# --- results ---------------------------------------------------------------------------------------------------------


async def test_a_long_result_is_kept_and_replaced_by_a_reference(
    registry: FunctionRegistry, variables: VariableView
) -> None:
    @registry.register
    async def text() -> str:
        """Return a long text."""
        return LONG

    @registry.register
    def numbers() -> list[int]:
        """Return many numbers, on a thread."""
        return list(range(100_000))

    @registry.register
    async def result() -> ToolResult:
        """Return a long result."""
        return ToolResult(LONG)

    @registry.register(inline=True)
    def computed() -> str:
        """Return a long text at once."""
        return LONG

    for name, kind, value in (
        ("text", "text", LONG),
        ("numbers", "json", list(range(100_000))),
        ("result", "text", LONG),
        ("computed", "text", LONG),
    ):
        output = (await registry.execute(name, {}, CTX)).output
        shown = json.loads(output)
        kept = await variables.find(shown["$ref"])
        assert (kept.key, kept.scope, kept.kind, kept.size) == ("result_call_1", "agent", kind, shown["size"])
        assert shown["kind"] == kind
        assert await variables.load(kept) == value
        assert len(output) < 2000
        assert shown["head"][:3] in {"sta", "[0,"}
        assert shown["tail"].endswith((" end", "99999]"))


async def test_results_stay_whole_where_nobody_could_read_on(registry: FunctionRegistry) -> None:
    @registry.register
    async def text() -> str:
        """Return a long text."""
        return LONG

    @registry.register(spill=False)
    async def read() -> str:
        """Return a long text that must be read."""
        return LONG

    assert (await registry.execute("text", {}, CTX.with_(follows_references=False))).output == LONG
    assert (await registry.execute("read", {}, CTX)).output == LONG


async def test_short_results_and_errors_are_not_kept(registry: FunctionRegistry, variables: VariableView) -> None:
    @registry.register
    async def short() -> str:
        """Return a text of just so many characters."""
        return "x" * 4000

    @registry.register
    async def fail() -> ToolResult:
        """Fail at length."""
        return ToolResult.error(LONG)

    assert (await registry.execute("short", {}, CTX)).output == "x" * 4000
    assert (await registry.execute("fail", {}, CTX)).output == LONG
    assert await variables.list() == []


async def test_a_result_that_cannot_be_kept_is_cut(registry: FunctionRegistry) -> None:
    @registry.register(max_output=100)
    async def huge() -> str:
        """Return more than the tenant may have."""
        return "y" * 2_000_000

    output = (await registry.execute("huge", {}, CTX)).output
    assert "characters left out" in output
    assert len(output) < 200


def test_the_threshold_is_a_setting() -> None:
    assert Config.model_validate({"functions": {"spill": None}}).functions.spill is None
    assert Config.model_validate({"functions": {"spill": 2000}}).functions.spill == 2000
