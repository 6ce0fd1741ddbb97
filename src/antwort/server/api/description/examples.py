"""Examples for the API description: one exchange each, as the server would have it."""

from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

import antwort
from antwort.context.agents import AgentInfo, AgentList
from antwort.types import JSON
from antwort.web.routes import Example
from antwort.wire.answers import Model, ModelList
from antwort.wire.items import Message, OutputText
from antwort.wire.responses import CompactedResponse, ResponseObject, Usage

_TIME = 1790000000
_MODEL = "antwort-demo"
_RESPONSE = "resp_4f2c9a"
_CONVERSATION = "conv_81be07"
_MESSAGE = "msg_0d53aa"
_PROMPT = "pmpt_60c2f1"


def _response(**fields: Any) -> JSON:
    """Return a response as it is written, with every key."""
    message = Message(_MESSAGE, "completed", content=[OutputText("Hello! How can I help?")])
    usage = Usage(input_tokens=11, output_tokens=7, total_tokens=18)
    whole: JSON = {"output": [message], "usage": usage, "status": "completed", "completed_at": _TIME + 1, **fields}
    found: JSON = to_builtins(ResponseObject(id=_RESPONSE, created_at=_TIME, model=_MODEL, **whole))
    return found


def _page(*data: JSON) -> JSON:
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"],
        "last_id": data[-1]["id"],
        "has_more": False,
    }


_QUEUED = _response(status="queued", background=True, output=[], usage=None, completed_at=None)
_CALL: JSON = {
    "type": "function_call",
    "id": "fc_77a1c2",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": '{"city":"Berlin"}',
    "status": "completed",
}
_TOOL: JSON = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
_QUESTION: JSON = {
    "type": "message",
    "id": "msg_b91f20",
    "status": "completed",
    "role": "user",
    "content": [{"type": "input_text", "text": "Hello!"}],
}
_ASK: JSON = {"role": "user", "content": "Hello!"}
_OF_RESPONSE = {"response_id": _RESPONSE}
_OF_CONVERSATION = {"conversation_id": _CONVERSATION}
_OF_ITEM = {**_OF_CONVERSATION, "item_id": _QUESTION["id"]}

CREATE_RESPONSE = (
    Example(
        body={"input": "Hello!", "instructions": "Be brief."},
        answer=_response(instructions="Be brief."),
        summary="A text",
    ),
    Example(
        body={"input": "What is the weather in Berlin?", "tools": [_TOOL]},
        answer=_response(tools=[_TOOL], output=[_CALL]),
        summary="A function of the client",
    ),
    Example(body={"input": "Hello!", "background": True}, answer=_QUEUED, summary="In the background"),
)
LIST_RESPONSES = (Example(_page(_response()), parameters={"limit": 20}),)
RETRIEVE_RESPONSE = (Example(_response(), parameters=_OF_RESPONSE),)
DELETE_RESPONSE = (Example({"id": _RESPONSE, "object": "response", "deleted": True}, parameters=_OF_RESPONSE),)
CANCEL_RESPONSE = (
    Example(
        _response(status="cancelled", background=True, output=[], usage=None, completed_at=None),
        parameters=_OF_RESPONSE,
    ),
)
_AGENT = AgentInfo(
    id=_RESPONSE,
    response_id=_RESPONSE,
    parent_id=None,
    call_id=None,
    index=None,
    name="root",
    depth=0,
    status="completed",
    model=_MODEL,
    created_at=_TIME,
    completed_at=_TIME + 9,
    usage=Usage(input_tokens=412, output_tokens=58, total_tokens=470),
)
_SUB_AGENT = replace(
    _AGENT,
    id="resp_c41d",
    response_id="resp_c41d",
    parent_id=_RESPONSE,
    call_id="call_7",
    index=0,
    name="agent",
    depth=1,
)
AGENTS = (Example(to_builtins(AgentList(data=[_AGENT, _SUB_AGENT])), parameters=_OF_RESPONSE),)
_RUN: JSON = {
    "id": _RESPONSE,
    "object": "run",
    "created_at": _TIME,
    "completed_at": _TIME + 9,
    "status": "failed",
    "waiting": False,
    "background": True,
    "model": _MODEL,
    "agent": None,
    "usage": to_builtins(Usage(input_tokens=412, output_tokens=58, total_tokens=470)),
    "error": {"code": "server_error", "message": "The model server is away."},
    "incomplete_details": None,
    "previous_response_id": None,
    "ended_at": _TIME + 9,
    "failed_calls": 1,
    "failed_agents": 0,
    "retry_of": None,
}
_RUN_CALL: JSON = {
    "response_id": _RESPONSE,
    "call_id": "call_1",
    "name": "get_weather",
    "turn": 0,
    "parent": None,
    "state": "ended",
    "status": "error",
    "began_at": _TIME + 1.25,
    "seconds": 0.031,
    "waiting_since": None,
    "question_id": None,
}
_OF_RUN: JSON = {"run_id": _RESPONSE}
LIST_RUNS = (Example(_page(_RUN), parameters={"status": "failed", "limit": 20}),)
RETRIEVE_RUN = (
    Example({**_RUN, "agents": to_builtins([_AGENT, _SUB_AGENT]), "calls": [_RUN_CALL]}, parameters=_OF_RUN),
)
_TRACED_CALL: JSON = {
    "call_id": "call_1",
    "name": "get_weather",
    "state": "ended",
    "status": "error",
    "arguments": '{"city":"Berlin"}',
    "output": "get_weather failed: KeyError: 'Berlin'",
    "item": None,
    "began_at": _TIME + 1.25,
    "seconds": 0.031,
    "waited_seconds": 0,
    "references": [],
    "sources": None,
    "question": None,
    "calls": [],
    "agents": [],
}
_TRACED_TURN: JSON = {
    "number": 1,
    "began_at": _TIME + 0.02,
    "seconds": 1.204,
    "first_token_seconds": 0.38,
    "input_tokens": 412,
    "cached_tokens": 384,
    "output_tokens": 58,
    "finish_reason": "tool_calls",
    "error": None,
    "backends": ["main"],
    "items": [],
    "calls": [_TRACED_CALL],
}
_TRACED: JSON = {
    "id": _RESPONSE,
    "agent": "root",
    "agent_id": _RESPONSE,
    "depth": 0,
    "status": "completed",
    "waiting": False,
    "model": _MODEL,
    "background": False,
    "created_at": _TIME,
    "completed_at": _TIME + 9,
    "previous_response_id": None,
    "usage": to_builtins(Usage(input_tokens=412, output_tokens=58, total_tokens=470)),
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "input": [_QUESTION],
    "turns": [_TRACED_TURN],
    "agents": [],
}
_TRACED_FAILURE: JSON = {
    "response_id": _RESPONSE,
    "agent": "root",
    "turn": 1,
    "call_id": "call_1",
    "name": "get_weather",
    "kind": "call",
    "status": "error",
    "message": _TRACED_CALL["output"],
}
_TRACE: JSON = {
    "object": "trace",
    "id": _RESPONSE,
    "status": "completed",
    "failures": [_TRACED_FAILURE],
    "responses": [_TRACED],
}
TRACE = (Example(_TRACE, parameters={**_OF_RESPONSE, "max_length": 2000}),)
_CLIENT_TRACE_ID = "trace_5b0c1e"
_SENT_TRACE: JSON = {
    "object": "trace",
    "id": _CLIENT_TRACE_ID,
    "workflow_name": "Agent workflow",
    "group_id": "chat_7",
    "metadata": None,
}
_SENT_SPAN: JSON = {
    "object": "trace.span",
    "id": "span_9d1c",
    "trace_id": _CLIENT_TRACE_ID,
    "parent_id": None,
    "started_at": "2026-09-21T14:13:20+00:00",
    "ended_at": "2026-09-21T14:13:22.500000+00:00",
    "span_data": {"type": "response", "response_id": _RESPONSE},
    "error": None,
}
_CLIENT_TRACE: JSON = {
    "id": _CLIENT_TRACE_ID,
    "object": "client_trace",
    "created_at": _TIME + 3,
    "name": "Agent workflow",
    "group_id": "chat_7",
    "metadata": None,
    "started_at": _TIME,
    "ended_at": _TIME + 2.5,
    "span_count": 1,
    "failed_spans": 0,
}
_TRACED_SPAN: JSON = {
    "id": "span_9d1c",
    "type": "response",
    "name": None,
    "started_at": _TIME,
    "seconds": 2.5,
    "data": _SENT_SPAN["span_data"],
    "error": None,
    "response": _TRACED,
    "spans": [],
}
_SPAN_FAILURE: JSON = {
    "span_id": "span_9d1c",
    "type": "response",
    "name": "get_weather",
    "message": _TRACED_FAILURE["message"],
    "failure": _TRACED_FAILURE,
}
_OF_CLIENT_TRACE = {"trace_id": _CLIENT_TRACE_ID}
INGEST_TRACES = (
    Example({"object": "traces.ingested", "traces": 1, "spans": 1}, body={"data": [_SENT_TRACE, _SENT_SPAN]}),
)
LIST_TRACES = (Example(_page(_CLIENT_TRACE), parameters={"group_id": "chat_7", "limit": 20}),)
RETRIEVE_TRACE = (
    Example(
        {**_CLIENT_TRACE, "failures": [_SPAN_FAILURE], "spans": [_TRACED_SPAN]},
        parameters={**_OF_CLIENT_TRACE, "max_length": 2000},
    ),
)
DELETE_TRACE = (
    Example({"id": _CLIENT_TRACE_ID, "object": "client_trace.deleted", "deleted": True}, parameters=_OF_CLIENT_TRACE),
)
RETRY_RUN = (
    Example(
        {**_QUEUED, "id": "resp_9be1d0", "metadata": {"retry_of": _RESPONSE}},
        parameters=_OF_RUN,
    ),
)
INPUT_ITEMS = (Example(_page(_QUESTION), parameters={**_OF_RESPONSE, "limit": 20}),)
INPUT_TOKENS = (Example({"object": "response.input_tokens", "input_tokens": 11}, body={"input": "Hello!"}),)
COMPACT = (
    Example(
        to_builtins(
            CompactedResponse(
                id="resp_c0ffee",
                created_at=_TIME,
                output=[_QUESTION, {"type": "compaction", "id": "cmp_5e11aa", "encrypted_content": "gAAAAB…"}],
                usage=Usage(input_tokens=412, output_tokens=58, total_tokens=470),
            )
        ),
        body={"model": _MODEL, "previous_response_id": _RESPONSE},
    ),
)

_BATCH: JSON = {
    "id": "batch_0a51c7",
    "object": "batch",
    "endpoint": "/v1/responses",
    "errors": None,
    "input_file_id": "file-51ac9e",
    "completion_window": "24h",
    "status": "completed",
    "output_file_id": "file-77b0d1",
    "error_file_id": None,
    "created_at": _TIME,
    "in_progress_at": _TIME + 1,
    "expires_at": _TIME + 86_400,
    "finalizing_at": _TIME + 60,
    "completed_at": _TIME + 61,
    "failed_at": None,
    "expired_at": None,
    "cancelling_at": None,
    "cancelled_at": None,
    "request_counts": {"total": 2, "completed": 2, "failed": 0},
    "metadata": {"night": "12"},
}
_NO_TIMES: JSON = {"output_file_id": None, "finalizing_at": None, "completed_at": None}
_NEW_BATCH: JSON = {
    **_BATCH,
    **_NO_TIMES,
    "status": "validating",
    "in_progress_at": None,
    "request_counts": {"total": 0, "completed": 0, "failed": 0},
}
_ASKED: JSON = {"input_file_id": "file-51ac9e", "endpoint": "/v1/responses", "completion_window": "24h"}
_OF_BATCH = {"batch_id": _BATCH["id"]}
CREATE_BATCH = (Example(_NEW_BATCH, body={**_ASKED, "metadata": {"night": "12"}}),)
LIST_BATCHES = (Example(_page(_BATCH), parameters={"limit": 20}),)
RETRIEVE_BATCH = (Example(_BATCH, parameters=_OF_BATCH),)
CANCEL_BATCH = (
    Example({**_BATCH, **_NO_TIMES, "status": "cancelling", "cancelling_at": _TIME + 9}, parameters=_OF_BATCH),
)
_PROMPT_TEXT = "You help customers of {{shop}}."


def _prompt(**fields: Any) -> JSON:
    return {
        "id": _PROMPT,
        "prompt_id": _PROMPT,
        "object": "prompt",
        "name": "support",
        "template": _PROMPT_TEXT,
        "prompt": _PROMPT_TEXT,
        "version": 1,
        "is_default": True,
        "default_version": 1,
        "latest_version": 1,
        "created_at": _TIME,
        "configured": False,
        **fields,
    }


_SECOND: JSON = {"version": 2, "latest_version": 2, "default_version": 2}
_OF_PROMPT = {"prompt_id": _PROMPT}
_PROMPT_OBJECT: JSON = _prompt(variables=["shop"])
CREATE_PROMPT = (Example(_PROMPT_OBJECT, body={"name": "support", "template": _PROMPT_TEXT}),)
LIST_PROMPTS = (Example(_page(_PROMPT_OBJECT), parameters={"limit": 20}),)
RETRIEVE_PROMPT = (Example(_PROMPT_OBJECT, parameters={**_OF_PROMPT, "version": "1"}),)
PROMPT_VERSIONS = (Example(_page(_PROMPT_OBJECT), parameters={**_OF_PROMPT, "limit": 20}),)
UPDATE_PROMPT = (
    Example({**_PROMPT_OBJECT, **_SECOND}, body={"version": 1, "template": _PROMPT_TEXT}, parameters=_OF_PROMPT),
)
DEFAULT_PROMPT = (Example(_PROMPT_OBJECT, body={"version": 1}, parameters=_OF_PROMPT),)
DELETE_PROMPT = (Example({"id": _PROMPT, "object": "prompt.deleted", "deleted": True}, parameters=_OF_PROMPT),)

_CONVERSATION_OBJECT: JSON = {
    "id": _CONVERSATION,
    "object": "conversation",
    "created_at": _TIME,
    "metadata": {"topic": "greetings"},
}
CREATE_CONVERSATION = (Example(_CONVERSATION_OBJECT, body={"metadata": {"topic": "greetings"}, "items": [_ASK]}),)
LIST_CONVERSATIONS = (Example(_page(_CONVERSATION_OBJECT), parameters={"limit": 20}),)
RETRIEVE_CONVERSATION = (Example(_CONVERSATION_OBJECT, parameters=_OF_CONVERSATION),)
UPDATE_CONVERSATION = (
    Example(_CONVERSATION_OBJECT, body={"metadata": {"topic": "greetings"}}, parameters=_OF_CONVERSATION),
)
DELETE_CONVERSATION = (
    Example({"id": _CONVERSATION, "object": "conversation.deleted", "deleted": True}, parameters=_OF_CONVERSATION),
)
CREATE_ITEMS = (Example(_page(_QUESTION), body={"items": [_ASK]}, parameters=_OF_CONVERSATION),)
LIST_ITEMS = (Example(_page(_QUESTION), parameters={**_OF_CONVERSATION, "limit": 20}),)
RETRIEVE_ITEM = (Example(_QUESTION, parameters=_OF_ITEM),)
DELETE_ITEM = (Example(_CONVERSATION_OBJECT, parameters=_OF_ITEM),)

_LISTED = Model(id=_MODEL, created=_TIME, owned_by="antwort", display_name=_MODEL, created_at="2026-09-21T14:13:20Z")
MODELS = (Example(to_builtins(ModelList(data=[_LISTED], first_id=_MODEL, last_id=_MODEL))),)
MODEL = (Example(to_builtins(_LISTED), parameters={"model": _MODEL}),)

CREATE_MESSAGE = (
    Example(
        {
            "id": "msg_c0ffee",
            "type": "message",
            "role": "assistant",
            "model": _MODEL,
            "content": [{"type": "text", "text": "Hello!"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 11,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 2,
            },
        },
        body={"model": _MODEL, "max_tokens": 256, "messages": [_ASK]},
    ),
)
COUNT_MESSAGES = (Example({"input_tokens": 11}, body={"model": _MODEL, "messages": [_ASK]}),)
_MESSAGE_BATCH: JSON = {
    "id": "msgbatch_0a51c7",
    "type": "message_batch",
    "processing_status": "in_progress",
    "request_counts": {"processing": 1, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0},
    "ended_at": None,
    "created_at": "2026-11-19T20:25:55Z",
    "expires_at": "2026-11-20T20:25:55Z",
    "archived_at": None,
    "cancel_initiated_at": None,
    "results_url": None,
}
_ENDED_BATCH: JSON = {
    **_MESSAGE_BATCH,
    "processing_status": "ended",
    "request_counts": {"processing": 0, "succeeded": 1, "errored": 0, "canceled": 0, "expired": 0},
    "ended_at": "2026-11-19T20:31:20Z",
    "results_url": "http://127.0.0.1:8080/v1/messages/batches/msgbatch_0a51c7/results",
}
_CANCELED = {"processing_status": "canceling", "cancel_initiated_at": "2026-11-19T20:26:10Z"}
_OF_MESSAGES = {"message_batch_id": _MESSAGE_BATCH["id"]}
_PARAMS: JSON = {"model": _MODEL, "max_tokens": 256, "messages": [_ASK]}
CREATE_MESSAGE_BATCH = (Example(_MESSAGE_BATCH, body={"requests": [{"custom_id": "night-0", "params": _PARAMS}]}),)
LIST_MESSAGE_BATCHES = (
    Example(
        {"data": [_ENDED_BATCH], "has_more": False, "first_id": _ENDED_BATCH["id"], "last_id": _ENDED_BATCH["id"]},
        parameters={"limit": 20},
    ),
)
RETRIEVE_MESSAGE_BATCH = (Example(_ENDED_BATCH, parameters=_OF_MESSAGES),)
CANCEL_MESSAGE_BATCH = (Example({**_MESSAGE_BATCH, **_CANCELED}, parameters=_OF_MESSAGES),)
DELETE_MESSAGE_BATCH = (
    Example({"id": _MESSAGE_BATCH["id"], "type": "message_batch_deleted"}, parameters=_OF_MESSAGES),
)
MESSAGE_RESULTS = (Example({"custom_id": "night-0", "result": {"type": "canceled"}}, parameters=_OF_MESSAGES),)
_CHAT: JSON = {
    "id": "chatcmpl-064e3b",
    "object": "chat.completion",
    "created": _TIME,
    "model": "qwen3",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello!"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}
_OF_CHAT = {"completion_id": _CHAT["id"]}
_KEPT_CHAT: JSON = {**_CHAT, "metadata": {"topic": "greetings"}}
_CHAT_MESSAGE: JSON = {"id": f"{_CHAT['id']}-0", **_ASK, "content_parts": None}
CHAT = (
    Example(_CHAT, body={"model": "qwen3", "messages": [_ASK]}),
    Example(
        _KEPT_CHAT,
        body={"model": "qwen3", "messages": [_ASK], "store": True, "metadata": {"topic": "greetings"}},
        summary="One that is kept",
    ),
)
DECISIONS = (
    Example(
        {
            "model": "qwen3",
            "answers": [
                {"type": "predicate", "name": "angry", "probability": 0.93},
                {
                    "type": "choice",
                    "name": "team",
                    "choice": "billing",
                    "confidence": 0.88,
                    "probabilities": [
                        {"value": "billing", "probability": 0.88},
                        {"value": "technical", "probability": 0.12},
                    ],
                },
                {
                    "type": "score",
                    "name": "urgency",
                    "score": 0.75,
                    "confidence": 0.75,
                    "probabilities": [
                        {"value": 0, "label": "can wait", "probability": 0.25},
                        {"value": 1, "label": "today", "probability": 0.75},
                    ],
                },
            ],
            "usage": {
                "input_tokens": 180,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 16,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 196,
            },
        },
        body={
            "model": "qwen3",
            "input": "I was charged twice!",
            "questions": [
                {"type": "predicate", "name": "angry", "instructions": "The customer is angry."},
                {
                    "type": "choice",
                    "name": "team",
                    "instructions": "Who takes care of it?",
                    "choices": [{"value": "billing"}, {"value": "technical", "description": "Errors and outages."}],
                },
                {
                    "type": "score",
                    "name": "urgency",
                    "instructions": "How urgent is it?",
                    "levels": [{"label": "can wait"}, {"label": "today"}],
                },
            ],
        },
    ),
)
_DETAILS: JSON = {
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
_SAID: JSON = {"role": "assistant", "content": "It rains in Uji.", "refusal": None, "annotations": []}
MADE_CHAT = (
    Example(
        {
            **_CHAT,
            "choices": [{"index": 0, "message": _SAID, "logprobs": None, "finish_reason": "stop"}],
            "usage": {**_CHAT["usage"], **_DETAILS},
            "service_tier": "default",
            "system_fingerprint": None,
            "metadata": {},
        },
        body={
            "model": "qwen3",
            "messages": [_ASK],
            "tools": [{"type": "function", "function": {"name": "get_weather"}}],
        },
    ),
)
LIST_CHATS = (
    Example(_page(_KEPT_CHAT), parameters={"limit": 20, "model": "qwen3", "metadata": {"topic": "greetings"}}),
)
RETRIEVE_CHAT = (Example(_KEPT_CHAT, parameters=_OF_CHAT),)
CHAT_MESSAGES = (Example(_page(_CHAT_MESSAGE), parameters={**_OF_CHAT, "limit": 20}),)
UPDATE_CHAT = (Example(_KEPT_CHAT, body={"metadata": {"topic": "greetings"}}, parameters=_OF_CHAT),)
DELETE_CHAT = (Example({"id": _CHAT["id"], "object": "chat.completion.deleted", "deleted": True}, parameters=_OF_CHAT),)
COMPLETION = (
    Example(
        {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": _TIME,
            "model": "qwen3",
            "choices": [{"index": 0, "text": " upon a time", "logprobs": None, "finish_reason": "length"}],
        },
        body={"model": "qwen3", "prompt": "Once", "max_tokens": 3},
    ),
)
EMBEDDINGS = (
    Example(
        {
            "object": "list",
            "model": "minilm",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.12, -0.08, 0.31]}],
        },
        body={"model": "minilm", "input": "Hello!"},
    ),
)

MODERATIONS = (
    Example(
        {"id": "modr_51c0", "model": "guard", "results": [{"flagged": False, "categories": {}, "category_scores": {}}]},
        body={"model": "guard", "input": "Hello!"},
    ),
)
IMAGES = (
    Example(
        {"created": _TIME, "data": [{"b64_json": "iVBORw0KGgo="}]},
        body={"model": "painter", "prompt": "A lighthouse.", "size": "1024x1024"},
    ),
)
_STATE: JSON = {"version": antwort.__version__, "model": "the built-in demo model (antwort-demo)"}
INDEX = (
    Example(
        {
            "name": "antwort",
            "version": antwort.__version__,
            "hint": "This server speaks OpenAI's Responses API: POST /v1/responses …",
            "responses": "/v1/responses",
            "models": "/v1/models",
            "functions": "/v1/functions",
            "openapi": "/openapi.json",
            "ready": "/readyz",
            "metrics": "/metrics",
        }
    ),
)
HEALTH = (Example({"status": "ok", **_STATE}),)
READY = (
    Example(
        {
            "status": "ready",
            **_STATE,
            "backends": [{"name": "local", "state": "ok", "models": 3}],
            "services": [{"provider": "tools", "name": "tickets", "state": "ok"}],
        }
    ),
)
METRICS = (Example('antwort_http_requests_total{method="GET",path="/v1/models",status="200"} 3.0\n'),)
OPENAPI = (Example({"openapi": "3.1.0", "info": {"title": "antwort", "version": antwort.__version__}, "paths": {}}),)
_FUNCTION_OBJECT: JSON = {
    "object": "function",
    "name": "roll",
    "description": "Roll dice.",
    "provider": "dice",
    "scope": "core",
    "parameters": {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": []},
    "tool_types": [],
    "enabled": True,
    "disabled": None,
}
_PROVIDER_OBJECT: JSON = {
    "object": "provider",
    "name": "dice",
    "enabled": True,
    "disabled": None,
    "offer": "always",
    "functions": ["roll"],
    "routes": ["GET /v1/dice/rolls"],
    "checks": [],
    "services": [],
}
FUNCTIONS = (Example({"object": "list", "data": [_FUNCTION_OBJECT]}),)
PROVIDERS = (Example({"object": "list", "data": [_PROVIDER_OBJECT]}),)
SETTINGS = (
    Example(
        {
            "object": "list",
            "data": [
                {"object": "setting", "key": "server.port", "value": 8080, "origin": "antwort.yaml:3"},
                {"object": "setting", "key": "backends.main.api_key", "value": "********", "origin": "flag --key"},
            ],
        }
    ),
)
_KEY_OBJECT: JSON = {
    "object": "api_key",
    "id": "f7k2m4q6ab",
    "tenant": "acme",
    "subject": "nightly",
    "scopes": ["responses:write", "runs:read"],
    "created_at": _TIME,
    "expires_at": _TIME + 86_400,
    "label": "The report of the night",
    "source": "file",
}
KEYS = (Example({"object": "list", "data": [_KEY_OBJECT]}),)
CREATE_KEY = (
    Example(
        {**_KEY_OBJECT, "key": "ak_f7k2m4q6ab_…"},
        body={name: _KEY_OBJECT[name] for name in ("subject", "scopes", "expires_at", "label")},
    ),
)
REVOKE_KEY = (Example({"object": "api_key", "id": "f7k2m4q6ab", "deleted": True}, parameters={"key_id": "f7k2m4q6ab"}),)
_DISABLED: JSON = {"kind": "provider", "name": "dice", "by": "ops", "since": _TIME}
_PROVIDER_OFF: JSON = {**_PROVIDER_OBJECT, "enabled": False, "disabled": _DISABLED, "functions": [], "routes": []}
_FUNCTION_OFF: JSON = {
    **_FUNCTION_OBJECT,
    "enabled": False,
    "disabled": {**_DISABLED, "kind": "function", "name": "roll"},
}
DISABLE_PROVIDER = (Example(_PROVIDER_OFF, parameters={"provider_name": "dice"}),)
ENABLE_PROVIDER = (Example(_PROVIDER_OBJECT, parameters={"provider_name": "dice"}),)
DISABLE_FUNCTION = (Example(_FUNCTION_OFF, parameters={"function_name": "roll"}),)
ENABLE_FUNCTION = (Example(_FUNCTION_OBJECT, parameters={"function_name": "roll"}),)
