"""`/v1/containers`, by the SDK: what there is, what is refused, and who may."""

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
from openai import APIStatusError, BadRequestError, NotFoundError, PermissionDeniedError
from openai.types.responses.response_code_interpreter_tool_call import OutputLogs
from tests.providers.code_interpreter.stage import OUTPUTS, TOOL, calls, outputs, running_code, staged
from tests.support.inner_files import found

from antwort.errors import ConflictError
from antwort.providers.code_interpreter.containers import Containers
from antwort.sandbox import Sandbox

KEYS = {"a": "key-of-a-0123456789", "b": "key-of-b-0123456789"}


def test_containers_are_created_listed_retrieved_and_deleted(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        client = stage.client()
        first = client.containers.create(name="one", memory_limit="1g")
        assert (first.object, first.name, first.status, first.memory_limit) == ("container", "one", "active", "1g")
        second = client.containers.create(name="two", expires_after={"anchor": "last_active_at", "minutes": 5})
        assert second.expires_after is not None
        assert second.expires_after.minutes == 5
        assert second.network_policy is not None
        assert second.network_policy.type == "disabled"
        assert {one.id for one in client.containers.list()} == {first.id, second.id}
        assert [one.id for one in client.containers.list(name="two")] == [second.id]
        assert len(client.containers.list(limit=1).data) == 1
        assert len(list(client.containers.list(limit=1, order="asc"))) == 2
        assert client.containers.retrieve(first.id).name == "one"
        client.containers.delete(first.id)
        with pytest.raises(NotFoundError):
            client.containers.retrieve(first.id)
        with pytest.raises(NotFoundError):
            client.containers.delete(first.id)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_list_goes_on_after_a_container_that_was_deleted(tmp_path: Path, order: Literal["asc", "desc"]) -> None:
    with staged(tmp_path) as stage:
        client = stage.client()
        made = {client.containers.create(name=f"{number}").id for number in range(5)}
        seen = []
        for one in client.containers.list(limit=2, order=order):
            seen.append(one.id)
            client.containers.delete(one.id)
        assert len(seen) == len(made)
        assert set(seen) == made
        with pytest.raises(BadRequestError, match="no container") as caught:
            client.containers.list(after="cntr_" + 48 * "0")
        assert (caught.value.param, caught.value.code) == ("after", "invalid_value")


def test_files_are_uploaded_listed_retrieved_downloaded_and_deleted(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        client = stage.client()
        container = client.containers.create(name="one").id
        files = client.containers.files
        made = files.create(container, file=("data.csv", b"a,b\n1,2\n"))
        assert (made.path, made.bytes, made.source) == ("/mnt/data/data.csv", 8, "user")
        assert files.retrieve(made.id, container_id=container).path == made.path
        assert files.content.retrieve(made.id, container_id=container).read() == b"a,b\n1,2\n"
        again = files.create(container, file=("data.csv", b"new"))
        assert (again.id, again.bytes) == (made.id, 3)
        other = files.create(container, file=("b.csv", b""))
        assert {file.id for file in files.list(container)} == {made.id, other.id}
        assert len(list(files.list(container, limit=1))) == 2
        files.delete(made.id, container_id=container)
        for ask in (files.retrieve, files.content.retrieve, files.delete):
            with pytest.raises(NotFoundError):
                ask(made.id, container_id=container)


def test_large_files_come_and_go_in_a_stream(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    with staged(tmp_path) as stage:
        client = stage.client()
        container = client.containers.create(name="one").id
        made = client.containers.files.create(container, file=("x.bin", data))
        assert made.bytes == len(data)
        assert client.containers.files.content.retrieve(made.id, container_id=container).read() == data


def test_code_and_clients_share_files_in_both_directions(tmp_path: Path) -> None:
    code = "open('data.csv', 'a').write('3,4\\n')\nimport os\nos.mkdir('out')\nopen('out/sum.txt', 'w').write('10')"
    with staged(tmp_path, running_code(code)) as stage:
        client = stage.client()
        container = client.containers.create(name="one").id
        files = client.containers.files
        files.create(container, file=("data.csv", b"a,b\n1,2\n"))
        tool: Any = {"type": "code_interpreter", "container": container}
        client.responses.create(model="m", input="Go.", tools=[tool])
        found = {file.path: file for file in files.list(container)}
        assert {path: file.source for path, file in found.items()} == {
            "/mnt/data/data.csv": "user",
            "/mnt/data/out/sum.txt": "assistant",
        }
        content = files.content.retrieve(found["/mnt/data/out/sum.txt"].id, container_id=container)
        assert content.read() == b"10"


def test_a_deleted_container_ends_its_session(tmp_path: Path) -> None:
    with staged(tmp_path, [*running_code("x = 1"), *running_code("x")]) as stage:
        client = stage.client()
        conversation = client.conversations.create().id
        create: Any = {"model": "m", "input": "Go.", "tools": [TOOL], "conversation": conversation}
        container = calls(client.responses.create(**create))[0].container_id
        client.containers.delete(container)
        client.responses.create(**create)
        assert "NameError" in outputs(stage)[-1]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x", "file_ids": ["file-1"]}, "file_ids"),
        ({"name": "x", "skills": [{}]}, "skills"),
        ({"name": "x", "memory_limit": "2g"}, "memory_limit"),
        ({"name": "x", "expires_after": {"anchor": "created_at", "minutes": 1}}, "expires_after.anchor"),
        ({"name": "x", "expires_after": {"anchor": "last_active_at", "minutes": 0}}, "expires_after.minutes"),
        ({"name": "x", "network_policy": {"type": "allowlist", "allowed_domains": ["a.example"]}}, "network_policy"),
    ],
)
def test_a_wrong_container_is_refused(tmp_path: Path, body: Any, param: str) -> None:
    with staged(tmp_path) as stage:
        refused = stage.request("POST", "/containers", json=body)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == param


def test_files_of_the_files_api_are_put_into_containers(tmp_path: Path) -> None:
    sections: Any = {"providers": {"files": {"enabled": True}, "code_interpreter": {"enabled": True}}}
    with staged(
        tmp_path,
        [
            *running_code("print(open('a.txt').read()); open('a.txt', 'w').write('new')"),
            *running_code("print(open('a.txt').read())"),
        ],
        sections=sections,
    ) as stage:
        client = stage.client()
        known = client.files.create(file=("a.txt", b"Hello."), purpose="user_data").id
        tool: Any = {"type": "code_interpreter", "container": {"type": "auto", "file_ids": [known]}}
        first = client.responses.create(model="m", input="Go.", tools=[tool])
        assert outputs(stage)[-1].startswith("Hello.")
        client.responses.create(model="m", input="Go.", tools=[tool], previous_response_id=first.id)
        assert outputs(stage)[-1].startswith("new")  # what code has changed is not put back
        made = client.containers.create(name="one", file_ids=[known]).id
        [copy] = client.containers.files.list(made)
        assert (copy.path, copy.source) == ("/mnt/data/a.txt", "user")
        other = client.containers.create(name="two").id
        put = client.containers.files.create(other, file_id=known)
        assert client.containers.files.content.retrieve(put.id, container_id=other).read() == b"Hello."
        again = stage.request("POST", f"/containers/{other}/files", json={"file_id": known})
        assert (again.status_code, again.json()["id"]) == (200, put.id)
        count = len(client.containers.list().data)
        for refused in (
            stage.request("POST", "/containers", json={"name": "x", "file_ids": [known, "file-0"]}),
            stage.request("POST", f"/containers/{other}/files", files={"file_id": (None, "file-0")}),
        ):
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "file_not_found")
        assert len(client.containers.list().data) == count


def test_wrong_uploads_are_refused(tmp_path: Path) -> None:
    with staged(tmp_path, max_file_bytes=1000) as stage:
        client = stage.client()
        path = f"/containers/{client.containers.create(name='one').id}/files"

        def status(**request: Any) -> int:
            return stage.request("POST", path, **request).status_code

        assert status(json={"file_id": "file-1"}) == 400
        assert status(json={"file_id": 1}) == 400
        assert status(json={"file_id": "x" * 5000}) == 413
        assert status(files={"file": ("", b"x")}) == 400
        assert status(files={"other": ("a.txt", b"x")}) == 400
        assert status(data={"file": "x"}) == 415
        assert status(files={"file": ("a.txt", b"x" * 1001)}) == 413
        assert status(files={"file": (".hidden", b"x")}) == 400
        assert status(files={"file": ("..", b"x")}) == 400
        form = {"content-type": "multipart/form-data; boundary=x"}
        assert status(content=b"--x\r\nnonsense", headers=form) == 400
        begun = b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\nhalf'
        assert status(content=begun, headers=form) == 400
        assert status(files={"file": ("a", b"x")}, headers={"origin": "https://evil.example"}) == 415
        assert client.containers.files.list(path.split("/")[2]).data == []
        assert status(files={"file": ("../../../up.txt", b"x")}) == 200
        assert [file.path for file in client.containers.files.list(path.split("/")[2])] == ["/mnt/data/up.txt"]


def test_there_are_only_so_many_containers(tmp_path: Path) -> None:
    with staged(tmp_path, max_containers=2) as stage:
        client = stage.client()
        for name in ("a", "b"):
            client.containers.create(name=name)
        with pytest.raises(APIStatusError, match="2 containers, which is the limit") as refused:
            client.containers.create(name="c")
        assert refused.value.status_code == 409


def form(content: Iterator[bytes], name: str = "x") -> Any:
    """Return a request that uploads a file as its content comes."""

    def body() -> Iterator[bytes]:
        yield f'--x\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
        yield from content
        yield b"\r\n--x--\r\n"

    return {"content": body(), "headers": {"content-type": "multipart/form-data; boundary=x"}}


def test_uploads_at_the_same_time_share_the_room_and_are_all_noted(tmp_path: Path) -> None:
    with staged(tmp_path, max_bytes=1_000_000) as stage:
        client = stage.client()
        container = client.containers.create(name="one").id
        everybody = threading.Barrier(3)

        def content(size: int) -> Iterator[bytes]:
            yield bytes(size)
            everybody.wait()
            yield bytes(size)

        def upload(name: str, size: int) -> int:
            return stage.request("POST", f"/containers/{container}/files", **form(content(size), name)).status_code

        with ThreadPoolExecutor() as threads:
            assert list(threads.map(upload, "abc", [1000] * 3)) == [200, 200, 200]
            assert {file.source for file in client.containers.files.list(container)} == {"user"}
            codes = list(threads.map(upload, "def", [300_000] * 3))
        assert set(codes) <= {200, 413}
        assert codes.count(200) <= 1
        assert sum(file.bytes for file in client.containers.files.list(container)) <= 1_000_000


def test_a_container_that_is_deleted_during_an_upload_is_missed(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        client = stage.client()
        container = client.containers.create(name="one").id

        def content() -> Iterator[bytes]:
            yield bytes(300_000)
            while not list(found(tmp_path, "data/providers/code_interpreter/*/*/.antwort-*")):
                pass  # until it is under way
            client.containers.delete(container)
            yield bytes(300_000)

        missed = stage.request("POST", f"/containers/{container}/files", **form(content()))
        assert missed.status_code == 404
        assert "The container is not there any more" in missed.json()["error"]["message"]
        assert client.containers.list().data == []
    assert [path.name for path in tmp_path.glob("data/providers/code_interpreter/*/*")] == []


def test_a_container_that_is_deleted_while_its_code_writes_ends_it_and_the_model_is_told(tmp_path: Path) -> None:
    code = "print('begun')\nn = 0\nwhile True:\n    n += 1\n    open(f'f{n % 50}', 'w').write('x')"
    with staged(tmp_path, running_code(code)) as stage:
        client = stage.client()
        container = client.containers.create(name="one").id
        tool = {"type": "code_interpreter", "container": container}
        create: Any = {"model": "m", "input": "Go.", "tools": [tool], "include": OUTPUTS}
        with ThreadPoolExecutor() as threads:
            running = threads.submit(lambda: client.responses.create(**create))
            while not client.containers.files.list(container).data:
                pass
            client.containers.delete(container)
            (item,) = calls(running.result())
        (told,) = outputs(stage)
        assert (
            told
            == "begun\n[The container was deleted while the code ran: the session has ended, and the files are gone.]"
        )
        assert item.outputs == [OutputLogs(type="logs", logs=told)]
    assert [path.name for path in tmp_path.glob("data/providers/code_interpreter/*/*")] == []


def test_containers_of_conversations_make_room_and_those_of_clients_do_not(tmp_path: Path) -> None:
    with staged(tmp_path, running_code("1") * 4, max_containers=2) as stage:
        client = stage.client()
        mine = client.containers.create(name="mine").id
        made = [calls(client.responses.create(model="m", input="Go.", tools=[TOOL]))[0] for _ in range(3)]
        assert [item.status for item in made] == ["completed"] * 3
        last = made[-1].container_id
        assert {one.id for one in client.containers.list()} == {mine, last}
        client.containers.files.create(last, file=("data.csv", b"x"))
        client.responses.create(model="m", input="Go.", tools=[TOOL])
        assert "2 containers, which is the limit" in outputs(stage)[0]


async def test_a_container_in_use_does_not_make_room(tmp_path: Path) -> None:
    containers = Containers(tmp_path, Sandbox(), keep=3600.0, most=1, most_files=100)
    first = containers.of_conversation("t", "first", None)
    async with containers.in_use(lambda: first.folder) as used:
        with pytest.raises(ConflictError):
            containers.of_conversation("t", "second", None)
        assert not used.is_deleted
    second = containers.of_conversation("t", "second", None)
    assert [one.id for one in containers.all("t")] == [second.id]
    again = containers.of_conversation("t", "first", None)
    assert again.id == first.id
    assert again.about.birth != first.about.birth


async def test_nobody_takes_a_container_before_it_is_used(tmp_path: Path) -> None:
    containers = Containers(tmp_path, Sandbox(), keep=3600.0, most=2, most_files=100)
    everybody = asyncio.Event()

    async def use(name: str) -> bool:
        try:
            async with containers.in_use(lambda: containers.of_conversation("t", name, None).folder) as used:
                await everybody.wait()
                return not used.is_deleted
        except ConflictError:
            return False

    tasks = [asyncio.create_task(use(str(number))) for number in range(12)]
    while sum(task.done() for task in tasks) < 10:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    everybody.set()
    assert sum(await asyncio.gather(*tasks)) == 2


async def test_who_is_cancelled_lets_go_of_a_container(tmp_path: Path) -> None:
    containers = Containers(tmp_path, Sandbox(), keep=3600.0, most=1, most_files=100)
    begun, going_on = threading.Event(), threading.Event()

    def get() -> Path:
        begun.set()
        going_on.wait()
        return containers.of_conversation("t", "first", None).folder

    async def use() -> None:
        async with containers.in_use(get):
            raise AssertionError("it was cancelled before")

    task = asyncio.create_task(use())
    await asyncio.to_thread(begun.wait)
    task.cancel()
    await asyncio.wait([task])
    going_on.set()
    while not containers.all("t"):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    with containers._changing:  # whoever makes it has noted by then that it is in use
        pass
    while containers._users:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    async with containers.in_use(lambda: containers.of_conversation("t", "second", None).folder):
        assert len(containers.all("t")) == 1


def test_a_session_does_not_outlive_its_container(tmp_path: Path) -> None:
    """One that was made anew under the same id, since another one took its place, has a session of its own."""
    steps = [*running_code("x = 1"), *running_code("2"), *running_code("open('f', 'w').write('x')\nx")]
    with staged(tmp_path, steps, max_containers=1) as stage:
        client = stage.client()
        conversation = client.conversations.create().id
        create: Any = {"model": "m", "input": "Go.", "tools": [TOOL]}
        client.responses.create(**create, conversation=conversation)
        client.responses.create(**create)
        (item,) = calls(client.responses.create(**create, conversation=conversation))
        assert "NameError" in outputs(stage)[-1]
        assert [file.path for file in client.containers.files.list(item.container_id)] == ["/mnt/data/f"]


def test_a_container_tells_the_memory_that_it_has(tmp_path: Path) -> None:
    with staged(tmp_path, max_memory=8 << 30) as stage:
        client = stage.client()
        made = [client.containers.create(name="x", memory_limit=one) for one in ("1g", "4g")]
        made.append(client.containers.create(name="x"))
        assert [one.memory_limit for one in made] == ["1g", "4g", "4g"]
        assert [one.to_dict()["memory_bytes"] for one in made] == [1 << 30, 4 << 30, 8 << 30]
    with staged(tmp_path, max_memory=300 << 20) as stage:
        small = stage.client().containers.create(name="x")
        assert (small.memory_limit, small.to_dict()["memory_bytes"]) == (None, 300 << 20)


@pytest.mark.parametrize(
    ("most", "limit", "told"),
    [
        (1 << 30, "4g", "'1g' is the largest that can be had here. Leave it out to have 1,073,741,824 bytes."),
        (8 << 30, "64g", "'4g' is the largest that can be had here."),
        (300 << 20, "1g", "no value of it can be had here. Leave it out to have 314,572,800 bytes."),
    ],
)
def test_more_memory_than_the_operator_allows_is_refused(tmp_path: Path, most: int, limit: Any, told: str) -> None:
    with staged(tmp_path, max_memory=most) as stage:
        client = stage.client()
        with pytest.raises(BadRequestError, match=f"'memory_limit' is '{limit}', but {told}") as refused:
            client.containers.create(name="x", memory_limit=limit)
        assert refused.value.param == "memory_limit"
        tool: Any = {"type": "code_interpreter", "container": {"type": "auto", "memory_limit": limit}}
        with pytest.raises(BadRequestError, match=told) as refused:
            client.responses.create(model="m", input="Go.", tools=[tool])
        assert refused.value.param == "tools[0].container.memory_limit"
        assert client.containers.list().data == []


def test_a_container_cannot_be_kept_longer_than_the_operator_keeps_any(tmp_path: Path) -> None:
    with staged(tmp_path, keep="90m") as stage:
        client = stage.client()
        kept = client.containers.create(name="x", expires_after={"anchor": "last_active_at", "minutes": 90})
        assert kept.expires_after == client.containers.create(name="y").expires_after
        with pytest.raises(BadRequestError, match="can be up to 90 here, and is 91") as refused:
            client.containers.create(name="x", expires_after={"anchor": "last_active_at", "minutes": 91})
        assert refused.value.param == "expires_after.minutes"


def test_names_that_are_no_text_are_shown_and_can_be_used(tmp_path: Path) -> None:
    with staged(tmp_path, running_code("_ = open(b'bad\\xff.txt', 'w').write('x')")) as stage:
        client = stage.client()
        (item,) = calls(client.responses.create(model="m", input="Go.", tools=[TOOL]))
        (file,) = client.containers.files.list(item.container_id)
        assert file.path == "/mnt/data/bad\\xff.txt"
        content = client.containers.files.content.retrieve(file.id, container_id=item.container_id)
        assert (content.read(), content.response.headers["content-type"]) == (b"x", "text/plain")
        client.containers.files.delete(file.id, container_id=item.container_id)
        assert client.containers.files.list(item.container_id).data == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (".hidden", "may not begin with a dot"),
        ("folder/", "is missing"),
        ("x" * 300, "may have at most 255 bytes, and has 300"),
    ],
)
def test_a_name_that_no_file_can_have_is_refused_with_the_reason(tmp_path: Path, name: str, why: str) -> None:
    with staged(tmp_path) as stage:
        container = stage.client().containers.create(name="one").id
        refused = stage.request("POST", f"/containers/{container}/files", **form(iter([b"x"]), name))
        assert refused.status_code == 400
        assert refused.json()["error"]["message"] == f"The name of the file {why}; use one such as 'data.csv'."


def test_tenants_do_not_see_each_other(tmp_path: Path) -> None:
    auth = {"api_keys": [{"id": name, "key": key, "tenant": name} for name, key in KEYS.items()]}
    with staged(tmp_path, sections={"auth": auth, "sandbox": {"unbounded": "allow"}}) as stage:
        ours, theirs = (stage.client(key) for key in KEYS.values())
        container = theirs.containers.create(name="theirs").id
        file = theirs.containers.files.create(container, file=("secret.txt", b"secret")).id
        assert ours.containers.list().data == []
        attempts: list[Any] = [
            lambda: ours.containers.retrieve(container),
            lambda: ours.containers.delete(container),
            lambda: ours.containers.files.list(container),
            lambda: ours.containers.files.create(container, file=("x", b"x")),
            lambda: ours.containers.files.retrieve(file, container_id=container),
            lambda: ours.containers.files.content.retrieve(file, container_id=container),
            lambda: ours.containers.files.delete(file, container_id=container),
        ]
        for attempt in attempts:
            with pytest.raises(NotFoundError):
                attempt()
        tool: Any = {"type": "code_interpreter", "container": container}
        with pytest.raises(NotFoundError):
            ours.responses.create(model="m", input="Go.", tools=[tool])
        own = ours.containers.create(name="ours").id
        with pytest.raises(NotFoundError):
            ours.containers.files.retrieve(file, container_id=own)


def test_credentials_need_the_scopes(tmp_path: Path) -> None:
    key = {"id": "a", "key": KEYS["a"], "tenant": "a", "scopes": ["containers:read"]}
    with staged(tmp_path, sections={"auth": {"api_keys": [key]}}) as stage:
        client = stage.client(KEYS["a"])
        assert client.containers.list().data == []
        with pytest.raises(PermissionDeniedError, match="containers:write"):
            client.containers.create(name="x")


def test_containers_that_nobody_uses_expire(tmp_path: Path) -> None:
    containers = Containers(tmp_path, Sandbox(), keep=3600.0, most=10, most_files=100)
    late = containers.create("t", "late", minutes=1)
    kept = containers.create("t", "kept")
    path = late.folder.with_name(f"{late.folder.name}.json")
    os.utime(path, (0, path.stat().st_mtime - 120))
    assert [one.id for one in containers.all("t")] == [kept.id]
    assert containers.sweep() == 1
    assert not late.folder.exists()
    assert kept.folder.exists()


async def test_containers_that_have_expired_are_gone_within_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    containers = Containers(tmp_path, Sandbox(), keep=30 * 24 * 3600.0, most=10, most_files=100)
    late = containers.create("t", "late", minutes=1)
    path = late.folder.with_name(f"{late.folder.name}.json")
    passed = 0.0

    async def pass_by(seconds: float) -> None:
        nonlocal passed
        passed += seconds
        if not late.folder.exists() or passed > 3600:
            raise asyncio.CancelledError
        os.utime(path, (0, path.stat().st_mtime - 120))  # it expires as soon as one looks away

    monkeypatch.setattr("antwort.sandbox.folders.asyncio.sleep", pass_by)
    with pytest.raises(asyncio.CancelledError):
        await containers.sweep_regularly()
    assert not late.folder.exists()
    assert passed <= 60, "in seconds, and once more it was waited after that"
