"""Compaction: a long window becomes a summary by the model, sealed into one item that stands for all of it."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from antwort.backends import ModelRouter
from antwort.backends.base import ModelRequest, WholeTurn
from antwort.backends.chat.request import decoded_file, file_text
from antwort.backends.tokens import estimate_text
from antwort.concurrency.large_work import LargeWork, is_large
from antwort.engine.turns.model_turn import TOO_LONG
from antwort.engine.turns.telemetry import TurnMetrics
from antwort.engine.window import INSTRUCTING, SUMMARY, Seals, is_summary
from antwort.errors import BadGatewayError, BadRequestError
from antwort.observability import Tracer
from antwort.observability.spans import Attribute
from antwort.text.foreign_text import attached, one_line
from antwort.types import JSON
from antwort.wire.client_tools import CALLS, OUTPUTS, as_function
from antwort.wire.ids import new_id
from antwort.wire.responses import NO_USAGE, Usage

_LONGEST = 4_000
"""Characters of one function's output, or of one message, that the summary is made from; its middle is left out."""
_OWN_WORDS = 16_000
"""Characters of the user's own last words that are kept as they are."""
_ATTEMPTS = 6

_TASK = """\
You compress conversations. Below is the record of a conversation between a user and an assistant, with the calls of \
functions the assistant made. Write a summary from which the assistant can go on as if it had read everything: what \
the user wants and in which form; facts, names, numbers, identifiers and file names that matter, exactly as they were \
written; what was decided, done and found out, and how; what is still open. Leave out pleasantries. Write in the \
language of the conversation. Answer with the summary alone."""

_HEAD = f"""\
{SUMMARY}

Summary:
{{summary}}

The user's own words, oldest first:
{{words}}"""


class Compacted(Struct, frozen=True):
    """What stands for a window, sealed, and what making it has cost."""

    encrypted_content: str
    usage: Usage


class Compactor:
    """Has the model summarise windows; each summary is a model turn in metrics and traces."""

    def __init__(self, models: ModelRouter, metrics: TurnMetrics, tracer: Tracer, large_work: LargeWork) -> None:
        self._large_work = large_work
        self._models = models
        self._metrics = metrics
        self._tracer = tracer

    async def compact(
        self,
        items: Sequence[JSON],
        seals: Seals,
        *,
        model: str,
        tenant: str,
        instructions: str | None = None,
        limit: int | None = None,
        room: int | None = None,
    ) -> Compacted:
        """Seal what stands for a window; `instructions` are those of the conversation.

        Instructions stay as they are, and so does what nobody has answered yet: the last message of the user, and the
        last calls with their outputs. All else becomes a summary. The user's own words are kept beside it, but never so
        many that the new window comes near to `limit` tokens. What the summary is made from has at most `room` tokens.
        """
        large = is_large(items)
        parts = await self._large_work.run_if(large, _Parts, items)
        if not parts.old:
            kept = [*parts.instructing, *parts.current]
            return Compacted(await self._large_work.run_if(large, seals.seal_items, kept), NO_USAGE)
        task = f"{_TASK}\n\nThe assistant works under these instructions:\n{instructions}" if instructions else _TASK
        lines = await self._large_work.run_if(large, lambda: list(_record(parts.old)))
        if room is not None:
            lines = await self._large_work.run_if(large, _fitting, lines, room - estimate_text(task))
        answer = await self._summary(lines, task, model, tenant)
        room = min(_OWN_WORDS, limit or _OWN_WORDS)  # a token has several characters
        words = await self._large_work.run_if(large, _own_words, parts.old, room)
        text = _HEAD.format(summary="".join(answer.pieces).strip(), words=words)
        kept = [*parts.instructing, _said(text), *parts.current]
        return Compacted(await self._large_work.run_if(large, seals.seal_items, kept), answer.used)

    async def _summary(self, lines: list[str], task: str, model: str, tenant: str) -> "_Answer":
        for attempt in range(1, _ATTEMPTS + 1):
            request = ModelRequest(model=model, items=[_said("\n\n".join(lines))], instructions=task, tenant=tenant)
            answer = _Answer()
            try:
                await self._ask(request, answer)
            except BadRequestError as error:
                # The record itself does not fit: the older half of it is given up.
                if error.code != TOO_LONG or attempt == _ATTEMPTS or len(lines) < 2:
                    raise
                lines = _newer_half(lines)
                continue
            if "".join(answer.pieces).strip():
                return answer
            break
        raise BadGatewayError("The model gave no summary of the conversation. Try again, or another model.")

    async def _ask(self, request: ModelRequest, answer: "_Answer") -> None:
        started = time.perf_counter()
        attributes: dict[str, Attribute] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": request.model}
        try:
            with self._tracer.span(f"chat {request.model}", attributes):
                request.headers = self._tracer.headers()
                await self._models.run(request, answer)
        except BaseException as error:
            self._metrics.count_failed_turn(time.perf_counter() - started, error)
            raise
        self._metrics.count_turn(request.model, started, None, answer.used)


def compactable(items: Sequence[JSON]) -> bool:
    """Tell whether there is anything in a window that a summary could stand for."""
    return any(not is_summary(item) for item in _Parts(items).old)


class _Parts:
    """A window in three parts: instructions, what is over, and what nobody has answered yet."""

    def __init__(self, items: Sequence[JSON]) -> None:
        self.instructing = [item for item in items if item.get("role") in INSTRUCTING]
        rest = [item for item in items if item.get("role") not in INSTRUCTING]
        start = _last_turn(rest)
        current = set(range(start, len(rest)))
        answered = bool(rest) and rest[-1].get("role") == "assistant"
        for index in range(len(rest) - 1, -1, -1):
            if rest[index].get("role") == "user" and not is_summary(rest[index]):
                if not answered:
                    current.add(index)
                break
        self.old = [item for index, item in enumerate(rest) if index not in current]
        self.current = [item for index, item in enumerate(rest) if index in current]


def _last_turn(items: Sequence[JSON]) -> int:
    """Return where the last calls begin, if the window ends with their outputs; else its end."""
    start = len(items)
    for kinds in (OUTPUTS, CALLS, {"reasoning"}):
        while start and items[start - 1].get("type") in kinds:
            start -= 1
        if start == len(items):
            break
    return start


class _Answer:
    """A turn sink that keeps the text and the usage."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.used = NO_USAGE

    def whole_turn(self, turn: WholeTurn) -> None:
        turn.feed(self)

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:  # noqa: ARG002 - the protocol's name
        self.pieces.append(delta)

    def text_burst(self, deltas: Sequence[str]) -> None:
        self.pieces += deltas

    def usage(self, usage: Usage) -> None:
        self.used = usage

    def reasoning(self, delta: str) -> None:
        """Leave thoughts out."""

    def summary(self, delta: str) -> None:
        """Leave thoughts out."""

    def opaque(self, content: str) -> None:
        """Leave thoughts out."""

    def refusal(self, delta: str) -> None:
        """Leave refusals out: without a summary there is an error."""

    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        """Leave calls out: no functions were offered."""

    def finish(self, reason: str) -> None:
        """Take a summary that was cut off as it is."""

    async def flush(self) -> None:
        """Do nothing: the answer is read as a whole."""


def _said(text: str) -> JSON:
    return {
        "type": "message",
        "id": new_id("msg"),
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": text}],
    }


def _record(items: Sequence[JSON]) -> Iterator[str]:
    """Write a conversation down as plain text: models refuse calls of functions they are not offered."""
    for item in items:
        match item.get("type") or "message":
            case "message":
                yield f"{str(item.get('role')).upper()}: {_cut(_text(item.get('content'), _recorded))}"
            case "custom_tool_call":
                yield f"CALL {item.get('name')}({_cut(str(item.get('input')))})"
            case kind if kind in CALLS:
                call = as_function(item)
                yield f"CALL {call.get('name')}({_cut(str(call.get('arguments')))})"
            case kind if kind in OUTPUTS:
                yield f"RESULT: {_cut(_text(as_function(item).get('output'), _recorded))}"


def _fitting(lines: list[str], room: int) -> list[str]:
    """Return the end of a record that has so many tokens, about, and at least its last line."""
    for number, line in enumerate(reversed(lines)):
        room -= estimate_text(line) + 1
        if room < 0 and number:
            return ["[…]", *lines[len(lines) - number :]]
    return lines


def _newer_half(lines: list[str]) -> list[str]:
    return ["[…]", *lines[len(lines) // 2 :]]


def _own_words(items: Sequence[JSON], room: int) -> str:
    """Return what the user said last, in at most so many characters; what an earlier compaction says is left out."""
    said: list[str] = []
    for item in reversed(items):
        text = _text(item.get("content"), _part) if item.get("role") == "user" and not is_summary(item) else ""
        if not text:
            continue
        text = _cut(text, min(_LONGEST, room))
        if len(text) > room:
            break
        room -= len(text)
        said.append(f"- {text}")
    return "\n".join(reversed(said)) or "(none)"


def _text(content: Any, shown: Callable[[JSON], str]) -> str:
    """Return a content as text; `shown` says what each part of it is."""
    if isinstance(content, str):
        return shown({"text": content})
    parts = content if isinstance(content, list) else []
    return "\n".join(shown(part) for part in parts if isinstance(part, dict))


def _recorded(part: JSON) -> str:
    """Return a part as the summary is made from it: of files what is in them."""
    if part.get("type") == "input_file" and isinstance(data := part.get("file_data"), str):
        name = str(part.get("filename") or "file")
        with contextlib.suppress(BadRequestError):  # it is no text: a model server reads it by itself
            raw = decoded_file(data, name)
            if not raw.startswith(b"%PDF-"):
                return attached(file_text(raw, name), name)
    return _part(part)


def _part(part: JSON) -> str:
    for name in ("text", "refusal"):
        if isinstance(part.get(name), str):
            return str(part[name])
    named = f": {one_line(str(part['filename']))}" if part.get("filename") else ""
    return f"[{str(part.get('type')).removeprefix('input_')}{named}]"


def _cut(text: str, longest: int = _LONGEST) -> str:
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[len(text) - half :]}"
