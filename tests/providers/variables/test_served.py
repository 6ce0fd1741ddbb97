"""Each function of the specification through the shipped server, with the SDK before it; JSON and streamed."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openai.types.responses import Response
from tests.http.sdk import Served, create, served

from antwort.providers.sub_agents import SubAgentsProvider
from antwort.providers.variables import VariablesProvider
from antwort.testing import Turn, call, matching, turn

pytestmark = pytest.mark.parametrize("stream", [False, True], ids=["json", "streamed"])

FUNCTIONS = (
    "store_set",
    "store_get",
    "store_ref",
    "store_list",
    "store_summarize",
    "store_append",
    "store_delete",
)
TOOLS: Any = [{"type": "function", "name": name} for name in (*FUNCTIONS, "count", "spawn_agent")]
POEM = "Roses are red.\nViolets are blue.\nSugar is sweet.\n"


async def count(text: str) -> int:
    """Count the characters of a text."""
    return len(text)


@contextlib.contextmanager
def stage(folder: Path, steps: Iterable[Turn | str]) -> Iterator[Served]:
    """Serve an app that has the functions of variables, and one to start agents."""
    with served(folder, steps, functions=[count], providers=[VariablesProvider(), SubAgentsProvider()]) as found:
        yield found


def ask(app: Served, *, stream: bool, **fields: Any) -> Response:
    """Ask the root agent."""
    return create(app, stream, input="Work!", tools=TOOLS, **fields)


def does(name: str, **arguments: Any) -> Turn:
    """Make a turn that calls a function."""
    return turn(calls=[call(name, arguments)])


def read(app: Served) -> list[str]:
    """Return what the model has read of its calls, in their order."""
    return [str(item["output"]) for item in app.requests[-1].items if item["type"] == "function_call_output"]


def read_of(folder: Path, calls: Iterable[Turn], *, stream: bool, **fields: Any) -> list[str]:
    """Let a model make calls one after the other, and return what it has read of them."""
    with stage(folder, [*calls, "Done."]) as app:
        response = ask(app, stream=stream, **fields)
        assert (response.status, response.output_text) == ("completed", "Done.")
        return read(app)


def json_of(text: str) -> Any:
    return msgspec.json.decode(text)


# --- store_set -------------------------------------------------------------------------------------------------------


def test_store_set_stores_a_variable_and_returns_its_reference(tmp_path: Path, *, stream: bool) -> None:
    calls = [does("store_set", key="poem", value=POEM), does("store_set", key="poem", value={"lines": 3})]
    first, second = map(json_of, read_of(tmp_path, calls, stream=stream))
    assert (first["version"], first["size"]) == (1, len(POEM))
    assert (second["version"], second["size"]) == (2, len('{"lines":3}'))
    assert first["$ref"] != second["$ref"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"key": "poem"}, "value"),
        ({"key": "", "value": 1}, "key"),
        ({"key": "x" * 257, "value": 1}, "key"),
        ({"key": "poem", "value": 1, "scope": "world"}, "scope"),
        ({"key": "poem", "value": 1, "expires_in": -5}, "expires_in"),
        ({"key": "poem", "value": {"$ref": "var_" + "0" * 48}}, "There is no value var_"),
    ],
)
def test_store_set_tells_what_is_wrong(
    tmp_path: Path, arguments: dict[str, Any], problem: str, *, stream: bool
) -> None:
    told, listed = read_of(tmp_path, [does("store_set", **arguments), does("store_list")], stream=stream)
    assert problem in told
    assert listed == "There are no variables yet."


@pytest.mark.parametrize(
    ("scope", "seen"), [("agent", False), ("run", False), ("conversation", True), ("tenant", True)]
)
def test_store_set_says_who_sees_it(tmp_path: Path, scope: str, *, seen: bool, stream: bool) -> None:
    steps: list[Turn | str] = [does("store_set", key="poem", value=POEM, scope=scope), "Kept."]
    steps += [does("store_get", key="poem"), "Read."]
    with stage(tmp_path, steps) as app:
        first = ask(app, stream=stream)
        ask(app, stream=stream, previous_response_id=first.id)
        assert (read(app)[-1] == POEM) is seen


# --- store_get -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({}, POEM),
        ({"offset": 6, "limit": 8}, f"[bytes 6-14 of {len(POEM)}; go on with offset=14]\nare red."),
        ({"lines": "2"}, "Violets are blue."),
        ({"grep": "^S"}, "3: Sugar is sweet."),
    ],
)
def test_store_get_returns_a_value_or_a_part_of_it(
    tmp_path: Path, part: dict[str, Any], expected: str, *, stream: bool
) -> None:
    calls = [does("store_set", key="poem", value=POEM), does("store_get", key="poem", **part)]
    assert read_of(tmp_path, calls, stream=stream)[-1].startswith(expected)


def test_store_get_returns_a_part_of_json(tmp_path: Path, *, stream: bool) -> None:
    value = {"poems": [{"title": "Roses"}, {"title": "Violets"}]}
    calls = [does("store_set", key="poems", value=value), does("store_get", key="poems", json_path="$.poems[1].title")]
    assert read_of(tmp_path, calls, stream=stream)[-1] == "Violets"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"key": "peom"}, "There is no variable 'peom'; did you mean 'poem'?"),
        ({"key": "poem", "lines": "1", "grep": "x"}, "Ask for one part at a time, not for lines and grep."),
        ({}, "key"),
    ],
)
def test_store_get_tells_what_is_wrong(tmp_path: Path, arguments: dict[str, Any], told: str, *, stream: bool) -> None:
    calls = [does("store_set", key="poem", value=POEM), does("store_get", **arguments)]
    assert told in read_of(tmp_path, calls, stream=stream)[-1]


def test_a_variable_can_be_set_and_read_as_often_as_it_takes(tmp_path: Path, *, stream: bool) -> None:
    names = ("store_get", "store_ref", "store_summarize")
    calls = [
        step
        for number in range(6)
        for step in (does("store_set", key="step", value=f"{number}"), *(does(name, key="step") for name in names))
    ]
    found = read_of(tmp_path, calls, stream=stream)
    assert found[1::4] == [f"{number}" for number in range(6)]
    assert [json_of(handle)["$ref"] for handle in found[2::4]] == [json_of(made)["$ref"] for made in found[0::4]]
    assert [json_of(summary)["head"] for summary in found[3::4]] == [f"{number}" for number in range(6)]


# --- store_ref -------------------------------------------------------------------------------------------------------


def test_store_ref_is_a_handle_that_stands_for_the_value_as_it_was(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [
        does("store_set", key="poem", value=POEM),
        does("store_ref", key="poem"),
        does("store_set", key="poem", value="withdrawn"),
        "Kept.",
    ]
    with stage(tmp_path, steps) as app:
        first = ask(app, stream=stream)
        handle = json_of(read(app)[1])
    assert (handle["key"], handle["kind"], handle["size"]) == ("poem", "text", len(POEM))
    reference = {"$ref": handle["$ref"]}
    calls = [does("store_get", key=reference), does("count", text=reference)]
    found = read_of(tmp_path, calls, stream=stream, previous_response_id=first.id)
    assert found[-2:] == [POEM, f"{len(POEM)}"]


def test_store_ref_tells_what_is_wrong(tmp_path: Path, *, stream: bool) -> None:
    (said,) = read_of(tmp_path, [does("store_ref", key="poem")], stream=stream)
    unknown, _, hint = said.partition(" What ")
    assert unknown == "There is no variable 'poem': there are no variables yet."
    assert hint == "an earlier request has set lasts only in the scope conversation or tenant."


# --- store_list ------------------------------------------------------------------------------------------------------


def test_store_list_tells_what_there_is(tmp_path: Path, *, stream: bool) -> None:
    calls = [
        does("store_list"),
        does("store_set", key="poem", value=POEM),
        does("store_set", key="numbers", value=[1, 2], scope="run"),
        does("store_list"),
        does("store_list", scope="run"),
        does("store_list", scope="world"),
    ]
    none, poem, numbers, every, of_run, wrong = read_of(tmp_path, calls, stream=stream)
    assert none == "There are no variables yet."
    references = [json_of(made)["$ref"] for made in (poem, numbers)]
    lines = [f"poem: text, {len(POEM)}, agent, {references[0]}", f"numbers: json, 5, run, {references[1]}"]
    assert (every, of_run) == ("\n".join(lines), lines[1])
    assert "scope" in wrong


def test_store_list_tells_what_there_is_below_a_prefix(tmp_path: Path, *, stream: bool) -> None:
    kept = [does("store_set", key=key, value=key) for key in ("notes/1", "notes/2", "plan")]
    calls = [*kept, does("store_list", prefix="notes/"), does("store_list", prefix="nots/")]
    *_, listed, none = read_of(tmp_path, calls, stream=stream)
    assert [line.partition(":")[0] for line in listed.splitlines()] == ["notes/1", "notes/2"]
    assert none == "There are no variables whose key begins with 'nots/'."


# --- store_summarize -------------------------------------------------------------------------------------------------


def test_store_summarize_tells_size_structure_head_and_tail(tmp_path: Path, *, stream: bool) -> None:
    calls = [
        does("store_set", key="poem", value=POEM * 100),
        does("store_summarize", key="poem", length=100),
        does("store_summarize", key="poem", length=5),
        does("store_summarize", key="peom"),
    ]
    _, told, too_short, unknown = read_of(tmp_path, calls, stream=stream)
    summary = json_of(told)
    assert (summary["size"], summary["lines"]) == (len(POEM) * 100, 301)
    assert (POEM * 2).startswith(summary["head"])
    assert (POEM * 2).endswith(summary["tail"])
    assert "length" in too_short
    assert unknown == "There is no variable 'peom'; did you mean 'poem'?"


def test_store_summarize_asks_a_model_when_it_is_told_to(tmp_path: Path, *, stream: bool) -> None:
    calls = [
        does("store_set", key="poem", value=POEM),
        does("store_summarize", key="poem", with_model=True),
        turn("It is about flowers.", expect=matching(text="Violets are blue")),
    ]
    assert json_of(read_of(tmp_path, calls, stream=stream)[-1])["summary"] == "It is about flowers."


# --- store_append ----------------------------------------------------------------------------------------------------


def test_store_append_adds_to_texts_and_lists_and_begins_them(tmp_path: Path, *, stream: bool) -> None:
    calls = [
        does("store_append", key="log", value="one\n"),
        does("store_append", key="log", value="two\n"),
        does("store_append", key="found", value={"page": 1}),
        does("store_append", key="found", value={"page": 2}),
        does("store_get", key="log"),
        does("store_get", key="found", json_path="$[1].page"),
    ]
    first, second, _, fourth, log, page = read_of(tmp_path, calls, stream=stream)
    assert [(made["version"], made["size"]) for made in map(json_of, (first, second, fourth))] == [
        (1, 4),
        (2, 8),
        (2, len('[{"page":1},{"page":2}]')),
    ]
    assert json_of(first)["$ref"] != json_of(second)["$ref"]
    assert (log, page) == ("one\ntwo\n", "2")


def test_calls_of_one_turn_append_in_their_order(tmp_path: Path, *, stream: bool) -> None:
    many = turn(calls=[call("store_append", {"key": "log", "value": f"{number} "}) for number in range(20)])
    found = read_of(tmp_path, [many, does("store_get", key="log")], stream=stream)
    assert found[-1] == "".join(f"{number} " for number in range(20))


def test_store_append_tells_what_is_wrong(tmp_path: Path, *, stream: bool) -> None:
    calls = [
        does("store_set", key="poem", value=POEM),
        does("store_append", key="poem", value=["a line"]),
        does("store_append", key="", value="x"),
        does("store_append", key="poem"),
        does("store_get", key="poem"),
    ]
    _, no_text, no_key, no_value, poem = read_of(tmp_path, calls, stream=stream)
    assert no_text.startswith("'poem' is a text: append a text to it")
    assert ("key" in no_key, "value" in no_value, poem) == (True, True, POEM)


# --- store_delete ----------------------------------------------------------------------------------------------------


def test_store_delete_deletes_all_versions_in_one_scope(tmp_path: Path, *, stream: bool) -> None:
    calls = [
        does("store_set", key="poem", value=POEM),
        does("store_set", key="poem", value="another"),
        does("store_set", key="poem", value="of the run", scope="run"),
        does("store_delete", key="poem"),
        does("store_get", key="poem"),
        does("store_delete", key="poem"),
        does("store_delete", key="peom"),
        does("store_delete", key="poem", scope="run"),
        does("store_list"),
    ]
    first, *_, deleted, outer, elsewhere, unknown, of_run, listed = read_of(tmp_path, calls, stream=stream)
    assert json_of(deleted) == {"key": "poem", "scope": "agent", "deleted": True}
    assert outer == "of the run"
    assert elsewhere == "There is no variable 'poem' in the scope 'agent', but one in the scope 'run'."
    assert unknown == "There is no variable 'peom'; did you mean 'poem'?"
    assert json_of(of_run)["scope"] == "run"
    assert listed == "There are no variables yet."
    assert json_of(first)["$ref"]


# --- scope -----------------------------------------------------------------------------------------------------------


def test_every_agent_has_variables_of_its_own_and_those_of_the_run(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [
        does("store_set", key="mine", value="of the root"),
        does("store_set", key="ours", value="of the run", scope="run"),
        does("spawn_agent", prompt="Look!"),
        does("store_set", key="mine", value="of the child"),
        does("store_get", key="mine"),
        does("store_get", key="ours"),
        "Looked.",
        does("store_get", key="mine"),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=stream)
        child = [str(item["output"]) for item in app.requests[6].items if item["type"] == "function_call_output"]
        assert child[1:] == ["of the child", "of the run"]
        assert read(app)[-1] == "of the root"
