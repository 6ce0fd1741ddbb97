"""Fields that tell what something is, and are no text: a 400 that names them."""

from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import served
from tests.support.postgres import on_one_store

pytestmark = on_one_store()


STRANGE: list[Any] = [[], {}, [["text"]], {"type": "text"}, 7, True]
ITEM: Any = {"type": "function_call_output", "call_id": "c", "output": "x"}


@pytest.mark.parametrize("path", ["/responses", "/responses/input_tokens"])
def test_types_that_are_no_text_are_named(tmp_path: Path, path: str) -> None:
    with served(tmp_path, []) as stage:
        for strange in STRANGE:
            bodies: dict[str, Any] = {
                "text.format.type": {"text": {"format": {"type": strange}}},
                "tool_choice.type": {"tool_choice": {"type": strange}},
                "tool_choice.tools[0].type": {"tool_choice": {"type": "allowed_tools", "tools": [{"type": strange}]}},
                "tools[0].type": {"tools": [{"type": strange}]},
            }
            for param, body in bodies.items():
                answer = stage.request("POST", path, json={"model": "scripted", "input": "Hi", **body})
                assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


@pytest.mark.parametrize("name", ["role", "type", "status", "name", "call_id", "phase"])
@pytest.mark.parametrize("path", ["/responses", "/responses/compact", "/responses/input_tokens", "/conversations"])
def test_fields_of_items_that_are_no_text_are_named(tmp_path: Path, path: str, name: str) -> None:
    where, more = ("items", {}) if path == "/conversations" else ("input", {"model": "scripted"})
    with served(tmp_path, []) as stage:
        for strange in STRANGE:
            answer = stage.request("POST", path, json={where: [{**ITEM, name: strange}], **more})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, f"{where}[0].{name}"), answer.text
