"""Streams as servers write them, and what each should be understood as."""

import json
from typing import Any

from tests.backends.conftest import DONE, delta, event

Calls = list[tuple[Any, ...]]

VLLM_TEXT = (
    b'data: {"id":"chatcmpl-5c","object":"chat.completion.chunk","created":1731500000,"model":"llama","choices":'
    b'[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
    b'"usage":{"prompt_tokens":9,"total_tokens":9,"completion_tokens":0}}\n\n'
    b'data: {"id":"chatcmpl-5c","object":"chat.completion.chunk","created":1731500000,"model":"llama","choices":'
    b'[{"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null}],'
    b'"usage":{"prompt_tokens":9,"total_tokens":10,"completion_tokens":1}}\n\n'
    b'data: {"id":"chatcmpl-5c","object":"chat.completion.chunk","created":1731500000,"model":"llama","choices":'
    b'[{"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":"stop","stop_reason":null}],'
    b'"usage":{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2}}\n\n'
    b'data: {"id":"chatcmpl-5c","object":"chat.completion.chunk","created":1731500000,"model":"llama","choices":[],'
    b'"usage":{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2}}\n\n'
    b"data: [DONE]\n\n"
)

# An id of its own in every piece, the name only in the first.
VLLM_CALLS = b"".join(
    [
        delta(role="assistant", content=None),
        delta(
            tool_calls=[{"index": 0, "id": "tool-1", "type": "function", "function": {"name": "add", "arguments": ""}}]
        ),
        delta(tool_calls=[{"index": 0, "id": "tool-7", "type": "function", "function": {"arguments": '{"a":'}}]),
        delta(tool_calls=[{"index": 0, "id": "tool-8", "type": "function", "function": {"arguments": "1}"}}]),
        delta(tool_calls=[{"index": 1, "id": "tool-2", "function": {"name": "add", "arguments": '{"a":2}'}}]),
        delta("tool_calls", content=""),
        DONE,
    ]
)

# The answer of an older Ollama: whole calls, all with the index 0, finished with `stop`.
OLLAMA_CALLS = b"".join(
    [
        delta(
            role="assistant",
            content="",
            tool_calls=[
                {"id": "call_a", "index": 0, "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
            ],
        ),
        delta(
            role="assistant",
            content="",
            tool_calls=[
                {"id": "call_b", "index": 0, "type": "function", "function": {"name": "add", "arguments": '{"a":2}'}}
            ],
        ),
        delta("stop", role="assistant", content=""),
        event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}),
        DONE,
    ]
)

LLAMA_CPP_TEXT = (
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,'
    b'"id":"chatcmpl-x","model":"gpt-3.5-turbo","system_fingerprint":"b1","object":"chat.completion.chunk"}\n\n'
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hi"}}],"created":1,"id":"chatcmpl-x"}\n\n'
    b'data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":1,"id":"chatcmpl-x",'
    b'"usage":{"completion_tokens":2,"prompt_tokens":9,"total_tokens":11},"timings":{"prompt_n":9}}\n\n'
    b"data: [DONE]\n\n"
)

LITELLM_TEXT = (
    b": ping\r\n\r\n"
    b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"Hi","role":"assistant","function_call":null,'
    b'"tool_calls":null,"audio":null},"logprobs":null}],"usage":null}\r\n\r\n'
    b'data: {"id":"1","choices":[{"finish_reason":"stop","index":0,"delta":{}}]}\r\n\r\n'
    b'data: {"id":"1","choices":[{"index":0,"delta":{}}],"usage":{"completion_tokens":2,"prompt_tokens":9,'
    b'"total_tokens":11,"prompt_tokens_details":null}}\r\n\r\n'
    b"data: [DONE]\r\n\r\n"
)

OPENAI_CALLS = b"".join(
    [
        delta(role="assistant", content="Let me see."),
        delta(tool_calls=[{"index": 0, "id": "call_1", "function": {"name": "add", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a"'}}]),
        delta(tool_calls=[{"index": 1, "id": "call_2", "function": {"name": "sub", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}]),
        delta(tool_calls=[{"index": 1, "function": {"arguments": "{}"}}]),
        delta("tool_calls"),
        DONE,
    ]
)

DEEPSEEK = b"".join(
    [
        delta(role="assistant", content=None, reasoning_content=""),
        delta(content=None, reasoning_content="Well"),
        delta(content=None, reasoning_content=", yes"),
        delta(content="Yes", reasoning_content=None),
        event(
            {
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 9, "prompt_cache_hit_tokens": 4},
            }
        ),
        DONE,
    ]
)

BOTH_FIELDS = b"".join([delta(reasoning="Well", reasoning_content="Well"), delta(content="Yes"), delta("stop"), DONE])
OPENROUTER = b"".join(
    [
        b": OPENROUTER PROCESSING\n\n",
        delta(content="", reasoning="Well", reasoning_details=[{"type": "reasoning.text", "text": "Well"}]),
        delta(content="", reasoning_details=[{"type": "reasoning.summary", "summary": ", yes"}]),
        delta(content="Yes"),
        delta("stop", content=""),
        DONE,
    ]
)
MISTRAL = b"".join(
    [
        delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Well"}]}]),
        delta(content=[{"type": "text", "text": "Yes"}]),
        delta("stop", content=""),
        DONE,
    ]
)
THINK_TAGS = b"".join(
    [delta(content=part) for part in ("\n<th", "ink>", "\nWe", "ll</thi", "nk>", "\n\n", "Yes <think>", "no")]
    + [delta("stop"), DONE]
)
NO_INDEX = b"".join(
    [
        delta(tool_calls=[{"id": "call_1", "function": {"name": "add", "arguments": '{"a"'}}]),
        delta(tool_calls=[{"id": "call_1", "function": {"name": "add", "arguments": ":1}"}}]),
        delta(tool_calls=[{"id": "call_2", "function": {"name": "add", "arguments": "{}"}}]),
        delta("tool_calls"),
        DONE,
    ]
)
NOTHING_BUT_NAMES = b"".join(
    [
        delta(tool_calls=[{"function": {"name": "add", "arguments": {"a": 1}}}, {"function": {"name": "sub"}}]),
        delta(tool_calls=[{"function": {"name": "add", "arguments": {"a": 2}}}]),
        delta(tool_calls=[{"function": {"name": "add", "arguments": {"a": 3}}}]),
        delta(None),
    ]
)
REPEATED_NAME = b"".join(
    [
        delta(tool_calls=[{"index": 0, "function": {"name": "add", "arguments": None}}]),
        delta(tool_calls=[{"index": 0, "function": {"name": "add", "arguments": '{"a":'}}]),
        delta(tool_calls=[{"index": 0, "function": {"name": "add", "arguments": "{}}"}}]),
        delta("tool_calls"),
        DONE,
    ]
)
LATE_NAME = b"".join(
    [
        delta(tool_calls=[{"index": 0, "id": 7}]),
        delta(tool_calls=[{"index": "0", "function": {"arguments": "{"}}]),
        delta(tool_calls=[{"index": 0, "function": {"name": "add", "arguments": "}"}}]),
        DONE,
    ]
)
LEGACY_CALL = b"".join(
    [
        delta(function_call={"name": "add", "arguments": ""}),
        delta(function_call={"arguments": '{"a":1}'}),
        delta("function_call"),
        DONE,
    ]
)
BLANKS_BEFORE_CALLS = b"".join(
    [delta(content="\n\n"), delta(tool_calls=[{"index": 0, "function": {"name": "add"}}]), delta("tool_calls"), DONE]
)
REFUSAL = b"".join([delta(refusal="I "), delta(refusal="won't."), delta("stop"), DONE])
ODD_CHUNKS = b"".join(
    [
        event({}),
        event({"choices": None, "usage": None}),
        event({"choices": [{"index": 0, "delta": None}]}),
        b"event: message\nid: 4\nretry: 10\ndata:" + json.dumps({"choices": [{"delta": {"content": "Hi"}}]}).encode(),
        b"\n\n",
        b'data: {\ndata: "choices": [{"delta": {"content": "!"},\ndata: "finish_reason": "eos"}]}\n\n',
    ]
)
NO_BLANK_LINES = delta(content="Hi").replace(b"\n\n", b"\n") + delta("stop").replace(b"\n\n", b"\n") + b"data: [DONE]"
BREAKS_OFF = delta(content="Hi").removesuffix(b"\n\n")

DIALECTS: dict[str, tuple[bytes, Calls]] = {
    "vllm text, usage in every chunk": (
        VLLM_TEXT,
        [("text", "Hi"), ("text", "!"), ("usage", 9, 2, 11), ("finish", "stop")],
    ),
    "vllm calls, a new id in every piece": (
        VLLM_CALLS,
        [
            ("call", 0, "tool-1", "add", ""),
            ("call", 0, None, None, '{"a":'),
            ("call", 0, None, None, "1}"),
            ("call", 1, "tool-2", "add", '{"a":2}'),
            ("finish", "tool_calls"),
        ],
    ),
    "ollama calls, one index for all": (
        OLLAMA_CALLS,
        [
            ("call", 0, "call_a", "add", '{"a":1}'),
            ("call", 1, "call_b", "add", '{"a":2}'),
            ("usage", 1, 2, 3),
            ("finish", "tool_calls"),
        ],
    ),
    "llama.cpp text": (LLAMA_CPP_TEXT, [("text", "Hi"), ("usage", 9, 2, 11), ("finish", "stop")]),
    "litellm text": (LITELLM_TEXT, [("text", "Hi"), ("usage", 9, 2, 11), ("finish", "stop")]),
    "openai calls, interleaved": (
        OPENAI_CALLS,
        [
            ("text", "Let me see."),
            ("call", 0, "call_1", "add", ""),
            ("call", 0, None, None, '{"a"'),
            ("call", 1, "call_2", "sub", ""),
            ("call", 0, None, None, ":1}"),
            ("call", 1, None, None, "{}"),
            ("finish", "tool_calls"),
        ],
    ),
    "deepseek thoughts": (
        DEEPSEEK,
        [("reasoning", "Well"), ("reasoning", ", yes"), ("text", "Yes"), ("usage", 5, 9, 14), ("finish", "stop")],
    ),
    "thoughts under two names": (BOTH_FIELDS, [("reasoning", "Well"), ("text", "Yes"), ("finish", "stop")]),
    "thoughts in details": (
        OPENROUTER,
        [("reasoning", "Well"), ("reasoning", ", yes"), ("text", "Yes"), ("finish", "stop")],
    ),
    "content in parts": (MISTRAL, [("reasoning", "Well"), ("text", "Yes"), ("finish", "stop")]),
    "think tags": (
        THINK_TAGS,
        [("reasoning", "We"), ("reasoning", "ll"), ("text", "Yes <think>"), ("text", "no"), ("finish", "stop")],
    ),
    "calls without indexes": (
        NO_INDEX,
        [
            ("call", 0, "call_1", "add", '{"a"'),
            ("call", 0, None, None, ":1}"),
            ("call", 1, "call_2", "add", "{}"),
            ("finish", "tool_calls"),
        ],
    ),
    "calls with nothing but names and objects": (
        NOTHING_BUT_NAMES,
        [
            ("call", 0, None, "add", '{"a":1}'),
            ("call", 1, None, "sub", ""),
            ("call", 2, None, "add", '{"a":2}'),
            ("call", 3, None, "add", '{"a":3}'),
            ("call", 1, None, None, "{}"),
            ("finish", "tool_calls"),
        ],
    ),
    "the name in every piece": (
        REPEATED_NAME,
        [
            ("call", 0, None, "add", ""),
            ("call", 0, None, None, '{"a":'),
            ("call", 0, None, None, "{}}"),
            ("finish", "tool_calls"),
        ],
    ),
    "the name late": (LATE_NAME, [("call", 0, "7", "add", "{}"), ("finish", "tool_calls")]),
    "the one call of old": (
        LEGACY_CALL,
        [("call", 0, None, "add", ""), ("call", 0, None, None, '{"a":1}'), ("finish", "tool_calls")],
    ),
    "blanks before calls": (
        BLANKS_BEFORE_CALLS,
        [("call", 0, None, "add", ""), ("call", 0, None, None, "{}"), ("finish", "tool_calls")],
    ),
    "a refusal": (REFUSAL, [("refusal", "I "), ("refusal", "won't."), ("finish", "stop")]),
    "odd chunks, no [DONE]": (ODD_CHUNKS, [("text", "Hi"), ("text", "!"), ("finish", "stop")]),
    "no blank lines": (NO_BLANK_LINES, [("text", "Hi"), ("finish", "stop")]),
    "no end at all": (BREAKS_OFF, [("text", "Hi"), ("finish", "unfinished")]),
}
