"""The functions of variables: parameters, results and errors, each through the registry of an app that runs."""

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from antwort.app import Antwort
from antwort.config import Config
from antwort.context import Context
from antwort.functions import ToolResult
from antwort.providers.variables import VariablesProvider

CTX = Context(
    "t", run_id="resp_a", agent_id="resp_a", conversation_id="conv", call_id="call_1", follows_references=True
)
CHILD = CTX.with_(agent_id="resp_child")
TEXT = "".join(f"line {number}: {'ü' if number % 2 else 'x'}\n" for number in range(1, 10_001))
BIG = {"items": [{"id": number, "name": f"n{number}"} for number in range(2000)], "title": 'a "title"', "none": None}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Antwort]:
    config = Config(data_dir=tmp_path, providers={})
    async with Antwort(config, providers=[VariablesProvider()]) as app:
        yield app


Call = Callable[..., Coroutine[Any, Any, ToolResult]]


@pytest.fixture
def call(app: Antwort) -> Call:
    async def call(name: str, ctx: Context = CTX, /, **arguments: Any) -> ToolResult:
        return await app.registry.execute(name, json.dumps(arguments), ctx)

    return call


async def got(call: Call, **arguments: Any) -> str:
    result = await call("store_get", **arguments)
    assert not result.is_error, result.output
    return result.output


async def test_a_variable_is_set_and_got(call: Call) -> None:
    for value, shown in (("a text", "a text"), ({"a": 1}, '{"a":1}'), (None, "null"), (5, "5")):
        made = json.loads((await call("store_set", key="key", value=value)).output)
        assert made.keys() == {"$ref", "version", "size"}
        assert await got(call, key="key") == shown
        assert await got(call, key=made["$ref"]) == shown
        assert await got(call, key={"$ref": made["$ref"]}) == shown
        assert await got(call, key=json.dumps({"$ref": made["$ref"]})) == shown


async def test_a_reference_handle_pins_the_version(call: Call) -> None:
    await call("store_set", key="key", value="old")
    handle = json.loads((await call("store_ref", key="key")).output)
    assert handle == {"$ref": handle["$ref"], "key": "key", "kind": "text", "size": 3}
    await call("store_set", key="key", value="new")
    assert await got(call, key=handle["$ref"]) == "old"


async def test_a_reference_as_value_is_promoted_without_a_copy(app: Antwort, call: Call) -> None:
    made = json.loads((await call("store_set", key="key", value="x" * 1000)).output)
    value = {"$ref": made["$ref"]}
    promoted = json.loads((await call("store_set", key="shared", value=value, scope="run")).output)
    assert promoted["size"] == 1000
    assert (await call("store_get", CHILD, key="shared")).output == "x" * 1000
    assert await app.values._tables.usage("t") == 1000


async def test_scopes(call: Call) -> None:
    await call("store_set", key="mine", value=1)
    await call("store_set", key="ours", value=2, scope="run")
    assert (await call("store_get", CHILD, key="mine")).is_error
    assert (await call("store_get", CHILD, key="ours")).output == "2"
    refused = await call("store_set", key="x", value=1, scope="galaxy")
    assert refused.status == "invalid_arguments"


async def test_a_variable_can_expire(call: Call) -> None:
    made = json.loads((await call("store_set", key="key", value=1, expires_in=3600)).output)
    assert made["version"] == 1
    assert (await call("store_set", key="key", value=1, expires_in=0)).status == "invalid_arguments"


async def test_a_large_value_is_read_in_parts(call: Call) -> None:
    await call("store_set", key="text", value=TEXT)
    size = len(TEXT.encode())
    first = await got(call, key="text")
    header, _, part = first.partition("\n")
    assert header.startswith("[bytes 0-")
    assert f"of {size}; go on with offset=" in header
    assert TEXT.startswith(part)
    read, offset = "", 0
    while True:
        header, _, part = (await got(call, key="text", offset=offset, limit=19_999)).partition("\n")
        read += part
        if "go on" not in header:
            break
        offset = int(header.rpartition("=")[2].rstrip("]"))
    assert read == TEXT
    assert TEXT.endswith((await got(call, key="text", offset=-50)).partition("\n")[2])
    assert len(await got(call, key="text", limit=1_000_000)) < 21_000
    assert (await got(call, key="text", offset=10**9)).startswith(f"[bytes {size}-{size}")


async def test_lines(call: Call) -> None:
    await call("store_set", key="text", value=TEXT)
    assert await got(call, key="text", lines="3-5") == "line 3: ü\nline 4: x\nline 5: ü"
    assert await got(call, key="text", lines="9999-") == "line 9999: ü\nline 10000: x"
    assert await got(call, key="text", lines="7") == "line 7: ü"
    cut = await got(call, key="text", lines="1-10000")
    assert cut.endswith("[… cut; ask for fewer lines …]")
    for lines in ("0-3", "x", "5-3", ""):
        assert (await call("store_get", key="text", lines=lines)).is_error
    assert "has only 10,001 lines" in (await call("store_get", key="text", lines="20000-20001")).output


async def test_grep(call: Call) -> None:
    await call("store_set", key="text", value=TEXT)
    assert await got(call, key="text", grep="^line 999[89]") == "9998: line 9998: x\n9999: line 9999: ü"
    assert await got(call, key="text", grep="nowhere") == "No line matches 'nowhere'."
    many = await got(call, key="text", grep="(?i)LINE")
    assert "more …]" in many
    assert len(many) < 5000
    assert "is no regular expression" in (await call("store_get", key="text", grep="(")).output


async def test_a_pattern_of_any_kind_takes_no_time(call: Call) -> None:
    await call("store_set", key="text", value="a" * 50_000)
    assert (await got(call, key="text", grep="(a+)+$")).startswith("1: aaa")
    assert await got(call, key="text", grep="(a|a)*b") == "No line matches '(a|a)*b'."


async def test_grep_finds_things_in_lines_without_end(call: Call) -> None:
    await call("store_set", key="text", value="x" * 300_000 + "needle" + "y" * 300_000)
    found = await got(call, key="text", grep="needle")
    assert found.startswith("1: ")
    assert found.count("\n") == 0


async def test_json_path(call: Call) -> None:
    await call("store_set", key="doc", value=BIG)
    for path, shown in (
        ("$.items[1999].name", "n1999"),
        ("items[3].id", "3"),
        ("$['title']", 'a "title"'),
        ("$.none", "null"),
        ("$.items[1:3]", '[{"id":1,"name":"n1"},{"id":2,"name":"n2"}]'),
        ("$.items[1:3].id", "[1,2]"),
    ):
        assert await got(call, key="doc", json_path=path) == shown
    assert (await got(call, key="doc", json_path="$.items[*].name")).endswith("[… cut …]")
    missing = await call("store_get", key="doc", json_path="$.itms[0]")
    assert missing.is_error
    assert "It has items, title, none." in missing.output
    assert "cannot be read at" in (await call("store_get", key="doc", json_path="$..x")).output


async def test_a_text_that_is_json_has_paths_too(call: Call) -> None:
    await call("store_set", key="doc", value=json.dumps(BIG))
    assert await got(call, key="doc", json_path="$.items[5].name") == "n5"


async def test_one_part_at_a_time(call: Call) -> None:
    await call("store_set", key="text", value=TEXT)
    assert "one part at a time" in (await call("store_get", key="text", lines="1", grep="x")).output


async def test_an_unknown_key_is_told_with_the_cure(call: Call) -> None:
    await call("store_set", key="document", value=1)
    for name in ("store_get", "store_ref", "store_summarize"):
        result = await call(name, key="documnet")
        assert result.output == "There is no variable 'documnet'; did you mean 'document'?"
        assert result.is_error


async def test_the_list_is_compact_and_goes_on(call: Call) -> None:
    assert (await call("store_list")).output == "There are no variables yet."
    for number in range(60):
        await call("store_set", key=f"key {number}", value="x" * number)
    lines = (await call("store_list")).output.splitlines()
    assert len(lines) == 51
    assert lines[1].startswith("key 1: text, 1, agent, var_")
    after = lines[-1].rpartition("=")[2]
    rest = (await call("store_list", after=after)).output.splitlines()
    assert [line.partition(":")[0] for line in rest] == [f"key {number}" for number in range(50, 60)]
    assert (await call("store_list", scope="run")).output == "There are no variables yet."


async def test_a_summary_of_a_text(call: Call) -> None:
    await call("store_set", key="text", value=TEXT)
    summary = json.loads((await call("store_summarize", key="text")).output)
    assert (summary["kind"], summary["size"], summary["lines"]) == ("text", len(TEXT.encode()), 10_001)
    assert TEXT.startswith(summary["head"])
    assert TEXT.endswith(summary["tail"])
    short = json.loads((await call("store_summarize", key="text", length=100)).output)
    assert len(short["head"]) + len(short["tail"]) <= 100


@pytest.mark.parametrize(
    ("value", "structure"),
    [
        (BIG, "object with 3 members: items, title, none"),
        (list(range(5000)), "array of 5,000"),
        ([], "array of 0"),
        ({}, "empty object"),
        (5, "a single value"),
    ],
)
async def test_a_summary_of_json_tells_its_structure(call: Call, value: Any, structure: str) -> None:
    await call("store_set", key="doc", value=value)
    assert json.loads((await call("store_summarize", key="doc")).output)["structure"] == structure


async def test_a_summary_is_remembered_for_its_version_and_its_length(call: Call, app: Antwort) -> None:
    await call("store_set", key="text", value="a" * 5000)
    first = (await call("store_summarize", key="text", length=200)).output
    longer = (await call("store_summarize", key="text", length=400)).output
    assert len(longer) > len(first)
    assert (await call("store_summarize", key="text", length=200)).output == first
    await call("store_set", key="text", value="b" * 5000)
    assert "bbb" in (await call("store_summarize", key="text", length=200)).output
    provider = next(one.provider for one in app.registry.registrations())
    assert isinstance(provider, VariablesProvider)
    assert len(provider._summaries) == 3
    other = await call("store_summarize", CTX.with_(tenant="other"), key="text", length=200)
    assert other.is_error


async def test_bytes_are_not_shown(app: Antwort, call: Call) -> None:
    await app.values.of(CTX).set("image", b"\x89PNG\0\xff")
    assert "is binary (6 bytes)" in (await call("store_get", key="image")).output
    summary = json.loads((await call("store_summarize", key="image")).output)
    assert summary["first_bytes"].startswith("89 50 4e 47")
    await app.values.of(CTX).set("text", b"plain")
    assert await got(call, key="text") == "plain"


def test_the_definitions_are_short() -> None:
    provider = VariablesProvider()
    specs = {spec.name: spec for spec in provider.tools()}
    first = ["store_set", "store_get", "store_ref", "store_list", "store_summarize"]
    assert list(specs) == [*first, "store_append", "store_delete"]
    required = {name: spec.parameters.get("required", []) for name, spec in specs.items()}
    assert required == {
        "store_set": ["key", "value"],
        "store_get": ["key"],
        "store_ref": ["key"],
        "store_list": [],
        "store_summarize": ["key"],
        "store_append": ["key", "value"],
        "store_delete": ["key"],
    }
    assert [spec.name for spec in specs.values() if spec.offer == "on_request"] == ["store_append", "store_delete"]
    definitions = [{"name": s.name, "description": s.description, "parameters": s.parameters} for s in specs.values()]
    assert len(json.dumps(definitions[:5])) < 3000
    assert len(json.dumps(definitions[5:])) < 1000


async def test_a_reference_can_be_appended(call: Call) -> None:
    line = json.loads((await call("store_set", key="line", value="from elsewhere\n")).output)
    for value in ("first\n", {"$ref": line["$ref"]}):
        assert not (await call("store_append", key="log", value=value)).is_error
    assert await got(call, key="log") == "first\nfrom elsewhere\n"


async def test_only_what_a_call_may_write_is_deleted_and_appended_to(app: Antwort, call: Call) -> None:
    made = json.loads((await call("store_set", key="mine", value="of the parent")).output)
    assert (await call("store_get", CHILD, key=made["$ref"])).output == "of the parent"
    assert (await call("store_delete", CHILD, key="mine")).output.startswith("There is no variable 'mine'")
    by_id = await call("store_delete", CHILD, key=made["$ref"])
    assert by_id.output == "Delete it by its key: this is a version of 'mine', scope 'agent'."
    await app.values.of(Context("t")).set("ours", "of the tenant", scope="tenant")
    reader = CTX.with_(response_id="resp_a", scopes=frozenset({"responses:write", "variables:read"}))
    for name, arguments in (("store_append", {"value": "!"}), ("store_delete", {})):
        refused = await call(name, reader, key="ours", scope="tenant", **arguments)
        assert "the credentials lack the scope 'variables:write'" in refused.output
    assert (await call("store_delete", CTX.with_(tenant="other"), key="mine")).is_error
    assert not (await call("store_append", CTX.with_(tenant="other"), key="mine", value="of another")).is_error
    assert await got(call, key="ours") == "of the tenant"
    assert await got(call, key="mine") == "of the parent"


async def test_a_deletion_that_is_made_again_after_a_crash_has_been_made(call: Call) -> None:
    await call("store_set", key="old", value=1)
    for ctx in (CTX, CTX.with_(attached=True)):
        assert json.loads((await call("store_delete", ctx, key="old")).output)["deleted"]
    assert (await call("store_delete", key="old")).is_error
