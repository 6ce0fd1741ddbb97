"""The items of calls that the server executes: as they begin, and what they tell of the result."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from antwort.functions import Hosted, ToolResult
from antwort.storage.base import JournalEntry
from antwort.types import JSON
from antwort.wire.ids import new_id

logger = logging.getLogger(__name__)

OWN = "antwort:function_call"
"""The item of a call that has none of its own."""
_OURS = frozenset({"id", "type", "status"})
"""The fields of an item that no function sets."""


def call_item(call_id: str, name: str, arguments: str, face: Hosted | None) -> JSON:
    """Return the item of a call that begins."""
    if face is None or face.item is None:
        return {
            "id": new_id("afc"),
            "type": OWN,
            "status": "in_progress",
            "name": name,
            "arguments": arguments,
            "output": "",
            "content": [],
        }
    prefix = "".join(word[:1] for word in face.item.split("_") if word != "call")
    fields = _described(name, arguments, face)
    if face.output_item is not None:
        shown = {} if face.output_fields or face.output_field is not None else {"arguments": arguments}
        fields = {"call_id": call_id, **shown, **fields}
    return {"id": new_id(prefix), "type": face.item, "status": "in_progress", **fields}


def output_item(call_id: str, name: str, arguments: str, face: Hosted, result: ToolResult) -> JSON:
    """Return the item that shows the result of a call."""
    item: JSON = {"id": new_id("item"), "type": face.output_item, "status": "completed", "call_id": call_id}
    if face.output_fields:
        fields = _failed(name, face, result.output) if result.is_error else _fields(name, result.item)
        return {**item, **{key: value for key, value in fields.items() if key in face.output_fields}}
    if face.output_field is not None:
        return {**item, "status": "incomplete" if result.is_error else "completed", face.output_field: result.output}
    part: JSON = {"type": "output_text", "text": result.output, "annotations": [], "logprobs": []}
    fields = _described(name, arguments, face)
    item["output"] = [part]
    item.update((name, value) for name, value in fields.items() if name not in item and name != "arguments")
    return item


def _decoded(arguments: str) -> JSON:
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _described(function: str, arguments: str, face: Hosted) -> JSON:
    """Return what a function says about a call that begins."""
    if face.describe is None:
        return {}
    try:
        return _fields(function, face.describe(_decoded(arguments)))
    except BaseException:  # a provider's own code, and no reason for a response to fail
        logger.exception("function %s: `describe` has failed; the item has no fields of its own", function)
        return {}


def _failed(function: str, face: Hosted, text: str) -> JSON:
    """Return what a function shows of a call that has failed."""
    if face.output_of_error is None:
        return {}
    try:
        return _fields(function, face.output_of_error(text))
    except BaseException:  # a provider's own code, and no reason for a response to fail
        logger.exception("function %s: `output_of_error` has failed; the item has no fields of its own", function)
        return {}


def found_fields(function: str, face: Hosted, result: ToolResult, asked: frozenset[str]) -> tuple[JSON, JSON]:
    """Return what the item of a call tells about its result, and what it tells to whoever asks for more.

    The latter are fields by the value of `include` that shows them.
    """
    try:
        fields = _fields(function, result.item)
        own = {name: value for name, value in fields.items() if name not in face.output_fields}
        return _gated(own, face.includes, asked)
    except BaseException:
        logger.exception("function %s: the item of its result cannot be read", function)
        return {}, {}


def is_own_call(entry: JournalEntry) -> bool:
    """Tell whether an entry is a call that has ended, of a function that has no item of its own."""
    return entry.item.get("type") == OWN and entry.call is not None and entry.call.is_over


def shown_item(entry: JournalEntry, include: Iterable[str] | None) -> JSON:
    """Return an item with what a reader asks for, though the request that made it may not have."""
    item, call = entry.item, entry.call
    if call is None:
        return item
    if not entry.visible and is_own_call(entry):
        status = item["status"] if item["status"] != "in_progress" else "completed"
        item = {**item, "status": status, "output": call.output}
    for value in include or ():
        for name, field in (call.unasked or {}).get(value, {}).items():
            inner = item.get(name)
            item = {**item, name: {**inner, **field} if isinstance(inner, dict) else field}
    return item


def _fields(function: str, given: Any) -> JSON:
    """Return the fields of an item as plain JSON, without those that cannot be written, or are not the function's."""
    if not isinstance(given, Mapping):
        logger.error("function %s: the fields of its item are a mapping, not %s", function, type(given).__name__)
        return {}
    fields: JSON = {}
    for name, value in given.items():
        if not isinstance(name, str) or name in _OURS:
            logger.error("function %s: %.40r is no field of an item that it can set", function, name)
            continue
        try:
            msgspec.json.encode(name)
            fields[name] = msgspec.json.decode(msgspec.json.encode(value))
        except Exception as error:  # noqa: BLE001 - a value may be anything, and raise anything
            logger.error(  # noqa: TRY400 - what is wrong is the value, not where it is written
                "function %s: the field '%s' of its item is no JSON: %s", function, ascii(name), type(error).__name__
            )
    return fields


def read_arguments(function: str, face: Hosted, item: JSON) -> str | None:
    """Return the arguments of a call that a client sends back as its item; None if the item is not the function's."""
    if face.read_arguments is None:
        shown = item.get("arguments")
        return shown if isinstance(shown, str) else None
    try:
        given = face.read_arguments(item)
        return None if given is None else msgspec.json.encode(dict(given)).decode()
    except BaseException:  # a provider's own code, and no reason for a response to fail
        logger.exception("function %s: `read_arguments` has failed; the model does not read the call again", function)
        return None


def read_output(function: str, face: Hosted, item: JSON) -> str | None:
    """Return what the model reads of the result that an item shows; None if it shows none."""
    try:
        if face.read_output is not None:
            text = face.read_output(item)
        elif face.output_field is not None:
            text = item.get(face.output_field)
        else:
            text = _joined(item.get("output"))
    except BaseException:  # a provider's own code, and no reason for a response to fail
        logger.exception("function %s: `read_output` has failed; the model does not read the result again", function)
        return None
    return text if isinstance(text, str) else None


def _joined(output: Any) -> str | None:
    """Return a text, or the texts of a list of parts."""
    if not isinstance(output, list):
        return output if isinstance(output, str) else None
    texts = [part.get("text") for part in output if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _gated(fields: JSON, includes: Mapping[str, str], asked: frozenset[str]) -> tuple[JSON, JSON]:
    """Return an item's fields without what only a request sees that asks for it, and that by what one has to ask."""
    shown, unasked = dict(fields), {}
    for value, path in includes.items():
        if value in asked:
            continue
        *parents, last = path.split(".")
        if not parents:
            if last in shown:  # an item that always shows the field has it since the call began
                unasked[value] = {last: shown.pop(last)}
        elif len(parents) == 1 and isinstance(outer := shown.get(parents[0]), dict) and last in outer:
            shown[parents[0]] = {name: field for name, field in outer.items() if name != last}
            unasked[value] = {parents[0]: {last: outer[last]}}
    return shown, unasked
