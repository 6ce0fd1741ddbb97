"""What requests for chat completions mean as responses."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.chat.requests import (
    OF_SERVERS,
    AssistantMessage,
    ChatImage,
    ChatMessage,
    ChatRefusal,
    ChatSound,
    ChatText,
    ChatToolCall,
    CreateChat,
    FunctionMessage,
    ToolMessage,
    UserMessage,
    UserPart,
)
from antwort.wire.client_tools import CALLS_OF_THEIR_OWN
from antwort.wire.field_errors import (
    UNKNOWN_PARAMETER,
    missing_parameter,
    read_type,
    unknown_parameter,
    unsupported_value,
    wrong_type,
)
from antwort.wire.requests import CreateResponse, ReasoningOptions, TextConfig
from antwort.wire.translated import Reading, SentPlace, Words

_SEARCH = "web_search"
_INCLUDED = "message.output_text.logprobs"
_FIELDS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "function": ("name", "description", "parameters", "strict"),
        "custom": ("name", "description", "format"),
    }
)
"""What is said of tools of clients."""
_NAMED = _FIELDS.keys()
_WITHIN: Mapping[str, Sequence[str]] = MappingProxyType(
    {**_FIELDS, "allowed_tools": ("mode", "tools"), "json_schema": ("name", "description", "schema", "strict")}
)
"""What stands within an object of a type, in a field with its name; in Responses it stands beside the type."""
_WORDS = Words(
    MappingProxyType(
        {
            "max_output_tokens": "max_completion_tokens",
            "text.format.type": "response_format.type",
            **{f"text.format.{name}": f"response_format.json_schema.{name}" for name in _WITHIN["json_schema"]},
            "text.format": "response_format.json_schema",
            "text": "response_format",
            "reasoning": "reasoning_effort",
            "extra_body.seed": "seed",
            "extra_body.logit_bias": "logit_bias",
        }
    ),
    (r"^(tools\[\d+\])\.(name|description|parameters|strict)", r"\1.function.\2"),
)
_UNSERVED = ("audio", "functions", "function_call", "moderation")


def read_chat(chat: CreateChat) -> Reading:
    """Return what a request means; BadRequestError names the field that means nothing here."""
    _check_served(chat)
    only = _only_text(chat.messages)
    said: str | list[JSON] = only or ""
    places: Sequence[SentPlace] = [_FIRST]
    if only is None:
        items = _ChatItems()
        for index, message in enumerate(chat.messages):
            items.add(message, f"messages[{index}]")
        said, places = items.items, items.places
    create = CreateResponse(model=chat.model, input=said, agent=chat.agent, metadata=chat.metadata)
    create.stream, create.store, create.user = chat.stream, bool(chat.store), chat.user
    create.temperature, create.top_p = chat.temperature, chat.top_p
    create.presence_penalty, create.frequency_penalty = chat.presence_penalty, chat.frequency_penalty
    create.max_output_tokens = chat.max_tokens if chat.max_completion_tokens is None else chat.max_completion_tokens
    create.parallel_tool_calls, create.service_tier = chat.parallel_tool_calls, chat.service_tier
    create.safety_identifier, create.prompt_cache_key = chat.safety_identifier, chat.prompt_cache_key
    if chat.tools is not None or chat.web_search_options is not None:
        create.tools = _tools(chat)
    if chat.tool_choice is not None:
        create.tool_choice = _choice(chat.tool_choice)
    _add_wishes(create, chat)
    beyond = {name: value for name in OF_SERVERS if (value := getattr(chat, name)) is not None}
    create.extra_body = {**(chat.extra_body or {}), **beyond} or None
    return Reading(create, places, _words(chat))


def _words(chat: CreateChat) -> Words:
    """Return what chats call the fields of a response: a search may be a tool of its own there."""
    if chat.web_search_options is None:
        return _WORDS
    return replace(_WORDS, names={**_WORDS.names, f"tools[{len(chat.tools or ())}]": "web_search_options"})


def _add_wishes(create: CreateResponse, chat: CreateChat) -> None:
    """Say how the answer is to be."""
    if chat.reasoning_effort is not None:
        create.reasoning = ReasoningOptions(effort=chat.reasoning_effort)
    if chat.response_format is not None or chat.verbosity is not None:
        create.text = TextConfig(format=_format(chat.response_format), verbosity=chat.verbosity)
    if chat.logprobs:
        create.include, create.top_logprobs = [_INCLUDED], chat.top_logprobs


def _check_served(chat: CreateChat) -> None:
    """Refuse what would change what a request means, and is not served."""
    for name in _UNSERVED:
        if getattr(chat, name) is not None:
            cure = " Use 'tools' and 'tool_choice'." if name.startswith("function") else ""
            raise _unsupported(name, f"'{name}' is not served.{cure}")
    if chat.n not in (None, 1):
        raise _unsupported("n", "'n' must be 1: one answer is made. Send the request several times for more.")
    if chat.modalities is not None and chat.modalities != ["text"]:
        raise unsupported_value("modalities", chat.modalities, ["['text']"])
    if chat.top_logprobs is not None and not chat.logprobs:
        raise BadRequestError("'top_logprobs' needs 'logprobs': true.", param="top_logprobs", code="invalid_value")
    if chat.stream_options is not None and not chat.stream:
        raise BadRequestError("'stream_options' is for streams.", param="stream_options", code="invalid_value")


def _unsupported(param: str, message: str) -> BadRequestError:
    return BadRequestError(message, param=param, code="unsupported_parameter")


def stops(chat: CreateChat) -> Sequence[str]:
    """Return the texts at which an answer ends."""
    if chat.stop is None:
        return ()
    return [text for text in ([chat.stop] if isinstance(chat.stop, str) else chat.stop) if text]


# --- messages ---------------------------------------------------------------------------------------------------------


_FIRST = SentPlace("messages[0].content")


def _only_text(messages: Sequence[ChatMessage]) -> str | None:
    """Return the text of a conversation that is one, as many begin."""
    first = messages[0]
    if len(messages) > 1 or not isinstance(first, UserMessage) or not isinstance(first.content, str):
        return None
    return first.content


class _ChatItems:
    """Makes items of messages."""

    def __init__(self) -> None:
        self.items: list[JSON] = []
        self.places: list[SentPlace] = []
        self._custom: set[str] = set()
        """The ids of calls of tools that take a text."""

    def add(self, message: ChatMessage, where: str) -> None:
        """Take a message."""
        if isinstance(message, AssistantMessage):
            self._add_answer(message, where)
        elif isinstance(message, ToolMessage):
            kind = "custom_tool_call_output" if message.tool_call_id in self._custom else "function_call_output"
            output = message.content if isinstance(message.content, str) else [*map(_text, message.content)]
            self._put({"type": kind, "call_id": message.tool_call_id, "output": output}, where)
        elif isinstance(message, FunctionMessage):
            raise _unsupported(f"{where}.role", "The role 'function' is not served. Use 'tool' with 'tool_call_id'.")
        else:
            role = message.__struct_config__.tag
            content = message.content
            if isinstance(content, str):
                self._put({"type": "message", "role": role, "content": content}, f"{where}.content")
                return
            at = [f"{where}.content[{index}]" for index in range(len(content))]
            parts = [_part(part, name) for part, name in zip(content, at, strict=True)]
            self._put({"type": "message", "role": role, "content": parts}, f"{where}.content", at)

    def _add_answer(self, message: AssistantMessage, where: str) -> None:
        if message.function_call is not None:
            raise _unsupported(f"{where}.function_call", "'function_call' is not served. Use 'tool_calls'.")
        if message.reasoning_content:
            thoughts = [{"type": "reasoning_text", "text": message.reasoning_content}]
            self._put({"type": "reasoning", "summary": [], "content": thoughts}, f"{where}.reasoning_content")
        if parts := _answer_parts(message):
            self._put({"type": "message", "role": "assistant", "content": parts}, f"{where}.content")
        for index, call in enumerate(message.tool_calls or ()):
            at = f"{where}.tool_calls[{index}]"
            if isinstance(call, ChatToolCall):
                self._custom.add(call.id)
                made = {"name": call.custom.name, "input": call.custom.input}
                self._put({"type": "custom_tool_call", "call_id": call.id, **made}, at)
            else:
                made = {"name": call.function.name, "arguments": call.function.arguments}
                self._put({"type": "function_call", "call_id": call.id, **made}, at)

    def _put(self, item: JSON, where: str, parts: Sequence[str] = ()) -> None:
        self.items.append(item)
        self.places.append(SentPlace(where, [*parts]))


def _answer_parts(message: AssistantMessage) -> list[JSON]:
    content = [ChatText(message.content)] if isinstance(message.content, str) else message.content or []
    declined = [] if message.refusal is None else [ChatRefusal(message.refusal)]
    return [
        {"type": "output_text", "text": part.text}
        if isinstance(part, ChatText)
        else {"type": "refusal", "refusal": part.refusal}
        for part in [*content, *declined]
    ]


def _text(part: ChatText) -> JSON:
    return {"type": "input_text", "text": part.text}


def _part(part: UserPart, where: str) -> JSON:
    if isinstance(part, ChatText):
        return _text(part)
    if isinstance(part, ChatSound):
        raise _unsupported(f"{where}.type", "Sound is not taken here: send texts, images and files.")
    if isinstance(part, ChatImage):
        image = part.image_url
        found = {"type": "input_image", "image_url": image.url}
        return found if image.detail is None else {**found, "detail": image.detail}
    file = part.file
    given = {"file_id": file.file_id, "file_data": file.file_data, "filename": file.filename}
    return {"type": "input_file", **{name: value for name, value in given.items() if value is not None}}


# --- tools ------------------------------------------------------------------------------------------------------------


_WITHOUT_WORDS = frozenset({*(kind.removesuffix("_call") for kind in CALLS_OF_THEIR_OWN), "namespace", "multi_agent"})
"""Tools of clients whose calls a chat completion has no words for."""


def _tools(chat: CreateChat) -> list[JSON]:
    found = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(chat.tools or ())]
    options = chat.web_search_options
    if options is not None and not any(tool["type"] == _SEARCH for tool in found):
        _check_fields(options, ("search_context_size", "user_location"), "web_search_options")
        location = options.get("user_location")
        if location is not None:
            where = "web_search_options.user_location"
            _check_fields(_object(options, "user_location", "web_search_options"), ("type", "approximate"), where)
            location = {"type": "approximate", **_object(location, "approximate", where)}
        given = {"search_context_size": options.get("search_context_size"), "user_location": location}
        found.append({"type": _SEARCH, **{name: value for name, value in given.items() if value is not None}})
    return found


def _tool(tool: JSON, param: str) -> JSON:
    """Return a tool of the client as Responses have it; those of the server are the same there."""
    kind = read_type(tool, param)
    if kind in _NAMED:
        _check_outer(tool, kind, param)
        return {"type": kind, **_flat(kind, _inner(tool, kind, param), param)}
    if kind in _WITHOUT_WORDS:
        message = f"The tool '{kind}' is not served in chat completions, which have no words for its calls."
        raise _unsupported(f"{param}.type", f"{message} Use /v1/responses.")
    if kind == "mcp" and tool.get("require_approval") != "never":
        message = "MCP tools need 'require_approval': 'never' here, since chat completions cannot ask for approvals."
        raise BadRequestError(message, param=f"{param}.require_approval", code="invalid_value")
    return tool


def _check_fields(value: JSON, known: Collection[str], param: str) -> None:
    """Refuse what is in an object that nobody reads."""
    for name in value:
        if name not in known:
            raise unknown_parameter(f"{param}.{name}", known)


def _check_outer(value: JSON, kind: str, param: str) -> None:
    """Refuse what stands beside the type of an object and that of which the type is, as it does in Responses."""
    for name in value:
        if name in _WITHIN[kind]:
            message = f"Unknown parameter: '{param}.{name}'; this is Chat Completions: use '{param}.{kind}.{name}'."
            raise BadRequestError(message, param=f"{param}.{name}", code=UNKNOWN_PARAMETER)
    _check_fields(value, ("type", kind), param)


def _inner(tool: JSON, kind: str, param: str) -> JSON:
    """Return what a tool, or a choice of one, says below its type."""
    inner = _object(tool, kind, param)
    _check_fields(inner, _FIELDS[kind], f"{param}.{kind}")
    if inner.get("name") is None:
        raise missing_parameter(f"{param}.{kind}.name")
    if not isinstance(inner["name"], str):
        raise wrong_type(f"{param}.{kind}.name", "a string", inner["name"])
    return inner


def _object(value: JSON, name: str, param: str) -> JSON:
    """Return an object that must be there."""
    inner = value.get(name)
    if inner is None:
        raise missing_parameter(f"{param}.{name}")
    if not isinstance(inner, dict):
        raise wrong_type(f"{param}.{name}", "an object", inner)
    return inner


def _flat(kind: str, inner: JSON, param: str) -> JSON:
    """Return what is said of a tool; the grammar of a text stands within its format there."""
    form = inner.get("format")
    if kind != "custom" or not isinstance(form, dict) or "grammar" not in form:
        return {name: value for name, value in inner.items() if value is not None}
    grammar = _object(form, "grammar", f"{param}.custom.format")
    _check_fields(form, ("type", "grammar"), f"{param}.custom.format")
    return {**inner, "format": {"type": form.get("type"), **grammar}}


def _choice(choice: str | JSON, param: str = "tool_choice") -> str | JSON:
    if isinstance(choice, str):
        return choice
    kind = read_type(choice, param)
    if kind in _NAMED:
        _check_outer(choice, kind, param)
        return {"type": kind, "name": _inner(choice, kind, param)["name"]}
    if kind != "allowed_tools":
        return choice
    _check_outer(choice, kind, param)
    among = _object(choice, kind, param)
    _check_fields(among, _WITHIN[kind], f"{param}.{kind}")
    tools = among.get("tools")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise wrong_type(f"{param}.{kind}.tools", "an array of objects", tools)
    named = [_choice(tool, f"{param}.{kind}.tools[{index}]") for index, tool in enumerate(tools)]
    return {"type": kind, "mode": among.get("mode"), "tools": named}


def _format(wanted: JSON | None) -> JSON | None:
    """Return how the text is to be written; a schema and its name stand beside its type there."""
    if wanted is None or wanted.get("type") != "json_schema":
        return wanted
    _check_outer(wanted, "json_schema", "response_format")
    described = _object(wanted, "json_schema", "response_format")
    return {"type": "json_schema", **described}
