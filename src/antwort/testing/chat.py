"""Chat Completions as a model server writes, reads and counts them, in any dialect."""

import base64
import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from antwort.backends.base import ModelRequest
from antwort.testing.playback import TurnPiece, logprob
from antwort.testing.script import Call, Dialect, Turn
from antwort.types import JSON

_CREATED = 1_700_000_000
_SAME = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "parallel_tool_calls",
    "user",
    "service_tier",
    "prompt_cache_key",
    "verbosity",
)


class ChatWriter:
    """Writes one turn as chunks, or as one completion."""

    def __init__(self, turn: Turn, number: int, body: Mapping[str, Any]) -> None:
        self._turn = turn
        self._number = number
        self._dialect: Dialect = turn.dialect
        self._logprobs = turn.logprobs and bool(body.get("logprobs"))
        options = body.get("stream_options") or {}
        self._usage_wanted = self._dialect.usage_unasked or bool(options.get("include_usage"))
        self._model = body.get("model", "")
        self._thinking = False

    # --- streamed ----------------------------------------------------------------------------------------------------

    def start(self) -> list[JSON]:
        """Return the chunks before the first delta."""
        return [self._chunk({"role": "assistant", "content": ""})] if self._dialect.role_chunk else []

    def deltas(self, pieces: Sequence[TurnPiece]) -> Iterator[JSON]:
        """Yield the chunks of some pieces."""
        for piece in pieces:
            if piece.kind == "call":
                yield from self._call_chunks(piece)
            elif piece.kind == "reasoning":
                yield self._chunk(self._thought(piece.delta))
            elif piece.kind == "refusal":
                yield self._chunk({"refusal": piece.delta})
            elif piece.kind == "text":
                chunk = self._chunk({"content": self._end_of_thought() + piece.delta})
                if self._logprobs:
                    chunk["choices"][0]["logprobs"] = {"content": [logprob(piece.delta)]}
                yield chunk

    def end(self) -> Iterator[JSON]:
        """Yield the chunks after the last delta."""
        closing = self._end_of_thought()
        if closing:
            yield self._chunk({"content": closing})
        if self._dialect.whole_calls and self._turn.calls:
            calls = [self._whole(index, call) for index, call in enumerate(self._turn.calls)]
            yield self._chunk({"role": "assistant", "content": "", "tool_calls": calls})
        usage = self._usage() if self._usage_wanted else None
        finish = self._chunk({}, finish_reason=self._turn.finish)
        if usage is None:
            yield finish
        elif self._dialect.usage == "finish":
            yield finish | {"usage": usage}
        else:
            yield finish
            last = self._chunk({})
            yield last | {"usage": usage} | ({"choices": []} if self._dialect.usage == "chunk" else {})

    def _chunk(self, delta: JSON, *, finish_reason: str | None = None) -> JSON:
        return {
            "id": f"chatcmpl-{self._number}",
            "object": "chat.completion.chunk",
            "created": _CREATED,
            "model": self._model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
        }

    def _call_chunks(self, piece: TurnPiece) -> Iterator[JSON]:
        if self._dialect.whole_calls:  # they come at the end
            return
        call: JSON = {"index": piece.index} if self._dialect.call_index else {}
        if piece.call is not None:
            call |= self._identity(piece.index, piece.call) | {"type": "function"}
            call["function"] = {"name": piece.call.name, "arguments": piece.delta}
        else:
            call["function"] = {"arguments": piece.delta}
        closing = self._end_of_thought()
        yield self._chunk(({"content": closing} if closing else {}) | {"tool_calls": [call]})

    def _thought(self, delta: str) -> JSON:
        if self._dialect.reasoning != "think":
            return {self._dialect.reasoning: delta}
        opening = "" if self._thinking else "<think>"
        self._thinking = True
        return {"content": opening + delta}

    def _end_of_thought(self) -> str:
        closing = "</think>" if self._thinking else ""
        self._thinking = False
        return closing

    # --- whole -------------------------------------------------------------------------------------------------------

    def completion(self, pieces: Sequence[TurnPiece]) -> JSON:
        """Return the turn as one body."""
        said = {kind: "".join(p.delta for p in pieces if p.kind == kind) for kind in ("reasoning", "refusal", "text")}
        message: JSON = {"role": "assistant", "content": said["text"] or None}
        if said["reasoning"] and self._dialect.reasoning == "think":
            message["content"] = f"<think>{said['reasoning']}</think>{said['text']}"
        elif said["reasoning"]:
            message[self._dialect.reasoning] = said["reasoning"]
        if said["refusal"]:
            message["refusal"] = said["refusal"]
        if self._turn.calls:
            message["tool_calls"] = [self._whole(index, call) for index, call in enumerate(self._turn.calls)]
        choice = {"index": 0, "message": message, "finish_reason": self._turn.finish}
        if self._logprobs:
            choice["logprobs"] = {"content": [logprob(piece.delta) for piece in pieces if piece.kind == "text"]}
        body = {
            "id": f"chatcmpl-{self._number}",
            "object": "chat.completion",
            "created": _CREATED,
            "model": self._model,
            "choices": [choice],
        }
        usage = self._usage()
        return body if usage is None else body | {"usage": usage}

    def _whole(self, index: int, call: Call) -> JSON:
        text = "".join(call.arguments)
        arguments: Any = text
        if self._dialect.object_arguments:
            parsed = _parsed(text)
            arguments = parsed if isinstance(parsed, dict) else text
        position = {"index": index} if self._dialect.call_index else {}
        function = {"name": call.name, "arguments": arguments}
        return position | self._identity(index, call) | {"type": "function", "function": function}

    def _identity(self, index: int, call: Call) -> JSON:
        if not self._dialect.call_ids:
            return {}
        return {"id": call.call_id or f"call_{self._number}_{index}"}

    def _usage(self) -> JSON | None:
        usage = self._turn.usage
        if usage is None:
            return None
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.input_tokens_details.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.output_tokens_details.reasoning_tokens},
        }


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# --- requests --------------------------------------------------------------------------------------------------------


def read_chat(body: Mapping[str, Any]) -> ModelRequest:
    """Read the body of a Chat Completions request as the model request it came from, so that steps can look at it."""
    messages = [message for message in body.get("messages") or [] if isinstance(message, Mapping)]
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping) and isinstance(choice.get("function"), Mapping):
        choice = {"type": "function", "name": choice["function"].get("name")}
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    return ModelRequest(
        model=str(body.get("model", "")),
        items=[item for message in messages for item in _items(message)],
        tools=[{"type": "function", **tool.get("function", {})} for tool in body.get("tools") or []],
        tool_choice=choice,
        stream=bool(body.get("stream")),
        max_output_tokens=limit,
        top_logprobs=body.get("top_logprobs", 0) if body.get("logprobs") else None,
        effort=body.get("reasoning_effort"),
        text_format=body.get("response_format"),
        **{name: body[name] for name in _SAME if name in body},
    )


def _items(message: Mapping[str, Any]) -> Iterator[JSON]:
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": content}
        return
    if content:
        yield {"type": "message", "role": role, "content": content}
    for call in message.get("tool_calls") or []:
        yield {"type": "function_call", "call_id": call.get("id"), **call.get("function", {})}


def embedding(text: str, dimensions: int, encoding: str) -> list[float] | str:
    """Return the vector of a text: made up, of length 1, and always the same for the same text."""
    values: list[float] = []
    while len(values) < dimensions:
        digest = hashlib.sha256(f"{len(values)}:{text}".encode()).digest()
        values += [byte / 127.5 - 1 for byte in digest]
    values = values[:dimensions]
    length = math.sqrt(sum(value * value for value in values)) or 1.0
    unit = [value / length for value in values]
    return base64.b64encode(struct.pack(f"<{dimensions}f", *unit)).decode() if encoding == "base64" else unit


def count_words(request: ModelRequest) -> int:
    """Count the words that a request gives a model to read: of instructions, items and tool definitions."""
    return len(_words(request))


class Tokenizers:
    """What a server with a tokenizer, a context window or both has beside its answers."""

    def __init__(self, kind: Literal["vllm", "llamacpp"] | None, window: int | None) -> None:
        self._kind = kind
        self._window = window

    def routes(self) -> dict[str, Callable[[JSON], JSON]]:
        """Return what answers at which path."""
        if self._kind == "vllm":
            return {"/tokenize": self._vllm_tokens}
        if self._kind == "llamacpp":
            return {"/tokenize": _llamacpp_tokens, "/apply-template": _template}
        return {}

    def listed(self) -> JSON:
        """Return what the list of models says about each; OpenAI's does not tell the window."""
        if self._window is None or self._kind is None:
            return {}
        if self._kind == "vllm":
            return {"max_model_len": self._window}
        return {"meta": {"n_ctx": self._window, "n_ctx_train": 2 * self._window}}

    def refusal(self, request: ModelRequest) -> JSON | None:
        """Return the body that refuses a request which is too long; None if it is not."""
        count = count_words(request)
        if self._window is None or count <= self._window:
            return None
        if self._kind == "llamacpp":
            message = f"request ({count} tokens) exceeds the available context size ({self._window} tokens)"
            error: JSON = {"code": 400, "message": message, "type": "exceed_context_size_error"}
            return {"error": error | {"n_prompt_tokens": count, "n_ctx": self._window}}
        message = (
            f"This model's maximum context length is {self._window} tokens. However, your messages have {count} "
            "tokens. Please reduce their length."
        )
        if self._kind == "vllm":
            return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}
        kind, code = "invalid_request_error", "context_length_exceeded"
        return {"error": {"message": message, "type": kind, "param": "messages", "code": code}}

    def _vllm_tokens(self, body: JSON) -> JSON:
        count = count_words(read_chat(body))
        return {"count": count, "max_model_len": self._window or 0, "tokens": list(range(count)), "token_strs": None}


def _llamacpp_tokens(body: JSON) -> JSON:
    return {"tokens": list(range(len(str(body.get("content", "")).split())))}


def _template(body: JSON) -> JSON:
    return {"prompt": " ".join(_words(read_chat(body)))}


def _words(request: ModelRequest) -> list[str]:
    return [word for text in _texts(request) for word in text.split()]


def _texts(request: ModelRequest) -> Iterator[str]:
    yield request.instructions or ""
    for item in request.items:
        for name in ("content", "summary", "name", "arguments", "input", "output"):
            yield from _texts_in(item.get(name))
    for tool in request.tools:
        yield json.dumps(tool, ensure_ascii=False)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in value if isinstance(value, list) else ():
        if isinstance(part, dict):
            yield str(part.get("text") or "")
