"""A model turn as the body of a request for a message: only what was asked for, and marks where it can be cached."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw, Struct

from antwort.backends.base import EncodedTools, ModelRequest, ToolDefinitions
from antwort.backends.chat.request import decoded_file, file_text
from antwort.backends.dialects import json_arguments, no_call, no_content, text_of, with_extra
from antwort.backends.messages.thinking import AnthropicSettings, Measure, ModelTraits, measure_of
from antwort.backends.passages import Window, shaped_items
from antwort.errors import BadRequestError
from antwort.text.foreign_text import attached
from antwort.types import JSON
from antwort.wire.client_tools import CALLS, OUTPUTS, as_function

_INSTRUCTING = frozenset({"system", "developer"})
_JSON_ONLY = "Answer with nothing but a JSON object."
"""What a model is told that is to answer in JSON of any kind: there is no field for it."""
_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_GOES_ON = "[The conversation goes on.]"
"""What stands for a message of the user where there has to be one."""


class MessagesShape(Struct, frozen=True):
    """How one backend asks."""

    backend: str
    settings: AnthropicSettings

    @property
    def mark(self) -> JSON | None:
        """What marks the end of what is to be cached; None if nothing is."""
        return _MARKS[self.settings.cache]


def messages_body(request: ModelRequest, shape: MessagesShape, traits: ModelTraits, extra: JSON) -> JSON:
    """Return the body. Fields of `extra`, then of the request's own, replace ours; null leaves a field out."""
    body, measure = _read(request, shape, traits)
    body["max_tokens"] = measure.max_tokens
    if request.stream:
        body["stream"] = True
    temperature, top_p = measure.temperature(request.temperature), measure.top_p(request.top_p)
    if temperature is not None:
        body["temperature"] = temperature
    if top_p is not None:
        body["top_p"] = top_p
    if request.user is not None:
        body["metadata"] = {"user_id": request.user}
    if request.service_tier in {"auto", "default"}:
        body["service_tier"] = "auto" if request.service_tier == "auto" else "standard_only"
    if shape.mark is not None:
        _mark(body, shape.mark)
    if extra or request.extra:
        body = with_extra(body, extra, request.extra)
        if measure.thinks:
            body.pop("top_k", None)  # as the temperature, which nobody can choose who thinks
    return body


def count_body(request: ModelRequest, shape: MessagesShape, traits: ModelTraits) -> JSON:
    """Return the body of a request to count the input tokens."""
    return _read(request, shape, traits)[0]


def _read(request: ModelRequest, shape: MessagesShape, traits: ModelTraits) -> tuple[JSON, Measure]:
    """Return what a model reads, or is told about how to answer, and how much it may think and write."""
    wanted = request.text_format or {}
    messages = _messages(request.items, shape.backend)
    system = [request.instructions or "", *_instructions(request.items)]
    if not messages and system[1:]:  # then it is they that are to be answered
        messages = [_said("user", system[1:])]
        system = system[:1]
    if wanted.get("type") == "json_object":
        system.append(_JSON_ONLY)
    body: JSON = {"model": request.model, "messages": _begun_by_user(messages)}
    if blocks := [_text(text) for text in system if text.strip()]:
        body["system"] = blocks
    _add_tools(body, request, shape)
    forced = body.get("tool_choice", {}).get("type") in {"any", "tool"}
    measure = measure_of(
        request, shape.settings, traits, may_think=not forced, bare_calls=_are_called_without_thoughts(messages)
    )
    if measure.thinking is not None:
        body["thinking"] = measure.thinking
    config: JSON = {} if measure.effort is None else {"effort": measure.effort}
    if wanted.get("type") == "json_schema":
        config["format"] = {"type": "json_schema", "schema": wanted.get("schema") or {}}
    if config:
        body["output_config"] = config
    return body, measure


# --- tools ------------------------------------------------------------------------------------------------------------


def _add_tools(body: JSON, request: ModelRequest, shape: MessagesShape) -> None:
    tools, choice = request.tools, request.tool_choice
    if not tools:
        # Calls in the history need a definition, or the whole is refused.
        names = {as_function(item).get("name"): None for item in request.items if item.get("type") in CALLS}
        if names:
            body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
            body["tool_choice"] = {"type": "none"}
        return
    if not isinstance(tools, ToolDefinitions):
        body["tools"] = [*map(_tool, tools)]
        if shape.mark is not None:
            body["tools"][-1]["cache_control"] = shape.mark
    else:
        marked = _MARKED_TOOLS.get(shape.settings.cache)
        body["tools"] = tools.encoded(_tool) if marked is None else tools.made(marked)
    if choice is not None or request.parallel_tool_calls is False:
        found = _tool_choice("auto" if choice is None else choice)
        if request.parallel_tool_calls is False and found["type"] != "none":
            found["disable_parallel_tool_use"] = True
        body["tool_choice"] = found


def _tool(tool: JSON) -> JSON:
    shaped: JSON = {"name": tool["name"]}
    if tool.get("description"):
        shaped["description"] = tool["description"]
    schema = tool.get("parameters") or {"type": "object", "properties": {}}
    shaped["input_schema"] = schema if schema.get("type") == "object" else {**schema, "type": "object"}
    if tool.get("strict"):
        shaped["strict"] = True
    return shaped


def _marked_tools(mark: JSON, tools: ToolDefinitions) -> EncodedTools:
    """Return tools as JSON, the last of them marked."""
    *parts, last = tools.encoded(_tool)
    marked = b'%s,"cache_control":%s}' % (bytes(last)[:-1], msgspec.json.encode(mark))
    return EncodedTools([*parts, Raw(marked)])


_MARKS: Mapping[str, JSON | None] = MappingProxyType(
    {"off": None, "5m": {"type": "ephemeral"}, "1h": {"type": "ephemeral", "ttl": "1h"}}
)
_MARKED_TOOLS: Mapping[str, Callable[[ToolDefinitions], EncodedTools]] = MappingProxyType(
    {name: partial(_marked_tools, mark) for name, mark in _MARKS.items() if mark is not None}
)


_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


def _tool_choice(choice: str | JSON) -> JSON:
    if isinstance(choice, str):
        return {"type": _CHOICES.get(choice, "auto")}
    if choice.get("type") != "function" or not isinstance(choice.get("name"), str):
        raise BadRequestError("The tool choice names no function.", param="tool_choice", code="invalid_value")
    return {"type": "tool", "name": choice["name"]}


# --- marks ------------------------------------------------------------------------------------------------------------


_MOST_TURNS = 2
"""Turns of the user that are marked, the last ones: what is looked up from a mark ends some blocks before it, and one
turn may have more. With the tools and the system these are the four marks that Anthropic takes."""
_UNMARKED = frozenset({"thinking", "redacted_thinking"})


def _mark(body: JSON, mark: JSON) -> None:
    """Mark what is the same in the next request: up to the system, and up to the last turns of the user."""
    if system := body.get("system"):
        system[-1]["cache_control"] = mark
    left = _MOST_TURNS
    for message in reversed(body["messages"]):
        if left == 0 or isinstance(message, Raw):
            return
        if message["role"] == "user":
            message["content"][-1]["cache_control"] = mark
            left -= 1


# --- messages ---------------------------------------------------------------------------------------------------------


def _messages(items: Sequence[JSON], backend: str) -> list[Any]:
    """Return the messages of a conversation; what a window's passage says in one element, if nothing runs over it."""

    def shaped(part: Sequence[JSON]) -> list[JSON]:
        conversation = _Conversation(backend)
        for item in part:
            conversation.add(item)
        return conversation.ended()

    if isinstance(items, Window) and _have_own_ids(items):
        messages = shaped_items(items, _messages, shaped)
        if _alternate(messages):
            return _trimmed(messages)
    return _trimmed(shaped(items))


def _have_own_ids(items: Sequence[JSON]) -> bool:
    """Tell whether no two calls have the same id, as hardly ever: those of a passage cannot be told from others."""
    ids = [_plain_id(item.get("call_id")) for item in items if item.get("type") in CALLS]
    return len(set(ids)) == len(ids)


def _plain_id(call_id: Any) -> str:
    """Return the id of a call in the few characters that Anthropic takes."""
    return _ODD.sub("_", str(call_id)) or "call"


def _said(role: str, texts: Sequence[str]) -> JSON:
    return {"role": role, "content": [_text(text) for text in texts if text.strip()] or [_text(_GOES_ON)]}


def _alternate(messages: Sequence[Any]) -> bool:
    """Tell whether an encoded passage fits what is behind it, and into itself: it may have been made in parts.

    How messages are written tells who speaks: only those of the assistant end with their role. No text can look like
    the end of one, for it has its quotation marks escaped.
    """
    passage = bytes(messages[0])
    is_closed = passage.startswith(b'{"role":"user"') and passage.endswith(b'"role":"assistant"}')
    if not is_closed or b']},{"role":"user"' in passage or b'"role":"assistant"},{"content"' in passage:
        return False
    return len(messages) == 1 or messages[1]["role"] == "user"


def _trimmed(messages: list[Any]) -> list[Any]:
    """Leave out blanks at the end of what the assistant has begun to say: Anthropic refuses them."""
    last = messages[-1] if messages else None
    if isinstance(last, dict) and last["role"] == "assistant" and last["content"][-1]["type"] == "text":
        last["content"][-1]["text"] = last["content"][-1]["text"].rstrip()
    return messages


def _begun_by_user(messages: list[Any]) -> list[Any]:
    """Return messages of which the first is the user's, as it has to be."""
    if messages and (isinstance(messages[0], Raw) or messages[0]["role"] == "user"):
        return messages
    return [_said("user", ()), *messages]


def _are_called_without_thoughts(messages: Sequence[Any]) -> bool:
    """Tell whether the last thing is results of calls that the model has made without thoughts."""
    if len(messages) < 2 or isinstance(messages[-2], Raw):
        return False
    asked, answered = messages[-2:]
    if answered["role"] != "user" or answered["content"][0]["type"] != "tool_result":
        return False
    return asked["content"][0]["type"] not in _UNMARKED


def _instructions(items: Sequence[JSON]) -> list[str]:
    """Return what messages of the system say, which stands before everything else wherever they are."""
    return [
        _only_text(item.get("content"))
        for item in items
        if item.get("role") in _INSTRUCTING and (item.get("type") or "message") == "message"
    ]


def _only_text(content: Any) -> str:
    if isinstance(content, list) and any(isinstance(part, dict) and "text" not in part for part in content):
        raise BadRequestError(
            "Messages of the roles 'system' and 'developer' can have nothing but text for this model.",
            param="input",
            code="unsupported_content",
        )
    return text_of(content)


class _Conversation:
    """Makes messages of items: of the user and the assistant in turn, results right behind their calls.

    - What follows each other is one message, and an empty text is none. Each message has something to say.
    - All calls of a message are answered in the next one, first of all, wherever their outputs stand.
    - Thoughts go back as they came, if they have the form in which such a server gave them. None end a message.
    - Calls of tools of the client, and their outputs, are those of the functions that stand for the tools.
    - Items that only mean something to us (hosted calls, references, compactions) are left out.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._messages: list[JSON] = []
        self._awaited: list[JSON] = []
        """Results of the calls in the message that is open."""
        self._unanswered: dict[Any, list[JSON]] = {}
        """Results that have no content yet, by the ids of their calls."""
        self._ids: dict[str, int] = {}
        """Ids that calls have, and the last number that was put behind each."""

    def add(self, item: JSON) -> None:
        """Take an item."""
        kind = item.get("type") or "message"
        if kind == "message":
            self._add_message(item)
        elif kind in CALLS:
            is_plain = kind == "function_call" and "namespace" not in item
            self._add_call(item if is_plain else as_function(item))
        elif kind in OUTPUTS:
            self._add_output(item if kind == "function_call_output" else as_function(item))
        elif kind == "reasoning":
            block = thoughts_block(item.get("encrypted_content"))
            if block is not None:
                self._content("assistant").append(block)

    def ended(self) -> list[JSON]:
        """Return the messages. A call that was never answered has a result that says so."""
        self._end_assistant()
        for results in self._unanswered.values():
            for result in results:
                result["content"], result["is_error"] = "[There is no result.]", True
        return self._messages

    def _add_message(self, item: JSON) -> None:
        role, content = item.get("role"), item.get("content")
        if role == "assistant":
            text = text_of(content)
            if text.strip():
                self._content("assistant").append(_text(text))
        elif role == "user":
            blocks = content_blocks(content, self._backend)
            if blocks:
                self._content("user").extend(blocks)
        elif role not in _INSTRUCTING:
            raise BadRequestError(f"Messages cannot have the role '{role}'.", param="input", code="invalid_value")

    def _add_call(self, call: JSON) -> None:
        call_id = call.get("call_id")
        own_id = self._own_id(_plain_id(call_id))
        arguments = Raw(json_arguments(call.get("arguments")).encode("utf-8", "replace"))
        use = {"type": "tool_use", "id": own_id, "name": call.get("name"), "input": arguments}
        self._content("assistant").append(use)
        result: JSON = {"type": "tool_result", "tool_use_id": own_id}
        self._awaited.append(result)
        self._unanswered.setdefault(call_id, []).append(result)

    def _add_output(self, item: JSON) -> None:
        """Write an output to the first call of its id that has none."""
        call_id = item.get("call_id")
        results = self._unanswered.get(call_id)
        if not results:
            raise no_call(call_id)
        self._end_assistant()
        blocks = content_blocks(item.get("output"), self._backend)
        result = results.pop(0)
        if len(blocks) == 1 and blocks[0]["type"] == "text":
            result["content"] = blocks[0]["text"]
        elif blocks:
            result["content"] = blocks

    def _content(self, role: str) -> list[JSON]:
        """Return the content of the message of a role that is open; what is put there must not be empty."""
        if role == "user":
            self._end_assistant()
        messages = self._messages
        if not messages or messages[-1]["role"] != role:
            content: list[JSON] = []
            # The order of the fields tells `_alternate` who speaks.
            message: JSON = {"role": role, "content": content} if role == "user" else {"content": content, "role": role}
            messages.append(message)
        found: list[JSON] = messages[-1]["content"]
        return found

    def _end_assistant(self) -> None:
        """End the message of the assistant that is open, if one is, with room for the results of its calls."""
        messages = self._messages
        if not messages or messages[-1]["role"] != "assistant":
            return
        content = messages[-1]["content"]
        while content and content[-1]["type"] in _UNMARKED:
            content.pop()
        if not content:
            messages.pop()
        elif self._awaited:
            messages.append({"role": "user", "content": self._awaited})
            self._awaited = []

    def _own_id(self, call_id: str) -> str:
        """Return an id that no other call has."""
        number = self._ids.get(call_id, 0) + 1
        found = call_id if number == 1 else f"{call_id}_{number}"
        while found in self._ids:
            number += 1
            found = f"{call_id}_{number}"
        self._ids[call_id] = number
        self._ids.setdefault(found, 1)
        return found


# --- thoughts ---------------------------------------------------------------------------------------------------------


class SignedThoughts(Struct, tag="thinking", tag_field="type", forbid_unknown_fields=True):
    """Thoughts as they go back: as they were read, with their signature."""

    thinking: str
    signature: str


class HiddenThoughts(Struct, tag="redacted_thinking", tag_field="type", forbid_unknown_fields=True):
    """Thoughts that only their server reads."""

    data: str


_decode_thoughts = msgspec.json.Decoder(SignedThoughts | HiddenThoughts).decode


def sealed_thoughts(thoughts: SignedThoughts | HiddenThoughts) -> str:
    """Return thoughts as one text, from which `thoughts_block` makes their block again."""
    return msgspec.json.encode(thoughts).decode()


def thoughts_block(sealed: Any) -> JSON | None:
    """Return the block of thoughts; None for those of another server, which nobody here could read."""
    if not isinstance(sealed, str):
        return None
    try:
        found: JSON = msgspec.to_builtins(_decode_thoughts(sealed))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return found


# --- content ----------------------------------------------------------------------------------------------------------


_SIGNS = {"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""How images begin in base64: what they say of themselves is not always right, and Anthropic looks."""


def content_blocks(content: Any, backend: str) -> list[JSON]:
    """Return content as blocks; what a message cannot have is a BadRequestError. Empty texts are left out."""
    if content is None or isinstance(content, str):
        return [_text(content)] if content and content.strip() else []
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise BadRequestError("The content of a message must be a string or a list of parts.", param="input")
    blocks = (_block(part, backend) for part in content)
    return [block for block in blocks if block is not None]


def _text(text: str) -> JSON:
    return {"type": "text", "text": text}


def _block(part: JSON, backend: str) -> JSON | None:
    kind = part.get("type")
    if kind == "input_image":
        return _image(part)
    if kind == "input_file":
        return _document(part)
    text = part.get("refusal") if kind == "refusal" else part.get("text")
    if isinstance(text, str):
        return _text(text) if text.strip() else None
    raise no_content(backend, kind)


def _image(part: JSON) -> JSON:
    url = part.get("image_url")
    if not isinstance(url, str) or not url:
        raise _refused_image("The image has no `image_url`; send it as a URL or data URL.")
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    head, _, data = url.partition(",")
    if not head.endswith(";base64"):
        raise _refused_image("The data URL of the image is not in base64.")
    media_type = head[5:].partition(";")[0].lower()
    media_type = next((kind for sign, kind in _SIGNS.items() if data.startswith(sign)), media_type)
    if media_type not in _SIGNS.values():
        raise _refused_image(f"Images are PNG, JPEG, GIF or WebP for this model, not '{media_type}'.")
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _refused_image(message: str) -> BadRequestError:
    return BadRequestError(message, param="input", code="unsupported_image")


def _document(part: JSON) -> JSON:
    name, data, url = part.get("filename") or "file", part.get("file_data"), part.get("file_url")
    if not isinstance(data, str) or not data:
        if isinstance(url, str) and url:
            return {"type": "document", "source": {"type": "url", "url": url}}
        raise BadRequestError("The file has no `file_data`; send its content.", param="input", code="unsupported_file")
    raw = decoded_file(data, name)
    if raw.startswith(b"%PDF-"):
        encoded = base64.b64encode(raw).decode()
        source: JSON = {"type": "base64", "media_type": "application/pdf", "data": encoded}
    else:
        text = file_text(raw, name)
        if not text.strip():  # which is no document to Anthropic
            return _text(attached(text, name))
        source = {"type": "text", "media_type": "text/plain", "data": text}
    return {"type": "document", "source": source, "title": name}
