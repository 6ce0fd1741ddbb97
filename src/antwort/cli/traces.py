"""The story of a run as a tree: agents, turns of models, calls, each with its time and a mark if it has failed."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from antwort.cli.terminal import harmless
from antwort.types import JSON

_LONGEST = 100
"""Characters of a text in a line."""
_MOST = 50
"""Branches that are drawn of one node, apart from those that have failed."""
_MARKS = {
    "completed": "✓",
    "success": "✓",
    "in_progress": "…",
    "queued": "…",
    "begun": "…",
    "approved": "…",
    "waiting": "?",
    "incomplete": "!",
    "interrupted": "!",
}
_FAILED = "✗"
_REASONS = {
    "budget": "the tokens, the cost or the time of the run are spent (engine.run)",
    "deadline": "its time was over before it had answered (engine.deadline, or the timeout of a sub-agent)",
    "max_turns": "it had no turn left (engine.max_turns, or the agent's)",
    "max_output_tokens": "its answer has reached the most tokens that it may have",
    "repeated_calls": "it has made the same call over and over",
    "unfinished": "the stream of the model server broke off",
}
"""Why there is no whole answer, where the word alone says too little."""


class _Node(Struct):
    text: str
    below: "Sequence[_Node]" = ()
    failed: bool = False
    """Whether it, or something below it, did not work."""


def explained(reason: str) -> str:
    """Return why a response has ended early, in words."""
    return f"{reason}: {_REASONS[reason]}" if reason in _REASONS else reason


def drawn_trace(trace: JSON) -> Iterator[str]:
    """Yield the lines of the tree, and after it what did not work."""
    yield from _drawn([_response(response) for response in trace["responses"]], "")
    failures: Sequence[JSON] = trace["failures"]
    if failures:
        yield ""
        yield "What did not work:"
    for failure in failures[:_MOST]:
        yield f"  {_where(failure)}: {_message(failure)}"
    if len(failures) > _MOST:
        yield f"  … and {len(failures) - _MOST:,} more"


def _drawn(nodes: Sequence[_Node], indent: str) -> Iterator[str]:
    shown = [node for number, node in enumerate(nodes) if number < _MOST or node.failed]
    left_out = len(nodes) - len(shown)
    for node in shown:
        is_last = node is shown[-1] and not left_out
        yield f"{indent}{'└─' if is_last else '├─'} {node.text}"
        yield from _drawn(node.below, f"{indent}{'   ' if is_last else '│  '}")
    if left_out:
        yield f"{indent}└─ … and {left_out:,} more"


# --- what a line says -------------------------------------------------------------------------------------------------


def _response(response: JSON) -> _Node:
    state = "waiting" if response["waiting"] else str(response["status"])
    why = (response["error"] or {}).get("message") or (response["incomplete_details"] or {}).get("reason") or ""
    parts = [harmless(str(response["agent"])), f"({harmless(str(response['model']))})", response["id"]]
    if state != "completed":
        parts.append(state)
    below = [*map(_turn, response["turns"] or ()), *map(_response, response["agents"])]
    if response["turns"] is None:
        below.insert(0, _Node("… too many agents to tell what each has done"))
    text = " ".join([_MARKS.get(state, _FAILED), *parts]) + (f": {_short(why)}" if why else "")
    return _Node(text, below, state in {"failed", "incomplete", "cancelled"} or any(node.failed for node in below))


def _turn(turn: JSON) -> _Node:
    parts = [f"turn {turn['number']}" if turn["number"] else "before the first turn"]
    if turn["seconds"] is not None:
        first = turn["first_token_seconds"]
        parts.append(f"{turn['seconds']:.2f} s" + ("" if first is None else f" (first token {first:.2f} s)"))
    if turn["input_tokens"] or turn["output_tokens"]:
        cached = f", {turn['cached_tokens']:,} cached" if turn["cached_tokens"] else ""
        parts.append(f"{turn['input_tokens']:,} tokens in{cached}, {turn['output_tokens']:,} out")
    if len(turn["backends"]) > 1:
        parts.append(f"asked {', then '.join(map(harmless, turn['backends']))}")
    said = " ".join(filter(None, (_said(item) for item in turn["items"])))
    text = "  ".join(parts) + (f"  {_FAILED} {_short(turn['error'])}" if turn["error"] else "")
    below = [*([_Node(_short(said))] if said else []), *map(_call, turn["calls"])]
    return _Node(text, below, bool(turn["error"]) or any(node.failed for node in below))


def _call(call: JSON) -> _Node:
    outcome = call["status"] or call["state"]
    mark = _MARKS.get(call["state"] if call["state"] != "ended" else str(outcome), _FAILED)
    line = f"{mark} {harmless(str(call['name']))}({_short(call['arguments'])})"
    if call["seconds"] is not None:
        waited = f", {call['waited_seconds']:,} of them waiting" if call["waited_seconds"] else ""
        line += f"  {call['seconds']:.3f} s{waited}"
    if mark in {_FAILED, "!"}:
        line += f"  {_short(call['output'] or outcome)}"
    below = [*([_question(call["question"])] if call["question"] else []), *map(_call, call["calls"])]
    below += map(_response, call["agents"])
    return _Node(line, below, mark in {_FAILED, "!"} or any(node.failed for node in below))


def _question(question: JSON) -> _Node:
    asked, answer = question["asked"], question["answer"] or {}
    wanted = asked.get("question") or asked.get("name") or question["kind"]
    said = answer.get("text") or ""
    if "approve" in answer:
        said = (
            "approved" if answer["approve"] else ": ".join(filter(None, ["refused", str(answer.get("reason") or "")]))
        )
    return _Node(f"? {_short(str(wanted))}: {_short(str(said)) if said else question['status']}")


def _said(item: JSON) -> str:
    """Return what an item says: the text of a message, or what it is."""
    content = item.get("content")
    texts = [part.get("text") or part.get("refusal") or "" for part in content or () if isinstance(part, dict)]
    if item.get("type") == "message":
        return " ".join(filter(None, texts))
    name = item.get("name")
    return f"[{item.get('type')}{f' {name}' if name else ''}]"


def _message(failure: JSON) -> str:
    message = str(failure["message"] or failure["status"])
    return _short(explained(message) if failure["kind"] == "response" else message)


def _where(failure: JSON) -> str:
    agent = harmless(str(failure["agent"]))
    place = f"{agent}, turn {failure['turn']}" if failure["turn"] else agent
    return f"{place}, {harmless(str(failure['name']))}" if failure["name"] else place


def _short(text: str) -> str:
    line = harmless(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
