"""OpenAI's `code_interpreter` tool: what a request may ask of it, and how a call shows itself."""

import contextlib
import errno
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from typing_extensions import override

from antwort.provider import (
    JSON,
    BadRequestError,
    Context,
    FunctionError,
    HostedCall,
    HostedTool,
    Image,
    ItemEvent,
    NotFoundError,
    SandboxLimits,
    Source,
    media_type,
    one_line,
    without_middle,
)
from antwort.providers.code_interpreter.files import HOMES, ContainerFiles, File
from antwort.providers.code_interpreter.session import CodeOutcome
from antwort.providers.code_interpreter.settings import MEMORY_LIMITS

ITEM = "code_interpreter_call"
_LONGEST_OUTPUT = 100_000
"""Characters of the logs that an item shows."""
_LINE = "\n"
_NO_OUTPUT = "[no output]"
_LONGEST_URL = 200
"""Characters of a picture's address that the model reads again: some are the picture itself."""
_FILES = 50
"""Files that a call tells of at most."""
_CHARTS = 4
"""Pictures of one call that the model sees."""
_LARGEST_CHART = 2 * 1024**2
_ENDINGS = {
    "time": "it took longer than {0.seconds:g} seconds and did not stop",
    "memory": "it used more than {0.memory:,} bytes of memory",
    "disk": "there are more than {0.disk_bytes:,} bytes or {0.disk_files:,} files",
    "exit": "the interpreter has ended{1}",
    "killed": "it did not stop when it was told to",
}
_STOPS = {
    "time": "it took longer than {0.seconds:g} seconds",
    "output": "it printed more than {0.output_bytes:,} bytes; write long output to a file",
}
_SIGNALLED = 128
"""What a signal is added to in the exit code of whom it has ended."""
_NAMED = 50
"""Files that a tool may name."""
_ANY: JSON = {"type": "auto"}
"""The container of a tool that names none."""
_GOING_ON = "container_id"
"""Where a tool with any container has the one of an earlier call."""
_EARLIER = 10
"""Containers of earlier calls that are looked at."""
_FULL = "No room: a container holds at most {0.disk_bytes:,} bytes and {0.disk_files:,} files; delete some."
_NO_ROOM = os.strerror(errno.ENOSPC)
DELETED = "The container was deleted while the code ran: the session has ended, and the files are gone."
RENEWED = "[A new session has begun: variables of earlier calls are gone, files are still there.]"


def check_tool(tool: Mapping[str, Any]) -> None:
    """Refuse a tool that cannot be served; BadRequestError names what is wrong."""
    container = tool.get("container")
    if container is None or isinstance(container, str):
        return
    if not isinstance(container, Mapping) or container.get("type") != "auto":
        raise BadRequestError("'container' must be the id of a container, or have the type 'auto'.", param="container")
    check_wishes(container, "container.")


def check_wishes(wishes: Mapping[str, Any], where: str = "") -> None:
    """Refuse what a container cannot have."""
    if wishes.get("skills"):
        raise BadRequestError(
            f"'{where}skills' is not served; upload files to a container.",
            param=f"{where}skills",
            code="unsupported_parameter",
        )
    named = wishes.get("file_ids") or []
    if not isinstance(named, list) or len(named) > _NAMED or not all(isinstance(one, str) for one in named):
        raise BadRequestError(f"'{where}file_ids' must be up to {_NAMED} ids of files.", param=f"{where}file_ids")
    memory = wishes.get("memory_limit")
    if memory is not None and memory not in MEMORY_LIMITS:
        raise BadRequestError(
            f"'{where}memory_limit' must be one of {', '.join(MEMORY_LIMITS)}.", param=f"{where}memory_limit"
        )
    policy = wishes.get("network_policy")
    if policy is not None and (not isinstance(policy, Mapping) or policy.get("type") != "disabled"):
        raise BadRequestError(
            f"'{where}network_policy' can only be 'disabled'.",
            param=f"{where}network_policy",
            code="unsupported_parameter",
        )


def named_container(tool: Mapping[str, Any]) -> str | None:
    """Return the container that a tool of a request names."""
    container = tool.get("container")
    return container if isinstance(container, str) else None


def earlier_containers(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the containers of calls among items, in their order: each once, and not more than a few."""
    calls = (item for item in items if item.get("type") == ITEM)
    ids = (item.get("container_id") for item in calls)
    return list(islice(dict.fromkeys(one for one in ids if isinstance(one, str) and one), _EARLIER))


def going_on(tool: Mapping[str, Any], container_id: str) -> JSON:
    """Return a tool with any container as one that goes on in that of an earlier call, as long as it is there."""
    return {**tool, "container": {**(tool.get("container") or _ANY), _GOING_ON: container_id}}


def earlier_container(tool: Mapping[str, Any]) -> str | None:
    """Return the container of an earlier call that a tool is to go on in."""
    container = tool.get("container")
    found = container.get(_GOING_ON) if isinstance(container, Mapping) else None
    return found if isinstance(found, str) else None


def asked_files(tool: Mapping[str, Any]) -> list[str]:
    """Return the ids of the files that a tool of a request names, each once."""
    container = tool.get("container")
    return list(dict.fromkeys(container.get("file_ids") or ())) if isinstance(container, Mapping) else []


def asked_memory(tool: Mapping[str, Any]) -> str | None:
    """Return the limit of memory that a tool of a request names."""
    container = tool.get("container")
    return container.get("memory_limit") if isinstance(container, Mapping) else None


class CodeTool(HostedTool):
    """How calls look, and are read again."""

    types = ("code_interpreter",)
    item = ITEM
    arriving: Mapping[str, Any] = {"code": ""}
    includes: Mapping[str, str] = {"code_interpreter_call.outputs": "outputs"}
    tool_defaults: Mapping[str, Any] = {"container": _ANY}

    @override
    def check(self, tool: Mapping[str, Any]) -> None:
        check_tool(tool)

    @override
    def begin(self, call: HostedCall) -> JSON:
        return {"code": call.text("code"), "container_id": "", "outputs": None}

    @override
    def events(self, item: Mapping[str, Any]) -> Iterable[ItemEvent]:
        yield ItemEvent("in_progress")
        if item["code"]:
            yield ItemEvent("delta", {"delta": item["code"]}, part="code")
        yield ItemEvent("done", {"code": item["code"]}, part="code")
        yield ItemEvent("interpreting")

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> JSON:
        code = item.get("code")
        return {"code": code if isinstance(code, str) else ""}

    @override
    def read_output(self, item: Mapping[str, Any]) -> str | None:
        outputs = item.get("outputs")
        if not isinstance(outputs, list):
            return None
        parts = []
        for output in outputs:
            if output.get("type") == "logs":
                parts.append(str(output["logs"]).rstrip("\n"))
            elif output.get("type") == "image":
                parts.append(f"[picture: {one_line(str(output['url']))[:_LONGEST_URL]}]")
        return "\n".join(part for part in parts if part) or _NO_OUTPUT


def item_fields(container_id: str, outcome: CodeOutcome, made: Sequence[File], limits: SandboxLimits) -> JSON:
    """Return what the item tells of a call that has ended."""
    outputs: list[JSON] = []
    notes = "\n".join(_notes(outcome, limits))
    logs = without_middle(outcome.logs, _LONGEST_OUTPUT)
    if notes:
        logs = f"{logs}{'' if not logs or logs.endswith(_LINE) else _LINE}{notes}"
    if logs:
        outputs.append({"type": "logs", "logs": logs})
    for file in made[:_FILES]:
        if _is_picture(file):
            url = f"/v1/containers/{container_id}/files/{file.id}/content"
            outputs.append({"type": "image", "url": url})
    return {"container_id": container_id, "outputs": outputs}


def report(
    ctx: Context,
    container_id: str,
    outcome: CodeOutcome,
    made: Sequence[File],
    limits: SandboxLimits,
    *,
    renewed: bool,
) -> str:
    """Return what the model reads of a call that has ended; files are sources that it can cite."""
    parts = [RENEWED] if renewed else []
    parts += [outcome.logs.rstrip("\n"), *_notes(outcome, limits)]
    lines = [_line(ctx, container_id, file) for file in made[:_FILES]]
    if len(made) > _FILES:
        lines.append(f"… and {len(made) - _FILES} more")
    if lines:
        parts.append("Files written (cite one by its number, as in [1]):\n" + "\n".join(lines))
    return "\n".join(part for part in parts if part) or _NO_OUTPUT


def charts(files: ContainerFiles, made: Sequence[File]) -> list[Image]:
    """Return the pictures that a call has written, for models that see: the first few, as far as they are not large."""
    seen: list[Image] = []
    for file in filter(_is_picture, made):
        if len(seen) < _CHARTS and file.found.size <= _LARGEST_CHART:
            with contextlib.suppress(NotFoundError, FunctionError), files.open(file) as opened:
                seen.append(Image.of(opened.read(_LARGEST_CHART)))
    return seen


def _notes(outcome: CodeOutcome, limits: SandboxLimits) -> list[str]:
    """Return what came between a call and its end."""
    if outcome.ending == "deleted":
        return [f"[{DELETED}]"]
    notes = []
    if outcome.left_out:
        notes.append(f"[{outcome.left_out:,} bytes that a call wrote after it was stopped are left out.]")
    if outcome.stopped is not None:
        notes.append(f"[Stopped: {_STOPS[outcome.stopped].format(limits)}.]")
    if outcome.starved and outcome.ending != "memory":
        notes.append(f"[A process that the code has started was ended: {_ENDINGS['memory']}.]".format(limits))
    if outcome.ending != "disk" and (outcome.is_full or _NO_ROOM in outcome.logs):
        notes.append(f"[{_FULL.format(limits)}]")
    if outcome.ending is not None:
        why = _ENDINGS.get(outcome.ending, outcome.ending).format(limits, _by_signal(outcome.exit_code))
        notes.append(f"[The session has ended: {why}. The next call begins a new one; files stay, variables do not.]")
    if outcome.ending == "disk":
        notes.append("[ContainerFiles that this call has written were deleted.]")
    return notes


def _line(ctx: Context, container_id: str, file: File) -> str:
    url, *others = (f"sandbox:{home}/{file.path}" for home in HOMES)
    source = Source(file.path, url, file.id, container_id, tuple(others))
    return f"[{ctx.sources.add(source)}] {one_line(file.path)} ({file.found.size:,} bytes)"


def _by_signal(code: int | None) -> str:
    """Return what has ended the interpreter, if it did not do so by itself."""
    number = (code or 0) - _SIGNALLED
    return f", by the signal {signal.Signals(number).name}" if number in set(signal.Signals) else ""


def _is_picture(file: File) -> bool:
    return media_type(file.path).startswith("image/")
