"""A model turn as the body of a Chat Completions request: only what was asked for."""

import base64
import binascii
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from antwort.backends.base import ModelRequest, ToolDefinitions
from antwort.backends.dialects import json_arguments, no_call, no_content, text_of, with_extra
from antwort.backends.http.transport import Transport
from antwort.backends.passages import Window, shaped_items
from antwort.config import BackendConfig
from antwort.errors import BadRequestError
from antwort.text.foreign_text import attached
from antwort.types import JSON
from antwort.wire.client_tools import CALLS, OUTPUTS, as_function


class ChatDialect(Struct, frozen=True):
    """What a server wants. The defaults suit vLLM, Ollama, llama.cpp, LM Studio and LiteLLM.

    Only `api.openai.com` is told apart, by its host name: it knows the role `developer`, wants `max_completion_tokens`,
    takes no thoughts back, and calls a function that is chosen by name exactly once.
    """

    pdf: bool = False
    developer_role: Literal["system", "developer"] = "system"
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    reasoning: bool = True
    named_choice: bool = False

    @classmethod
    def of(cls, config: BackendConfig, transport: Transport) -> "ChatDialect":
        """Tell a server's dialect from its configuration."""
        if transport.host == "api.openai.com":
            return cls(config.pdf, "developer", "max_completion_tokens", reasoning=False, named_choice=True)
        return cls(config.pdf)


def chat_body(request: ModelRequest, dialect: ChatDialect, backend: str, extra: JSON) -> JSON:
    """Return the body. Fields of `extra`, then of the request's own, replace ours; null leaves a field out."""
    items = request.items
    shaped = _window_messages if isinstance(items, Window) else chat_messages
    body: JSON = {"model": request.model, "messages": shaped(items, request.instructions, dialect, backend)}
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    _add_options(body, request, dialect)
    if request.text_format is not None and (wanted := _response_format(request.text_format)) is not None:
        body["response_format"] = wanted
    if tools := request.tools:  # without any, servers refuse the two fields that say how to use them
        body["tools"] = tools.encoded(_tool) if isinstance(tools, ToolDefinitions) else [*map(_tool, tools)]
        if request.tool_choice is not None:
            body["tool_choice"] = _tool_choice(request.tool_choice, tools, dialect)
        if request.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.parallel_tool_calls
    return with_extra(body, extra, request.extra) if extra or request.extra else body


def _add_options(body: JSON, request: ModelRequest, dialect: ChatDialect) -> None:
    # One by one: to get them by their names takes several times as long.
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.top_p is not None:
        body["top_p"] = request.top_p
    if request.presence_penalty is not None:
        body["presence_penalty"] = request.presence_penalty
    if request.frequency_penalty is not None:
        body["frequency_penalty"] = request.frequency_penalty
    if request.verbosity is not None:
        body["verbosity"] = request.verbosity
    if request.user is not None:
        body["user"] = request.user
    if request.service_tier is not None:
        body["service_tier"] = request.service_tier
    if request.prompt_cache_key is not None:
        body["prompt_cache_key"] = request.prompt_cache_key
    if request.max_output_tokens is not None:
        body[dialect.limit_field] = request.max_output_tokens
    if request.effort is not None:
        body["reasoning_effort"] = request.effort
    if request.top_logprobs is not None:
        body["logprobs"] = True
        body["top_logprobs"] = request.top_logprobs


def _tool(tool: JSON) -> JSON:
    function: JSON = {"name": tool["name"]}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    function["parameters"] = tool.get("parameters") or {"type": "object", "properties": {}}
    if tool.get("strict"):  # to say that it is not would say nothing, a thousand times if there are so many
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _tool_choice(choice: str | JSON, tools: Sequence[JSON], dialect: ChatDialect) -> str | JSON:
    """Return the choice; that of the only function there is as `required`, which more servers heed than a name."""
    if isinstance(choice, str):
        return choice
    name = choice.get("name")
    if choice.get("type") != "function" or not isinstance(name, str):
        raise BadRequestError("The tool choice names no function.", param="tool_choice", code="invalid_value")
    if not dialect.named_choice and len(tools) == 1:
        return "required"
    return {"type": "function", "function": {"name": name}}


def _response_format(text_format: JSON) -> JSON | None:
    kind = text_format.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    if kind == "json_schema":
        fields = {key: text_format.get(key) for key in ("name", "description", "schema", "strict")}
        return {
            "type": "json_schema",
            "json_schema": {key: value for key, value in fields.items() if value is not None},
        }
    raise BadRequestError(f"The text format '{kind}' is not known.", param="text.format", code="invalid_value")


def _window_messages(window: Sequence[JSON], instructions: str | None, dialect: ChatDialect, backend: str) -> list[Any]:
    """Return the messages of a window, what its passage says in one element."""

    def shaped(items: Sequence[JSON]) -> list[JSON]:
        return chat_messages(items, None, dialect, backend)

    return chat_messages((), instructions, dialect, backend) + shaped_items(window, dialect, shaped)


# --- messages --------------------------------------------------------------------------------------------------------


def chat_messages(items: Sequence[JSON], instructions: str | None, dialect: ChatDialect, backend: str) -> list[JSON]:
    """Return the messages of a conversation; content the backend cannot take is a BadRequestError.

    - Instructions come first, as a system message. The role `developer` becomes `system` unless the dialect keeps it.
    - Text and function calls of the assistant that follow each other become one message, with the calls in parallel:
      servers refuse one message per call. The outputs of its calls follow at once, in the order of the calls, wherever
      they stand.
    - Outputs are text for the model. Images and PDF files in them follow in a message of the user, after all outputs of
      the turn, because tool messages of most servers hold text only.
    - Thoughts go back as `reasoning_content` of the message they led to, and only if it has calls: servers that think
      between calls want them there, and none wants them elsewhere.
    - Calls of tools of the client, and their outputs, are those of the functions that stand for the tools.
    - Items that only mean something to us (hosted calls, references, compactions) are left out.
    """
    messages: list[JSON] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    assistant: _Assistant | None = None
    for item in items:
        kind = item.get("type") or "message"
        if kind == "message" and (role := item.get("role")) != "assistant":
            if assistant is not None:
                assistant.end_message()
            content = chat_content(item.get("content"), dialect, backend)
            messages.append({"role": role if role == "user" else _role(role, dialect), "content": content})
        else:
            if assistant is None:
                assistant = _Assistant(messages, dialect, backend)
            assistant.add(kind, item)
    return messages if assistant is None else assistant.end()


def _role(role: Any, dialect: ChatDialect) -> str:
    if role == "developer":
        return dialect.developer_role
    if role != "system":
        raise BadRequestError(f"Messages cannot have the role '{role}'.", param="input", code="invalid_value")
    return "system"


class _Assistant:
    """Adds to messages what the assistant has said and got; its last message stays open while more belongs to it."""

    def __init__(self, messages: list[JSON], dialect: ChatDialect, backend: str) -> None:
        self._messages = messages
        self._dialect = dialect
        self._backend = backend
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[JSON] = []
        self._unanswered: dict[Any, list[tuple[str, JSON]]] = {}
        """Functions and the tool messages that await their outputs, by call id: some servers count anew each turn."""
        self._attachments: dict[int, list[JSON]] = {}
        """What tool messages cannot hold of their outputs, by their identity."""

    def add(self, kind: str, item: JSON) -> None:
        """Take an item of a kind that is not a message of somebody else."""
        if kind in CALLS:
            is_plain = kind == "function_call" and "namespace" not in item
            self._calls.append(_call(item if is_plain else as_function(item)))
        elif kind in OUTPUTS:
            self.end_message()
            self._add_output(item if kind == "function_call_output" else as_function(item))
        elif kind == "message":
            self._texts.append(text_of(item.get("content")))
        elif kind == "reasoning":
            self._thoughts.append(_thoughts(item))

    def end_message(self) -> None:
        """Write the message that is open, if one is, with room for the outputs of its calls."""
        calls, texts, thoughts, messages = self._calls, self._texts, self._thoughts, self._messages
        text = "\n\n".join(filter(None, texts)) if texts else ""
        if calls:
            message: JSON = {"role": "assistant", "content": text or None, "tool_calls": calls}
            if thoughts and self._dialect.reasoning and (thought := "".join(thoughts)):
                message["reasoning_content"] = thought
            messages.append(message)
            for call in calls:
                call_id = call["id"]
                result = {"role": "tool", "tool_call_id": call_id, "content": None}
                messages.append(result)
                self._unanswered.setdefault(call_id, []).append((call["function"]["name"], result))
            self._calls = []
        elif texts:
            messages.append({"role": "assistant", "content": text})
        if texts or thoughts:
            self._texts, self._thoughts = [], []

    def end(self) -> list[JSON]:
        """Return all messages: nothing follows."""
        self.end_message()
        return self._settled() if self._attachments or any(self._unanswered.values()) else self._messages

    def _add_output(self, item: JSON) -> None:
        """Write an output to the first call of its id that has none."""
        call_id, output = item.get("call_id"), item.get("output")
        results = self._unanswered.get(call_id)
        if not results:
            raise no_call(call_id)
        name, result = results.pop(0)
        result["content"] = output if isinstance(output, str) else self._text_beside(result, output, name)

    def _text_beside(self, result: JSON, output: Any, name: str) -> str:
        """Return the text of a function's output, and put the rest to the attachments."""
        parts = chat_parts(output, self._dialect, self._backend)
        others = [part for part in parts if not is_text(part)]
        text = "\n".join(part["text"] for part in parts if is_text(part))
        if not others:
            return text
        self._attachments[id(result)] = [{"type": "text", "text": f"Output of {name}:"}, *others]
        note = f"(attached to the next message as output of {name})"
        return f"{text}\n{note}" if text else note

    def _settled(self) -> list[JSON]:
        """Return messages without those for outputs that never came, and attachments behind all outputs of a turn."""
        settled: list[JSON] = []
        for are_results, group in groupby(self._messages, _is_result):
            kept = [message for message in group if not are_results or message["content"] is not None]
            settled += kept
            if attachments := [part for message in kept for part in self._attachments.get(id(message), ())]:
                settled.append({"role": "user", "content": attachments})
        return settled


def _is_result(message: JSON) -> bool:
    return bool(message["role"] == "tool")


def _call(item: JSON) -> JSON:
    function = {"name": item.get("name"), "arguments": json_arguments(item.get("arguments"))}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _thoughts(item: JSON) -> str:
    thoughts = text_of(item.get("content"))
    if thoughts or item.get("encrypted_content"):  # what is still sealed is another server's, and so is its summary
        return thoughts
    return text_of(item.get("summary"))


# --- content ---------------------------------------------------------------------------------------------------------

Content = str | list[JSON]

_PLAIN = ("input_text", "output_text", "text")
_LOOK = 64 * 1024
_LONGEST_CHARACTER = 4
_BLANKS = " \n\r\t\f\v"
_FILE_HINT = "send its content as `file_data`"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def chat_content(content: Any, dialect: ChatDialect, backend: str) -> Content:
    """Return a message's content; a single text as a plain string, which every server takes."""
    if isinstance(content, list) and len(content) == 1:
        part = content[0]
        text = part.get("text") if isinstance(part, dict) and part.get("type") in _PLAIN else None
        if isinstance(text, str):  # as nearly all are
            return text
    elif isinstance(content, str):
        return content
    parts = chat_parts(content, dialect, backend)
    if not parts:
        return ""
    return str(parts[0]["text"]) if len(parts) == 1 and is_text(parts[0]) else parts


def chat_parts(content: Any, dialect: ChatDialect, backend: str) -> list[JSON]:
    """Return content as parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [_text(content)] if content else []
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise BadRequestError("The content of a message must be a string or a list of parts.", param="input")
    return [_part(part, dialect, backend) for part in content]


def is_text(part: JSON) -> bool:
    """Tell whether a Chat Completions part is text."""
    return part.get("type") == "text"


def _part(part: JSON, dialect: ChatDialect, backend: str) -> JSON:
    kind = part.get("type")
    if kind == "input_image":
        return _image(part)
    if kind == "input_file":
        return _file(part, dialect, backend)
    text = part.get("refusal") if kind == "refusal" else part.get("text")
    if isinstance(text, str):
        return _text(text)
    raise no_content(backend, kind)


def _text(text: str) -> JSON:
    return {"type": "text", "text": text}


def _image(part: JSON) -> JSON:
    url = part.get("image_url")
    if not isinstance(url, str) or not url:
        by_id = part.get("file_id") is not None
        reason = "Images cannot be named by `file_id` yet" if by_id else "The image has no `image_url`"
        raise BadRequestError(
            f"{reason}; send it as `image_url`, a URL or data URL.", param="input", code="unsupported_image"
        )
    image: JSON = {"url": url}
    if part.get("detail") is not None:
        image["detail"] = part["detail"]
    return {"type": "image_url", "image_url": image}


def _file(part: JSON, dialect: ChatDialect, backend: str) -> JSON:
    name = part.get("filename") or "file"
    data = part.get("file_data")
    if not isinstance(data, str) or not data:
        named_by = next((key for key in ("file_id", "file_url") if part.get(key) is not None), None)
        reason = f"Files cannot be named by `{named_by}` yet" if named_by else "The file has no `file_data`"
        raise _refused(f"{reason}; {_FILE_HINT}.")
    raw = decoded_file(data, name)
    if raw.startswith(b"%PDF-"):
        if not dialect.pdf:
            raise _refused(
                f"The backend '{backend}' takes no PDF files, and '{name}' is one; send its text instead. "
                f"(If the model server does read PDF, set backends.{backend}.pdf.)"
            )
        encoded = data if data.startswith("data:") else f"data:application/pdf;base64,{data}"
        return {"type": "file", "file": {"filename": name, "file_data": encoded}}
    return _text(attached(file_text(raw, name), name))


def decoded_file(data: str, name: str) -> bytes:
    """Return the bytes of a data URL or of bare base64."""
    head, comma, body = data.partition(",") if data.startswith("data:") else ("", "", data)
    if comma and not head.endswith(";base64"):
        return unquote_to_bytes(body)
    if any(blank in body for blank in _BLANKS):  # as hardly ever, and to look for them takes as long as the rest
        body = "".join(body.split())
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise _refused(f"The `file_data` of '{name}' is not base64.") from None


def file_text(raw: bytes, name: str) -> str:
    """Return the text of a file."""
    text = _text_in(raw)
    if text is None:
        raise _refused(
            f"The file '{name}' is not text; only text files and, where the model takes them, PDF can be read."
        )
    return text


def is_text_file(raw: bytes) -> bool:
    """Tell whether `file_text` can read a file."""
    return _text_in(raw) is not None


def begins_as_text(raw: bytes) -> bool:
    """Tell whether a file begins like one that `file_text` can read, at a look."""
    head = raw[:_LOOK]
    # The last character may be cut in two.
    return any(_text_in(head[: len(head) - cut]) is not None for cut in range(_LONGEST_CHARACTER))


def _text_in(raw: bytes) -> str | None:
    # The bytes say more reliably than names and media types whether a file is text.
    try:
        text = raw.decode("utf-16" if raw.startswith(_UTF16) else "utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _refused(message: str) -> BadRequestError:
    return BadRequestError(message, param="input", code="unsupported_file")
