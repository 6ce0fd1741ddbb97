"""Anthropic's Messages as a model server writes and reads them: it refuses whatever Anthropic refuses."""

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from antwort.backends.base import ModelRequest
from antwort.errors import APIError, BadRequestError
from antwort.testing.playback import TurnPiece
from antwort.testing.script import Call, Failure, Turn
from antwort.types import JSON
from antwort.wire.messages.answers import error_body

# --- answers ----------------------------------------------------------------------------------------------------------

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_KINDS = {"summary": "thinking", "reasoning": "thinking", "refusal": "text", "text": "text", "call": "tool_use"}
_ERRORS = {"server_error": "api_error"}

Signed = set[tuple[str, str]]
"""Thoughts with their signatures, as they were given."""


class MessagesWriter:
    """Writes one turn as events, or as one message. Thoughts are signed, and what was signed is noted.

    The signature is what the turn says of `opaque`; without thoughts that is a block of hidden ones.
    """

    def __init__(self, turn: Turn, number: int, body: Mapping[str, Any], signed: Signed) -> None:
        self._turn = turn
        self._number = number
        self._model = body.get("model", "")
        self._signed = signed
        self._content: list[JSON] = []
        self._open: JSON | None = None
        self._is_signed = False

    # --- streamed ----------------------------------------------------------------------------------------------------

    def start(self) -> list[JSON]:
        """Return the events before the first delta."""
        usage = self._usage() | {"output_tokens": 1}
        message = {**self._head(), "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return [{"type": "message_start", "message": message}, {"type": "ping"}]

    def deltas(self, pieces: Sequence[TurnPiece]) -> Iterator[JSON]:
        """Yield the events of some pieces."""
        for piece in pieces:
            if piece.kind == "opaque":
                yield from self._seal(piece.delta)
                continue
            kind, block = _KINDS[piece.kind], self._open
            if block is None or block["type"] != kind or piece.call is not None:
                yield from self._end_block()
                yield from self._begin_block(self._begun(kind, piece))
            yield from self._piece(kind, piece.delta)

    def end(self) -> Iterator[JSON]:
        """Yield the events after the last delta."""
        yield from self._end_block()
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": self._usage()["output_tokens"]}}
        yield {"type": "message_stop"}

    def _begun(self, kind: str, piece: TurnPiece) -> JSON:
        if kind == "text":
            return {"type": "text", "text": ""}
        if kind == "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        called = piece.call or Call("")
        use_id = called.call_id or f"toolu_{self._number}_{piece.index}"
        return {"type": "tool_use", "id": use_id, "name": called.name, "input": {}}

    def _begin_block(self, block: JSON) -> Iterator[JSON]:
        yield {"type": "content_block_start", "index": len(self._content), "content_block": block.copy()}
        self._open, self._is_signed = block, False
        self._content.append(block)

    def _piece(self, kind: str, delta: str) -> Iterator[JSON]:
        block = self._content[-1]
        if kind == "tool_use":
            block["json"] = block.get("json", "") + delta
            yield self._delta({"type": "input_json_delta", "partial_json": delta})
        else:
            block[kind] += delta
            yield self._delta({"type": f"{kind}_delta", kind: delta})

    def _delta(self, delta: JSON) -> JSON:
        return {"type": "content_block_delta", "index": len(self._content) - 1, "delta": delta}

    def _seal(self, text: str) -> Iterator[JSON]:
        if self._open is None or self._open["type"] != "thinking":
            yield from self._end_block()
            self._signed.add(("", text))
            yield from self._begin_block({"type": "redacted_thinking", "data": text})
        else:
            yield from self._sign(text)
        yield from self._end_block()

    def _sign(self, signature: str) -> Iterator[JSON]:
        block = self._content[-1]
        block["signature"], self._is_signed = signature, True
        self._signed.add((block["thinking"], signature))
        yield self._delta({"type": "signature_delta", "signature": signature})

    def _end_block(self) -> Iterator[JSON]:
        block = self._open
        if block is None:
            return
        if block["type"] == "thinking" and not self._is_signed:
            yield from self._sign(f"signature-{self._number}-{len(self._content)}")
        if block["type"] == "tool_use":
            block["input"] = _parsed(block.pop("json", ""))
        self._open = None
        yield {"type": "content_block_stop", "index": len(self._content) - 1}

    # --- whole -------------------------------------------------------------------------------------------------------

    def completion(self, pieces: Sequence[TurnPiece]) -> JSON:
        """Return the turn as one body."""
        for _ in (*self.deltas(pieces), *self._end_block()):
            """Only what comes of them counts."""
        ending = {"stop_reason": self._stop_reason(), "stop_sequence": None, "usage": self._usage()}
        return {**self._head(), "content": self._content, **ending}

    def _head(self) -> JSON:
        return {"id": f"msg_{self._number}", "type": "message", "role": "assistant", "model": self._model}

    def _stop_reason(self) -> str:
        return _REASONS.get(self._turn.finish, self._turn.finish)

    def _usage(self) -> JSON:
        usage = self._turn.usage
        if usage is None:
            return {"input_tokens": 0, "output_tokens": 0}
        read, written = usage.input_tokens_details.cached_tokens, usage.input_tokens_details.cache_write_tokens
        return {
            "input_tokens": usage.input_tokens - read - written,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "output_tokens": usage.output_tokens,
        }


def _parsed(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return {}


def messages_failure(failure: Failure) -> JSON:
    """Return the body of an error that a script wants."""
    kind = "overloaded_error" if failure.status in {503, 529} else _ERRORS.get(failure.type, failure.type)
    return {"type": "error", "error": {"type": kind, "message": failure.message}}


def messages_error(error: APIError) -> JSON:
    """Return the body of an error."""
    return error_body(error)


def models_page(models: Sequence[str], query: Mapping[str, str], known: Mapping[str, Any]) -> JSON:
    """Return a page of a list of models, as the query of a request wants it."""
    names = list(models)
    if (after := query.get("after_id")) in names:
        names = names[names.index(after) + 1 :]
    page = names[: int(query.get("limit", "20"))]
    data = [
        {"type": "model", "id": name, "display_name": name, "created_at": "2023-11-14T22:13:20Z", **known}
        for name in page
    ]
    ends = {"first_id": page[0] if page else None, "last_id": page[-1] if page else None}
    return {"data": data, "has_more": len(page) < len(names), **ends}


# --- requests ---------------------------------------------------------------------------------------------------------

_READ = frozenset({"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"})
_SET = frozenset(
    {"max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier"}
)
_ROLES = ("user", "assistant")
_CACHED = frozenset({"cache_control"})
_BLOCKS: Mapping[str, tuple[frozenset[str], frozenset[str], tuple[str, ...]]] = {
    "text": (frozenset({"text"}), _CACHED | {"citations"}, _ROLES),
    "image": (frozenset({"source"}), _CACHED, ("user",)),
    "document": (frozenset({"source"}), _CACHED | {"title", "context", "citations"}, ("user",)),
    "tool_result": (frozenset({"tool_use_id"}), _CACHED | {"content", "is_error"}, ("user",)),
    "tool_use": (frozenset({"id", "name", "input"}), _CACHED, ("assistant",)),
    "thinking": (frozenset({"thinking", "signature"}), frozenset(), ("assistant",)),
    "redacted_thinking": (frozenset({"data"}), frozenset(), ("assistant",)),
}
"""What each block must have, what it may have, and whose it is."""
_SOURCES: Mapping[str, Mapping[str, frozenset[str]]] = {
    "image": {"base64": frozenset({"media_type", "data"}), "url": frozenset({"url"})},
    "document": {
        "base64": frozenset({"media_type", "data"}),
        "url": frozenset({"url"}),
        "text": frozenset({"media_type", "data"}),
    },
}
_SIGNS = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8", "image/webp": b"RIFF"}
_THINKING: Mapping[str, frozenset[str]] = {
    "enabled": frozenset({"budget_tokens", "display"}),
    "adaptive": frozenset({"display"}),
    "disabled": frozenset(),
}
_CHOICES: Mapping[str, frozenset[str]] = {
    "auto": frozenset({"disable_parallel_tool_use"}),
    "any": frozenset({"disable_parallel_tool_use"}),
    "tool": frozenset({"disable_parallel_tool_use", "name"}),
    "none": frozenset(),
}
_EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
_MOST_MARKS = 4
_LEAST_BUDGET = 1024
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")


def read_messages(
    body: Mapping[str, Any], signed: Collection[tuple[str, str]], *, counts: bool = False
) -> ModelRequest:
    """Read a request as the model request it came from; BadRequestError for whatever Anthropic refuses.

    Thoughts must be among those that were `signed`. `counts`: it is one to count tokens.
    """
    required = {"model", "messages"} if counts else {"model", "messages", "max_tokens"}
    _check_fields(body, required, _READ if counts else _READ | _SET, "")
    messages, tools = body["messages"], body.get("tools") or []
    _check_messages(messages, signed)
    _check_tools(tools, body.get("tool_choice"), messages)
    _check_sampling(body)
    system = _system(body.get("system"))
    _check_marks(body)
    items = [item for message in messages for item in _items(message)]
    config, choice = body.get("output_config") or {}, body.get("tool_choice") or {}
    _check_fields(config, (), {"effort", "format"}, "output_config")
    _demand(config.get("effort", "low") in _EFFORTS, "output_config.effort: not one of those there are")
    if "format" in config:
        _check_fields(config["format"], {"type", "schema"}, (), "output_config.format")
    return ModelRequest(
        model=str(body["model"]),
        items=items,
        instructions=system,
        tools=[{"type": "function", "name": tool["name"], "parameters": tool["input_schema"]} for tool in tools],
        tool_choice=_chosen(choice),
        parallel_tool_calls=False if choice.get("disable_parallel_tool_use") else None,
        stream=bool(body.get("stream")),
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        max_output_tokens=body.get("max_tokens"),
        effort=config.get("effort"),
        text_format=config.get("format"),
        user=(body.get("metadata") or {}).get("user_id"),
    )


def _demand(is_so: object, message: str) -> None:
    if not is_so:
        raise BadRequestError(message)


def _check_fields(value: Any, required: Collection[str], optional: Collection[str], where: str) -> None:
    prefix = f"{where}." if where else ""
    _demand(isinstance(value, Mapping), f"{where}: Input should be a valid dictionary")
    for name in sorted(required):
        _demand(name in value, f"{prefix}{name}: Field required")
    for name in value:
        _demand(name in required or name in optional, f"{prefix}{name}: Extra inputs are not permitted")


def _check_sampling(body: Mapping[str, Any]) -> None:
    limit, temperature, top_p = body.get("max_tokens", 1), body.get("temperature"), body.get("top_p")
    _demand(isinstance(limit, int) and limit >= 1, "max_tokens: Input should be greater than or equal to 1")
    _demand(temperature is None or 0 <= temperature <= 1, "temperature: range: 0..1")
    _check_fields(body.get("metadata") or {}, (), {"user_id"}, "metadata")
    _demand(body.get("service_tier", "auto") in {"auto", "standard_only"}, "service_tier: not one of those there are")
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type")
    _demand(kind in _THINKING, f"thinking.type: '{kind}' is none of {sorted(_THINKING)}")
    _check_fields(thinking, {"type"}, _THINKING[kind], "thinking")
    if kind == "disabled":
        return
    _demand(temperature in {None, 1}, "`temperature` may only be set to 1 when thinking is enabled.")
    _demand("top_k" not in body, "`top_k` must be unset when thinking is enabled.")
    _demand(top_p is None or top_p >= 0.95, "`top_p` must be greater than or equal to 0.95 when thinking is enabled.")
    choice = (body.get("tool_choice") or {}).get("type")
    _demand(choice not in {"any", "tool"}, "Thinking may not be enabled when tool_choice forces tool use.")
    if kind == "enabled":
        budget = thinking.get("budget_tokens", 0)
        _demand(
            budget >= _LEAST_BUDGET, "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        )
        _demand(
            "max_tokens" not in body or budget < limit, "`max_tokens` must be greater than `thinking.budget_tokens`."
        )
        _check_loop(body["messages"])


def _check_loop(messages: Sequence[JSON]) -> None:
    """Hold the calls that are answered last against what Anthropic wants before them: thoughts."""
    if len(messages) < 2 or messages[-1]["content"][0]["type"] != "tool_result":
        return
    first = messages[-2]["content"][0]["type"]
    _demand(
        first in {"thinking", "redacted_thinking"},
        f"Expected `thinking` or `redacted_thinking`, but found `{first}`. When `thinking` is enabled, a final "
        "`assistant` message must start with a thinking block.",
    )


def _check_marks(body: Mapping[str, Any]) -> None:
    blocks = [*(body.get("tools") or []), *(body["system"] if isinstance(body.get("system"), list) else [])]
    blocks += [block for message in body["messages"] for block in _content(message)]
    marks = [block["cache_control"] for block in blocks if "cache_control" in block]
    _demand(
        len(marks) <= _MOST_MARKS,
        f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.",
    )
    for mark in marks:
        _check_fields(mark, {"type"}, {"ttl"}, "cache_control")
        _demand(mark["type"] == "ephemeral" and mark.get("ttl", "5m") in {"5m", "1h"}, f"cache_control: {mark}")


def _system(value: Any) -> str | None:
    blocks = [{"type": "text", "text": value}] if isinstance(value, str) else value or []
    for index, block in enumerate(blocks):
        _check_block(block, f"system.{index}", ())
        _demand(block["type"] == "text", f"system.{index}.type: Input should be 'text'")
    return "\n\n".join(block["text"] for block in blocks) or None


def _check_tools(tools: Sequence[JSON], choice: Any, messages: Sequence[JSON]) -> None:
    for index, tool in enumerate(tools):
        where = f"tools.{index}"
        _check_fields(tool, {"name", "input_schema"}, {"type", "description", "strict", "cache_control"}, where)
        _demand(_NAME.fullmatch(tool["name"]), f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        _demand(tool["input_schema"].get("type") == "object", f"{where}.input_schema.type: Field required")
    names = [tool["name"] for tool in tools]
    _demand(len(names) == len(set(names)), "tools: Tool names must be unique.")
    if choice is not None:
        kind = choice.get("type")
        _demand(tools, "tool_choice: may only be specified while providing tools")
        _demand(kind in _CHOICES, f"tool_choice.type: '{kind}' is none of {sorted(_CHOICES)}")
        _check_fields(choice, {"type"}, _CHOICES[kind], "tool_choice")
        _demand(
            kind != "tool" or choice.get("name") in names, f"Tool '{choice.get('name')}' not found in provided tools"
        )
    if any(block["type"] in {"tool_use", "tool_result"} for message in messages for block in _content(message)):
        _demand(tools, "Requests which have `tool_use` or `tool_result` blocks must define tools.")


def _chosen(choice: Mapping[str, Any]) -> str | JSON | None:
    kind = choice.get("type")
    if kind == "tool":
        return {"type": "function", "name": choice["name"]}
    return "required" if kind == "any" else kind


# --- messages ---------------------------------------------------------------------------------------------------------


def _content(message: Mapping[str, Any]) -> list[JSON]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _check_messages(messages: Any, signed: Collection[tuple[str, str]]) -> None:
    _demand(isinstance(messages, list) and messages, "messages: at least one message is required")
    asked: list[str] = []
    known: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        _check_fields(message, {"role", "content"}, (), where)
        role, wanted = message["role"], _ROLES[index % 2]
        _demand(index or role == "user", 'messages: first message must use the "user" role')
        _demand(role == wanted, f'{where}: roles must alternate between "user" and "assistant", found "{role}" again')
        content = _content(message)
        _demand(content, f"{where}: all messages must have non-empty content")
        for number, block in enumerate(content):
            _check_block(block, f"{where}.content.{number}", signed, role)
        if role == "user":
            _check_results(content, asked, where)
        else:
            asked = [block["id"] for block in content if block["type"] == "tool_use"]
            _check_uses(content, asked, known, where)
    last = _content(messages[-1])[-1]
    if messages[-1]["role"] == "assistant":
        _demand(not asked, f"`tool_use` ids were found without `tool_result` blocks immediately after: {asked}")
        _demand(
            last.get("text", "") == last.get("text", "").rstrip(),
            "messages: final assistant content cannot end with trailing whitespace",
        )


def _check_results(content: Sequence[JSON], asked: Sequence[str], where: str) -> None:
    """Hold the results in a message against the calls of the one before."""
    kinds = [block["type"] == "tool_result" for block in content]
    _demand(kinds == sorted(kinds, reverse=True), f"{where}: `tool_result` blocks must come first")
    results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    missing = [use for use in asked if use not in results]
    _demand(
        not missing,
        f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}.",
    )
    for use in results:
        _demand(
            use in asked,
            f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {use}. Each `tool_result` block must "
            "have a corresponding `tool_use` block in the previous message.",
        )
    _demand(len(results) == len(set(results)), f"{where}: each `tool_use` must have a single result")


def _check_uses(content: Sequence[JSON], asked: Sequence[str], known: set[str], where: str) -> None:
    _demand(
        content[-1]["type"] not in {"thinking", "redacted_thinking"}, f"{where}: the final block cannot be thinking"
    )
    for use in asked:
        _demand(_ID.fullmatch(use), f"{where}: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        _demand(use not in known, "messages: `tool_use` ids must be unique")
        known.add(use)


def _check_block(block: Any, where: str, signed: Collection[tuple[str, str]], role: str = "user") -> None:
    kind = block.get("type") if isinstance(block, Mapping) else None
    _demand(kind in _BLOCKS, f"{where}.type: '{kind}' is none of {sorted(_BLOCKS)}")
    required, optional, roles = _BLOCKS[str(kind)]
    _check_fields(block, required | {"type"}, optional, where)
    _demand(role in roles, f"{where}: `{kind}` blocks are not for the role {role}")
    if kind == "text":
        _demand(block["text"].strip(), "messages: text content blocks must contain non-whitespace text")
    elif kind in _SOURCES:
        _check_source(str(kind), block["source"], f"{where}.source")
    elif kind == "tool_use":
        _demand(isinstance(block["input"], Mapping), f"{where}.input: Input should be a valid dictionary")
    elif kind == "tool_result" and not isinstance(content := block.get("content", ""), str):
        for index, part in enumerate(content):
            _check_block(part, f"{where}.content.{index}", ())
    elif kind in {"thinking", "redacted_thinking"}:
        given = (block.get("thinking", ""), block.get("signature", block.get("data")))
        _demand(given in signed, f"{where}: Invalid `signature` in `{kind}` block")


def _check_source(kind: str, source: JSON, where: str) -> None:
    fields = _SOURCES[kind].get(source.get("type", ""))
    _demand(fields is not None, f"{where}.type: '{source.get('type')}' is none of {sorted(_SOURCES[kind])}")
    _check_fields(source, {"type", *(fields or ())}, (), where)
    if source["type"] == "text":
        _demand(source["media_type"] == "text/plain" and source["data"].strip(), f"{where}: text must be non-empty")
    if source["type"] != "base64":
        return
    try:
        data = base64.b64decode(source["data"], validate=True)
    except (binascii.Error, ValueError):
        raise BadRequestError(f"{where}.base64: invalid base64 data") from None
    sign = b"%PDF-" if kind == "document" else _SIGNS.get(source["media_type"])
    _demand(sign and data.startswith(sign), f"{where}: the data is not what its media type {source['media_type']} says")


def _items(message: Mapping[str, Any]) -> Iterator[JSON]:
    for block in _content(message):
        kind = block["type"]
        if kind == "tool_use":
            arguments = json.dumps(block["input"], ensure_ascii=False)
            yield {"type": "function_call", "call_id": block["id"], "name": block["name"], "arguments": arguments}
        elif kind == "tool_result":
            output = block.get("content", "")
            yield {"type": "function_call_output", "call_id": block["tool_use_id"], "output": output}
        elif kind in {"thinking", "redacted_thinking"}:
            sealed = block.get("signature", block.get("data"))
            yield {"type": "reasoning", "content": block.get("thinking", ""), "encrypted_content": sealed}
        else:
            yield {"type": "message", "role": message["role"], "content": [block]}
