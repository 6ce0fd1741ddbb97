"""What a request for a message means: the same as one for a response, with where each part of it came from."""

import base64
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from antwort.errors import BadRequestError
from antwort.lazy_imports import compiled_on_use
from antwort.types import JSON
from antwort.wire.field_errors import missing_parameter, read_type, wrong_type
from antwort.wire.messages.answers import THREAD_UNSUPPORTED
from antwort.wire.messages.blocks import (
    Base64Source,
    BlockInput,
    CodeResultInput,
    ContentInput,
    ContentSource,
    DocumentInput,
    FileSource,
    ImageInput,
    McpToolResultInput,
    McpToolUseInput,
    RedactedThinkingInput,
    ResultInput,
    SearchResultInput,
    ServerToolUseInput,
    TextInput,
    TextSource,
    ThinkingInput,
    ToolResultInput,
    ToolUseInput,
    UrlSource,
    WebSearchResultInput,
)
from antwort.wire.messages.client_tools import known_tool
from antwort.wire.messages.requests import (
    AnyToolChoice,
    AutoChoice,
    CountMessages,
    CreateMessage,
    McpServer,
    MessageInput,
    NoChoice,
    ThinkingOff,
    ThinkingOn,
    ToolChoice,
)
from antwort.wire.messages.server_tools import INCLUDED, call_item, code_tool, mcp_tool, search_tool
from antwort.wire.requests import CreateResponse, Effort, ReasoningOptions, TextConfig
from antwort.wire.translated import NO_TOOLS, Reading, SentPlace, Words

Knows = Callable[[str], bool]
"""Tells whether a signature is one of this server."""
_RESULTS = (WebSearchResultInput, CodeResultInput, McpToolResultInput)
_USES = (ServerToolUseInput, McpToolUseInput)
_SAID_BY_USERS = (TextInput, ImageInput, DocumentInput, SearchResultInput, ToolResultInput)
_LITTLE, _SOME = 4096, 16_384
"""Tokens to think with that are little, and not much."""
_TYPE = compiled_on_use(r"(web_search|code_execution|mcp_toolset|custom)(?:_\d{8})?\Z")


_WORDS = Words(
    MappingProxyType(
        {
            "max_output_tokens": "max_tokens",
            "instructions": "system",
            "text": "output_config.format",
            "reasoning": "thinking",
            "user": "metadata.user_id",
            "extra_body.top_k": "top_k",
        }
    ),
    (r"^(tools\[\d+\])\.parameters", r"\1.input_schema"),
    ("'encrypted_content' of a reasoning item", "'signature' of a thinking block"),
)


def read_message(request: CountMessages, knows: Knows) -> Reading:
    """Return what a request means; BadRequestError names the field that means nothing here."""
    only, places = _only_text(request.messages), [_FIRST]
    said: str | list[JSON] = only or ""
    if only is None:
        items = _Items(knows)
        for index, message in enumerate(request.messages):
            items.add(message, f"messages[{index}]")
        said, places = items.items, items.places
    create = CreateResponse(model=request.model, input=said, include=_INCLUDED, instructions=_system(request.system))
    hosted: Mapping[str, str] = NO_TOOLS
    if request.tools is not None:
        create.tools, hosted = _tools(request.tools, request.mcp_servers or ())
        create.include = [*_INCLUDED, *(INCLUDED[kind] for kind in hosted.values() if kind in INCLUDED)]
    if request.tool_choice is not None:
        _choose(request.tool_choice, create, hosted)
    if request.thinking is not None or request.output_config is not None:
        create.reasoning = _reasoning(request)
    create.text = _format(request)
    if isinstance(request, CreateMessage):
        _check_served(request)
        create.max_output_tokens = request.max_tokens
        create.stream, create.store = request.stream, request.store
        create.temperature, create.top_p = request.temperature, request.top_p
        if request.metadata is not None:
            create.user = request.metadata.user_id
    return Reading(create, places, _WORDS, hosted)


_FIRST = SentPlace("messages[0].content")
_INCLUDED = ["reasoning.encrypted_content"]


def _check_served(request: CreateMessage) -> None:
    """Refuse what would change what a request means, and is not served."""
    if request.thread is not None:
        message = "Threads are not kept here: send all messages of the conversation, without 'thread'."
        raise BadRequestError(message, param="thread", code=THREAD_UNSUPPORTED)
    if request.compaction is not None:
        raise BadRequestError("'compaction' is not served.", param="compaction", code="unsupported_parameter")


def _only_text(messages: Sequence[MessageInput]) -> str | None:
    """Return the text of a conversation that is one, as many begin."""
    if len(messages) > 1 or messages[0].role != "user":
        return None
    content = messages[0].content
    if isinstance(content, str):
        return content
    block = content[0] if len(content) == 1 else None
    return block.text if isinstance(block, TextInput) else None


def _system(system: str | list[TextInput] | None) -> str | None:
    if system is None or isinstance(system, str):
        return system or None
    return "\n\n".join(block.text for block in system if block.text) or None


# --- how the model is to answer ---------------------------------------------------------------------------------------


def _reasoning(request: CountMessages) -> ReasoningOptions | None:
    """Return how much the model should think: as the request says, else by the tokens that it may think with."""
    thinking, config = request.thinking, request.output_config
    effort: Effort | None = None if config is None else config.effort
    if thinking is None or isinstance(thinking, ThinkingOff):
        return None if effort is None else ReasoningOptions(effort=effort)
    if effort is None and isinstance(thinking, ThinkingOn):
        tokens = thinking.budget_tokens
        effort = "low" if tokens < _LITTLE else "medium" if tokens < _SOME else "high"
    return ReasoningOptions(effort=effort, summary=None if thinking.display == "omitted" else "auto")


def _format(request: CountMessages) -> TextConfig | None:
    config = request.output_config
    wanted = request.output_format if config is None or config.format is None else config.format
    if wanted is None:
        return None
    return TextConfig(format={"type": "json_schema", "name": "answer", "schema": wanted.schema})


def _choose(choice: AnyToolChoice, create: CreateResponse, hosted: Mapping[str, str]) -> None:
    if isinstance(choice, NoChoice):
        create.tool_choice = "none"
        return
    if choice.disable_parallel_tool_use is not None:
        create.parallel_tool_calls = not choice.disable_parallel_tool_use
    if isinstance(choice, ToolChoice):
        kind = hosted.get(choice.name)
        create.tool_choice = {"type": "function", "name": choice.name} if kind is None else {"type": kind}
    else:
        create.tool_choice = "auto" if isinstance(choice, AutoChoice) else "required"


def _tools(given: Sequence[JSON], mcp_servers: Sequence[McpServer]) -> tuple[list[JSON], Mapping[str, str]]:
    """Return the tools, and the types of those that the server executes by their names."""
    servers = {server.name: server for server in mcp_servers}
    tools: list[JSON] = []
    hosted: dict[str, str] = {}
    for index, tool in enumerate(given):
        param = f"tools[{index}]"
        kind = "custom" if tool.get("type") is None else read_type(tool, param)
        found = _TYPE.match(kind)
        if found is None:
            tools.append(known_tool(tool, kind, param))
        elif found[1] == "custom":
            tools.append(_custom(tool, param))
        elif found[1] == "mcp_toolset":
            tools.append(mcp_tool(tool, servers, param))
        else:
            tools.append(search_tool(tool) if found[1] == "web_search" else code_tool(tool))
            hosted[found[1]] = tools[-1]["type"]
    return tools, hosted


def _custom(tool: JSON, param: str) -> JSON:
    """Return a tool of the client as a function; without a schema it names one of the server."""
    if "name" not in tool:
        raise missing_parameter(f"{param}.name")
    schema = tool.get("input_schema")
    found: JSON = {"type": "function", "name": tool["name"]}
    if tool.get("description") is not None:
        found["description"] = tool["description"]
    if schema is not None:
        if not isinstance(schema, dict):
            raise wrong_type(f"{param}.input_schema", "an object", schema)
        found["parameters"] = schema
    if tool.get("strict") is not None:
        found["strict"] = tool["strict"]
    return found


# --- what was said ----------------------------------------------------------------------------------------------------


class _Items:
    """Makes items of messages."""

    def __init__(self, knows: Knows) -> None:
        self.items: list[JSON] = []
        self.places: list[SentPlace] = []
        self._knows = knows

    def add(self, message: MessageInput, where: str) -> None:
        """Take a message."""
        content, role = message.content, message.role
        if isinstance(content, str):
            self._put({"type": "message", "role": role, "content": content}, f"{where}.content")
            return
        parts: list[JSON] = []
        results = {block.tool_use_id: block for block in content if isinstance(block, _RESULTS)}
        for index, block in enumerate(content):
            at = f"{where}.content[{index}]"
            _check_role(block, role, at)
            if isinstance(block, TextInput) and role == "assistant":
                self._say(parts, role, [{"type": "output_text", "text": block.text}], at)
            elif isinstance(block, ContentInput):
                self._say(parts, role, _parts(block), at)
            else:
                parts = []
                self._add_other(block, results, at)

    def _say(self, parts: list[JSON], role: str, said: list[JSON], where: str) -> None:
        """Put parts into the message that is open, or begin one."""
        if parts and self.items and self.items[-1].get("content") is parts:
            place = self.places[-1]
        else:
            place = self._put({"type": "message", "role": role, "content": parts}, where)
        parts += said
        place.parts += [where] * len(said)

    def _put(self, item: JSON, where: str) -> SentPlace:
        place = SentPlace(where)
        self.items.append(item)
        self.places.append(place)
        return place

    def _add_other(self, block: BlockInput, results: Mapping[str, ResultInput], where: str) -> None:
        if isinstance(block, ToolUseInput):
            arguments = msgspec.json.encode(block.input).decode()
            self._put({"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments}, where)
        elif isinstance(block, ToolResultInput):
            output, parts = _result(block, where)
            place = self._put({"type": "function_call_output", "call_id": block.tool_use_id, "output": output}, where)
            place.parts += parts
        elif isinstance(block, ThinkingInput):
            self._put(self._thoughts(block.thinking, block.signature), where)
        elif isinstance(block, RedactedThinkingInput):
            self._put(self._thoughts("", block.data), where)
        elif isinstance(block, _USES):
            self._put(call_item(block, results.get(block.id), where), where)

    def _thoughts(self, text: str, signature: str) -> JSON:
        """Return thoughts: those that this server has sealed as they were, others by what they say."""
        item: JSON = {"type": "reasoning", "summary": []}
        if self._knows(signature):
            item["encrypted_content"] = signature
            if text:
                item["summary"] = [{"type": "summary_text", "text": text}]
        elif text:
            item["content"] = [{"type": "reasoning_text", "text": text}]
        return item


def _check_role(block: BlockInput, role: str, where: str) -> None:
    by_user = isinstance(block, _SAID_BY_USERS)
    if isinstance(block, TextInput) or (by_user if role == "user" else role == "assistant" and not by_user):
        return
    kind = type(block).__struct_config__.tag
    raise BadRequestError(
        f"Invalid value for '{where}.type': messages of the role '{role}' have no blocks of the type '{kind}'.",
        param=f"{where}.type",
        code="invalid_value",
    )


def _parts(block: ContentInput) -> list[JSON]:
    """Return what somebody says to the model in a block."""
    if isinstance(block, TextInput):
        return [_text(block.text)]
    if isinstance(block, ImageInput):
        return [_image(block)]
    if isinstance(block, DocumentInput):
        return _document(block)
    texts = "\n".join(part.text for part in block.content)
    return [_text(f"{block.title}\n{block.source}\n{texts}")]


def _text(text: str) -> JSON:
    return {"type": "input_text", "text": text}


def _image(block: ImageInput) -> JSON:
    source = block.source
    if isinstance(source, FileSource):
        return {"type": "input_image", "file_id": source.file_id}
    return {"type": "input_image", "image_url": source.url if isinstance(source, UrlSource) else _data_url(source)}


def _data_url(source: Base64Source) -> str:
    return f"data:{source.media_type};base64,{source.data}"


def _document(block: DocumentInput) -> list[JSON]:
    source = block.source
    about = [] if not block.context else [_text(block.context)]
    if isinstance(source, ContentSource):
        inner = source.content
        said = [_text(inner)] if isinstance(inner, str) else [part for one in inner for part in _parts(one)]
        return [*([_text(block.title)] if block.title else []), *about, *said]
    file: JSON = {"type": "input_file"}
    if isinstance(source, FileSource):
        file["file_id"] = source.file_id
    elif isinstance(source, UrlSource):
        file["file_url"] = source.url
    else:
        file["filename"] = block.title or ("document.txt" if isinstance(source, TextSource) else "document.pdf")
        file["file_data"] = _text_url(source) if isinstance(source, TextSource) else _data_url(source)
    return [*about, file]


def _text_url(source: TextSource) -> str:
    return f"data:text/plain;base64,{base64.b64encode(source.data.encode()).decode()}"


_ERROR = "Error: "
"""What stands before the result of a call that has failed: Chat Completions have no other word for it."""


def _result(block: ToolResultInput, where: str) -> tuple[str | list[JSON], list[str]]:
    """Return what a call has returned, and where each part of it stands."""
    content, mark = block.content, _ERROR if block.is_error else ""
    if content is None or isinstance(content, str):
        return f"{mark}{content or ''}", []
    if all(isinstance(part, TextInput) for part in content):
        return mark + "\n".join(part.text for part in content if isinstance(part, TextInput)), []
    parts: list[JSON] = [_text(mark.rstrip())] if mark else []
    places = [where] * len(parts)
    for index, part in enumerate(content):
        said = _parts(part)
        parts += said
        places += [f"{where}.content[{index}]"] * len(said)
    return parts, places
