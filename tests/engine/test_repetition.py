"""A model that makes the same call over and over is helped out of it, or stopped."""

from pathlib import Path

import pytest
from openai.types.responses import ResponseIncompleteEvent
from tests.http.sdk import create, served

from antwort.functions import FunctionSpec
from antwort.testing import call, turn

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
IDEMPOTENT = pytest.mark.parametrize("idempotent", [False, True])
AGAIN = turn(calls=[call("look", place="here")])


def look(place: str) -> str:
    """Look somewhere."""
    return f"Nothing {place}."


@BOTH_WAYS
@IDEMPOTENT
def test_a_stuck_model_is_stopped_and_the_response_says_why(tmp_path: Path, stream: bool, idempotent: bool) -> None:
    function = FunctionSpec.of(look, {"idempotent": idempotent})
    with served(tmp_path, [AGAIN] * 4, functions=[function]) as stage:
        client = stage.client(strict=False)  # the SDK's own types do not have the reason
        if stream:
            *_, last = client.responses.create(model="scripted", stream=True, input="Find it.")
            assert isinstance(last, ResponseIncompleteEvent)
            response = last.response
        else:
            response = client.responses.create(model="scripted", input="Find it.")
    assert response.to_dict()["incomplete_details"] == {"reason": "repeated_calls"}
    assert [len(request.tools) for request in stage.requests] == [1, 1, 1, 0]


@IDEMPOTENT
def test_a_model_that_does_something_else_goes_on(tmp_path: Path, idempotent: bool) -> None:
    function = FunctionSpec.of(look, {"idempotent": idempotent})
    others = [turn(calls=[call("wait")]), turn(calls=[call("look", place="there")])]

    def wait() -> str:
        """Wait a little."""
        return "Done."

    with served(tmp_path, [*[AGAIN] * 3, *others, turn("Not found.")], functions=[function, wait]) as stage:
        response = create(stage, False, input="Find it.")
    assert (response.status, response.output_text) == ("completed", "Not found.")
    assert [len(request.tools) for request in stage.requests] == [2, 2, 2, 1, 2, 2]


def test_results_that_change_are_progress(tmp_path: Path) -> None:
    seen: list[str] = []

    def look(place: str) -> str:
        """Look somewhere."""
        seen.append(place)
        return f"{len(seen)} found {place}."

    with served(tmp_path, [*[AGAIN] * 8, "Enough."], functions=[look]) as stage:
        assert create(stage, False, input="Find them.").output_text == "Enough."
    assert len(seen) == 8


def test_a_function_that_waits_for_something_may_be_called_again_and_again(tmp_path: Path) -> None:
    function = FunctionSpec.of(look, {"attach": True})
    with served(tmp_path, [*[AGAIN] * 8, "There it is."], functions=[function]) as stage:
        assert create(stage, False, input="Find it.").output_text == "There it is."
