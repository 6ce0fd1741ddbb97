"""No path, link or other trick of a command leads the functions for files out of a workspace."""

from collections.abc import Iterator

import pytest
from tests.support.function_machine import KINDS, SECRET, FunctionMachine, function_machine

from antwort.types import JSON


@pytest.fixture(scope="module", params=KINDS)
def machine(request: pytest.FixtureRequest) -> Iterator[FunctionMachine]:
    own = {"enabled": True, "settings": {"max_time": "10s"}}
    with function_machine(request.param, {"workspace": own}) as found:
        yield found


READ, WRITE, EDIT = "read_file", "write_file", "edit_file"
CHANGE: JSON = {"edits": [{"search": SECRET, "replace": "x"}]}
CONTENT: JSON = {"content": "evil"}
ATTEMPTS: list[tuple[str, str, str, JSON]] = [
    ("read by a path upwards", "true", READ, {"path": "../../../../../../@outside@/secret.txt"}),
    ("read by a path that goes down and up", "mkdir a", READ, {"path": "a/../../../own/../secret.txt"}),
    ("read by an absolute path", "true", READ, {"path": "@outside@/secret.txt"}),
    ("read upwards from the name of the workspace", "true", READ, {"path": "/workspace/../@outside@/secret.txt"}),
    ("read a name with a zero", "true", READ, {"path": "a\0b"}),
    ("read the workspace itself", "true", READ, {"path": "/workspace"}),
    ("read through a link", "ln -s @outside@/secret.txt link", READ, {"path": "link"}),
    ("read through a relative link", "ln -s ../../../../outside/secret.txt link", READ, {"path": "link"}),
    ("read through a link to a folder", "ln -s @outside@ folder", READ, {"path": "folder/secret.txt"}),
    ("read through links of links", "ln -s @outside@ a; ln -s a b", READ, {"path": "b/secret.txt"}),
    ("read what the server's own process shows", "ln -s /proc/self/environ link", READ, {"path": "link"}),
    ("read through the server's open files", "ln -s /proc/self/fd d", READ, {"path": "d/0"}),
    ("wait at a pipe for ever", "mkfifo pipe", READ, {"path": "pipe"}),
    ("read a socket", "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'", READ, {"path": "s"}),
    ("read a folder", "mkdir folder", READ, {"path": "folder"}),
    ("write by a path upwards", "true", WRITE, {"path": "../evil", **CONTENT}),
    ("write by an absolute path", "true", WRITE, {"path": "@outside@/evil", **CONTENT}),
    ("write through a link to a folder", "ln -s @outside@ folder", WRITE, {"path": "folder/evil", **CONTENT}),
    ("make folders behind a link", "ln -s @outside@ folder", WRITE, {"path": "folder/a/b", **CONTENT}),
    ("write over a folder", "mkdir folder", WRITE, {"path": "folder", **CONTENT}),
    ("write beside a pipe", "mkfifo pipe", WRITE, {"path": "pipe/x", **CONTENT}),
    ("edit by a path upwards", "true", EDIT, {"path": "../../../outside/secret.txt", **CHANGE}),
    ("edit through a link", "ln -s @outside@/secret.txt link", EDIT, {"path": "link", **CHANGE}),
    ("edit through a link to a folder", "ln -s @outside@ folder", EDIT, {"path": "folder/secret.txt", **CHANGE}),
    ("read a name that is too long", "true", READ, {"path": "a" * 5000}),
    ("read deeper than paths go", "true", READ, {"path": "a/" * 3000 + "x"}),
]


@pytest.mark.parametrize(("what", "planted", "name", "arguments"), ATTEMPTS, ids=[one[0] for one in ATTEMPTS])
def test_an_attempt_is_refused(machine: FunctionMachine, what: str, planted: str, name: str, arguments: JSON) -> None:
    machine.count += 1
    workspace = f"own{machine.count}"
    machine.call("shell", workspace, command=planted)
    output, status = machine.call(name, workspace, **arguments)
    assert status == "error", output
    assert SECRET not in output
    machine.check_unharmed()


def test_writing_over_a_link_replaces_the_link(machine: FunctionMachine) -> None:
    machine.call("shell", "over", command="ln -s @outside@/secret.txt link")
    assert machine.call("write_file", "over", path="link", content="mine")[1] == "success"
    assert machine.call("read_file", "over", path="link")[0] == "mine"
    machine.check_unharmed()


def test_a_hard_link_within_the_workspace_is_a_file_like_any_other(machine: FunctionMachine) -> None:
    machine.call("shell", "hard", command="echo one > a; ln a b; echo two > c; ln -f c a")
    assert machine.call("read_file", "hard", path="b")[0] == "one\n"
    machine.call("write_file", "hard", path="a", content="three")
    assert machine.call("read_file", "hard", path="c")[0] == "two\n"


def test_workspaces_of_others_are_out_of_reach(machine: FunctionMachine) -> None:
    machine.call("write_file", "theirs", "other", path="notes.txt", content=SECRET)
    attempts = [("theirs", "notes.txt"), ("own", "../theirs/notes.txt"), ("own", "/workspace/../theirs/notes.txt")]
    for workspace, path in attempts:
        output, status = machine.call("read_file", workspace, "t", path=path)
        assert status == "error"
        assert SECRET not in output
    output, _ = machine.call(
        "shell", "own", "t", command="find / -name notes.txt 2>/dev/null; cat /workspace/../*/notes.txt"
    )
    assert SECRET not in output


@pytest.mark.parametrize("workspace", ["../t", "a/b", ".", "..", "a.used", "", "x" * 200, "-a", "a\0"])
def test_an_id_that_is_a_path_is_no_workspace(machine: FunctionMachine, workspace: str) -> None:
    output, status = machine.call("write_file", workspace or " ", path="x", content="evil")
    assert status == "error", output
    machine.check_unharmed()


def test_what_a_command_leaves_behind_does_not_reach_the_next_one(machine: FunctionMachine) -> None:
    machine.call("shell", "late", command="echo 'echo evil' > /tmp/x; export A=1; (sleep 600; touch late) & true")
    output, _ = machine.call("shell", "late", command="ls /tmp; echo $A; ps -e 2>/dev/null | grep -c sleep; true")
    assert output.split() in ([], ["0"])
