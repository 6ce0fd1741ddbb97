"""What a model can do with a workspace, through the shipped server."""

import base64
import difflib
import io
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.providers.workspace.stage import calling, outputs, staged, used

from antwort import Antwort
from antwort.config import Config
from antwort.errors import ConfigError, FunctionError
from antwort.providers.workspace.texts import Edit, difference, edited, read_whole
from antwort.testing import call, turn
from antwort.testing.script_server import point

LONG = "\n".join(f"line {number}" for number in range(1, 101)) + "\n"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo hello", "hello"),
        ("true", "[no output]"),
        ("echo out; echo err >&2", "out\n[errors]\nerr"),
        ("echo out; exit 3", "out\n[exit code 3]"),
        ("kill -9 $$", "[exit code 137]"),
        ("printf 'a\\xffb'", "a\ufffdb"),
        ("pwd; id -un; echo $HOME", "/workspace\nsandbox\n/workspace"),
        ("[[ a == a ]] && echo bash", "bash"),
        ("no-such-command-here", "[errors]\nbash: line 1: no-such-command-here: command not found\n[exit code 127]"),
    ],
)
def test_a_command(tmp_path: Path, command: str, expected: str) -> None:
    assert used(tmp_path, ("shell", {"command": command})) == [expected]


@pytest.mark.parametrize(
    ("command", "settings", "expected"),
    [
        ("sleep 60", {"max_time": "300ms"}, "[ended: it took longer than 0.3 seconds]"),
        ("yes", {"max_output": 1000}, "[ended: it wrote more than 1,000 bytes; send long output to a file]"),
        ("i=0; while :; do : > $((i++)); done", {"max_files": 100}, "has more than 536,870,912 bytes or 100 files]"),
        (
            "python3 -c 'x = [bytes(10**7) for _ in iter(int, 1)]'",
            {"max_memory": 64 << 20},
            "[ended: it used more than 67,108,864 bytes of memory]",
        ),
        ("head -c 2000 /dev/zero > x; ls -s x", {"max_file_bytes": 1024}, "[errors]"),
    ],
)
def test_a_command_that_reaches_a_limit(tmp_path: Path, command: str, settings: Any, expected: str) -> None:
    (output,) = used(tmp_path, ("shell", {"command": command}), **settings)
    assert expected in output


def test_a_command_can_ask_for_less_time(tmp_path: Path) -> None:
    assert used(tmp_path, ("shell", {"command": "sleep 60", "timeout_ms": 200})) == [
        "[ended: it took longer than 0.2 seconds]"
    ]


@pytest.mark.parametrize("command", ["a\0b", "x" * 100_001])
def test_what_no_shell_takes_is_refused(tmp_path: Path, command: str) -> None:
    with staged(tmp_path, [turn(calls=[call("shell", command=command)]), turn("Done.")]) as stage:
        stage.client().responses.create(model="m", input="Go.")
        (output,) = outputs(stage)
    assert "command" in output


def test_files_stay_for_the_next_call(tmp_path: Path) -> None:
    assert used(
        tmp_path,
        ("write_file", {"path": "notes/today.txt", "content": "Tea.\n"}),
        ("shell", {"command": "cat notes/today.txt; echo Coffee. >> notes/today.txt"}),
        ("read_file", {"path": "/workspace/notes/today.txt"}),
    ) == ["Wrote 5 bytes to notes/today.txt.", "Tea.", "Tea.\nCoffee.\n"]


def test_files_stay_for_the_conversation_and_for_nobody_else(tmp_path: Path) -> None:
    steps = [*calling(("write_file", {"path": "a", "content": "mine"})), *calling(("read_file", {"path": "a"})) * 2]
    with staged(tmp_path, steps) as stage:
        client = stage.client()
        first = client.responses.create(model="m", input="Go.")
        client.responses.create(model="m", input="Go on.", previous_response_id=first.id)
        assert outputs(stage)[-1] == "mine"
        client.responses.create(model="m", input="Go.")
        assert outputs(stage) == ["There is no file 'a'."]


def test_files_stay_for_the_run_only_if_so_configured(tmp_path: Path) -> None:
    steps = [*calling(("write_file", {"path": "a", "content": "mine"})), *calling(("read_file", {"path": "a"}))]
    with staged(tmp_path, steps, per="run") as stage:
        client = stage.client()
        first = client.responses.create(model="m", input="Go.")
        client.responses.create(model="m", input="Go on.", previous_response_id=first.id)
        assert outputs(stage)[-1] == "There is no file 'a'."


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, LONG),
        ({"offset": 99}, "line 99\nline 100\n"),
        ({"offset": 2, "limit": 2}, "line 2\nline 3\n[lines 2-3; go on with offset=4]"),
        ({"offset": 100, "limit": 1}, "line 100\n"),
        ({"offset": 101}, "'long.txt' has only 100 lines."),
        ({"offset": 102}, "'long.txt' has only 100 lines."),
    ],
)
def test_lines_of_a_file(tmp_path: Path, arguments: Any, expected: str) -> None:
    written = ("write_file", {"path": "long.txt", "content": LONG})
    assert used(tmp_path, written, ("read_file", {"path": "long.txt", **arguments}))[1] == expected


@pytest.mark.parametrize(
    ("content", "offset", "expected"),
    [
        ("", 1, ""),
        ("", 2, "'x' has only 0 lines."),
        ("one", 2, "'x' has only 1 line."),
        ("one\n", 2, "'x' has only 1 line."),
        ("one\ntwo", 2, "two"),
        ("one\ntwo", 3, "'x' has only 2 lines."),
        ("one\n\n", 2, "\n"),
    ],
)
def test_lines_are_counted_as_there_are(tmp_path: Path, content: str, offset: int, expected: str) -> None:
    written = ("write_file", {"path": "x", "content": content})
    assert used(tmp_path, written, ("read_file", {"path": "x", "offset": offset}))[1] == expected


def test_a_file_that_is_too_long_is_read_in_parts(tmp_path: Path) -> None:
    content = "".join(f"{number:04}\n" for number in range(1, 401))
    first, rest = used(
        tmp_path,
        ("write_file", {"path": "x", "content": content}),
        ("read_file", {"path": "x"}),
        ("read_file", {"path": "x", "offset": 201}),
        max_read=1000,
    )[1:]
    assert first.endswith("0200\n[lines 1-200; go on with offset=201]")
    assert rest.startswith("0201\n")
    assert rest.endswith("0400\n")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("printf 'a\\0b' > x", "'x' is binary: it cannot be read as text. Look at it with a command."),
        (
            "head -c 3000 /dev/zero | tr '\\0' a > x",
            "Line 1 of 'x' has more than 1,000 bytes: look at it with a command.",
        ),
        ("true", "There is no file 'x'."),
        ("mkdir x", "'x' is no file."),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, made: str, expected: str) -> None:
    assert used(tmp_path, ("shell", {"command": made}), ("read_file", {"path": "x"}), max_read=1000)[1] == expected


def test_an_edit_is_answered_with_the_difference(tmp_path: Path) -> None:
    edits = [{"search": "two", "replace": "2"}, {"search": "2\nthree", "replace": "2\n3"}]
    assert used(
        tmp_path,
        ("write_file", {"path": "x", "content": "one\ntwo\nthree\n"}),
        ("edit_file", {"path": "x", "edits": edits}),
        ("read_file", {"path": "x"}),
    )[1:] == ["--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n one\n-two\n-three\n+2\n+3\n", "one\n2\n3\n"]


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        (
            [{"search": "one", "replace": "1"}, {"search": "four", "replace": "4"}],
            "Edit 2: its text is not in the file. Nothing was changed. It begins: 'four'",
        ),
        (
            [{"search": "t", "replace": "T"}],
            "Edit 1: its text stands in the file 2 times; add what is around it. Nothing was changed. It begins: 't'",
        ),
        (
            [{"search": "One", "replace": "1"}],
            "Edit 1: its text is not in the file. Nothing was changed. It begins: 'One'",
        ),
    ],
)
def test_edits_are_made_all_or_none(tmp_path: Path, edits: Any, expected: str) -> None:
    assert used(
        tmp_path,
        ("write_file", {"path": "x", "content": "one\ntwo\nthree\n"}),
        ("edit_file", {"path": "x", "edits": edits}),
        ("read_file", {"path": "x"}),
    )[1:] == [expected, "one\ntwo\nthree\n"]


def test_a_file_that_is_no_text_is_not_edited(tmp_path: Path) -> None:
    edit = {"path": "x", "edits": [{"search": "a", "replace": "b"}]}
    output = used(tmp_path, ("shell", {"command": "printf 'a\\xff' > x"}), ("edit_file", edit))[1]
    assert output == "'x' is no text in UTF-8: it cannot be edited."


def test_a_difference_tells_of_a_missing_newline() -> None:
    after = edited("a\nb", [Edit(search="b", replace="c")])
    assert difference("x", "a\nb", after).splitlines()[-4:] == [
        "-b",
        "\\ No newline at end of file",
        "+c",
        "\\ No newline at end of file",
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_difference_is_that_of_the_library(seed: int) -> None:
    chance = random.Random(seed)
    old = [f"{chance.randrange(9)}\n" for _ in range(chance.randrange(40))]
    new = [line for line in old if chance.random() < 0.9]
    new.insert(chance.randrange(len(new) + 1), "new\n")
    expected = "".join(difflib.unified_diff(old, new, "a/x", "b/x"))
    told = difference("x", "".join(old), "".join(new))
    assert told == expected or apply(old, told) == new


def apply(old: list[str], told: str) -> list[str]:
    """Return lines with a difference applied."""
    lines, place = [], 0
    for line in told.splitlines(keepends=True)[2:]:
        if line.startswith("@@"):
            start, count = (int(part) for part in (*line.split()[1][1:].split(","), "1")[:2])
            until = start - 1 if count else start
            lines += old[place:until]
            place = until
        elif line[0] in " -":
            assert old[place] == line[1:]
            place += 1
        if line[0] in " +":
            lines.append(line[1:])
    return lines + old[place:]


def test_texts_that_take_long_to_compare_are_shown_one_after_the_other() -> None:
    """A library that looks for the best difference would look for minutes."""
    count = 12_000
    old, new = ([f"{sign * number % 130}\n" for number in range(count)] for sign in (1, -1))
    told = difference("x", "".join(["a\n", *old, "b\n"]), "".join(["a\n", *new, "b\n"])).splitlines(keepends=True)
    assert told[2] == f"@@ -1,{count + 2} +1,{count + 2} @@\n"
    assert apply(["a\n", *old, "b\n"], "".join(told)) == ["a\n", *new, "b\n"]


def test_a_file_that_is_too_large_is_not_edited() -> None:
    with pytest.raises(FunctionError, match="'x' has more than 8,388,608 bytes: edit it with a command"):
        read_whole(io.BytesIO(bytes((8 << 20) + 1)), "x")


def test_files_of_a_workspace_have_limits(tmp_path: Path) -> None:
    outputs = used(
        tmp_path,
        ("write_file", {"path": "a", "content": "x" * 3000}),
        ("write_file", {"path": "b", "content": "x" * 1000}),
        ("shell", {"command": "touch 1 2 3 4"}),
        ("write_file", {"path": "c", "content": "x"}),
        max_file_bytes=2000,
        max_files=5,
    )
    assert "There is room for 2,000 more bytes" in outputs[0]
    assert outputs[1] == "Wrote 1,000 bytes to b."
    assert outputs[3] == "The workspace has 5 files, which is the limit; delete some."


def test_a_full_tenant_loses_the_workspace_that_calls_have_used_least_lately(tmp_path: Path) -> None:
    steps = calling(("write_file", {"path": "a", "content": "x"})) * 3
    with staged(tmp_path, steps, max_workspaces=2) as stage:
        client = stage.client()
        stage.request("PUT", "/workspaces/mine/files", params={"path": "x"}, content=b"x")
        answers = [client.responses.create(model="m", input="Go.") for _ in range(3)]
        assert outputs(stage) == ["Wrote 1 bytes to a."]
        assert {one["id"] for one in stage.request("GET", "/workspaces").json()["data"]} == {"mine", answers[-1].id}


def test_workspaces_of_clients_are_never_taken_away(tmp_path: Path) -> None:
    with staged(tmp_path, calling(("write_file", {"path": "a", "content": "x"})), max_workspaces=1) as stage:
        stage.request("PUT", "/workspaces/mine/files", params={"path": "x"}, content=b"x")
        stage.client().responses.create(model="m", input="Go.")
        assert outputs(stage) == ["There are 1 workspaces, which is the limit; delete some."]


def test_a_workspace_that_is_deleted_while_a_command_runs_is_told(tmp_path: Path) -> None:
    command = "echo begun; touch file; while :; do sleep 0.05; done"
    with staged(tmp_path, calling(("shell", {"command": command}), ("shell", {"command": "ls -A"}))) as stage:
        client = stage.client()
        conversation = client.conversations.create().id
        with ThreadPoolExecutor() as threads:
            running = threads.submit(client.responses.create, model="m", input="Go.", conversation=conversation)
            while stage.request("GET", f"/workspaces/{conversation}").json().get("files") != 1:
                pass
            assert stage.request("DELETE", f"/workspaces/{conversation}").status_code == 200
            running.result()
        deleted, after = outputs(stage)
        told = "The workspace was deleted while the command ran: the command was ended, and the files are gone."
        assert deleted == f"begun\n[{told}]"
        assert after == "[no output]"


def test_a_long_output_becomes_a_variable(tmp_path: Path) -> None:
    providers = {"workspace": {"enabled": True}, "variables": {"enabled": True}}
    steps = calling(("shell", {"command": "seq 1 100000"}))
    with staged(tmp_path, steps, sections={"providers": providers}) as stage:
        stage.client().responses.create(model="m", input="Go.")
        (output,) = outputs(stage)
        assert "$ref" in output
        assert len(output) < 4000
        found = stage.request("GET", "/variables").json()["data"]
        content = stage.request("GET", f"/variables/{found[0]['id']}/content").text
    assert content.startswith("1\n2\n")
    assert content.rstrip().endswith("100000")


def test_without_a_sandbox_there_are_no_workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"^providers\.workspace: code needs a sandbox.*apt-get install bubblewrap"):
        used(tmp_path, ("shell", {"command": "true"}))


def test_the_bare_host_has_to_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTWORT_SECRET_VALUE", "secret")
    _, where, read = used(
        tmp_path,
        ("write_file", {"path": "a", "content": "mine"}),
        ("shell", {"command": "cat a; pwd; env"}),
        ("read_file", {"path": "a"}),
        sandbox="unsafe",
    )
    assert where.startswith(f"mine{tmp_path}")
    assert "secret" not in where
    assert read == "mine"


def test_it_is_off_unless_it_is_enabled() -> None:
    assert "shell" not in [spec.name for spec in Antwort(Config()).registry.discovered_tools()]


def test_files_are_where_openai_s_models_expect_them(tmp_path: Path) -> None:
    assert used(
        tmp_path,
        ("shell", {"command": "echo hi > /mnt/data/a.txt; cat /workspace/a.txt"}),
        ("read_file", {"path": "/mnt/data/a.txt"}),
    ) == ["hi", "hi\n"]


def test_a_picture_of_the_workspace_is_shown_to_the_model(tmp_path: Path) -> None:
    encoded = base64.b64encode(point("red")).decode()
    steps = calling(
        ("shell", {"command": f"echo {encoded} | base64 -d > red.png; echo text > notes.txt"}),
        ("view_image", {"path": "red.png"}),
        ("view_image", {"path": "notes.txt"}),
    )
    with staged(tmp_path, steps) as stage:
        tools: Any = [{"type": "function", "name": name} for name in ("shell", "view_image")]
        stage.client(strict=False).responses.create(model="m", input="Go.", tools=tools)
        read = [item["output"] for item in stage.requests[-1].items if item["type"] == "function_call_output"]
    assert read[1][1] == {"type": "input_image", "image_url": f"data:image/png;base64,{encoded}", "detail": "auto"}
    assert read[2] == "It is no image that can be shown: PNG, JPEG, GIF and WebP are."
