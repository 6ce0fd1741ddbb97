"""The files of workspaces, for clients."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.providers.workspace.stage import calling, outputs, staged
from tests.support.inner_files import found

from antwort.providers.workspace.folders import Folders
from antwort.sandbox import BareHost, folders

FILES = "/workspaces/conv-1/files"


def test_files_are_uploaded_listed_downloaded_and_deleted(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        made = stage.request("PUT", FILES, params={"path": "in/data.csv"}, content=b"a,b\n1,2\n")
        assert made.status_code == 200, made.text
        file = made.json()
        assert file == {
            "object": "workspace.file",
            "path": "in/data.csv",
            "bytes": 8,
            "modified_at": file["modified_at"],
        }
        assert stage.request("GET", FILES).json() == {
            "object": "list",
            "data": [file],
            "first_id": "in/data.csv",
            "last_id": "in/data.csv",
            "has_more": False,
        }
        found = stage.request("GET", f"{FILES}/content", params={"path": "in/data.csv"})
        assert found.content == b"a,b\n1,2\n"
        assert found.headers["content-type"] == "text/csv"
        assert found.headers["content-disposition"] == "attachment"
        about = stage.request("GET", "/workspaces/conv-1").json()
        assert (about["id"], about["files"]) == ("conv-1", 2)
        gone = stage.request("DELETE", FILES, params={"path": "in/data.csv"})
        assert gone.json() == {"path": "in/data.csv", "object": "workspace.file.deleted", "deleted": True}
        assert stage.request("GET", f"{FILES}/content", params={"path": "in/data.csv"}).status_code == 404
        assert stage.request("DELETE", "/workspaces/conv-1").json()["deleted"] is True
        assert stage.request("GET", "/workspaces/conv-1").status_code == 404
        assert stage.request("GET", "/workspaces").json()["data"] == []


def test_what_is_uploaded_is_what_commands_see(tmp_path: Path) -> None:
    steps = calling(("shell", {"command": "sort -u words > sorted; echo made"}))
    with staged(tmp_path, steps) as stage:
        client = stage.client()
        conversation = client.conversations.create()
        files = f"/workspaces/{conversation.id}/files"
        stage.request("PUT", files, params={"path": "words"}, content=b"b\na\nb\n")
        client.responses.create(model="m", input="Sort.", conversation=conversation.id)
        assert outputs(stage) == ["made"]
        assert stage.request("GET", f"{files}/content", params={"path": "sorted"}).text == "a\nb\n"


def test_large_files_come_and_go_in_a_stream(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)

    def pieces() -> Any:
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    with staged(tmp_path) as stage:
        made = stage.request("PUT", FILES, params={"path": "x"}, content=pieces())
        assert made.json()["bytes"] == len(data)
        assert stage.request("GET", f"{FILES}/content", params={"path": "x"}).content == data


def test_lists_have_pages(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        for name in ("a", "b/c", "d"):
            stage.request("PUT", FILES, params={"path": name}, content=b"x")
        first = stage.request("GET", FILES, params={"limit": 2}).json()
        assert ([file["path"] for file in first["data"]], first["has_more"]) == (["a", "b/c"], True)
        rest = stage.request("GET", FILES, params={"after": first["last_id"]}).json()
        assert ([file["path"] for file in rest["data"]], rest["has_more"]) == (["d"], False)
        for number in range(3):
            stage.request("PUT", f"/workspaces/w{number}/files", params={"path": "x"}, content=b"x")
        page = stage.request("GET", "/workspaces", params={"limit": 3}).json()
        assert page["has_more"] is True
        last = stage.request("GET", "/workspaces", params={"limit": 3, "after": page["last_id"]}).json()
        names = [one["id"] for one in [*page["data"], *last["data"]]]
        assert sorted(names) == ["conv-1", "w0", "w1", "w2"]


@pytest.mark.parametrize(
    ("method", "path", "params", "status"),
    [
        ("GET", "/workspaces/none", {}, 404),
        ("DELETE", "/workspaces/none", {}, 404),
        ("GET", "/workspaces/none/files", {}, 404),
        ("GET", "/workspaces/none/files/content", {"path": "x"}, 404),
        ("DELETE", "/workspaces/none/files", {"path": "x"}, 404),
        ("PUT", "/workspaces/a.b/files", {"path": "x"}, 404),
        ("PUT", "/workspaces/%2e%2e/files", {"path": "x"}, 404),
        ("PUT", "/workspaces/a%2Fb/files", {"path": "x"}, 404),
        ("PUT", FILES, {}, 400),
        ("PUT", FILES, {"path": ""}, 400),
        ("PUT", FILES, {"path": "../x"}, 400),
        ("PUT", FILES, {"path": "/etc/passwd"}, 400),
        ("PUT", FILES, {"path": "a\0b"}, 400),
        ("PUT", FILES, {"path": "x" * 5000}, 400),
        ("GET", f"{FILES}/content", {"path": "../x"}, 400),
        ("GET", f"{FILES}/content", {"path": "folder"}, 400),
        ("GET", f"{FILES}/content", {"path": "none"}, 404),
        ("DELETE", FILES, {"path": "../x"}, 400),
        ("DELETE", FILES, {"path": "none"}, 404),
        ("DELETE", FILES, {"path": "folder"}, 400),
        ("GET", FILES, {"limit": 0}, 400),
        ("POST", FILES, {}, 405),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, method: str, path: str, params: Any, status: int) -> None:
    with staged(tmp_path) as stage:
        stage.request("PUT", FILES, params={"path": "folder/file"}, content=b"x")
        found = stage.request(method, path, params=params, content=b"x" if method == "PUT" else None)
    assert found.status_code == status, found.text
    assert found.json()["error"]["message"]


def test_what_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    with staged(tmp_path, max_file_bytes=1000, max_bytes=20_000) as stage:
        for content in (b"x" * 1001, iter([b"x" * 600, b"x" * 600])):
            refused = stage.request("PUT", FILES, params={"path": "a/b/c/x"}, content=content)
            assert refused.status_code == 413
        assert stage.request("GET", FILES).json()["data"] == []
        assert list(found(tmp_path, "**/a")) == []
        last = [stage.request("PUT", FILES, params={"path": str(n)}, content=b"x" * 900) for n in range(6)][-1]
        assert last.status_code == 413
        assert "all of them 20,000" in last.json()["error"]["message"]


def test_links_that_a_command_has_planted_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "file").write_text("secret")
    steps = calling(("shell", {"command": f"ln -s {secret} folder; ln -s {secret}/file link; echo mine > own"}))
    with staged(tmp_path, steps) as stage:
        stage.client().responses.create(model="m", input="Go.")
        (workspace,) = stage.request("GET", "/workspaces").json()["data"]
        files = f"/workspaces/{workspace['id']}/files"
        assert [file["path"] for file in stage.request("GET", files).json()["data"]] == ["own"]
        for path in ("link", "folder/file", "folder"):
            assert stage.request("GET", f"{files}/content", params={"path": path}).status_code == 400
        assert stage.request("PUT", files, params={"path": "folder/new"}, content=b"evil").status_code == 400
        assert stage.request("DELETE", files, params={"path": "folder/file"}).status_code == 400
        assert stage.request("PUT", files, params={"path": "link"}, content=b"mine").status_code == 200
        assert stage.request("DELETE", f"/workspaces/{workspace['id']}").status_code == 200
    assert [path.name for path in secret.iterdir()] == ["file"]
    assert (secret / "file").read_text() == "secret"


def test_tenants_have_their_own(tmp_path: Path) -> None:
    keys: list[dict[str, Any]] = [
        {"id": "one", "key": "sk-one-0123456789abcdef0123456789abcdef", "tenant": "one"},
        {"id": "two", "key": "sk-two-0123456789abcdef0123456789abcdef", "tenant": "two"},
        {"id": "read", "key": "sk-read-0123456789abcdef0123456789abcde", "tenant": "one", "scopes": ["workspace:read"]},
    ]
    one, two, reader = ({"authorization": f"Bearer {key['key']}"} for key in keys)
    with staged(tmp_path, sections={"auth": {"api_keys": keys}, "sandbox": {"unbounded": "allow"}}) as stage:
        stage.request("PUT", FILES, params={"path": "x"}, content=b"one's", headers=one)
        for method, path, params in [
            ("GET", "/workspaces/conv-1", {}),
            ("DELETE", "/workspaces/conv-1", {}),
            ("GET", FILES, {}),
            ("GET", f"{FILES}/content", {"path": "x"}),
            ("DELETE", FILES, {"path": "x"}),
        ]:
            theirs = stage.request(method, path, params=params, headers=two)
            nobodys = stage.request(method, path.replace("conv-1", "conv-2"), params=params, headers=two)
            assert theirs.status_code == 404
            assert theirs.text.replace("conv-1", "conv-2") == nobodys.text
        assert stage.request("GET", "/workspaces", headers=two).json()["data"] == []
        stage.request("PUT", FILES, params={"path": "x"}, content=b"two's", headers=two)
        found = stage.request("GET", f"{FILES}/content", params={"path": "x"}, headers=reader)
        assert found.text == "one's"
        refused = stage.request("PUT", FILES, params={"path": "x"}, content=b"x", headers=reader)
        assert refused.status_code == 403


def test_workspaces_that_nobody_uses_go(tmp_path: Path) -> None:
    folders = Folders(tmp_path, BareHost(), keep=3600, most=10)
    for name in ("old", "new"):
        (folders.use("t", name) / "file").write_text("x")
    folder = folders.find("t", "old")
    (folder / "folder").mkdir(mode=0)
    mark = folder.with_name("old.used")
    os.utime(mark, (time.time() - 4000,) * 2)
    left = folder.with_name(".trash-of-a-process-that-was-killed")
    left.mkdir()
    assert folders.sweep() == 1
    assert [one.id for one in folders.all("t")] == ["new"]
    assert not folder.exists()
    assert not left.exists()
    assert folders.sweep() == 0


def test_a_workspace_that_is_used_stays(tmp_path: Path) -> None:
    folders = Folders(tmp_path, BareHost(), keep=3600, most=10)
    folder = folders.use("t", "own")
    os.utime(folder.with_name("own.used"), (time.time() - 4000,) * 2)
    os.utime(folder, (time.time() + 10**6,) * 2)
    folders.use("t", "own")
    assert folders.sweep() == 0


def test_workspaces_outlive_the_server(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        stage.request("PUT", FILES, params={"path": "x"}, content=b"kept")
    with staged(tmp_path) as stage:
        assert stage.request("GET", f"{FILES}/content", params={"path": "x"}).text == "kept"


def test_a_workspace_is_deleted_while_a_command_still_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Folders(tmp_path, BareHost(), keep=60, most=9)
    (own.use("tenant", "w") / "file").write_text("x")

    def refuse(folder: Path) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty", str(folder))

    with monkeypatch.context() as patched:
        patched.setattr(folders, "delete_tree", refuse)
        own.delete("tenant", "w")
        assert own.sweep() == 0
    assert own.all("tenant") == []
    assert len(list(tmp_path.glob("*/.trash-*"))) == 1
    own.sweep()
    assert list(tmp_path.glob("*/*")) == []


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        refused = stage.request("PUT", FILES, params={"path": "x" * 300}, content=b"x")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "path")
        assert "File name too long" in refused.json()["error"]["message"]


def test_uploads_at_the_same_time_share_the_room(tmp_path: Path) -> None:
    with staged(tmp_path, max_bytes=1_000_000) as stage:
        everybody = threading.Barrier(3)

        def content() -> Iterator[bytes]:
            yield bytes(300_000)
            everybody.wait()
            yield bytes(300_000)

        def upload(name: str) -> int:
            return stage.request("PUT", FILES, params={"path": name}, content=content()).status_code

        with ThreadPoolExecutor() as threads:
            codes = list(threads.map(upload, "abc"))
        assert set(codes) <= {200, 413}
        assert codes.count(200) <= 1
        assert stage.request("GET", "/workspaces/conv-1").json()["bytes"] <= 1_000_000


def test_a_workspace_that_is_deleted_during_an_upload_is_missed(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:

        def content() -> Iterator[bytes]:
            yield bytes(300_000)
            while not list(found(tmp_path, "data/providers/workspace/*/*/.antwort-*")):
                pass  # until it is under way
            assert stage.request("DELETE", "/workspaces/conv-1").status_code == 200
            yield bytes(300_000)

        missed = stage.request("PUT", FILES, params={"path": "x"}, content=content())
        assert missed.status_code == 404
        assert "The workspace is not there any more" in missed.json()["error"]["message"]
        assert stage.request("GET", "/workspaces").json()["data"] == []


def test_names_that_are_no_text_are_shown(tmp_path: Path) -> None:
    with staged(tmp_path, calling(("shell", {"command": "touch $'bad\\xff.txt'"}))) as stage:
        answer = stage.client().responses.create(model="m", input="Go.")
        found = stage.request("GET", f"/workspaces/{answer.id}/files").json()["data"]
        assert [file["path"] for file in found] == ["bad\\xff.txt"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.png", "image/png"),
        ("page.html", "text/html"),
        ("drawing.svg", "image/svg+xml"),
        ("archive.csv.gz", "application/octet-stream"),
        ("data:text/html,x", "application/octet-stream"),
        ("nothing", "application/octet-stream"),
    ],
)
def test_a_download_has_the_media_type_of_its_name_and_does_nothing_in_a_browser(
    tmp_path: Path, name: str, kind: str
) -> None:
    with staged(tmp_path) as stage:
        stage.request("PUT", FILES, params={"path": name}, content=b"<script>alert(1)</script>")
        found = stage.request("GET", f"{FILES}/content", params={"path": name})
        assert found.headers["content-type"] == kind
        assert found.headers["content-disposition"] == "attachment"
        assert found.headers["content-security-policy"] == "sandbox"
        assert found.headers["x-content-type-options"] == "nosniff"
