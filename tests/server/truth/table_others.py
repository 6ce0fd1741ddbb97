"""Requests besides those for responses, and what OpenAI answers."""

from typing import Any

from tests.server.truth.rows import Row, refused, rows, taken

__all__ = ["TABLE"]

USER: Any = {"type": "message", "role": "user", "content": "Hi"}
CALL: Any = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}

METADATA = [
    *taken({"metadata": {}}, {"metadata": None}, {"metadata": {"a": "b"}}, {"metadata": {"a": None}}),
    *refused("metadata", "invalid_type", {"metadata": 1}),
    *refused("metadata.a", "invalid_type", {"metadata": {"a": 1}}),
    *refused("metadata.a", "string_above_max_length", {"metadata": {"a": "v" * 513}}),
    *refused("metadata", "object_above_max_properties", {"metadata": {str(n): "v" for n in range(17)}}),
]
UNKNOWN = refused("no_such_field", "unknown_parameter", {"no_such_field": 1})
CREATING = [
    *METADATA,
    *UNKNOWN,
    *taken({"items": None}, {"items": []}, {"items": [USER]}, {"items": [CALL]}),
    *refused("items", "invalid_type", {"items": "Hi"}),
    *refused("items", "array_above_max_length", {"items": [USER] * 21}),
    *refused("items[0].role", "invalid_value", {"items": [{**USER, "role": "nobody"}]}),
    *refused("items[0].no_such", "unknown_parameter", {"items": [{**USER, "no_such": 1}]}),
    *refused("items[1].call_id", "missing_required_parameter", {"items": [USER, {"type": "function_call"}]}),
    *refused("items[0].id", "invalid_value", {"items": [{**USER, "id": "item_1"}]}),
    *refused("items[0].id", "invalid_value", {"items": [{**CALL, "id": "msg_1"}]}),
    *refused("items", None, {"items": [{"type": "item_reference", "id": "msg_gone"}]}, status=404),
    *refused("items", "item_already_in_conversation", {"items": [{**USER, "id": "msg_9"}, {**USER, "id": "msg_9"}]}),
]
ADDING = [
    *taken({"items": [USER]}),
    *refused("items", "missing_required_parameter", {}),
    *refused("items", "empty_array", {"items": []}),
    *refused("items", "array_above_max_length", {"items": [USER] * 21}),
    *refused("items", "item_already_in_conversation", {"items": [{**USER, "id": "{item}"}]}),
    *refused("items", "item_already_in_conversation", {"items": [{"type": "item_reference", "id": "{item}"}]}),
]
ONE = "/conversations/{conversation}"
CONVERSATIONS = [
    Row("POST", "/conversations", None, 200),
    *rows("POST", "/conversations", {}, CREATING),
    *rows("POST", ONE, {}, [*METADATA, *refused("metadata", "missing_required_parameter", {})]),
    *rows("POST", f"{ONE}/items", {}, ADDING),
    Row("GET", ONE, None, 200),
    *rows("GET", "/conversations/conv_gone", None, refused(None, None, None, status=404)),
    *rows("DELETE", "/conversations/conv_gone", None, refused(None, None, None, status=404)),
    *rows("GET", "/conversations/resp_1", None, refused("conversation_id", "invalid_value", None)),
    *rows("DELETE", "/conversations/nothing", None, refused("conversation_id", "invalid_value", None)),
    *rows("GET", "/conversations/resp_1/items", None, refused("conversation_id", "invalid_value", None)),
    *rows("GET", f"/conversations/conv_{'a' * 64}", None, refused("conversation_id", "string_above_max_length", None)),
    Row("GET", f"{ONE}/items?limit=2&order=asc&include[]=message.output_text.logprobs", None, 200),
    Row("GET", f"{ONE}/items/{{item}}", None, 200),
    *rows("GET", f"{ONE}/items/msg_gone", None, refused(None, None, None, status=404)),
    *rows("DELETE", f"{ONE}/items/msg_gone", None, refused(None, None, None, status=404)),
    *rows("GET", f"{ONE}/items?after=msg_gone", None, refused("after", None, None, status=404)),
    *rows("GET", f"{ONE}/items?limit=101", None, refused("limit", "integer_above_max_value", None)),
    *rows("GET", f"{ONE}/items?limit=0", None, refused("limit", "integer_below_min_value", None)),
    *rows("GET", f"{ONE}/items?limit=many", None, refused("limit", "invalid_type", None)),
    *rows("GET", f"{ONE}/items?order=up", None, refused("order", "invalid_value", None)),
    *rows("GET", f"{ONE}/items?include=all", None, refused("include", "invalid_value", None)),
    *rows("GET", f"{ONE}/items?before=x", None, refused("before", "unknown_parameter", None)),
    *rows("GET", f"{ONE}?x=1", None, refused("x", "unknown_parameter", None)),
]
STORE = "/vector_stores/{store}"
DAYS = {"anchor": "last_active_at"}
SEARCHING = [
    *taken({}, {"query": ["tea", "milk"]}, {"filters": None}, {"max_num_results": None}, {"ranking_options": None}),
    *taken({"rewrite_query": None}, {"rewrite_query": True}, {"max_num_results": 50}),
    *taken({"filters": {"type": "eq", "key": "a", "value": "b"}}, {"ranking_options": {"ranker": "none"}}),
    *UNKNOWN,
    *refused("query", "invalid_type", {"query": 1}),
    *refused("max_num_results", "integer_above_max_value", {"max_num_results": 51}),
    *refused("max_num_results", "integer_below_min_value", {"max_num_results": 0}),
    *refused("max_num_results", "invalid_type", {"max_num_results": "5"}),
    *refused("rewrite_query", "invalid_type", {"rewrite_query": "no"}),
    *refused("filters", "invalid_type", {"filters": "a"}),
    *refused(
        "filters.no_such", "unknown_parameter", {"filters": {"type": "eq", "key": "a", "value": "b", "no_such": 1}}
    ),
    *refused("ranking_options.no_such", "unknown_parameter", {"ranking_options": {"no_such": 1}}),
    *refused("ranking_options.score_threshold", "decimal_above_max_value", {"ranking_options": {"score_threshold": 2}}),
]
VECTOR_STORES = [
    *rows("POST", "/vector_stores", {"name": "n"}, [*METADATA, *UNKNOWN]),
    *rows("POST", "/vector_stores", {}, refused("name", "invalid_type", {"name": 1})),
    *rows("POST", "/vector_stores", {}, refused(
        "expires_after.days", "missing_required_parameter", {"expires_after": DAYS})),
    *rows("POST", "/vector_stores", {}, refused(
        "expires_after.days", "integer_above_max_value", {"expires_after": {**DAYS, "days": 366}})),
    *rows("POST", "/vector_stores", {}, refused(
        "expires_after.anchor", "invalid_value", {"expires_after": {"anchor": "created_at", "days": 1}})),
    *rows("POST", STORE, {}, [*METADATA, *UNKNOWN, *taken({"name": None}, {"expires_after": None})]),
    *rows("POST", f"{STORE}/search", {"query": "tea"}, SEARCHING),
    *rows("POST", f"{STORE}/search", {}, refused("query", "missing_required_parameter", {})),
    *rows("GET", "/vector_stores/vs_gone", None, refused("vector_store_id", None, None, status=404)),
    *rows("GET", "/vector_stores?limit=101", None, refused("limit", "integer_above_max_value", None)),
    *rows("GET", "/vector_stores?x=1", None, refused("x", "unknown_parameter", None)),
]  # fmt: skip
CONTAINERS = [
    *rows("POST", "/containers", {"name": "n"}, taken({}, {"memory_limit": "1g"}, {"expires_after": None})),
    *rows("POST", "/containers", {"name": "n"}, UNKNOWN),
    *rows("POST", "/containers", {}, refused("name", "missing_required_parameter", {})),
    *rows("POST", "/containers", {}, refused("name", "invalid_type", {"name": 1})),
    *rows("POST", "/containers", {"name": "n"}, refused("memory_limit", "invalid_value", {"memory_limit": "2g"})),
    *rows("GET", "/containers/cntr_gone", None, refused("container_id", None, None, status=404)),
    *rows("GET", "/containers?order=up", None, refused("order", "invalid_value", None)),
    *rows("GET", "/containers?x=1", None, refused("x", "unknown_parameter", None)),
]
MODELS = [
    Row("GET", "/models", None, 200),
    Row("GET", "/models/scripted", None, 200),
    *rows("GET", "/models?x=1", None, refused("x", "unknown_parameter", None)),
    *rows("GET", "/models/none", None, refused("model", "model_not_found", None, status=404)),
    *rows("GET", "/nothing", None, refused(None, None, None, status=404)),
    *rows("PUT", "/models", None, refused(None, "method_not_allowed", None, status=405)),
]
TABLE = [*CONVERSATIONS, *VECTOR_STORES, *CONTAINERS, *MODELS]
