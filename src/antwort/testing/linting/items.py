"""The life of an output item: added empty, then its parts, arguments or phases, filled by deltas, and done."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from antwort.testing.linting.report import LintReport, shown
from antwort.types import JSON

# --- the response resource -------------------------------------------------------------------------------------------


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


# --- the life of an output item --------------------------------------------------------------------------------------


TEXTS = {
    "output_text": ("content_index", "output_text", "text"),
    "refusal": ("content_index", "refusal", "refusal"),
    "reasoning_text": ("content_index", "reasoning_text", "text"),
    "reasoning_summary_text": ("summary_index", "summary_text", "text"),
}
"""By the name in the event: the key of the index, the type of the part, and the field of the text."""

_EMPTY: dict[object, JSON] = {
    "output_text": {"text": "", "annotations": [], "logprobs": []},
    "refusal": {"refusal": ""},
    "reasoning_text": {"text": ""},
    "summary_text": {"text": ""},
}
_ZERO: dict[object, JSON] = {
    "message": {"content": [], "role": "assistant"},
    "function_call": {"arguments": ""},
    "reasoning": {"summary": []},
}
_CONSTANT = ("id", "type", "role", "name", "call_id")
_ENDS = ("completed", "failed", "incomplete")
_ROOT = "/root"
"""The agent whose response it is, in streams that show others, too."""


@dataclass(slots=True)
class PartState:
    """What is known of a part so far."""

    type: object
    deltas: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    annotations: list[Any] = field(default_factory=list)
    text: str | None = None
    """The text of the `…done` event."""
    closed: JSON | None = None
    """The part of the `…part.done` event."""


class PartStates:
    """The parts of one item, under one index: `content_index` or `summary_index`."""

    def __init__(self, index: str, report: LintReport) -> None:
        self._index = index
        self._report = report
        self._parts: list[PartState] = []

    def add(self, event: JSON) -> None:
        """Take `content_part.added` or `reasoning_summary_part.added`."""
        self._report.equal("part-index", self._index, event.get(self._index), len(self._parts))
        part = event.get("part")
        given = part if isinstance(part, dict) else {}
        empty = _EMPTY.get(given.get("type"), {})
        if {"text", "refusal"} & set(given):
            zero = all(given.get(key) == value for key, value in empty.items())
            self._report.check("part-zero", zero, f"a part is added empty, not as {shown(given)}")
        self._parts.append(PartState(given.get("type")))

    def delta(self, event: JSON, kind: str) -> None:
        """Take a piece of text."""
        part = self._open(event, kind)
        if part is not None:
            self._report.check("delta-after-done", part.text is None, "a delta after the text was done")
            part.deltas.append(str(event.get("delta")))
            part.logprobs += event.get("logprobs") or []

    def text_done(self, event: JSON, kind: str, key: str) -> None:
        """Take the whole text."""
        part = self._open(event, kind)
        if part is not None:
            self._report.check("text-done-once", part.text is None, "the text is done twice")
            part.text = str(event.get(key))
            self._report.equal("deltas-text", "the text", part.text, "".join(part.deltas))
            if "logprobs" in event:
                self._report.equal("logprobs", "logprobs", event["logprobs"], part.logprobs)

    def annotate(self, event: JSON) -> None:
        """Take `output_text.annotation.added`."""
        part = self._open(event, "output_text")
        if part is not None:
            index = event.get("annotation_index")
            self._report.equal("annotation-index", "annotation_index", index, len(part.annotations))
            part.annotations.append(event.get("annotation"))

    def close(self, event: JSON) -> None:
        """Take `content_part.done` or `reasoning_summary_part.done`."""
        given = event.get("part")
        closed: JSON = given if isinstance(given, dict) else {}
        part = self._open(event, closed.get("type"))
        if part is None:
            return
        part.closed = closed
        key = "refusal" if part.type == "refusal" else "text"
        text = "".join(part.deltas) if part.text is None else part.text
        self._report.equal("part-text", f"{key} of the part", closed.get(key), text)
        if part.type == "output_text":
            self._report.equal("annotations", "annotations of the part", closed.get("annotations"), part.annotations)
            self._report.equal("logprobs", "logprobs of the part", closed.get("logprobs"), part.logprobs)

    def check_texts(self) -> None:
        """Check that the text of each part was done before the part."""
        for part in self._parts:
            ended = part.text is not None or part.type not in _EMPTY
            self._report.check("text-done", ended, "the part ends without the event of its text")

    def final(self) -> list[JSON]:
        """Return the parts as the finished item must have them."""
        for number, part in enumerate(self._parts):
            self._report.check("part-done", part.closed is not None, f"part {number} of the item was never done")
        return [part.closed for part in self._parts if part.closed is not None]

    def _open(self, event: JSON, kind: object) -> PartState | None:
        index = event.get(self._index)
        known = isinstance(index, int) and 0 <= index < len(self._parts)
        if not self._report.check("part-open", known, f"no part with {self._index} {shown(index)} was added"):
            return None
        part = self._parts[int(str(index))]
        if not self._report.check("part-open", part.closed is None, f"the part with {self._index} {index} is done"):
            return None
        fits = part.type == kind
        return (
            part if self._report.check("part-type", fits, f"the part is {part.type}, the event is for {kind}") else None
        )


@dataclass(slots=True)
class ItemState:
    """What is known of an item so far."""

    index: int
    added: JSON
    content: PartStates
    summary: PartStates
    deltas: dict[str, list[str]] = field(default_factory=dict)
    """Deltas of fields of the item itself, such as `arguments`."""
    values: dict[str, str] = field(default_factory=dict)
    """Those fields, as their `…done` events gave them."""
    phases: list[str] = field(default_factory=list)
    done: JSON | None = None
    is_others: bool = False
    """Whether a sub-agent has written it: it is no part of the output."""

    @property
    def type(self) -> str:
        """The type of the item."""
        return str(self.added.get("type"))


class Items:
    """Follows the items of a stream. `known` are the event types of the SDK: they tell which items have phases."""

    def __init__(self, report: LintReport, known: Collection[str]) -> None:
        self._report = report
        self._known = known
        self._items: list[ItemState] = []
        self._taken: dict[str, Callable[[JSON], None]] = {
            "output_item.added": self._added,
            "output_item.done": self._done,
            "content_part.added": lambda e: self._with(e, lambda item: item.content.add(e)),
            "content_part.done": lambda e: self._with(e, lambda item: item.content.close(e)),
            "reasoning_summary_part.added": lambda e: self._with(e, lambda item: item.summary.add(e)),
            "reasoning_summary_part.done": lambda e: self._with(e, lambda item: item.summary.close(e)),
            "output_text.annotation.added": lambda e: self._with(e, lambda item: item.content.annotate(e)),
        }

    def take(self, event: JSON) -> None:
        """Take an event that belongs to an item; others are ignored."""
        name = str(event.get("type")).removeprefix("response.")
        stem, _, verb = name.rpartition(".")
        if name in self._taken:
            self._taken[name](event)
        elif stem in TEXTS:
            self._with(event, lambda item: self._text(item, event, stem, verb))
        elif "item_id" in event:
            self._with(event, lambda item: self._own(item, event, stem, verb))

    def finish(self, response: JSON) -> list[JSON]:
        """Return the finished items in order, as the terminal response must have them."""
        status = response.get("status")
        left_out = _left_out(self._items, response)
        own = [item for item in self._items if not item.is_others and item.index not in left_out]
        for item in own:
            if item.done is not None and item.done.get("status") == "incomplete":
                item.content.check_texts()
        finished = [item.done for item in own if item.done is not None]
        if status in {"completed", "incomplete"}:
            for item in self._items:
                self._report.check("item-done", item.done is not None, f"item {item.index} was never done")
        return finished

    # --- items -------------------------------------------------------------------------------------------------------

    def _added(self, event: JSON) -> None:
        given = event.get("item")
        item: JSON = given if isinstance(given, dict) else {}
        self._report.equal("output-index", "output_index", event.get("output_index"), len(self._items))
        known = {state.added.get("id") for state in self._items}
        self._report.check(
            "item-id", item.get("id") and item["id"] not in known, f"id {shown(item.get('id'))} is not new"
        )
        check_nulls(item, self._report)
        kind = str(item.get("type"))
        if not (kind == "compaction" or kind.endswith("_output")):  # these are born whole
            self._report.equal("item-zero", "status of an added item", item.get("status"), "in_progress")
            for key, value in _ZERO.get(kind, {}).items():
                self._report.equal("item-zero", f"{key} of an added {kind}", item.get(key), value)
            if kind == "reasoning":
                self._report.check("item-zero", not item.get("content"), "an added reasoning item has content")
        state = ItemState(
            len(self._items), item, PartStates("content_index", self._report), PartStates("summary_index", self._report)
        )
        state.is_others = (event.get("agent") or {}).get("agent_name", _ROOT) != _ROOT
        self._items.append(state)

    def _done(self, event: JSON) -> None:
        given = event.get("item")
        item: JSON = given if isinstance(given, dict) else {}
        state = self._find(item.get("id"), event.get("output_index"))
        if state is None:
            return
        state.done = {key: value for key, value in item.items() if key != "agent"}
        for key in _CONSTANT:
            self._report.equal("item-identity", key, item.get(key), state.added.get(key))
        status = item.get("status", "completed")
        self._report.check("item-status", status in _ENDS, f"a done item has status {shown(status)}")
        self._contents(state, item)
        self._fields(state, item, status)
        self._phases(state, status)

    def _contents(self, state: ItemState, item: JSON) -> None:
        content, summary = state.content.final(), state.summary.final()
        state.summary.check_texts()
        if item.get("status") != "incomplete":  # what was cut off may be left out in the end
            state.content.check_texts()
        if state.type == "message":
            self._report.equal("item-content", "content", item.get("content"), content)
        elif state.type == "reasoning":
            self._report.equal("item-content", "content", item.get("content", []), content)
            self._report.equal("item-summary", "summary", item.get("summary"), summary)

    def _fields(self, state: ItemState, item: JSON, status: object) -> None:
        if state.type == "function_call" and status == "completed":
            self._report.check("arguments-done", "arguments" in state.values, "no function_call_arguments.done came")
        for key, deltas in state.deltas.items():
            self._report.equal("item-field", f"{key} of the item", item.get(key), "".join(deltas))
        for key, value in state.values.items():
            self._report.equal("item-field", f"{key} of the item", item.get(key), value)

    def _phases(self, state: ItemState, status: object) -> None:
        expected = f"response.{state.type}.in_progress" in self._known
        if expected and status == "completed":
            wanted = state.phases[:1] == ["in_progress"] and state.phases[-1:] == ["completed"]
            self._report.check("phases", wanted, f"a {state.type} had the phases {shown(state.phases)}")
        elif expected:
            self._report.check("phases", "completed" not in state.phases, f"an item that is {status} has completed")

    # --- what belongs to an item -------------------------------------------------------------------------------------

    def _with(self, event: JSON, use: Callable[[ItemState], None]) -> None:
        state = self._find(event.get("item_id"), event.get("output_index"))
        if state is not None:
            use(state)

    def _find(self, item_id: object, index: object) -> ItemState | None:
        state = next((state for state in self._items if state.added.get("id") == item_id), None)
        if state is None:
            self._report.broken("item-open", f"no item with id {shown(item_id)} was added")
            return None
        self._report.equal("item-index", f"output_index of item {item_id}", index, state.index)
        return state if self._report.check("item-open", state.done is None, f"item {item_id} is done already") else None

    def _text(self, item: ItemState, event: JSON, stem: str, verb: str) -> None:
        index, kind, key = TEXTS[stem]
        parts = item.content if index == "content_index" else item.summary
        if verb == "delta":
            parts.delta(event, kind)
        elif verb == "done":
            parts.text_done(event, kind, key)

    def _own(self, item: ItemState, event: JSON, stem: str, verb: str) -> None:
        if stem == item.type:
            self._phase(item, verb)
            return
        owner, _, key = stem.rpartition("_")
        if not self._report.check("item-event", owner == item.type, f"an event for a {owner} on a {item.type}"):
            return
        if verb == "delta":
            self._report.check("delta-after-done", key not in item.values, f"a delta after {key} was done")
            item.deltas.setdefault(key, []).append(str(event.get("delta")))
        elif verb == "done":
            self._report.check("text-done-once", key not in item.values, f"{key} is done twice")
            item.values[key] = str(event.get(key))
            self._report.equal("deltas-arguments", key, item.values[key], "".join(item.deltas.get(key, [])))
            if item.type == "function_call":
                self._report.equal("arguments-name", "name", event.get("name"), item.added.get("name"))

    def _phase(self, item: ItemState, phase: str) -> None:
        before = item.phases
        if not before and f"response.{item.type}.in_progress" in self._known:
            self._report.equal("phases", "the first phase", phase, "in_progress")
        else:
            self._report.check("phases", phase != "in_progress", "in_progress is not the first phase")
        ended = bool(before) and before[-1] in _ENDS
        self._report.check("phases", not ended, f"phase {phase} after {before[-1:]}")
        before.append(phase)


def _left_out(items: Sequence[ItemState], response: JSON) -> set[int]:
    """Return the items that the response need not have: those of turns that were cut off and begun again.

    Only background responses have such turns. What the model was writing then is `incomplete`, and its text need not
    be done; messages and thoughts right before it may belong to the same turn.
    """
    output = response.get("output")
    kept = {item.get("id") for item in output if isinstance(item, dict)} if isinstance(output, list) else set()
    found: set[int] = set()
    cut_off = False
    for item in reversed(items if response.get("background") else ()):
        if item.is_others:
            continue
        done = item.done or {}
        missing = item.type in {"message", "reasoning"} and done.get("id") not in kept
        cut_off = missing and (cut_off or done.get("status") == "incomplete")
        if cut_off:
            found.add(item.index)
    return found
