"""Wire items as Chat Completions messages.

- Instructions come first, as a system message. The role `developer` becomes `system` unless the dialect keeps it.
- Text and function calls of the assistant that follow each other become one message, with the calls in parallel:
  servers refuse one message per call. The outputs of its calls follow at once, in the order of the calls, wherever
  they stand.
- Outputs are text for the model. Images and PDF files in them follow in a message of the user, after all outputs of
  the turn, because tool messages of most servers hold text only.
- Thoughts go back as `reasoning_content` of the message they led to, and only if it has calls: servers that think
  between calls want them there, and none wants them elsewhere.
- Calls of custom tools and their outputs are those of functions with the argument `input`.
- Items that only mean something to us (hosted calls, references, compactions) are left out.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from antwort.backends.chat.content import chat_content, chat_parts, is_text
from antwort.backends.chat.dialect import Dialect
from antwort.backends.items import OUTPUT_TYPES, as_function, json_arguments, text_of
from antwort.errors import BadRequestError
from antwort.types import JSON

__all__ = ["chat_messages"]


def chat_messages(items: Sequence[JSON], instructions: str | None, dialect: Dialect, backend: str) -> list[JSON]:
    """Return the messages of a conversation; content the backend cannot take is a BadRequestError."""
    transcript = _Transcript(items, dialect, backend)
    if instructions:
        transcript.messages.append({"role": "system", "content": instructions})
    for item in items:
        transcript.add(item)
    transcript.end_assistant()
    return transcript.messages


class _Transcript:
    """Messages in the making; the assistant's last one stays open while more belongs to it."""

    def __init__(self, items: Sequence[JSON], dialect: Dialect, backend: str) -> None:
        self.messages: list[JSON] = []
        self._dialect = dialect
        self._backend = backend
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[JSON] = []
        # Some servers number the calls of each turn anew, so an id may occur more than once.
        self._outputs: dict[Any, deque[JSON]] = defaultdict(deque)
        self._answered: dict[Any, int] = defaultdict(int)
        for item in items:
            if item.get("type") in OUTPUT_TYPES:
                self._outputs[item.get("call_id")].append(item)

    def add(self, item: JSON) -> None:
        item = as_function(item)
        match item.get("type") or "message":
            case "message":
                self._add_message(item)
            case "function_call":
                self._calls.append(_call(item))
            case "function_call_output":
                self._check_output(item)
            case "reasoning":
                self._thoughts.append(_thoughts(item))

    def end_assistant(self) -> None:
        """Write the open message of the assistant, and the outputs of its calls."""
        if not (self._texts or self._calls or self._thoughts):
            return
        text = "\n\n".join(text for text in self._texts if text)
        if text or self._calls or self._texts:
            message: JSON = {"role": "assistant", "content": text or (None if self._calls else "")}
            thoughts = "".join(self._thoughts)
            if thoughts and self._calls and self._dialect.reasoning:
                message["reasoning_content"] = thoughts
            if self._calls:
                message["tool_calls"] = self._calls
            self.messages.append(message)
        calls, self._calls, self._texts, self._thoughts = self._calls, [], [], []
        self._add_outputs(calls)

    def _add_message(self, item: JSON) -> None:
        role = item.get("role")
        content = item.get("content")
        if role == "assistant":
            self._texts.append(text_of(content))
            return
        if role == "developer":
            role = self._dialect.developer_role
        if role not in {"user", "system", "developer"}:
            raise BadRequestError(f"Messages cannot have the role '{role}'.", param="input", code="invalid_value")
        self.end_assistant()
        self.messages.append({"role": role, "content": chat_content(content, self._dialect, self._backend)})

    def _check_output(self, item: JSON) -> None:
        """End the assistant's message; its calls' outputs are written with it, so this one is there already."""
        self.end_assistant()
        call_id = item.get("call_id")
        if not self._answered[call_id]:
            raise BadRequestError(
                f"No function call found for the output with call_id '{call_id}'.", param="input", code="invalid_value"
            )
        self._answered[call_id] -= 1

    def _add_outputs(self, calls: Sequence[JSON]) -> None:
        attachments: list[JSON] = []
        for call in calls:
            outputs = self._outputs[call["id"]]
            if not outputs:
                continue
            self._answered[call["id"]] += 1
            parts = chat_parts(outputs.popleft().get("output"), self._dialect, self._backend)
            others = [part for part in parts if not is_text(part)]
            text = "\n".join(part["text"] for part in parts if is_text(part))
            if others:
                note = f"(attached to the next message as output of {call['function']['name']})"
                text = f"{text}\n{note}" if text else note
                attachments += [{"type": "text", "text": f"Output of {call['function']['name']}:"}, *others]
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        if attachments:
            self.messages.append({"role": "user", "content": attachments})


def _call(item: JSON) -> JSON:
    function = {"name": item.get("name"), "arguments": json_arguments(item.get("arguments"))}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _thoughts(item: JSON) -> str:
    content = item.get("content")
    return text_of(content) if isinstance(content, list) else ""
