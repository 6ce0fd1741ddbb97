"""The agent that ships: long input becomes a variable before the model is asked."""

import base64
from pathlib import Path
from typing import Any

import pytest
from tests.providers.sub_agents.stage import does, offered, output, outputs, prompt_of, stage

from antwort.testing import Turn

LONG = "All work and no play. " * 500


@pytest.mark.parametrize("as_file", [False, True])
def test_long_input_is_kept_and_read_in_parts(tmp_path: Path, *, as_file: bool) -> None:
    data = f"data:text/plain;base64,{base64.b64encode(LONG.encode()).decode()}"
    part = {"type": "input_file", "filename": "book.txt", "file_data": data}
    key = "book.txt" if as_file else "input"
    content: Any = [part if as_file else {"type": "input_text", "text": LONG}, {"type": "input_text", "text": "What?"}]
    steps: list[Turn | str] = [does("store_get", key=key, limit=21), "Work."]
    with stage(tmp_path, steps) as app:
        client = app.client()
        response = client.responses.create(model="recursive", input=[{"role": "user", "content": content}])
        assert response.output_text == "Work."
        told = prompt_of(app, 0)
        assert f'"key":"{key}"' in told
        assert f'"size":{len(LONG)},"type":"text","head":"All work' in told
        assert told.endswith("]What?")
        assert len(told) < 1000
        assert "All work and no play." in outputs(app)[-1]
        kept = client.responses.input_items.list(response.id)
        assert LONG not in str(kept)  # it is stored once, as the variable


def test_short_input_stays_as_it_is(tmp_path: Path) -> None:
    with stage(tmp_path, ["Hello."]) as app:
        app.client().responses.create(model="recursive", input="Hello!")
        assert prompt_of(app, 0) == "Hello!"


def test_its_sub_agents_can_do_the_same(tmp_path: Path) -> None:
    steps: list[Turn | str] = [does("spawn_agent", prompt="A"), does("return_result", value="B"), "Done."]
    with stage(tmp_path, steps) as app:
        app.client().responses.create(model="recursive", input="Go!")
        assert {*offered(app, 1)} == {*offered(app, 0), "return_result"}
        assert app.requests[1].instructions == app.requests[0].instructions
        assert output(app)["result"] == "B"


def test_a_long_task_is_kept_for_its_sub_agent_and_nobody_else_finds_it_by_its_key(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="Write about it. " * 500),
        does("store_get", key="input", limit=15),
        does("return_result", value="B"),
        does("store_get", key="input", limit=15),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        app.client().responses.create(model="recursive", input=LONG)
        assert '"size":8000,"type":"text","head":"Write about it. ' in prompt_of(app, 1)
        assert len(prompt_of(app, 1)) < 1000
        assert outputs(app, 2)[-1].endswith("Write about it.")
        assert outputs(app)[-1].endswith("All work and no")


def test_the_configuration_can_replace_it(tmp_path: Path) -> None:
    with stage(tmp_path, ["Hello."], agents={"recursive": {"instructions": "Mine.", "functions": []}}) as app:
        app.client().responses.create(model="recursive", input=LONG)
        assert app.requests[0].instructions == "Mine."
        assert prompt_of(app, 0) == LONG
