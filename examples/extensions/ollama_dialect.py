"""A dialect in one file: Ollama's own API, which streams lines of JSON and knows options that Chat Completions lacks.

backends:
  local:
    url: http://localhost:11434
    api: {use: examples/extensions/ollama_dialect.py:Ollama, num_ctx: 32768, keep_alive: 10m}
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from typing_extensions import override

from antwort.extensions import (
    UNFINISHED,
    AnswerLimits,
    BackendConfig,
    BadGatewayError,
    ChatDialect,
    ModelRequest,
    Queue,
    RemoteBackend,
    Settings,
    TurnSink,
    Usage,
    chat_messages,
    excerpt,
    reported_error,
)
from antwort.provider import JSON, Field


class OllamaSettings(Settings):
    num_ctx: int | None = Field(default=None, ge=1, description="Tokens that the model is loaded for.")
    keep_alive: str | None = Field(default=None, description="How long it stays loaded.")


class Lines:
    """Cuts a stream into lines, each of which is an event."""

    def __init__(self, limits: AnswerLimits) -> None:
        self._limits = limits
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > self._limits.event_bytes:
            raise self._limits.excess("a line that is too long", "max_event_bytes")
        return [line for line in lines if line.strip()]

    def end(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        return [rest] if rest.strip() else []


class Ollama(RemoteBackend):
    event_reader = Lines
    models_path = "/api/tags"

    def __init__(self, settings: OllamaSettings, name: str, config: BackendConfig, queue: Queue | None) -> None:
        super().__init__(name, config, "/api/chat", queue)
        self._settings = settings
        self._extra = config.extra_body

    @override
    def body(self, request: ModelRequest) -> JSON:
        messages = chat_messages(request.items, request.instructions, ChatDialect(), self.name)
        options = {
            "num_ctx": self._settings.num_ctx,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "num_predict": request.max_output_tokens,
        }
        body: JSON = {
            "model": request.model,
            "messages": [message_of(message, messages) for message in messages],
            "stream": request.stream,
            "options": {name: value for name, value in options.items() if value is not None},
        }
        if self._settings.keep_alive is not None:
            body["keep_alive"] = self._settings.keep_alive
        if request.effort is not None:
            body["think"] = True
        if request.tools and request.tool_choice != "none":
            body["tools"] = [{"type": "function", "function": function_of(tool)} for tool in request.tools]
        if (wanted := request.text_format) is not None and wanted.get("type") != "text":
            body["format"] = wanted.get("schema") or "json"
        return {**body, **self._extra, **request.extra}

    @override
    def reader(self, sink: TurnSink, alternatives: int | None) -> "OllamaAnswer":
        return OllamaAnswer(self.name, sink)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None


def function_of(tool: JSON) -> JSON:
    return {name: tool[name] for name in ("name", "description", "parameters") if tool.get(name) is not None}


def message_of(message: JSON, messages: Sequence[JSON]) -> JSON:
    """Return a message of Chat Completions as Ollama has it: one text, images beside it, arguments that are objects."""
    content = message["content"]
    parts: list[JSON] = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    shaped: JSON = {
        "role": message["role"],
        "content": "\n".join(part["text"] for part in parts if part["type"] == "text"),
    }
    if images := [part["image_url"]["url"].partition(",")[2] for part in parts if part["type"] == "image_url"]:
        shaped["images"] = images
    if calls := message.get("tool_calls"):
        shaped["tool_calls"] = [
            {"function": {"name": call["function"]["name"], "arguments": arguments(call["function"]["arguments"])}}
            for call in calls
        ]
    if thoughts := message.get("reasoning_content"):
        shaped["thinking"] = thoughts
    if message["role"] == "tool":
        every = [call for one in messages for call in one.get("tool_calls", ())]
        shaped["tool_name"] = next(
            (call["function"]["name"] for call in every if call["id"] == message["tool_call_id"]), ""
        )
    return shaped


def arguments(text: str) -> Mapping[str, Any]:
    try:
        read = json.loads(text)
    except ValueError:
        read = None
    return read if isinstance(read, dict) else {}


class Function(msgspec.Struct):
    name: str
    arguments: dict[str, Any] = {}


class Call(msgspec.Struct):
    function: Function


class Message(msgspec.Struct):
    content: str = ""
    thinking: str = ""
    tool_calls: list[Call] = []


class Line(msgspec.Struct):
    message: Message | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int = 0
    eval_count: int = 0
    error: str | None = None


DECODER = msgspec.json.Decoder(Line)


class OllamaAnswer:
    """Feeds the sink with one answer. Calls come whole, and have no ids."""

    def __init__(self, backend: str, sink: TurnSink) -> None:
        self.begun = False
        self.done = False
        self._backend = backend
        self._sink = sink
        self._calls = 0
        self._last = Line()

    def take(self, payload: bytes) -> None:
        try:
            line = DECODER.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise BadGatewayError(f"The backend '{self._backend}' does not speak Ollama: {excerpt(payload)}") from None
        if line.error is not None:
            raise reported_error(self._backend, {"message": line.error})
        if line.message is not None:
            self._say(line.message)
        if line.done:
            self.done, self._last = True, line

    def _say(self, message: Message) -> None:
        self.begun = True
        if message.thinking:
            self._sink.reasoning(message.thinking)
        if message.content:
            self._sink.text(message.content)
        for call in message.tool_calls:
            written = json.dumps(call.function.arguments)
            self._sink.tool_call(self._calls, name=call.function.name, arguments=written)
            self._calls += 1

    def pass_on(self) -> None:
        """Do nothing: nothing is held back."""

    def take_whole(self, body: bytes) -> None:
        self.take(body)

    def end(self) -> None:
        if not self.begun:
            raise BadGatewayError(f"The backend '{self._backend}' gave no answer.")
        if not self.done:
            self._sink.finish(UNFINISHED)
            return
        asked, said = self._last.prompt_eval_count, self._last.eval_count
        self._sink.usage(Usage(input_tokens=asked, output_tokens=said, total_tokens=asked + said))
        reason = "length" if self._last.done_reason == "length" else "tool_calls" if self._calls else "stop"
        self._sink.finish(reason)
