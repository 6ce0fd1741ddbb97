"""What items of an input change for the responses from there on: tools that they bring, and settings."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from antwort.errors import BadRequestError
from antwort.storage.base import JournalEntry
from antwort.types import JSON
from antwort.wire.options import ReasoningOptions, TextConfig
from antwort.wire.requests import CreateResponse

UPDATE = "configuration_update"
CHANGING = frozenset({"additional_tools", "tool_search_output", UPDATE})
"""Types of items that change something."""
Brought: TypeAlias = tuple[str, JSON]
"""A tool, and the parameter that has it."""


def changing(items: Iterable[JSON], param: str | None = None) -> list[tuple[str, JSON]]:
    """Return the items that change something, each with the parameter that has it: its place in the input, or one."""
    return [(param or f"input[{index}]", item) for index, item in enumerate(items) if item.get("type") in CHANGING]


def changing_entries(entries: Sequence[JournalEntry]) -> list[JSON]:
    """Return the items that change something among entries."""
    return [entry.item for entry in entries if entry.item.get("type") in CHANGING]


def brought_tools(items: Iterable[tuple[str, JSON]], tools: Sequence[JSON], *, most: int) -> list[Brought]:
    """Return the tools that items bring, and that a request does not have itself; of two with a name the later one.

    Namespaces with the same name are one. With its own a request has at most so many.
    """
    own = {_key(tool): tool for tool in tools}
    found: dict[tuple[str, str], Brought] = {}
    for param, item in items:
        for index, tool in enumerate(item.get("tools") or ()):
            where, key = f"{param}.tools[{index}]", _key(tool)
            if tool.get("type") == "namespace":
                inner = {entry["name"]: entry for entry in tool["tools"]}
                if key in found:
                    inner = {entry["name"]: entry for entry in found[key][1]["tools"]} | inner
                for entry in own.get(key, {}).get("tools") or ():
                    inner.pop(entry.get("name"), None)
                if inner:
                    found[key] = where, {**tool, "tools": [*inner.values()]}
            elif key not in own:
                found[key] = where, tool
    if len(tools) + len(found) > most:
        raise BadRequestError(
            f"Invalid value for 'input': with its tools there are more than {most:,} (engine.max_tools).",
            param="input",
            code="invalid_value",
        )
    return [*found.values()]


def _key(tool: JSON) -> tuple[str, str]:
    return str(tool.get("type")), str(tool.get("name"))


def configured(create: CreateResponse, items: Iterable[tuple[str, JSON]]) -> CreateResponse:
    """Return a request with the settings that items change; the last one that does so counts."""
    reasoning, text = create.reasoning, create.text
    for _, item in items:
        if item.get("type") != UPDATE:
            continue
        if item.get("reasoning"):
            effort = item["reasoning"].get("effort")
            reasoning = ReasoningOptions(effort) if reasoning is None else replace(reasoning, effort=effort)
        if item.get("text"):
            form = item["text"]["format"]
            text = TextConfig(form) if text is None else replace(text, format=form)
    if reasoning is create.reasoning and text is create.text:
        return create
    return replace(create, reasoning=reasoning, text=text)
