"""Reading the input of a request: strings and items in all their spellings become items with ids."""

import re
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from antwort.backends.chat.request import decoded_file, file_text
from antwort.concurrency.large_work import LargeWork
from antwort.context.variables import Variable, VariableView
from antwort.errors import BadRequestError, FunctionError
from antwort.lazy_imports import imported_on_use
from antwort.storage.base import JournalEntry
from antwort.types import JSON
from antwort.wire.client_tools import CALLS, ITEM_PREFIXES, OUTPUTS, SECRETS
from antwort.wire.field_errors import check_shape, missing_parameter, read_type, unsupported_value, wrong_type
from antwort.wire.ids import new_id
from antwort.wire.strict_schemas import check_format

if TYPE_CHECKING:
    from antwort.wire import item_shapes, tool_shapes
else:  # they are many, and nothing is checked before the first request
    item_shapes = imported_on_use("antwort.wire.item_shapes")
    tool_shapes = imported_on_use("antwort.wire.tool_shapes")

_PREFIX = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "compaction": "cmp",
    "compaction_trigger": "cmpt",
    "item_reference": "ref",
    "mcp_approval_response": "mcpa",
    **ITEM_PREFIXES,
}
ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fc",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctc",
    "reasoning": "rs",
}
"""What the ids of items begin with in conversations; those of an input may come from elsewhere."""
_PARTS = {
    "user": {"input_text", "input_image", "input_file", "input_audio", "output_text"},
    "system": {"input_text"},
    "developer": {"input_text"},
    "assistant": {"output_text", "refusal", "input_text"},
}
_WITH_STATUS = {"message", *CALLS, *OUTPUTS}
_OF_PLUG_INS = re.compile(r".+:.+|.+_(call|output)")
"""Types of items that somebody else may have made: of other servers, or of functions that were here before."""
_SEARCH, _FOUND = "tool_search_call", "tool_search_output"
_TEXTS = ("role", "status", "name", "call_id", "phase")
"""Fields by which items are told apart. Whatever the type of an item is, they are strings where they are."""
_ID = re.compile(r"[^\x00-\x1f\x7f/]{1,256}")
MOST_ITEMS = 10_000
LONGEST_TEXT = 10_485_760


def read_input(value: str | Sequence[JSON] | None) -> list[JSON]:
    """Return the items of a request's `input`, each with an id; BadRequestError names what does not fit."""
    if value is None:
        return []
    if isinstance(value, str):
        return [read_text(value, new_id("msg"))]
    if len(value) > MOST_ITEMS:
        raise _bad(f"has more than {MOST_ITEMS:,} items", "input")
    return _paired([_item(item, f"input[{index}]") for index, item in enumerate(value)])


def _paired(items: list[JSON]) -> list[JSON]:
    """Return items where searches for tools that have no call id, since their server made them, have one."""
    if not any(item["type"] == _SEARCH and not item.get("call_id") for item in items):
        return items
    open_calls, paired = deque[str](), []
    for item in items:
        if item["type"] == _SEARCH and not item.get("call_id"):
            open_calls.append(item["id"])
            paired.append({**item, "call_id": item["id"]})
        elif item["type"] == _FOUND and not item.get("call_id") and open_calls:
            paired.append({**item, "call_id": open_calls.popleft()})
        else:
            paired.append(item)
    return paired


def read_text(text: str, item_id: str) -> JSON:
    """Return an `input` that is a text as the message it stands for; BadRequestError if it is too long."""
    if len(text) > LONGEST_TEXT:
        raise _bad(f"is longer than {LONGEST_TEXT:,} characters", "input")
    return {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": text}],
        "id": item_id,
        "status": "completed",
    }


def _bad(problem: str, param: str) -> BadRequestError:
    return BadRequestError(f"Invalid value for '{param}': it {problem}.", param=param, code="invalid_value")


def _item(item: JSON, param: str) -> JSON:
    given = item.get("id")
    if isinstance(given, str) and given and not _ID.fullmatch(given):
        raise _bad("must have at most 256 characters, and no control characters or slashes", f"{param}.id")
    kind = _kind(item, param)
    if kind in OUTPUTS and kind != _FOUND and "call_id" not in item and "id" in item:
        item = {**item, "call_id": item["id"]}  # the outputs of local shells name their call so
    shape = item_shapes.ITEM_SHAPES.get(kind)
    if shape is not None:
        check_shape(item, shape, param)
        _check_within(item, kind, param)
    elif not _OF_PLUG_INS.fullmatch(kind):
        raise unsupported_value(f"{param}.type", kind, item_shapes.ITEM_SHAPES)
    else:
        _check_texts(item, param)
    if kind == "message":
        return _message(item, param)
    if kind == "reasoning" and item.get("summary") is None:
        item = {**item, "summary": []}
    return _with_id(item, kind)


def _kind(item: JSON, param: str) -> str:
    kind = item.get("type")
    if isinstance(kind, str) and kind:
        return kind
    if kind:
        raise wrong_type(f"{param}.type", "a string", kind)
    if kind is None and "role" in item:
        return "message"
    if kind is None and item.keys() - {"type"} == {"id"}:
        return "item_reference"
    raise missing_parameter(f"{param}.type")


def _check_within(item: JSON, kind: str, param: str) -> None:
    """Check what items have that requests have as well."""
    if kind in item_shapes.WITH_TOOLS:
        for index, tool in enumerate(item["tools"]):
            where = f"{param}.tools[{index}]"
            tool_shapes.check_tool(tool, tool_type := read_type(tool, where), where)
            for name in SECRETS.get(tool_type, ()):
                if tool.get(name):
                    raise _bad("would be kept with the item: name the tool in 'tools' instead", f"{where}.{name}")
    elif kind == "configuration_update" and item.get("text"):
        check_format(item["text"]["format"], f"{param}.text.format")


def _check_texts(item: JSON, param: str) -> None:
    for name in _TEXTS:
        if not isinstance(value := item.get(name), str | None):
            raise wrong_type(f"{param}.{name}", "a string", value)


def _with_id(item: Mapping[str, Any], kind: str) -> JSON:
    """Fill in what clients may leave out; what they sent stays, so that unknown items come back as they were."""
    result = {"type": kind, **item} if item.get("type") else {**item, "type": kind}
    if not isinstance(result.get("id"), str) or not result["id"]:
        result["id"] = new_id(_PREFIX.get(kind, "item"))
    if kind in _WITH_STATUS and not result.get("status"):
        result["status"] = "completed"
    return result


def _message(item: JSON, param: str) -> JSON:
    """Do as `_with_id`, for a message: they are so many that each copy counts."""
    role, content = item["role"], item["content"]
    if isinstance(content, str):
        parts = [_text_part(role, content)]
    else:
        allowed = _PARTS[role]
        parts = []
        for part in content:
            if part["type"] not in allowed:
                where = f"{param}.content[{len(parts)}].type"
                raise unsupported_value(where, part["type"], sorted(allowed))
            parts.append(_filled(part))
    message = {**item} if item.get("type") else {**item, "type": "message"}
    message["content"] = parts
    if not isinstance(given := message.get("id"), str) or not given:
        message["id"] = new_id("msg")
    if not message.get("status"):
        message["status"] = "completed"
    if message.get("phase", "") is None:  # never null on the way out
        del message["phase"]
    return message


def _text_part(role: str, text: str) -> JSON:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}


def _filled(part: JSON) -> JSON:
    """Return a part with what others read in it."""
    if part["type"] == "output_text" and part.get("annotations") is None:
        return {**part, "annotations": []}
    if part["type"] == "input_image" and part.get("detail") is None:
        return {**part, "detail": "auto"}
    return part


# --- input that is too long for a window: it becomes a variable, of which the model reads size, type and head --------


_HEAD = 300
"""Characters that the model reads of what is kept."""
_PIECE = 2**16
_LONGEST_KEY = 100


class LongInput:
    """Keeps the long texts and text files of a request as variables of its run, or of a sub-agent alone."""

    def __init__(
        self, variables: VariableView, most: int, large_work: LargeWork, scope: Literal["run", "agent"] = "run"
    ) -> None:
        self._variables = variables
        self._scope = scope
        self._most = most
        self._large_work = large_work
        self._kept = 0

    async def shortened(self, entries: Sequence[JournalEntry]) -> list[JournalEntry]:
        """Return entries in which references stand for what is long; BadRequestError if it cannot be kept."""
        return [await self._entry(entry) for entry in entries]

    async def _entry(self, entry: JournalEntry) -> JournalEntry:
        content = entry.item.get("content")
        if entry.item.get("role") != "user" or not isinstance(content, list):
            return entry
        parts = [await self._part(part) for part in content]
        if all(new is old for new, old in zip(parts, content, strict=True)):
            return entry
        return replace(entry, item={**entry.item, "content": parts})

    async def _part(self, part: JSON) -> JSON:
        text, name = part.get("text"), str(part.get("filename") or "input")
        data = part.get("file_data")
        if part.get("type") == "input_file" and isinstance(data, str) and len(data) > self._most:
            text = await self._large_work.run(_text_of, data, name)
        if not isinstance(text, str) or len(text) <= self._most:
            return part
        self._kept += 1
        key = name[:_LONGEST_KEY] if self._kept == 1 else f"{name[:_LONGEST_KEY]} ({self._kept})"
        try:
            variable = await self._variables.write(key, _encoded(text), kind="text", scope=self._scope)
        except FunctionError as error:
            raise BadRequestError(f"The input cannot be kept: {error}", param="input") from error
        return {"type": "input_text", "text": _told(variable, text)}


def _text_of(data: str, name: str) -> str | None:
    """Return the text of a file; None of one that a model server may be able to read and we are not."""
    raw = decoded_file(data, name)
    return None if raw.startswith(b"%PDF-") else file_text(raw, name)


def _told(variable: Variable, text: str) -> str:
    shown = {"key": variable.key, **variable.reference, "size": variable.size, "type": "text", "head": text[:_HEAD]}
    return f"[This input is kept as a variable: {msgspec.json.encode(shown).decode()}]"


async def _encoded(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE].encode(errors="replace")
