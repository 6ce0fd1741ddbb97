"""OpenAI's `shell` tool: what a request may ask of it, and how a command shows itself."""

import asyncio
import codecs
import errno
import os
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct
from typing_extensions import override

from antwort.provider import (
    JSON,
    BadRequestError,
    Context,
    Finished,
    FunctionError,
    HostedCall,
    HostedTool,
    ItemEnd,
    ItemEvent,
    SandboxLimits,
    ToolResult,
    without_middle,
)

ITEM = "shell_call"
_MEMORY = {"1g": 1 << 30, "4g": 4 << 30, "16g": 16 << 30, "64g": 64 << 30}
_AUTO, _REFERENCE = "container_auto", "container_reference"
_EARLIER = 10
"""Workspaces of earlier calls that are looked at."""
_ENDINGS = {
    "time": "it took longer than {0.seconds:g} seconds",
    "memory": "it used more than {0.memory:,} bytes of memory",
    "disk": "the workspace has more than {0.disk_bytes:,} bytes or {0.disk_files:,} files",
    "output": "it wrote more than {0.output_bytes:,} bytes; send long output to a file",
    "killed": "it was stopped",
}
_FULL = "no room: a workspace holds at most {0.disk_bytes:,} bytes and {0.disk_files:,} files; delete some"
_NO_ROOM = os.strerror(errno.ENOSPC).encode()
DELETED = "The workspace was deleted while the command ran: the command was ended, and the files are gone."
_LONGEST = 100_000
"""Bytes of a command; the kernel takes a little more."""
_LONGEST_OUTPUT = 100_000
"""Characters of the output that an item shows."""
_PIECE = 1 << 16
"""Bytes that are read as text before others have their turn."""


def check_tool(tool: Mapping[str, Any]) -> None:
    """Refuse a tool that cannot be served; BadRequestError names what is wrong."""
    environment = tool.get("environment")
    kind = environment.get("type") if isinstance(environment, Mapping) else None
    if not isinstance(environment, Mapping) or kind not in {_AUTO, _REFERENCE}:
        raise BadRequestError(f"'environment.type' must be '{_AUTO}' or '{_REFERENCE}' here.", param="environment.type")
    if kind == _REFERENCE and not isinstance(environment.get("container_id"), str):
        raise BadRequestError("'environment.container_id' names a workspace.", param="environment.container_id")
    for name in ("file_ids", "skills"):
        if environment.get(name):
            raise BadRequestError(
                f"'environment.{name}' is not served; upload files to the workspace.",
                param=f"environment.{name}",
                code="unsupported_parameter",
            )
    if environment.get("memory_limit") not in {None, *_MEMORY}:
        raise BadRequestError(
            f"'environment.memory_limit' must be one of {', '.join(_MEMORY)}.", param="environment.memory_limit"
        )
    policy = environment.get("network_policy")
    if policy is not None and (not isinstance(policy, Mapping) or policy.get("type") != "disabled"):
        raise BadRequestError(
            "'environment.network_policy' can only be 'disabled'.",
            param="environment.network_policy",
            code="unsupported_parameter",
        )


def check_memory(tool: Mapping[str, Any], most: int) -> None:
    """Refuse a tool that asks for more memory than there may be; BadRequestError names the largest limit."""
    environment = tool.get("environment")
    asked = environment.get("memory_limit") if isinstance(environment, Mapping) else None
    if _MEMORY.get(str(asked), 0) <= most:
        return
    largest = max((name for name, size in _MEMORY.items() if size <= most), key=_MEMORY.__getitem__, default=None)
    allowed = "no value of it can be had" if largest is None else f"'{largest}' is the largest that can be had"
    raise BadRequestError(
        f"'environment.memory_limit' is '{asked}', but {allowed} here. Leave it out to have {most:,} bytes.",
        param="environment.memory_limit",
    )


def check_command(command: str) -> None:
    """Refuse what no shell takes; FunctionError tells the model."""
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        raise FunctionError("The command is no text that can be written in UTF-8.") from None
    if "\0" in command or size > _LONGEST:
        raise FunctionError(f"A command has at most {_LONGEST:,} bytes, and no zero; write long ones to a file first.")


def asked_memory(ctx: Context) -> int | None:
    """Return the bytes of memory that the request has asked for."""
    return _MEMORY.get(str((ctx.options.get("environment") or {}).get("memory_limit")))


def named_workspace(tool: Mapping[str, Any]) -> str | None:
    """Return the workspace that a tool of a request names."""
    return _container_id(tool, _REFERENCE)


def earlier_workspaces(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the workspaces of calls among items, in their order: each once, and not more than a few."""
    ids = (_container_id(item, _REFERENCE) for item in items if item.get("type") == ITEM)
    return list(islice(dict.fromkeys(one for one in ids if one), _EARLIER))


def going_on(tool: Mapping[str, Any], workspace_id: str) -> JSON:
    """Return a tool with any workspace as one that goes on in that of an earlier call, as long as it is there."""
    return {**tool, "environment": {**tool["environment"], "container_id": workspace_id}}


def earlier_workspace(tool: Mapping[str, Any]) -> str | None:
    """Return the workspace of an earlier call that a tool is to go on in."""
    return _container_id(tool, _AUTO)


def _container_id(tool_or_item: Mapping[str, Any], kind: str) -> str | None:
    """Return the container of an environment, if it is of a kind; clients send items as they like."""
    environment = tool_or_item.get("environment")
    if not isinstance(environment, Mapping) or environment.get("type") != kind:
        return None
    found = environment.get("container_id")
    return found if isinstance(found, str) else None


class FileTool(HostedTool):
    """A function that works where the shell does, and has no items of its own."""

    types = ("shell",)
    only_named = True


class ShellTool(FileTool):
    """A command and what came of it are two items."""

    item = ITEM
    output_items = ("shell_call_output",)
    offered_with = ("read_file", "write_file", "edit_file")

    @override
    def check(self, tool: Mapping[str, Any]) -> None:
        check_tool(tool)

    @override
    def begin(self, call: HostedCall) -> JSON:
        command, timeout = call.decoded.get("command"), call.decoded.get("timeout_ms")
        commands = [command] if isinstance(command, str) else []
        return {
            "action": {
                "commands": commands,
                "timeout_ms": timeout if isinstance(timeout, int) else None,
                "max_output_length": None,
            },
            "environment": None,
        }

    @override
    def events(self, item: Mapping[str, Any]) -> Iterable[ItemEvent]:
        for number, command in enumerate(item["action"]["commands"]):
            for kind, data in (
                ("added", {"command": ""}),
                ("delta", {"delta": command}),
                ("done", {"command": command}),
            ):
                yield ItemEvent(kind, {"command_index": number, **data}, part="command", names_item=False)

    @override
    def end(self, call: HostedCall, result: ToolResult) -> ItemEnd:
        said = _failed(result.output) if result.is_error else result.item
        output: JSON = {"type": self.output_items[0]}
        output |= {name: said[name] for name in ("output", "max_output_length") if name in said}
        command = {name: result.item[name] for name in ("environment",) if name in result.item}
        return ItemEnd(command, "completed", events=(), items=(output,))

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> JSON | None:
        if (item.get("environment") or {}).get("type") == "local":  # the client has executed it
            return None
        action = item["action"]
        arguments: JSON = {"command": "\n".join(action["commands"])}
        if action.get("timeout_ms") is not None:
            arguments["timeout_ms"] = action["timeout_ms"]
        return arguments

    @override
    def read_output(self, item: Mapping[str, Any]) -> str:
        said = []
        for done in item["output"]:
            outcome = done.get("outcome") or {}
            ending = (
                "[ended: it took too long]" if outcome.get("type") == "timeout" else _exit(outcome.get("exit_code"))
            )
            said.append(_joined(str(done.get("stdout") or ""), str(done.get("stderr") or ""), ending))
        return "\n".join(said) or _joined("", "", "")


def _ending(done: Mapping[str, Any]) -> str:
    outcome = done.get("outcome") or {}
    return "[ended: it took too long]" if outcome.get("type") == "timeout" else _exit(outcome.get("exit_code"))


def _failed(text: str) -> JSON:
    outcome = {"type": "exit", "exit_code": 1}
    return {
        "max_output_length": _LONGEST_OUTPUT,
        "output": [{"stdout": "", "stderr": without_middle(text, _LONGEST_OUTPUT), "outcome": outcome}],
    }


class CommandOutput(Struct, frozen=True):
    """What a command wrote, as texts."""

    stdout: str
    stderr: str

    @classmethod
    async def of(cls, done: Finished) -> "CommandOutput":
        """Return what a command has written; the event loop goes on meanwhile."""
        return cls(await _text(done.stdout), await _text(done.stderr))


def item_fields(workspace_id: str, done: Finished, said: CommandOutput) -> JSON:
    """Return what the items tell of a command that has ended."""
    outcome: JSON = {"type": "timeout"}
    if done.ending != "time":
        outcome = {"type": "exit", "exit_code": 137 if done.exit_code is None else done.exit_code}
    return {
        "environment": {"type": _REFERENCE, "container_id": workspace_id},
        "max_output_length": _LONGEST_OUTPUT,
        "output": [
            {
                "stdout": without_middle(said.stdout, _LONGEST_OUTPUT),
                "stderr": without_middle(said.stderr, _LONGEST_OUTPUT),
                "outcome": outcome,
            }
        ],
    }


def report(
    done: Finished, said: CommandOutput, limits: SandboxLimits, *, is_deleted: bool = False, is_full: bool = False
) -> str:
    """Return what the model reads of a command that has ended."""
    if is_deleted:
        ending = f"[{DELETED}]"
    elif done.ending != "exit":
        ending = f"[ended: {_ENDINGS[done.ending].format(limits)}]"
    else:
        ending = _exit(done.exit_code)
    if (is_full or _NO_ROOM in done.stderr) and done.ending != "disk" and not is_deleted:
        ending = f"{ending}\n[{_FULL.format(limits)}]".lstrip()
    return _joined(said.stdout, said.stderr, ending)


def _exit(code: int | None) -> str:
    return f"[exit code {code}]" if code else ""


def _joined(stdout: str, stderr: str, ending: str) -> str:
    parts = [stdout, f"[errors]\n{stderr}" if stderr else "", ending]
    return "\n".join(part.rstrip("\n") for part in parts if part.strip()) or "[no output]"


async def _text(data: bytes) -> str:
    """Return bytes as a text, piece by piece: what is no text takes a tenth of a second if there is much of it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = []
    for start in range(0, len(data), _PIECE):
        pieces.append(decoder.decode(data[start : start + _PIECE]))
        await asyncio.sleep(0)  # others have their turn
    return "".join([*pieces, decoder.decode(b"", final=True)])
