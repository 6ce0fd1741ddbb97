"""What the tests of the Open Responses contract share: a linted request, and what a model was asked with."""

from typing import Any

from tests.http.sdk import Served

from antwort.testing import lint_response
from antwort.types import JSON

__all__ = ["DEFAULTS", "NULLABLE", "ask", "called_back", "post", "said", "texts"]

DEFAULTS: JSON = {
    "background": False,
    "frequency_penalty": 0,
    "metadata": {},
    "object": "response",
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "service_tier": "default",
    "store": True,
    "temperature": 1,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1,
    "truncation": "disabled",
}
"""What a response says of a request that left everything out; none of it is ever null."""
NULLABLE = {
    "completed_at",
    "error",
    "incomplete_details",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "usage",
}
"""The keys of a response that may be null, and are there all the same."""


def post(stage: Served, path: str = "/responses", **body: Any) -> tuple[int, JSON]:
    """Send a body and return the status and the answer."""
    found = stage.request("POST", path, json={"model": "scripted", **body})
    assert found.headers["content-type"].startswith("application/json")
    answer: JSON = found.json()
    return found.status_code, answer


def ask(stage: Served, text: str | list[JSON] = "Hi", /, **fields: Any) -> JSON:
    """Create a response that keeps every rule, and return it."""
    status, answer = post(stage, input=text, **fields)
    assert status == 200, answer
    return lint_response(answer)


def said(role: str, text: str) -> JSON:
    """Return a message as clients send it."""
    return {"type": "message", "role": role, "content": text}


def called_back(call_id: str, output: str | list[JSON] = "done") -> JSON:
    """Return the output of a call."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def texts(stage: Served, number: int = -1) -> list[str]:
    """Return the texts of all messages that the model read in a request."""
    items = [item for item in stage.requests[number].items if item["type"] == "message"]
    return [part["text"] for item in items for part in item["content"] if "text" in part]
