"""Wire faces are a provider's own code: whatever they do, no response fails because of it."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from typing_extensions import override

from antwort import Antwort
from antwort.errors import DefinitionError
from antwort.provider import Hosted, Provider, ToolResult, function
from antwort.testing import ScriptedBackend, call, turn
from antwort.testing.apps import running

LOOP: list[Any] = []
LOOP.append(LOOP)


def raising(error: BaseException) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    def describe(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        raise error

    return describe


def giving(value: Any) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    def describe(_arguments: Mapping[str, Any]) -> Any:
        return value

    return describe


class Broken(Mapping[str, Any]):
    """A mapping that cannot be read."""

    @override
    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    @override
    def __iter__(self) -> Any:
        sys.exit(3)

    @override
    def __len__(self) -> int:
        return 1


def app_of(face: Hosted, item: Any, backend: ScriptedBackend) -> Antwort:
    class Faces(Provider):
        @function(hosted=face)
        async def look(self) -> ToolResult:
            """Look."""
            return ToolResult("seen", item=item)

    return Antwort(backend=backend, providers=[Faces()])


ODD = {
    "a failure": raising(ValueError("no")),
    "an exit": raising(SystemExit(0)),
    "no mapping": giving(["a"]),
    "nothing": giving(None),
    "an object": giving({"a": object(), "fine": 1}),
    "a cycle": giving({"a": LOOP, "fine": 1}),
    "half a character": giving({"a": "\ud83d", "fine": 1}),
    "a name that is none": giving({3: "a", "\ud83d": "b", "fine": 1}),
    "a mapping that fails": giving(Broken()),
    "what is not the function's": giving({"id": "mine", "type": "other", "status": "odd", "fine": 1}),
}


@pytest.mark.parametrize("describe", ODD.values(), ids=ODD)
def test_whatever_a_face_says_about_a_call_or_its_result_the_response_is_completed(
    describe: Callable[[Mapping[str, Any]], Mapping[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    turns = [turn(calls=[call("look")]), turn("Fine.")]
    face = Hosted(types=("looking",), item="looking_call", describe=describe, includes={"looking.a": "a.b"})
    try:
        item: Any = describe({})
    except BaseException:  # noqa: BLE001 - some of them raise, and have no item
        item = 3
    with running(app_of(face, item, ScriptedBackend(turns * 2))) as app:
        body = {"input": "Look.", "tools": [{"type": "looking"}]}
        plain = httpx.post(f"{app.url}/v1/responses", json=body)
        assert plain.status_code == 200, plain.text
        events = httpx.post(f"{app.url}/v1/responses", json={**body, "stream": True}).text.splitlines()
    streamed = next(json.loads(line[6:])["response"] for line in events if '"type":"response.completed"' in line)
    for response in (plain.json(), streamed):
        looking, message = response["output"]
        assert (looking["type"], looking["status"]) == ("looking_call", "completed")
        assert looking["id"].startswith("l_")
        assert set(looking) <= {"id", "type", "status", "fine"}
        assert message["content"][0]["text"] == "Fine."
    assert "function look" in caplog.text


@pytest.mark.parametrize("error", [KeyError("options"), SystemExit(0), TypeError("unhashable")])
def test_a_check_that_fails_refuses_the_request_and_is_logged(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    face = Hosted(types=("looking",), check=raising(error))
    with running(app_of(face, {}, ScriptedBackend([]))) as app:
        body = {"input": "Look.", "tools": [{"type": "looking"}]}
        answer = httpx.post(f"{app.url}/v1/responses", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == {
        "message": "A tool of type 'looking' cannot be read as it is given. The server's log says why.",
        "type": "invalid_request_error",
        "param": "tools[0]",
        "code": "invalid_value",
    }
    assert "the check of a tool of type 'looking' has failed" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {"types": ()},
        {"types": ["a"]},
        {"types": (3,)},
        {"types": ("a",), "phases": "searching"},
        {"types": ("a",), "companions": ["b"]},
        {"types": ("a",), "item": ""},
        {"types": ("a",), "item": 3},
        {"types": ("a",), "includes": {"a": 3}},
        {"types": ("a",), "includes": ["a"]},
        {"types": ("a",), "tool_defaults": {"a": 1 + 2j}},
        {"types": ("a",), "tool_defaults": {"a": LOOP}},
    ],
)
def test_a_face_that_cannot_be_shown_is_refused_when_it_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=r"^Hosted"):
        Hosted(**options)


def test_fields_of_an_output_need_those_of_an_error() -> None:
    with pytest.raises(DefinitionError, match="`output_fields` needs `output_of_error`"):
        Hosted(types=("look",), item="look_call", output_item="look_call_output", output_fields=("output",))


def test_an_output_of_an_error_that_cannot_be_made_is_left_out() -> None:
    def broken(_text: str) -> dict[str, Any]:
        raise KeyError("oops")

    face = Hosted(
        types=("look",),
        item="look_call",
        output_item="look_call_output",
        output_fields=("output",),
        output_of_error=broken,
    )
    model = ScriptedBackend([turn(calls=[call("look", wrong=1)]), turn("Done.")])
    with model, running(app_of(face, None, model)) as server:
        body = {"model": "m", "input": "Go.", "tools": [{"type": "look"}]}
        answer = httpx.post(f"{server.url}/v1/responses", json=body, timeout=30).json()
    assert [item["type"] for item in answer["output"]] == ["look_call", "look_call_output", "message"]
    assert answer["status"] == "completed"
