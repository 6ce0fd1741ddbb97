"""The response resource: every key, the right nulls, items that are whole, and an end that adds up."""

from collections.abc import Iterable, Sequence

from antwort.testing.linting.report import LintReport, shown
from antwort.types import JSON

# fmt: off
_FILLED = (
    "id", "object", "created_at", "status", "model", "output", "tools", "tool_choice", "truncation",
    "parallel_tool_calls", "text", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs", "temperature",
    "store", "background", "service_tier", "metadata",
)
_NULLABLE = (
    "completed_at", "incomplete_details", "previous_response_id", "instructions", "error", "reasoning", "usage",
    "max_output_tokens", "max_tool_calls", "safety_identifier", "prompt_cache_key",
)
# fmt: on
_CHANGING = {"status", "output", "usage", "error", "incomplete_details", "completed_at", "model", "service_tier"}
_UNFINISHED = {"queued", "in_progress"}
_OMITTED = ("phase", "encrypted_content", "content")
_WITHOUT_STATUS = {"compaction", "program"}


def check_response(response: JSON, report: LintReport) -> None:
    """Check a response by itself, at any moment of its life."""
    for key in (*_FILLED, *_NULLABLE):
        report.check("response-keys", key in response, f"the response has no '{key}'")
    for key in _FILLED:
        report.check("response-nulls", key not in response or response[key] is not None, f"'{key}' is null")
    report.equal("response-object", "object", response.get("object"), "response")
    for tool in _dicts(response.get("tools")):
        if tool.get("type") == "function":
            missing = [key for key in ("name", "description", "parameters", "strict") if key not in tool]
            report.check("tool-echo", not missing, f"the echo of a function tool has no {', '.join(missing)}")
    reasoning = response.get("reasoning")
    if isinstance(reasoning, dict):
        report.check("reasoning-echo", {"effort", "summary"} <= set(reasoning), f"reasoning is {shown(reasoning)}")
    _check_end(response, report)
    _check_items(response, report)


def check_stable(snapshots: Sequence[JSON], report: LintReport) -> None:
    """Check that what a request fixed stays the same from the first snapshot to the last."""
    for later in snapshots[1:]:
        for key, value in snapshots[0].items():
            if key not in _CHANGING:
                report.equal("snapshot-stable", f"'{key}' in a later snapshot", later.get(key), value)


def check_nulls(item: JSON, report: LintReport) -> None:
    """Check that what an item does not have is left out of it."""
    for key in _OMITTED:
        report.check("item-nulls", key not in item or item[key] is not None, f"'{key}' of an item is null; omit it")


def _check_end(response: JSON, report: LintReport) -> None:
    status = response.get("status")
    for owner, key in (("failed", "error"), ("incomplete", "incomplete_details")):
        report.check(
            f"status-{key}",
            (response.get(key) is not None) == (status == owner),
            f"{status}, with {key} {shown(response.get(key))}",
        )
    completed = response.get("completed_at")
    if status == "completed":
        report.check("completed-at", completed is not None, "a completed response has no completed_at")
        report.check("usage", response.get("usage") is not None, "a completed response has no usage")
    elif status in _UNFINISHED:
        report.check("completed-at", completed is None, f"completed_at is set while the response is {status}")
    usage = response.get("usage")
    if isinstance(usage, dict):
        total = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        report.equal("usage", "total_tokens", usage.get("total_tokens"), total)


def _check_items(response: JSON, report: LintReport) -> None:
    items = list(_dicts(response.get("output")))
    status = response.get("status")
    ids = [item.get("id") for item in items]
    report.check("item-id", len(set(map(str, ids))) == len(ids), f"ids of items repeat: {shown(ids)}")
    for number, item in enumerate(items):
        kind = item.get("type")
        report.check("item-keys", item.get("id") and kind, f"output[{number}] has no id or no type")
        if kind not in _WITHOUT_STATUS:
            report.check("item-keys", item.get("status"), f"output[{number}], a {kind}, has no status")
        check_nulls(item, report)
        if status not in _UNFINISHED:
            report.check("item-status", item.get("status") != "in_progress", f"output[{number}] is in progress")
        if item.get("status") == "incomplete" and kind in {"message", "function_call", "reasoning"}:
            last = number == len(items) - 1 and status != "completed"
            report.check("incomplete-item", last, f"output[{number}] is incomplete, in a response that is {status}")
        for part in _dicts(item.get("content")):
            if part.get("type") == "output_text":
                report.check("annotations", isinstance(part.get("annotations"), list), "a text has no annotations")


def _dicts(value: object) -> Iterable[JSON]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()
