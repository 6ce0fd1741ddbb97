"""The tools of `openai-agents` that its user executes: a shell, patches, a program on the user's computer."""

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.clients.stage import KEY, Stage
from tests.http.sdk import Served

from antwort.lazy_imports import imported_on_use
from antwort.testing import call, turn

if TYPE_CHECKING:
    import agents
    from agents import editor
    from agents import tool as tools
    from tests.clients import openai_agents as script
else:
    agents = imported_on_use("agents")
    editor = imported_on_use("agents.editor")
    tools = imported_on_use("agents.tool")
    script = imported_on_use("tests.clients.openai_agents")

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


async def answer(
    served: Served, tool: "agents.ShellTool | agents.ApplyPatchTool | agents.LocalShellTool", *, stream: bool
) -> str:
    async with served.async_client(KEY) as client:
        agent = script.assistant(client, tools=[tool])
        if not stream:
            return str((await agents.Runner.run(agent, "Go")).final_output)
        run = agents.Runner.run_streamed(agent, "Go")
        async for _ in run.stream_events():
            pass
        return str(run.final_output)


@BOTH_WAYS
async def test_a_shell(stage: Stage, stream: bool) -> None:
    def execute(request: "tools.ShellCommandRequest") -> "tools.ShellResult":
        outputs = []
        for command in request.data.action.commands:
            done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
            outcome = tools.ShellCallOutcome(type="exit", exit_code=done.returncode)
            outputs.append(tools.ShellCommandOutput(done.stdout, done.stderr, outcome, command))
        return tools.ShellResult(outputs)

    steps = [turn(calls=[call("shell", commands=["echo one", "echo two >&2; exit 3"])]), turn("Both ran.")]
    with stage(*steps) as served:
        assert await answer(served, agents.ShellTool(executor=execute), stream=stream) == "Both ran."
    result = served.bodies[1]["messages"][-1]
    assert result["role"] == "tool"
    assert "one" in result["content"]
    assert "two" in result["content"]
    assert "exit code 3" in result["content"]


@BOTH_WAYS
async def test_patches(stage: Stage, tmp_path: Path, stream: bool) -> None:
    class Editor:
        def create_file(self, operation: "editor.ApplyPatchOperation") -> "editor.ApplyPatchResult":
            (tmp_path / operation.path).write_text(agents.apply_diff("", operation.diff or "", mode="create"))
            return editor.ApplyPatchResult(status="completed")

        def update_file(self, operation: "editor.ApplyPatchOperation") -> "editor.ApplyPatchResult":
            path = tmp_path / operation.path
            path.write_text(agents.apply_diff(path.read_text(), operation.diff or ""))
            return editor.ApplyPatchResult(status="completed", output="changed")

        def delete_file(self, operation: "editor.ApplyPatchOperation") -> "editor.ApplyPatchResult":
            (tmp_path / operation.path).unlink()
            return editor.ApplyPatchResult(status="completed")

    steps = [
        turn(calls=[call("apply_patch", type="create_file", path="a.txt", diff="+one\n+two\n")]),
        turn(calls=[call("apply_patch", type="update_file", path="a.txt", diff="@@\n one\n-two\n+three\n")]),
        turn("Done."),
    ]
    with stage(*steps) as served:
        assert await answer(served, agents.ApplyPatchTool(editor=Editor()), stream=stream) == "Done."
    assert (tmp_path / "a.txt").read_text().split() == ["one", "three"]
    assert served.bodies[2]["messages"][-1]["content"] == "completed: changed"


@BOTH_WAYS
async def test_a_program_on_the_users_computer(stage: Stage, stream: bool) -> None:
    def execute(request: "agents.LocalShellCommandRequest") -> str:
        return subprocess.run(request.data.action.command, capture_output=True, text=True, check=True).stdout

    with stage(turn(calls=[call("local_shell", command=["echo", "hi"])]), turn("It said hi.")) as served:
        assert await answer(served, agents.LocalShellTool(executor=execute), stream=stream) == "It said hi."
    assert served.bodies[1]["messages"][-1]["content"] == "hi\n"
