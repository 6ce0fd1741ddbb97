"""What came before: stored entries and new input, put together into what the model reads."""

from collections.abc import Iterable, Sequence
from typing import Any

from antwort.errors import BadRequestError
from antwort.storage.base import JournalEntry, ResponseStore

__all__ = ["check_calls", "load_history", "model_items", "resolve_references"]

JSON = dict[str, Any]


async def load_history(store: ResponseStore, tenant: str, response_id: str) -> list[JournalEntry]:
    """Return all entries up to a response of the tenant; an unknown id is a BadRequestError with OpenAI's code."""
    entries = await store.history(tenant, response_id)
    if entries is None:
        raise BadRequestError(
            f"Previous response with id '{response_id}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return entries


async def resolve_references(items: list[JSON], store: ResponseStore, tenant: str) -> list[JSON]:
    """Replace `item_reference` items by what they name."""
    resolved = []
    for index, item in enumerate(items):
        if item["type"] != "item_reference":
            resolved.append(item)
            continue
        entry = await store.find_item(tenant, item["id"])
        if entry is None:
            raise BadRequestError(
                f"Item with id '{item['id']}' not found.", param=f"input[{index}].id", code="item_not_found"
            )
        resolved.append(entry.item)
    return resolved


def model_items(entries: Iterable[JournalEntry]) -> list[JSON]:
    """Return entries as the model reads them: a call the server executed becomes the call and its output."""
    items: list[JSON] = []
    outputs: list[JSON] = []
    for entry in entries:
        if entry.call is None:
            # Outputs stand behind all calls of their turn: model servers want parallel calls in one message.
            items += outputs
            outputs = []
            items.append(entry.item)
            continue
        call = entry.call
        if call.get("partial"):  # the beginning of an answer that was cut off by a crash and begun again
            continue
        items.append(
            {"type": "function_call", "call_id": call["call_id"], "name": call["name"], "arguments": call["arguments"]}
        )
        output = call.get("output")
        outputs.append(
            {
                "type": "function_call_output",
                "call_id": call["call_id"],
                "output": INTERRUPTED if output is None else output,
            }
        )
    return items + outputs


INTERRUPTED = "The call was interrupted and its result is not known. Check before you repeat it."


def check_calls(items: Sequence[JSON]) -> None:
    """Hold calls and outputs against each other: each output needs its call before it, each call its output."""
    called: dict[str, JSON] = {}
    answered: set[str] = set()
    for item in items:
        kind, call_id = item.get("type"), item.get("call_id")
        if not isinstance(call_id, str):
            continue
        if kind in _CALLS:
            called[call_id] = item
        elif kind in _OUTPUTS:
            if call_id not in called:
                raise BadRequestError(
                    f"No tool call found for function call output with call_id {call_id}.", param="input"
                )
            answered.add(call_id)
    for call_id in called:
        if call_id not in answered:
            raise BadRequestError(f"No tool output found for function call {call_id}.", param="input")


_CALLS = {"function_call", "custom_tool_call"}
_OUTPUTS = {"function_call_output", "custom_tool_call_output"}
