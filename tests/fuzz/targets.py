"""Every endpoint with valid requests, which are what is mutated."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from tests.fuzz.mutations import STRINGS, mutations
from tests.fuzz.stage import Client
from typing_extensions import override

from antwort.types import JSON

__all__ = ["Case", "Known", "cases", "chats", "frames", "prepare", "valid", "valid_chats"]


CHAT = "/v1/chat/completions"
PNG = "data:image/png;base64,iVBORw0KGgo="
TOOL: JSON = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
SCHEMA: JSON = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
FILTER: JSON = {
    "type": "and",
    "filters": [{"type": "eq", "key": "year", "value": 2020}, {"type": "in", "key": "kind", "value": ["a", "b"]}],
}


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to ask for."""

    response: str
    conversation: str
    item: str
    store: str
    chat: str


@dataclass(frozen=True, slots=True)
class Case:
    """One request."""

    method: str
    path: str
    make: Callable[[], bytes] = bytes
    """Makes the body."""
    place: str = ""
    """What was mutated; empty for a valid request."""
    kind: str = ""
    field: str = ""

    @property
    def body(self) -> bytes:
        """What is sent; made whenever it is asked for."""
        return self.make()

    @override
    def __str__(self) -> str:
        return f"{self.method} {self.path[:120]} {self.place} {self.kind}: {self.body[:400]!r}"


def create_bodies(known: Known) -> list[JSON]:
    """Return valid bodies for a response, with every field in one of them."""
    return [
        {"model": "chat", "input": "Hello!", "instructions": "Be brief.", "stream": True},
        {
            "model": "chat",
            "input": [
                {"role": "developer", "content": "Be kind."},
                {"type": "message", "id": "msg_1", "role": "user", "status": "completed", "content": [
                    {"type": "input_text", "text": "What is this?"},
                    {"type": "input_image", "image_url": PNG, "detail": "low"},
                    {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
                ]},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}],
                 "content": [{"type": "reasoning_text", "text": "Well."}], "encrypted_content": "abc"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "A dot.", "annotations": []}],
                 "phase": "commentary"},
                {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "get_weather",
                 "arguments": '{"city": "Uji"}', "status": "completed"},
                {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "Rain"}]},
                {"type": "custom_tool_call", "call_id": "c2", "name": "write", "input": "x"},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
                {"role": "user", "content": "And now?"},
            ],
            "tools": [TOOL, {"type": "custom", "name": "write", "description": "Write.", "format": {"type": "text"}}],
            "tool_choice": {"type": "allowed_tools", "mode": "auto",
                            "tools": [{"type": "function", "name": "get_weather"}]},
        },
        {
            "model": "responses",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                      {"type": "item_reference", "id": known.item}],
            "include": ["message.output_text.logprobs", "file_search_call.results"],
            "tools": [{"type": "file_search", "vector_store_ids": [known.store], "max_num_results": 3,
                       "filters": FILTER, "ranking_options": {"ranker": "auto", "score_threshold": 0.1}}],
            "tool_choice": {"type": "file_search"},
            "parallel_tool_calls": True,
            "metadata": {"a": "b"},
            "text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True},
                     "verbosity": "low"},
            "temperature": 0.5,
            "top_p": 0.9,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.1,
            "top_logprobs": 2,
            "max_output_tokens": 100,
            "max_tool_calls": 3,
            "reasoning": {"effort": "low", "summary": "auto"},
            "truncation": "auto",
            "service_tier": "auto",
            "safety_identifier": "me",
            "prompt_cache_key": "k",
            "prompt_cache_retention": "24h",
            "user": "me",
            "store": True,
        },
        {"model": "chat", "input": "Go on", "previous_response_id": known.response, "store": False,
         "stream": True, "stream_options": {"include_obfuscation": False},
         "context_management": [{"type": "compaction", "compact_threshold": 1000}],
         "text": {"format": {"type": "json_object"}}, "tool_choice": "auto"},
        {"model": "chat", "input": "Go on", "conversation": {"id": known.conversation}, "background": True,
         "tools": [{"type": "function", "name": "look_up"}], "tool_choice": {"type": "function", "name": "look_up"}},
    ]  # fmt: skip


def bodies(known: Known) -> Iterator[tuple[str, str, JSON]]:
    """Yield method, path and a valid body."""
    creates = create_bodies(known)
    for body in creates:
        yield "POST", "/v1/responses", body
    yield "POST", "/v1/responses/input_tokens", creates[1]
    yield "POST", "/v1/responses/input_tokens", creates[2]
    yield (
        "POST",
        "/v1/responses/compact",
        {
            "model": "chat",
            "input": creates[1]["input"],
            "instructions": "Keep names.",
            "prompt_cache_key": "k",
            "service_tier": "auto",
        },
    )
    yield "POST", "/v1/responses/compact", {"model": "responses", "previous_response_id": known.response}
    items = [{"role": "user", "content": "Hello!"}, *creates[1]["input"][1:6]]
    yield "POST", "/v1/conversations", {"items": items, "metadata": {"topic": "tea"}}
    yield "POST", f"/v1/conversations/{known.conversation}", {"metadata": {"topic": "tea"}}
    yield "POST", f"/v1/conversations/{known.conversation}/items", {"items": items[:2]}
    chat = {
        "model": "chat",
        "messages": [{"role": "user", "content": "Hello!"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
        "stream": True,
    }
    yield "POST", "/v1/chat/completions", chat
    kept = {**chat, "stream": False, "store": True, "metadata": {"topic": "tea"}}
    yield "POST", "/v1/chat/completions", kept
    yield "POST", f"/v1/chat/completions/{known.chat}", {"metadata": {"topic": "tea"}}
    yield "POST", "/v1/completions", {"model": "chat", "prompt": ["Once", "upon"], "max_tokens": 3, "stream": False}
    said = create_bodies(known)[1]["input"]
    yield "POST", "/v1/decisions", {
        "model": "chat",
        "input": [
            {"role": "user", "content": [
                {"type": "input_image", "image_url": PNG, "detail": "low", "prompt_cache_breakpoint": None},
                {"type": "input_json", "data": {"city": ["Uji"]}},
            ]},
            *(item for item in said if item.get("type") in {"function_call", "custom_tool_call"}),
            {"type": "function_call_output", "call_id": "c1", "output": "Rain"},
        ],
        "questions": [
            {"type": "predicate", "name": "rain", "instructions": [{"type": "input_text", "text": "It rains."}]},
            {"type": "choice", "instructions": "What?", "choices": [
                {"value": "a", "description": "A."}, {"value": True},
            ]},
            {"type": "score", "instructions": "How wet?", "levels": [{"label": "dry"}, {"label": "wet"}]},
        ],
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
        "safety_identifier": "me",
    }  # fmt: skip
    yield "POST", "/v1/embeddings", {"model": "chat", "input": ["tea", "coffee"], "encoding_format": "float"}
    for body in message_bodies():
        yield "POST", "/v1/messages", body
    counted = {name: value for name, value in message_bodies()[1].items() if name in {"model", "messages", "tools"}}
    yield "POST", "/v1/messages/count_tokens", counted
    line = {"model": "chat", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello!"}], "stream": False}
    yield "POST", "/v1/messages/batches", {"requests": [{"custom_id": "a", "params": line}]}
    yield from store_bodies(known)


def message_bodies() -> list[JSON]:
    """Return valid bodies for a message, with every field in one of them."""
    weather = {"name": "get_weather", "description": "Tell the weather.", "input_schema": SCHEMA}
    png = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    poem = {"type": "text", "media_type": "text/plain", "data": "Haiku"}
    cached = {"type": "ephemeral", "ttl": "5m"}
    found = [{"type": "web_search_result", "title": "T", "url": "https://a.example", "encrypted_content": "QQ=="}]
    ran = {"type": "code_execution_result", "stdout": "1", "stderr": "", "return_code": 0, "content": []}
    asked: list[JSON] = [
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?", "cache_control": cached},
            {"type": "image", "source": png},
            {"type": "document", "title": "a.txt", "context": "A poem.", "source": poem},
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "A"}]}},
            {"type": "search_result", "title": "T", "source": "s", "content": [{"type": "text", "text": "found"}]},
        ]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
            {"type": "redacted_thinking", "data": "abc"},
            {"type": "text", "text": "A dot."},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tea"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": found},
            {"type": "server_tool_use", "id": "srvtoolu_2", "name": "code_execution", "input": {"code": "1"}},
            {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_2", "content": ran},
            {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "server_name": "s", "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False,
             "content": [{"type": "text", "text": "x"}]},
            {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Uji"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": [{"type": "text", "text": "no"}]},
            {"type": "text", "text": "And now?"},
        ]},
    ]  # fmt: skip
    return [
        {"model": "chat", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello!"}], "stream": True,
         "system": "Be brief.", "stop_sequences": ["STOP"], "temperature": 0.5, "top_p": 0.9, "top_k": 5,
         "metadata": {"user_id": "u"}, "service_tier": "auto", "store": True, "thinking": {"type": "adaptive"},
         "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}},
        {"model": "chat", "max_tokens": 100, "messages": asked, "system": [{"type": "text", "text": "Be brief."}],
         "tools": [weather, {"type": "bash_20250124", "name": "bash"}],
         "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
         "thinking": {"type": "enabled", "budget_tokens": 2000, "display": "omitted"}},
    ]  # fmt: skip


def chat_bodies(known: Known) -> list[JSON]:
    """Return valid bodies for a chat completion that the engine makes, with every field in one of them."""
    described = {name: value for name, value in TOOL.items() if name != "type"}
    weather = {"type": "function", "function": described}
    grammar = {"type": "grammar", "grammar": {"definition": "start: /x/", "syntax": "lark"}}
    write = {"type": "custom", "custom": {"name": "write", "description": "Write.", "format": grammar}}
    named = {"type": "function", "function": {"name": "get_weather"}}
    search = {"type": "file_search", "vector_store_ids": [known.store], "max_num_results": 3, "filters": FILTER}
    asked: list[JSON] = [
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "name": "Ann", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        ]},
        {"role": "assistant", "content": [{"type": "text", "text": "A dot."}, {"type": "refusal", "refusal": "No."}],
         "reasoning_content": "Hm.", "refusal": "No.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Uji"}'}},
            {"id": "c2", "type": "custom", "custom": {"name": "write", "input": "x"}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "Rain"}]},
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
        {"role": "user", "content": "And now?"},
    ]  # fmt: skip
    return [
        {"model": "chat", "messages": asked, "stop": ["STOP"],
         "tools": [weather, write],
         "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}},
        {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "tools": [search], "tool_choice": "auto",
         "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}},
         "logprobs": True, "top_logprobs": 2, "temperature": 0.5, "top_p": 0.9, "presence_penalty": 0.1,
         "frequency_penalty": 0.1, "max_completion_tokens": 100, "parallel_tool_calls": True, "n": 1,
         "reasoning_effort": "low", "verbosity": "low", "seed": 7, "logit_bias": {"17": 1}, "modalities": ["text"],
         "safety_identifier": "me", "prompt_cache_key": "k", "service_tier": "auto", "user": "me",
         "metadata": {"topic": "tea"}, "store": True, "prediction": {"type": "content", "content": "Hello"}},
        {"model": "responses", "messages": [{"role": "system", "content": "Be brief."}, asked[-1]],
         "tools": [{"type": "function", "function": {"name": "look_up"}}], "max_tokens": 100, "stop": "STOP",
         "tool_choice": {"type": "function", "function": {"name": "look_up"}}, "stream": True, "store": True,
         "stream_options": {"include_usage": True, "include_obfuscation": False}},
    ]  # fmt: skip


def store_bodies(known: Known) -> Iterator[tuple[str, str, JSON]]:
    """Yield the same for vector stores."""
    one = f"/v1/vector_stores/{known.store}"
    expires = {"anchor": "last_active_at", "days": 7}
    description = {"name": "n", "description": "d", "metadata": {"a": "b"}, "expires_after": expires, "file_ids": []}
    yield "POST", "/v1/vector_stores", description
    yield "POST", one, {"name": "n", "metadata": {"a": "b"}, "expires_after": expires}
    ranking = {
        "ranker": "auto",
        "score_threshold": 0.1,
        "hybrid_search": {"embedding_weight": 1.0, "text_weight": 0.5},
    }
    search = {
        "query": ["tea", "coffee"],
        "max_num_results": 3,
        "filters": FILTER,
        "ranking_options": ranking,
        "rewrite_query": False,
    }
    yield "POST", f"{one}/search", search
    point = {
        "text": "Tea of Uji",
        "file_id": "file_1",
        "filename": "tea.md",
        "chunk_index": 0,
        "attributes": {"year": 2020, "kind": "a", "old": True, "weight": 0.5},
    }
    whole = {**point, "id": "0189f7ea-ae2c-7809-8aeb-b819cf5e9e7f", "vector": [0.125] * 64}
    yield "POST", f"{one}/points", {"points": [point, whole]}


def addresses(known: Known) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield method, path and valid query of what takes no body."""
    page = {"limit": "2", "order": "asc"}
    response, conversation = f"/v1/responses/{known.response}", f"/v1/conversations/{known.conversation}"
    yield "GET", "/v1/responses", {**page, "after": known.response, "before": known.response}
    yield "GET", response, {"stream": "true", "starting_after": "0", "include": "message.output_text.logprobs"}
    yield "POST", f"{response}/cancel", {}
    yield "GET", f"{response}/input_items", {**page, "after": "msg_1", "include": "x"}
    yield "GET", "/v1/conversations", {**page, "after": known.conversation, "before": known.conversation}
    yield "GET", conversation, {}
    yield "GET", f"{conversation}/items", {**page, "after": known.item}
    yield "GET", f"{conversation}/items/{known.item}", {"include": "x"}
    chat = f"/v1/chat/completions/{known.chat}"
    listed = {**page, "after": known.chat, "model": "chat", "metadata[topic]": "tea"}
    yield "GET", "/v1/chat/completions", listed
    yield "GET", chat, {}
    yield "GET", f"{chat}/messages", {**page, "after": f"{known.chat}-0"}
    yield "DELETE", "/v1/chat/completions/chatcmpl-gone", {}
    yield "GET", "/v1/models", {}
    yield "GET", "/v1/models/chat", {}
    yield "GET", "/v1/functions", {"limit": "1"}
    yield "GET", "/v1/vector_stores", {**page, "after": known.store, "before": known.store}
    yield "GET", f"/v1/vector_stores/{known.store}", {}
    yield "GET", f"/v1/vector_stores/{known.store}/files", {**page, "filter": "failed"}
    yield "DELETE", f"/v1/vector_stores/{known.store}/points", {"file_id": "file_9"}
    yield "GET", "/v1/messages/batches", {"limit": "2", "after_id": "msgbatch_1", "before_id": "msgbatch_2"}
    yield "GET", "/v1/messages/batches/msgbatch_gone/results", {}
    yield "POST", "/v1/messages/batches/msgbatch_gone/cancel", {}
    yield "DELETE", "/v1/messages/batches/msgbatch_gone", {}
    yield "DELETE", "/v1/responses/resp_gone", {}
    yield "DELETE", "/v1/conversations/conv_gone", {}
    yield "DELETE", f"{conversation}/items/msg_gone", {}
    yield "DELETE", "/v1/vector_stores/vs_gone", {}


def valid(known: Known) -> Iterator[Case]:
    """Yield every request as it should be."""
    for method, path, body in bodies(known):
        yield Case(method, path, json.dumps(body).encode)


def valid_chats(known: Known) -> Iterator[Case]:
    """Yield chat completions that the engine makes as they should be."""
    for body in chat_bodies(known):
        yield Case("POST", CHAT, json.dumps(body).encode)


def chats(known: Known) -> Iterator[Case]:
    """Yield every mutation of them."""
    for body in chat_bodies(known):
        for one in mutations(body):
            yield Case("POST", CHAT, one.make, one.place, one.kind, one.field)


def cases(known: Known) -> Iterator[Case]:
    """Yield every mutation of every request."""
    for method, path, body in bodies(known):
        for one in mutations(body):
            yield Case(method, path, one.make, one.place, one.kind, one.field)
    for method, path, query in addresses(known):
        yield from _of_query(Case(method, path), query)
        yield from _of_path(Case(method, path))


_VALUES = {
    **STRINGS,
    "empty": "",
    "negative": "-1",
    "zero": "0",
    "fraction": "1.5",
    "exponent": "1e3",
    "huge": "9" * 400,
    "large": "9223372036854775808",
    "infinite": "inf",
    "list": "[1]",
    "object": '{"a":1}',
    "true": "true",
    "fullwidth": "\uff11\uff12",
    "surrogate": "%ED%A0%80",
    "bad-utf8": "%FF%FE",
}


def _of_query(case: Case, query: dict[str, str]) -> Iterator[Case]:
    for name in [*query, "no_such_parameter"]:
        for kind, value in _VALUES.items():
            fields = "&".join(f"{key}={quote(text)}" for key, text in query.items() if key != name)
            text = value if value.startswith("%") else quote(value, safe="")
            path = f"{case.path}?{fields}&{name}={text}"
            yield replace(case, path=path, place=f"?{name}", kind=kind)
            yield replace(case, path=f"{path}&{name}={text}", place=f"?{name}", kind=f"{kind}-twice")


def _of_path(case: Case) -> Iterator[Case]:
    parts = case.path.split("/")
    for place in range(2, len(parts)):
        for kind, value in _VALUES.items():
            text = value if value.startswith("%") else quote(value, safe="")
            path = "/".join([*parts[:place], text, *parts[place + 1 :]])
            yield replace(case, path=path, place=f"path[{place}]", kind=kind)


def frames(known: Known) -> Iterator[Case]:
    """Yield every mutation of the messages of a WebSocket."""
    extra: JSON = {"type": "response.create", "stream_id": "lane", "generate": False}
    for body in [*create_bodies(known)[:4], {"model": "chat", "input": "Hi", **extra}]:
        if not body.get("background"):
            for one in mutations({"type": "response.create", **body}):
                yield Case("WS", "/v1/responses", one.make, one.place, one.kind, one.field)


async def prepare(client: Client) -> Known:
    """Make something of every kind."""

    async def make(path: str, body: bytes) -> Any:
        answer = await client.ask("POST", path, body)
        assert answer.status == 200, answer.body
        return answer.json()

    response = await make("/v1/responses", b'{"model": "chat", "input": "Hello!"}')
    conversation = await make("/v1/conversations", b'{"items": [{"role": "user", "content": "Hello!"}]}')
    items = await make(
        f"/v1/conversations/{conversation['id']}/items", b'{"items": [{"role": "user", "content": "Hello!"}]}'
    )
    store = await make("/v1/vector_stores", b'{"name": "tea"}')
    points = b'{"points": [{"text": "Green tea", "file_id": "file_1", "filename": "tea.md"}]}'
    await make(f"/v1/vector_stores/{store['id']}/points", points)
    asked = b'{"model": "chat", "messages": [{"role": "user", "content": "Hello!"}], "store": true}'
    chat = await make("/v1/chat/completions", asked)
    return Known(response["id"], conversation["id"], items["data"][0]["id"], store["id"], chat["id"])
