"""Prompts that the server keeps: in versions, with variables, for requests that name them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, NotFoundError
from tests.http.sdk import Served, create, served
from tests.support.postgres import on_one_store

from antwort.testing import Turn, fail, turn
from antwort.types import JSON

TEMPLATE = "You help customers of {{shop}}. Be {{ manner }}."
PICTURE = "data:image/png;base64,iVBORw0KGgo="
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


def answer(found: httpx.Response, status: int = 200) -> JSON:
    assert found.status_code == status, found.text
    value: JSON = found.json()
    return value


def kept(stage: Served, **fields: Any) -> str:
    return str(answer(stage.request("POST", "/prompts", json={"template": TEMPLATE, **fields}))["id"])


def error(found: httpx.Response, status: int) -> str:
    return str(answer(found, status)["error"]["message"])


# --- in responses -----------------------------------------------------------------------------------------------------


@BOTH_WAYS
def test_a_request_has_the_instructions_of_its_prompt(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, ["Hello!"]) as stage:
        prompt = kept(stage)
        variables = {"shop": "Wheels", "manner": {"type": "input_text", "text": "{{shop}}-like"}, "unknown": "thing"}
        said: Any = {"id": prompt, "version": "1", "variables": variables}
        response = create(stage, stream, input="Hi!", instructions="Answer in English.", prompt=said)
        expected = "You help customers of Wheels. Be {{shop}}-like.\n\nAnswer in English."
        assert (response.instructions, stage.requests[0].instructions) == (expected, expected)
        read = stage.client().responses.retrieve(response.id)
        for found in (response.prompt, read.prompt):
            assert found is not None
            assert (found.id, found.version) == (prompt, "1")
            assert found.to_dict()["variables"] == variables


@BOTH_WAYS
def test_what_continues_such_a_response_need_not_name_the_prompt_again(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, ["Hello!", "Yes.", "Ja.", "Si."]) as stage:
        prompt: Any = {"id": kept(stage), "variables": {"shop": "Wheels"}}
        first = create(stage, stream, input="Hi!", prompt=prompt)
        second = create(stage, stream, input="Open?", previous_response_id=first.id)
        assert second.prompt == first.prompt
        third = create(stage, stream, input="Why?", previous_response_id=second.id, instructions="Be German.")
        assert third.prompt is None
        fourth = create(stage, stream, input="When?", previous_response_id=third.id)
        assert (fourth.prompt, fourth.instructions) == (None, None)
    told = [request.instructions for request in stage.requests]
    assert told == ["You help customers of Wheels. Be {{ manner }}."] * 2 + ["Be German.", None]


def test_what_only_looks_like_a_prompt_is_none(tmp_path: Path) -> None:
    tool: Any = {"type": "function", "name": "f", "parameters": {"prompt": {"id": "pmpt_1", "version": "1"}}}
    with served(tmp_path, ["Hello!", "Yes."]) as stage:
        first = create(stage, False, input="Hi!", tools=[tool], instructions="Be brief.")
        second = create(stage, False, input="Open?", previous_response_id=first.id)
        assert (second.prompt, second.instructions) == (None, None)


def test_variables_can_be_images_and_files(tmp_path: Path) -> None:
    with served(tmp_path, ["A bicycle.", "A page."]) as stage:
        image, other = {"type": "input_image", "image_url": PICTURE}, {"type": "input_text", "text": "a shop"}
        text = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,SGk="}
        prompt = kept(stage, template="What is on {{photo}}, of {{shop}}? See {{page}}.")
        asked: Any = {"id": prompt, "variables": {"photo": image, "shop": other, "page": text, "unused": image}}
        create(stage, False, prompt=asked)
        create(stage, False, prompt=asked, input="Look!")
        assert stage.requests[0].instructions == "What is on photo, of a shop? See page."
        alone, before = stage.requests[0].items, stage.requests[1].items
        parts = alone[0]["content"]
        assert [part["type"] for part in parts] == ["input_text", "input_image", "input_text", "input_file"]
        assert [part["text"] for part in parts if "text" in part][:2] == ["photo:", "page:"]
        assert [len(alone), len(before), before[1]["content"][0]["text"]] == [1, 2, "Look!"]


def test_a_prompt_needs_no_input(tmp_path: Path) -> None:
    with served(tmp_path, ["Hello!"]) as stage:
        assert create(stage, False, prompt={"id": kept(stage)}).output_text == "Hello!"


def test_a_background_response_that_is_tried_again_has_the_prompt_as_it_was(tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(error=fail(400, "No.")), "Hello!"]
    with served(tmp_path, steps) as stage:
        prompt = kept(stage)
        failed = create(stage, False, input="Hi!", background=True, prompt={"id": prompt})
        stage.resume(failed.id)
        answer(stage.request("PUT", f"/prompts/{prompt}", json={"version": 1, "template": "Be rude."}))
        again = answer(stage.request("POST", f"/runs/{failed.id}/retry"))
        stage.resume(again["id"])
        ended = stage.client().responses.retrieve(again["id"])
        assert ended.prompt is not None
        assert (ended.prompt.id, ended.prompt.version, ended.instructions) == (prompt, "1", TEMPLATE)
        assert [request.instructions for request in stage.requests] == [TEMPLATE] * 2


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"id": "pmpt_no"}, "Prompt with id 'pmpt_no' not found."),
        ({"id": "{}", "version": "2"}, "Prompt '{}' has no version '2'; its latest one is 1."),
        ({"id": "{}", "version": "one"}, "Prompt '{}' has no version 'one'; its latest one is 1."),
        ({"id": "{}", "version": "1" * 5000}, f"Prompt '{{}}' has no version '{'1' * 64}'; its latest one is 1."),
    ],
)
def test_a_prompt_that_is_not_there_is_told(tmp_path: Path, asked: Any, message: str) -> None:
    with served(tmp_path, []) as stage:
        prompt = kept(stage)
        asked = {name: value.replace("{}", prompt) for name, value in asked.items()}
        with pytest.raises(NotFoundError) as caught:
            create(stage, False, input="Hi!", prompt=asked)
        assert caught.value.body == {
            "message": message.replace("{}", prompt),
            "type": "invalid_request_error",
            "param": "prompt",
            "code": None,
        }


@on_one_store()
@pytest.mark.parametrize(
    ("variables", "param"),
    [
        ({"shop": {"type": "input_audio"}}, "prompt.variables.shop"),
        ({"shop": {}}, "prompt.variables.shop"),
        ({"shop": {"type": ["input_text"]}}, "prompt.variables.shop"),
        ({"shop": {"type": "input_text", "text": 1}}, "prompt.variables.shop"),
        ({"shop": 1}, "prompt.variables.shop"),
        ({"shop": "x" * 1_000_000}, "prompt.variables"),
    ],
)
def test_a_variable_that_cannot_be_one_is_told(tmp_path: Path, variables: Any, param: str) -> None:
    with served(tmp_path, []) as stage:
        prompt = kept(stage)
        with pytest.raises(BadRequestError) as caught:
            create(stage, False, input="Hi!", prompt={"id": prompt, "variables": variables})
        assert caught.value.param == param


# --- as they are kept -------------------------------------------------------------------------------------------------


def test_a_prompt_has_versions_of_which_one_is_the_default(tmp_path: Path) -> None:
    with served(tmp_path, ["Hello!"]) as stage:
        made = answer(
            stage.request("POST", "/prompts", json={"name": "support", "prompt": TEMPLATE, "variables": ["a"]})
        )
        path = f"/prompts/{made['id']}"
        assert made == {
            "id": made["id"],
            "prompt_id": made["id"],
            "object": "prompt",
            "name": "support",
            "template": TEMPLATE,
            "prompt": TEMPLATE,
            "variables": ["a", "shop", "manner"],
            "version": 1,
            "is_default": True,
            "default_version": 1,
            "latest_version": 1,
            "created_at": made["created_at"],
            "configured": False,
        }
        assert len(made["id"]) == len("pmpt_") + 48
        second = answer(stage.request("PUT", path, json={"version": "1", "template": "Be {{manner}}."}))
        assert (second["version"], second["default_version"], second["template"]) == (2, 2, "Be {{manner}}.")
        third = answer(stage.request("PUT", path, json={"version": 2, "prompt": "Be.", "set_as_default": False}))
        assert (third["version"], third["is_default"], third["default_version"]) == (3, False, 2)
        assert answer(stage.request("GET", path)) == {**second, "latest_version": 3}
        assert answer(stage.request("GET", path, params={"version": 3})) == third
        assert (
            error(stage.request("PUT", path, json={"template": "?"}), 400) == "Missing required parameter: 'version'."
        )
        stale = error(stage.request("PUT", path, json={"version": 2, "template": "?"}), 409)
        assert stale == f"The latest version of prompt '{made['id']}' is 3, not 2: read it, and try again."
        for method, end, version in (("PUT", "set-default-version", "1"), ("POST", "default_version", 3)):
            default = answer(stage.request(method, f"{path}/{end}", json={"version": version}))
            assert (default["version"], default["is_default"]) == (int(version), True)
        versions = answer(stage.request("GET", f"{path}/versions", params={"limit": 2}))
        assert ([one["version"] for one in versions["data"]], versions["has_more"]) == ([3, 2], True)
        rest = answer(stage.request("GET", f"{path}/versions", params={"before": 2}))
        assert ([one["version"] for one in rest["data"]], rest["has_more"]) == ([1], False)
        create(stage, False, input="Hi!", prompt={"id": made["id"]})
        assert stage.requests[0].instructions == "Be."
        listed = answer(stage.request("GET", "/prompts"))
        assert [(one["id"], one["version"]) for one in listed["data"]] == [(made["id"], 3)]
        gone = {"id": made["id"], "object": "prompt.deleted", "deleted": True}
        assert answer(stage.request("DELETE", path)) == gone
        for end in ("", "/versions"):
            assert error(stage.request("GET", f"{path}{end}"), 404) == f"Prompt with id '{made['id']}' not found."


def test_of_several_who_change_a_version_at_a_time_one_does(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage, ThreadPoolExecutor(8) as threads:
        path, start = f"/prompts/{kept(stage)}", threading.Barrier(8)

        def change(number: int) -> int:
            start.wait()
            return stage.request("PUT", path, json={"version": 1, "template": f"Be {number}."}).status_code

        statuses = sorted(threads.map(change, range(8)))
        assert statuses == [200, *[409] * 7]
        found = answer(stage.request("GET", f"{path}/versions"))["data"]
        assert [one["version"] for one in found] == [2, 1]


def test_prompts_of_the_configuration_are_there_for_all_and_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "greeting.md").write_text("Greet {{name}}.")
    section: JSON = {"support": {"template": TEMPLATE}, "greeting": {"file": str(tmp_path / "greeting.md")}}
    with served(tmp_path, ["Hello!"], prompts=section) as stage:
        own = kept(stage)
        listed = answer(stage.request("GET", "/prompts", params={"limit": 1}))
        assert [(one["id"], one["configured"]) for one in listed["data"]] == [
            ("support", True),
            ("greeting", True),
            (own, False),
        ]
        create(stage, False, input="Hi!", prompt={"id": "greeting", "variables": {"name": "Ada"}})
        assert stage.requests[0].instructions == "Greet Ada."
        for method, path, body in (
            ("PUT", "/prompts/support", {"version": 1, "template": "?"}),
            ("POST", "/prompts/support/default_version", {"version": 1}),
            ("DELETE", "/prompts/support", None),
        ):
            refused = error(stage.request(method, path, json=body), 409)
            assert refused == "Prompt 'support' is one of the configuration of this server: change it there."


@on_one_store()
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Missing required parameter: 'template'."),
        ({"template": "a", "prompt": "b"}, "Give either 'template' or 'prompt': both are the text."),
    ],
)
def test_a_prompt_that_cannot_be_kept_is_told(tmp_path: Path, body: JSON, message: str) -> None:
    with served(tmp_path, []) as stage:
        assert error(stage.request("POST", "/prompts", json=body), 400) == message
