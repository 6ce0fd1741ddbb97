"""Hand-written streams, correct in every detail, for the tests of the linter."""

import json
from collections.abc import Iterable
from typing import Any

from antwort.types import JSON


def response(status: str = "completed", output: list[JSON] | None = None, /, **changes: Any) -> JSON:
    """Return a response with all its keys."""
    done = status == "completed"
    usage = {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }
    function = {
        "type": "function",
        "name": "add",
        "description": None,
        "parameters": {"type": "object"},
        "strict": None,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "completed_at": 1_700_000_001 if done else None,
        "status": status,
        "background": False,
        "error": {"code": "server_error", "message": "It broke."} if status == "failed" else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": "scripted",
        "output": output or [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": "low", "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [function],
        "top_logprobs": 0,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "truncation": "disabled",
        "usage": usage if done else None,
        "user": None,
        "metadata": {},
        **changes,
    }


def citation(start: int = 0) -> JSON:
    return {
        "type": "url_citation",
        "url": "http://a.example",
        "title": "A",
        "start_index": start,
        "end_index": start + 1,
    }


class Stream:
    """Writes a stream event by event."""

    def __init__(self, *, queued: bool = False, **changes: Any) -> None:
        self.events: list[JSON] = []
        self.items: list[JSON] = []
        self._changes = changes
        self._left_out: tuple[int, ...] = ()
        self.emit("response.created", response=response("queued" if queued else "in_progress", **changes))
        if queued:
            self.emit("response.queued", response=response("queued", **changes))
        self.emit("response.in_progress", response=response("in_progress", **changes))

    def emit(self, kind: str, **fields: Any) -> None:
        # A copy, since later changes of an item must not reach back.
        event = json.loads(json.dumps({"type": kind, "sequence_number": len(self.events), **fields}))
        self.events.append(event)

    def end(self, status: str = "completed", /, **changes: Any) -> "Stream":
        items = [item for index, item in enumerate(self.items) if index not in self._left_out]
        self.emit(f"response.{status}", response=response(status, items, **{**self._changes, **changes}))
        return self

    def left_out(self, *indexes: int) -> "Stream":
        """Leave items out of the final output."""
        self._left_out = indexes
        return self

    def item(self, item: JSON, **zero: Any) -> tuple[JSON, JSON]:
        """Begin an item; return it and the place of its events."""
        index = len(self.items)
        self.emit("response.output_item.added", output_index=index, item={**item, "status": "in_progress", **zero})
        self.items.append(item)
        return item, {"item_id": item["id"], "output_index": index}

    def done(self, place: JSON) -> None:
        index = place["output_index"]
        self.emit("response.output_item.done", output_index=index, item=self.items[index])

    def part(self, place: JSON, kind: str, deltas: list[str], *, event: str, summary: bool = False) -> JSON:
        """Write a part from beginning to end; return it."""
        name, index = ("reasoning_summary_part", "summary_index") if summary else ("content_part", "content_index")
        place = {**place, index: 0}
        key = "refusal" if kind == "refusal" else "text"
        extra: JSON = {"annotations": [], "logprobs": []} if kind == "output_text" else {}
        logs: JSON = {"logprobs": []} if kind == "output_text" else {}
        self.emit(f"response.{name}.added", **place, part={"type": kind, key: "", **extra})
        for delta in deltas:
            self.emit(f"response.{event}.delta", **place, delta=delta, **logs)
        if kind == "output_text":
            extra["annotations"] = [citation(0), citation(1)]
            for number, note in enumerate(extra["annotations"]):
                self.emit("response.output_text.annotation.added", **place, annotation_index=number, annotation=note)
        self.emit(f"response.{event}.done", **place, **{key: "".join(deltas)}, **logs)
        part = {"type": kind, key: "".join(deltas), **extra}
        self.emit(f"response.{name}.done", **place, part=part)
        return part

    def message(self, *deltas: str, status: str = "completed") -> "Stream":
        blank = {"id": f"msg_{len(self.items)}", "type": "message", "role": "assistant", "content": []}
        item, place = self.item({**blank, "status": status})
        item["content"] = [self.part(place, "output_text", list(deltas), event="output_text")]
        self.done(place)
        return self

    def refusal(self, *deltas: str) -> "Stream":
        blank = {"id": f"msg_{len(self.items)}", "type": "message", "role": "assistant", "content": []}
        item, place = self.item({**blank, "status": "completed"})
        item["content"] = [self.part(place, "refusal", list(deltas), event="refusal")]
        self.done(place)
        return self

    def reasoning(self, *deltas: str) -> "Stream":
        item, place = self.item(
            {"id": f"rs_{len(self.items)}", "type": "reasoning", "summary": [], "status": "completed"}
        )
        item["content"] = [self.part(place, "reasoning_text", list(deltas), event="reasoning_text")]
        summary = self.part(place, "summary_text", ["In ", "short"], event="reasoning_summary_text", summary=True)
        item["summary"] = [summary]
        self.done(place)
        return self

    def call(self, *deltas: str) -> "Stream":
        blank = {"id": f"fc_{len(self.items)}", "type": "function_call", "call_id": "call_1", "name": "add"}
        item, place = self.item({**blank, "status": "completed"}, arguments="")
        item["arguments"] = "".join(deltas)
        for delta in deltas:
            self.emit("response.function_call_arguments.delta", **place, delta=delta)
        self.emit("response.function_call_arguments.done", **place, name="add", arguments=item["arguments"])
        self.done(place)
        return self

    def search(self) -> "Stream":
        action = {"type": "search", "query": "cats", "queries": ["cats"]}
        _, place = self.item(
            {"id": f"ws_{len(self.items)}", "type": "web_search_call", "action": action, "status": "completed"}
        )
        for phase in ("in_progress", "searching", "completed"):
            self.emit(f"response.web_search_call.{phase}", **place)
        self.done(place)
        return self

    def raw(self) -> bytes:
        return raw(self.events)


def frame(event: JSON) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def raw(events: Iterable[JSON]) -> bytes:
    """Return events as the body of a response."""
    return b"".join(map(frame, events)) + b"data: [DONE]\n\n"


def everything() -> Stream:
    """Return a stream with an item of every kind."""
    stream = Stream().reasoning("Let me ", "see.").search().message("The ", "answer").call('{"a"', ": 1}")
    return stream.refusal("No", ".").end()
