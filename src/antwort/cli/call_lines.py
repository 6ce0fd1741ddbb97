"""What a model does while it works, in a line each: the functions it calls, those that fail, what needs an approval."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from typing_extensions import override

from antwort.cli.terminal import AnswerText, harmless
from antwort.context.agents import AgentInfo
from antwort.types import JSON

_LONGEST = 160
"""Characters of a line."""
_OF_CLIENTS = frozenset({"function_call", "custom_tool_call"})
"""Calls that are left to whoever asks: they are told with the end of the response."""
_FAILED = frozenset({"failed", "incomplete"})
_FAILURE = "✗"
_APPROVAL = "mcp_approval_request"
_PROGRAM, _PROGRAM_OUTPUT = "program", "program_output"
"""A call that is not called one, and what came of it."""
_HIDDEN_FIELDS = frozenset(
    {"id", "type", "status", "name", "call_id", "output", "outputs", "content", "results", "container_id"}
)
"""Fields of an item that say nothing about what is wanted."""


class AnswerWithCalls(AnswerText):
    """Prints the text of an answer, and tells of the calls in between; `say` shows a line."""

    def __init__(self, say: Callable[[str], None], *, stream: bool, before: Callable[[], None] | None = None) -> None:
        super().__init__(stream=stream, before=before)
        self._say = say
        self.failed_calls = 0

    @override
    def take(self, event: JSON) -> None:
        line = call_line(event)
        if line is not None:
            self.failed_calls += line.startswith(_FAILURE)
            self.make_room()
            self._say(line)
        super().take(event)


def call_line(event: JSON) -> str | None:
    """Return what is told of an event; None if nothing is."""
    kind, item = event.get("type"), event.get("item")
    if not isinstance(item, dict):
        return None
    if kind == "response.output_item.added" and _is_call(item) and item["type"] != _PROGRAM_OUTPUT:
        return _short(f"→ {_name(item)}{_wish(item)}")
    if kind != "response.output_item.done":
        return None
    if item.get("type") == _APPROVAL:
        return _short(f"? {_name(item)}{_wish(item)} needs an approval")
    if _is_call(item) and item.get("status") in _FAILED:
        why = item.get("output") or item.get("error") or item.get("result")
        told = f": {why}" if isinstance(why, str) else " has failed"
        return _short(f"{_FAILURE} {_name(item)}{told}")
    return None


def _short(line: str) -> str:
    line = harmless(" ".join(line.split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _is_call(item: JSON) -> bool:
    kind = str(item.get("type"))
    return kind in (_PROGRAM, _PROGRAM_OUTPUT) or (kind.endswith("_call") and kind not in _OF_CLIENTS)


def _name(item: JSON) -> str:
    """Return what was called: the function, or what a hosted tool is called."""
    return str(item.get("name") or str(item.get("type")).removesuffix("_output").removesuffix("_call"))


def _wish(item: JSON) -> str:
    """Return what it is called with, as far as that is known when it begins."""
    arguments = item.get("arguments")
    if isinstance(arguments, str):
        return "" if arguments in {"", "{}"} else f" {arguments}"
    if item.get("type") == _PROGRAM:
        return f" {item.get('code')}"
    said = {name: value for name, value in item.items() if name not in _HIDDEN_FIELDS and value}
    return f" {json.dumps(said, ensure_ascii=False)}" if said else ""


# --- the agents of a run as a tree, drawn again as they get on -------------------------------------------------------


_MOST = 16
"""Agents below one agent that are drawn; of the others the number is told."""
_PAUSE = 0.1
"""Seconds between two drawings."""
_MARKS = {"completed": "✓", "failed": "✗", "cancelled": "✗", "incomplete": "!"}


class AgentTree:
    """Draws agents until the answer begins: from then on the terminal is the answer's."""

    def __init__(
        self,
        out: TextIO,
        *,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._out = out
        self._clock = clock
        self._later = later or _call_later
        self._is_due = False
        self._agents: dict[str, AgentInfo] = {}
        self._height = 0
        self._next = 0.0
        self._is_over = False

    def take(self, agent: AgentInfo) -> None:
        """Take an agent that has begun, or has got on. It is drawn at once, or when the pause is over."""
        self._agents[agent.response_id] = agent
        if self._is_over:
            return
        pause = self._next - self._clock()
        if pause <= 0:
            self._draw()
        elif not self._is_due:  # nothing more may happen for long
            self._is_due = True
            self._later(pause, self._catch_up)

    def say(self, line: str) -> None:
        """Write a line above the tree, or below it once the answer has begun."""
        back = f"\x1b[{self._height}A\x1b[J" if self._height and not self._is_over else ""
        self._out.write(f"{back}{line}\n")
        self._height = 0
        if self._agents and not self._is_over:
            self._draw()
        self._out.flush()

    def end(self) -> None:
        """Draw for the last time."""
        if self._agents and not self._is_over:
            self._draw()
        self._is_over = True

    def _catch_up(self) -> None:
        self._is_due = False
        if not self._is_over:
            self._draw()

    def _draw(self) -> None:
        lines = list(drawn(list(self._agents.values())))
        back = f"\x1b[{self._height}A\x1b[J" if self._height else ""
        self._out.write(back + "".join(f"{line}\n" for line in lines))
        self._out.flush()
        self._height = len(lines)
        self._next = self._clock() + _PAUSE


def _call_later(seconds: float, work: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, work)


def drawn(agents: Sequence[AgentInfo]) -> Iterator[str]:
    """Return the lines of a tree: each agent below the one that began it."""
    known = {agent.response_id for agent in agents}
    below: dict[str | None, list[AgentInfo]] = {}
    for agent in agents:
        below.setdefault(agent.parent_id if agent.parent_id in known else None, []).append(agent)
    yield from _branch(below, None, "")


def _branch(below: dict[str | None, list[AgentInfo]], parent: str | None, indent: str) -> Iterator[str]:
    agents = below.get(parent, [])
    shown, rest = agents[:_MOST], agents[_MOST:]
    for agent in shown:
        is_last = agent is shown[-1] and not rest
        yield f"{indent}{'└─' if is_last else '├─'} {_agent_line(agent)}"
        yield from _branch(below, agent.response_id, f"{indent}{'   ' if is_last else '│  '}")
    if rest:
        done = sum(agent.status in _MARKS for agent in rest)
        yield f"{indent}└─ … and {len(rest):,} more, {done:,} of them done"


def _agent_line(agent: AgentInfo) -> str:
    mark = _MARKS.get(agent.status, "…")
    used = "" if agent.usage is None else f"  {agent.usage.total_tokens:,} tokens"
    why = "" if agent.reason is None else f"  {harmless(agent.reason)[:60]}"
    return f"{mark} {harmless(agent.name)} {agent.response_id[-6:]}{used}{why}"
