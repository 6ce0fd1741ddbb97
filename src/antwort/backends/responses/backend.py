"""A model server that speaks the Responses API."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Self

from typing_extensions import override

from antwort.backends.base import ModelRequest, ToolDefinitions, TurnSink
from antwort.backends.dialects import json_arguments, text_of, with_extra
from antwort.backends.http.remote import Fields, RemoteBackend
from antwort.backends.passages import shaped_items
from antwort.backends.responses.answer import ResponsesAnswer
from antwort.backends.tokens import TokenEndpoint
from antwort.concurrency.large_work import is_large
from antwort.concurrency.slots import Queue
from antwort.config import BackendConfig, Settings
from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.client_tools import as_function

# --- a model turn as a body: only what was asked for, and nothing is stored ------------------------------------------


SEALED_THOUGHTS = "reasoning.encrypted_content"

_SAME_NAME = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "max_output_tokens",
    "top_logprobs",
    "user",
    "service_tier",
    "prompt_cache_key",
)


def responses_body(request: ModelRequest, extra: JSON, *, sealed_thoughts: bool = True) -> JSON:
    """Return the body. Fields of `extra`, then of the request's own, replace ours; null leaves a field out.

    With `sealed_thoughts` the server is asked to give its thoughts in the form in which it takes them back.
    """
    body = _read(request)
    body["store"] = False
    if request.stream:
        body["stream"] = True
    for name in _SAME_NAME:
        value = getattr(request, name)
        if value is not None:
            body[name] = value
    include = []
    if sealed_thoughts and request.effort != "none":
        include.append(SEALED_THOUGHTS)
    if request.top_logprobs is not None:
        include.append("message.output_text.logprobs")
    if include:
        body["include"] = include
    return with_extra(body, extra, request.extra)


def count_body(request: ModelRequest) -> JSON:
    """Return the body of a request to count the input tokens."""
    return _read(request)


def _read(request: ModelRequest) -> JSON:
    """Return what a model reads, or is told about how to answer."""
    body: JSON = {"model": request.model, "input": shaped_items(request.items, responses_input, responses_input)}
    if request.instructions:
        body["instructions"] = request.instructions
    if tools := request.tools:
        body["tools"] = tools.encoded(_tool) if isinstance(tools, ToolDefinitions) else [*map(_tool, tools)]
        if request.tool_choice is not None:
            body["tool_choice"] = _tool_choice(request.tool_choice)
        if request.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.parallel_tool_calls
    text: JSON = {}
    if request.text_format is not None and request.text_format.get("type") != "text":
        text["format"] = request.text_format
    if request.verbosity is not None:
        text["verbosity"] = request.verbosity
    if text:
        body["text"] = text
    reasoning = _reasoning(request)
    if reasoning:
        body["reasoning"] = reasoning
    return body


def _tool(tool: JSON) -> JSON:
    # Left out, `strict` would mean true here, and most schemas are not written for that.
    function: JSON = {"type": "function", "name": tool["name"]}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    function["parameters"] = tool.get("parameters") or {"type": "object", "properties": {}}
    function["strict"] = bool(tool.get("strict"))
    return function


def _tool_choice(choice: str | JSON) -> str | JSON:
    if isinstance(choice, str):
        return choice
    if choice.get("type") != "function" or not isinstance(choice.get("name"), str):
        raise BadRequestError("The tool choice names no function.", param="tool_choice", code="invalid_value")
    return {"type": "function", "name": choice["name"]}


def _reasoning(request: ModelRequest) -> JSON:
    reasoning: JSON = {}
    if request.effort is not None:
        reasoning["effort"] = request.effort
    if request.summary is not None or request.effort not in {None, "none"}:
        reasoning["summary"] = request.summary or "auto"
    return reasoning


_ROLES = frozenset({"user", "system", "developer"})
_FILE_FIELDS = ("filename", "file_data", "file_url", "detail")


def responses_input(items: Sequence[JSON]) -> list[JSON]:
    """Return the items of a conversation; content that cannot be passed on is a BadRequestError.

    - Ids are left out: they are ours, and a server that stores nothing for us cannot know them.
    - What the assistant said is plain text, which every server takes; only its `phase` goes with it.
    - Calls of tools of the client, and their outputs, are those of the functions that stand for the tools.
    - Thoughts go back in the sealed form in which the server gave them; without it they are left out, since servers
      refuse thoughts they did not write.
    - Items that only mean something to us (hosted calls, references, compactions) are left out.
    """
    return list(_items(items))


def _items(items: Sequence[JSON]) -> Iterator[JSON]:
    for given in items:
        item = as_function(given)
        match item.get("type") or "message":
            case "message":
                yield _message(item)
            case "function_call":
                yield {
                    "type": "function_call",
                    "call_id": item.get("call_id"),
                    "name": item.get("name"),
                    "arguments": json_arguments(item.get("arguments")),
                }
            case "function_call_output":
                output = item.get("output")
                yield {
                    "type": "function_call_output",
                    "call_id": item.get("call_id"),
                    "output": "" if output is None else _content(output),
                }
            case "reasoning" if _is_sealed(item.get("encrypted_content")):
                yield {
                    "type": "reasoning",
                    "summary": item.get("summary") or [],
                    "encrypted_content": item["encrypted_content"],
                }


def _is_sealed(content: Any) -> bool:
    """Tell whether thoughts may be such a server's: those of Messages, which a fallback may have had, are JSON."""
    return isinstance(content, str) and bool(content) and not content.startswith("{")


def _message(item: JSON) -> JSON:
    role = item.get("role")
    message: JSON = {"type": "message", "role": role}
    if role == "assistant":
        message["content"] = text_of(item.get("content"))
        if item.get("phase") is not None:
            message["phase"] = item["phase"]
        return message
    if role not in _ROLES:
        raise BadRequestError(f"Messages cannot have the role '{role}'.", param="input", code="invalid_value")
    message["content"] = _content(item.get("content") or "")
    return message


def _content(content: Any) -> str | list[JSON]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise BadRequestError("The content of a message must be a string or a list of parts.", param="input")
    return [_part(part) for part in content]


def _part(part: JSON) -> JSON:
    kind = part.get("type")
    if kind in {"input_image", "input_file"}:
        _check_reference(part)
    if kind == "input_image":
        return {"type": kind, "image_url": part.get("image_url"), "detail": part.get("detail") or "auto"}
    if kind == "input_file":
        return {"type": kind, **{name: part[name] for name in _FILE_FIELDS if part.get(name) is not None}}
    text = part.get("refusal") if kind == "refusal" else part.get("text")
    if isinstance(text, str):
        return {"type": "input_text", "text": text}
    raise BadRequestError(
        f"Content of the type '{kind}' cannot be given to the model.", param="input", code="unsupported_content"
    )


def _check_reference(part: JSON) -> None:
    fields, what = (("image_url",), "image") if part["type"] == "input_image" else (("file_data", "file_url"), "file")
    if any(isinstance(part.get(name), str) and part[name] for name in fields):
        return
    names = " or ".join(f"`{name}`" for name in fields)
    by_id = part.get("file_id") is not None
    reason = f"{what.capitalize()}s cannot be named by `file_id` yet" if by_id else f"The {what} has no {names}"
    raise BadRequestError(f"{reason}; send it as {names}.", param="input", code=f"unsupported_{what}")


# --- the backend -----------------------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)


class ResponsesBackend(RemoteBackend):
    """One server that speaks the Responses API. It is asked to store nothing: what is kept, we keep."""

    reads_any_file = True

    def __init__(self, name: str, config: BackendConfig, queue: Queue | None = None) -> None:
        super().__init__(name, config, "/responses", queue)
        self._extra = config.extra_body
        self._tokens = TokenEndpoint(name, self.transport)
        self._unsealed: set[str] = set()
        """Models that were refused sealed thoughts: they have none."""

    @classmethod
    def of(cls, settings: Settings, name: str, config: BackendConfig, queue: Queue | None) -> Self:  # noqa: ARG003
        """Make it; all its settings are those of the backend."""
        return cls(name, config, queue)

    @override
    def body(self, request: ModelRequest) -> JSON:
        return responses_body(request, self._extra, sealed_thoughts=request.model not in self._unsealed)

    def _body_without_thoughts(self, request: ModelRequest) -> JSON:
        return responses_body(request, self._extra, sealed_thoughts=False)

    @override
    def reader(self, sink: TurnSink, alternatives: int | None) -> ResponsesAnswer:
        return ResponsesAnswer(self.limits, sink, alternatives)

    @override
    async def run(self, request: ModelRequest, sink: TurnSink, fields: Fields | None = None) -> None:
        try:
            await super().run(request, sink, fields)
        except BadRequestError as error:
            # OpenAI refuses to be asked for the thoughts of a model that has none, and nothing tells which have.
            if not _is_about_sealing(error) or request.model in self._unsealed:
                raise
            await super().run(request, sink, self._body_without_thoughts)
            # Only now it is known that it was about that: what a refusal says may be a client's own words.
            logger.info("The model '%s' of the backend '%s' gives no sealed thoughts.", request.model, self.name)
            self._unsealed.add(request.model)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        body = await self.large_work.run_if(is_large(request.items), count_body, request)
        return await self._tokens.input_tokens("/responses/input_tokens", body, request.tenant)


def _is_about_sealing(error: BadRequestError) -> bool:
    message = error.message.lower()
    return "encrypted content is not supported" in message or SEALED_THOUGHTS in message
