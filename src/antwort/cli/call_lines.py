"""What a model does while it works, in a line each: the functions it calls, those that fail, what needs an approval."""

import json
from collections.abc import Callable

from typing_extensions import override

from antwort.cli.terminal import AnswerText, harmless
from antwort.types import JSON

_LONGEST = 160
"""Characters of a line."""
_OF_CLIENTS = frozenset({"function_call", "custom_tool_call"})
"""Calls that are left to whoever asks: they are told with the end of the response."""
_FAILED = frozenset({"failed", "incomplete"})
_APPROVAL = "mcp_approval_request"
_PROGRAM, _PROGRAM_OUTPUT = "program", "program_output"
"""A call that is not called one, and what came of it."""
_HIDDEN_FIELDS = frozenset(
    {"id", "type", "status", "name", "call_id", "output", "outputs", "content", "results", "container_id"}
)
"""Fields of an item that say nothing about what is wanted."""


class AnswerWithCalls(AnswerText):
    """Prints the text of an answer, and tells of the calls in between; `say` shows a line."""

    def __init__(self, say: Callable[[str], None], *, stream: bool, before: Callable[[], None] | None = None) -> None:
        super().__init__(stream=stream, before=before)
        self._say = say

    @override
    def take(self, event: JSON) -> None:
        line = call_line(event)
        if line is not None:
            self.make_room()
            self._say(line)
        super().take(event)


def call_line(event: JSON) -> str | None:
    """Return what is told of an event; None if nothing is."""
    kind, item = event.get("type"), event.get("item")
    if not isinstance(item, dict):
        return None
    if kind == "response.output_item.added" and _is_call(item) and item["type"] != _PROGRAM_OUTPUT:
        return _short(f"→ {_name(item)}{_wish(item)}")
    if kind != "response.output_item.done":
        return None
    if item.get("type") == _APPROVAL:
        return _short(f"? {_name(item)}{_wish(item)} needs an approval")
    if _is_call(item) and item.get("status") in _FAILED:
        why = item.get("output") or item.get("error") or item.get("result")
        return _short(f"✗ {_name(item)}: {why}" if isinstance(why, str) else f"✗ {_name(item)} has failed")
    return None


def _short(line: str) -> str:
    line = harmless(" ".join(line.split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _is_call(item: JSON) -> bool:
    kind = str(item.get("type"))
    return kind in (_PROGRAM, _PROGRAM_OUTPUT) or (kind.endswith("_call") and kind not in _OF_CLIENTS)


def _name(item: JSON) -> str:
    """Return what was called: the function, or what a hosted tool is called."""
    return str(item.get("name") or str(item.get("type")).removesuffix("_output").removesuffix("_call"))


def _wish(item: JSON) -> str:
    """Return what it is called with, as far as that is known when it begins."""
    arguments = item.get("arguments")
    if isinstance(arguments, str):
        return "" if arguments in {"", "{}"} else f" {arguments}"
    if item.get("type") == _PROGRAM:
        return f" {item.get('code')}"
    said = {name: value for name, value in item.items() if name not in _HIDDEN_FIELDS and value}
    return f" {json.dumps(said, ensure_ascii=False)}" if said else ""
