"""What readers of a run were told, read off its events: whatever kinds of them there are."""

from typing import Any, get_args

import msgspec
import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel

from antwort.engine.calls.dispatch import PROGRESS
from antwort.engine.output.events import REASONING_NAMES, Events, replay_item
from antwort.runs.recovery import state_of
from antwort.storage.base import StoredEvent
from antwort.types import JSON

MODELS: dict[str, type[BaseModel]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(get_args(ResponseStreamEvent)[0])
}
"""All events that OpenAI's clients know, by their types."""
ITEM: JSON = {"type": "message", "id": "msg_1", "status": "in_progress", "content": []}
SAMPLES: JSON = {"item": ITEM, "item_id": "msg_1", "part": {"type": "output_text", "text": ""}, "logprobs": []}
ITEMS: list[JSON] = [
    {"type": "message", "content": [{"type": "output_text", "text": "Hi", "annotations": []}]},
    {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]},
    {
        "type": "reasoning",
        "content": [{"type": "reasoning_text", "text": "Hm."}],
        "summary": [{"type": "summary_text", "text": "Hm"}],
    },
    {"type": "function_call", "name": "add", "arguments": "{}"},
    {"type": "custom_tool_call", "name": "sql", "input": "SELECT 1"},
    {"type": "shell_call", "action": {"commands": ["ls", "pwd"]}},
    {"type": "web_search_call", "action": {"type": "search", "query": "it"}},
    {"type": "compaction", "encrypted_content": "sealed"},
]


def written(thoughts: str = REASONING_NAMES["openai"]) -> tuple[Events, list[StoredEvent]]:
    """Return what writes events, and what it has written."""
    stored: list[StoredEvent] = []

    def put(kind: str, *events: bytes) -> None:
        stored.extend(StoredEvent(number, kind, data) for number, data in enumerate(events, len(stored)))

    return Events(put, thoughts=thoughts), stored


def sample(field: str, default: Any) -> Any:
    return SAMPLES.get(field, 0 if field.endswith("_index") else default)


@pytest.mark.parametrize("kind", [*MODELS, *(f"{name}.delta" for name in REASONING_NAMES.values()), PROGRESS])
def test_a_run_is_known_whatever_its_readers_were_told(kind: str) -> None:
    model = MODELS.get(kind, MODELS["response.reasoning_text.delta"])
    events, stored = written()
    if kind != "response.output_item.added":
        events.emit("response.output_item.added", output_index=0, item=ITEM)
    required = [name for name, field in model.model_fields.items() if field.is_required()]
    events.emit(kind, **{name: sample(name, "x") for name in required if name not in {"type", "sequence_number"}})
    state = state_of(stored)
    assert state.sequence == len(stored)
    assert [item["id"] for item in state.output] == ["msg_1"]
    assert list(state.open) == ([] if kind == "response.output_item.done" else ["msg_1"])


@pytest.mark.parametrize("thoughts", REASONING_NAMES.values())
@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["type"])
def test_an_item_is_known_wherever_its_events_end(item: JSON, thoughts: str) -> None:
    events, stored = written(thoughts)
    whole = {"id": "item_1", "status": "completed", **item}
    replay_item(whole, 0, events)
    for number in range(1, len(stored) + 1):
        state = state_of(stored[:number])
        assert [one["id"] for one in state.output] == ["item_1"]
        for left in state.open.values():
            closing, closed = written(thoughts)
            left.close(closing, "incomplete")
            assert msgspec.json.decode(closed[-1].data)["item"]["status"] == "incomplete"
    state = state_of(stored)
    assert (state.output, state.open) == ([whole], {})
