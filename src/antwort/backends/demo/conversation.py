"""The conversation so far, as far as the demo model reads it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from antwort.backends.demo.words import clean
from antwort.backends.items import as_function
from antwort.types import JSON

__all__ = ["Conversation", "Result", "transcript"]


_FAILURE = re.compile(
    r"^\W*(?:error|fehler|invalid|unknown|failed|failure|exception|traceback|cannot|timeout|there is no|no such)\b"
    r"|\b(?:cannot be|could not|did not finish|was interrupted|an unknown|failed to|known here)\b"
    r"|\bis not (?:available|valid|known|allowed)\b",
    re.IGNORECASE,
)
_READ, _READ_OUTPUT = 20_000, 100_000
"""Characters of a message, and of an output, that it looks at: more would take it long, and everybody else with it."""
_HEAD = 300


@dataclass(frozen=True, slots=True)
class Result:
    """What a function gave back."""

    name: str
    arguments: str
    output: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Conversation:
    """The user's messages in order, the last one apart, and the results of calls made since."""

    question: str
    earlier: tuple[str, ...]
    results: tuple[Result, ...]
    attachments: int
    """Images and files in the last message, which the demo model cannot read."""

    @classmethod
    def of(cls, items: Sequence[JSON]) -> "Conversation":
        """Read wire items; those of unknown types are passed over."""
        said: list[str] = []
        calls: dict[str, tuple[str, str]] = {}
        results: list[Result] = []
        attachments = 0
        for item in map(as_function, items):
            kind = item.get("type", "message")
            if kind == "message" and item.get("role") == "user":
                said.append(clean(_text(item.get("content"))[:_READ]).strip())
                attachments = _attachments(item.get("content"))
                results.clear()
            elif kind == "function_call":
                calls[str(item.get("call_id"))] = (
                    clean(str(item.get("name"))),
                    clean(str(item.get("arguments") or "")),
                )
            elif kind == "function_call_output":
                name, arguments = calls.get(str(item.get("call_id")), ("The function", ""))
                output = clean(_text(item.get("output"))[:_READ_OUTPUT]).strip()
                failed = item.get("status") in {"incomplete", "failed"} or _is_failure(output)
                results.append(Result(name, arguments, output, failed))
        return cls(said[-1] if said else "", tuple(said[:-1]), tuple(results), attachments)


def transcript(items: Sequence[JSON]) -> list[str]:
    """Return every text of the items that a model would read, for counting; images and files have none."""
    texts: list[str] = []
    for item in map(as_function, items):
        kind = str(item.get("type", "message"))
        if kind == "message":
            texts += (str(item.get("role")), _text(item.get("content")))
        elif kind == "function_call":
            texts += (str(item.get("call_id")), str(item.get("name")), str(item.get("arguments")))
        elif kind == "function_call_output":
            texts += (str(item.get("call_id")), _text(item.get("output")))
        elif kind == "reasoning":
            texts += (_text(item.get("content")), _text(item.get("summary")))
    return texts


def _text(content: Any) -> str:
    """Return the text of a message or of an output: a string as it is, parts joined by line breaks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text", part.get("refusal")) for part in content if isinstance(part, dict))
    return "\n".join(part for part in parts if isinstance(part, str))


def _attachments(content: Any) -> int:
    if not isinstance(content, list):
        return 0
    return sum(isinstance(part, dict) and part.get("type") in {"input_image", "input_file"} for part in content)


def _is_failure(output: str) -> bool:
    """Tell whether an output reads like an error. There is no mark for it on the wire, so its words have to do."""
    if output.startswith("{"):
        try:
            value = json.loads(output)
        except (ValueError, RecursionError):
            return False
        return bool(value.get("error")) if isinstance(value, dict) else False
    return re.match(r"\s*\[\d+\]", output) is None and _FAILURE.search(output[:_HEAD]) is not None
