"""Resources and prompts: variables and files of vector stores are read, agents are asked to work."""

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from tests.http.sdk import Served
from tests.providers.file_search.ingestion.stage import IngestionStage
from tests.providers.file_search.stage import until
from tests.server.mcp.stage import KEYS, MODES, Face, request
from tests.support.embeddings import EmbeddingServer

from antwort import Antwort
from antwort.config import Config
from antwort.testing import ScriptedBackend, running

KINDS = {"poem": ("text/plain", b"Roses are red."), "point": ("application/json", b'{"x":1}'), "blob": ("x/y", b"\xff")}


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    folder = tmp_path_factory.mktemp("data")
    agents = {"clerk": {"description": "Files things.", "instructions": "A secret of the house."}, "cook": {}}
    with EmbeddingServer() as embeddings, ScriptedBackend([]) as model, contextlib.ExitStack() as closing:
        settings = {"embedding_url": embeddings.url}
        providers = {"variables": {"enabled": True}, "file_search": {"enabled": True, "settings": settings}}
        config = {"data_dir": folder, "providers": providers, "agents": agents, "auth": {"api_keys": KEYS}}
        server = closing.enter_context(running(Antwort(Config.model_validate(config), backend=model)))
        face = Face(server.url)
        for key, (kind, value) in KINDS.items():
            send(face, "PUT", f"/variables?key={key}", content=value, headers={"content-type": kind})
        stage = IngestionStage(Served(server, model, closing), folder, settings)
        with stage.client, stage.worker():
            for number in range(2):
                store = send(face, "POST", "/vector_stores", json={"name": f"s{number}"})["id"]
                for name in ("a.md", "b.md"):
                    attach(face, store, name, f"# {name}\n\nIt is about tea number {number}.")
        yield face


def attach(face: Face, store: str, name: str, text: str) -> None:
    """Put a file into a store, and wait until it can be searched."""
    sent = {"file": (name, text.encode())}
    file = send(face, "POST", "/files", data={"purpose": "assistants"}, files=sent)["id"]
    send(face, "POST", f"/vector_stores/{store}/files", json={"file_id": file})
    until(lambda: send(face, "GET", f"/vector_stores/{store}/files/{file}")["status"] == "completed")


def send(face: Face, method: str, path: str, key: str = "key-of-acme", **options: Any) -> Any:
    headers = {"authorization": f"Bearer {key}", **options.pop("headers", {})}
    answer = httpx.request(method, f"{face.url}/v1{path}", headers=headers, timeout=60, **options)
    assert answer.status_code < 300, answer.text
    return answer.json()


@pytest.mark.parametrize("mode", MODES)
async def test_the_official_client_lists_and_reads(face: Face, mode: str) -> None:
    async with face.client(mode) as client:
        listed = {one.name: one for one in (await client.list_resources()).resources}
        assert {*KINDS, "a.md", "b.md"} == {*listed}
        assert (listed["poem"].mime_type, listed["poem"].size) == ("text/plain", 14)
        contents = {}
        for name, one in listed.items():
            [contents[name]] = (await client.read_resource(one.uri)).contents
        texts = {name: one.text for name, one in contents.items() if isinstance(one, types.TextResourceContents)}
        assert (texts["poem"], texts["point"]) == ("Roses are red.", '{"x":1}')
        assert "It is about tea number" in texts["a.md"]
        assert isinstance(contents["blob"], types.BlobResourceContents)
        templates = (await client.list_resource_templates()).resource_templates
        assert sorted(one.uri_template for one in templates) == [
            "antwort://variables/{variable_id}",
            "antwort://vector_stores/{vector_store_id}/files/{file_id}",
        ]


@pytest.mark.parametrize("mode", MODES)
async def test_prompts_have_agents_work_and_do_not_say_what_they_are_told(face: Face, mode: str) -> None:
    async with face.client(mode) as client:
        prompts = {one.name: one for one in (await client.list_prompts()).prompts}
        assert prompts["clerk"].description == "Files things."
        [message] = (await client.get_prompt("clerk", {"input": "File this."})).messages
        assert isinstance(message.content, types.TextContent)
        assert message.content.text.endswith("with the agent `clerk`, and this as its input:\n\nFile this.")
        with pytest.raises(MCPError, match="no such prompt"):
            await client.get_prompt("nobody", {"input": "x"})
        with pytest.raises(MCPError, match="'input'"):
            await client.get_prompt("clerk", {})


async def test_nobody_sees_what_is_another_tenants(face: Face) -> None:
    async with face.client("legacy") as client:
        uris = [one.uri for one in (await client.list_resources()).resources]
    async with face.client("legacy", "key-of-other") as client:
        assert (await client.list_resources()).resources == []
        for uri in uris:
            with pytest.raises(MCPError, match="no such resource"):
                await client.read_resource(uri)


def test_credentials_need_the_scopes_of_what_they_read(face: Face) -> None:
    def ask(method: str, **params: Any) -> Any:
        return face.post(request(method, **params), "key-of-caller").json()

    assert ask("resources/list")["result"] == {"resources": []}
    assert ask("resources/templates/list")["result"] == {"resourceTemplates": []}
    assert ask("prompts/list")["result"] == {"prompts": []}
    assert ask("prompts/get", name="clerk", arguments={"input": "x"})["error"]["code"] == -32602


@pytest.mark.parametrize(
    "uri", ["antwort://variables/var_none", "antwort://vector_stores/vs_1", "file:///etc/passwd", 7, ""]
)
def test_what_there_is_not_is_refused(face: Face, uri: object) -> None:
    answer = face.post(request("resources/read", uri=uri)).json()
    assert answer["error"]["code"] == (-32002 if uri and isinstance(uri, str) else -32602)


@pytest.mark.parametrize("cursor", ["9:", "x", ":", "-1:", 7, "²:"])
def test_a_cursor_that_is_none_is_refused(face: Face, cursor: object) -> None:
    answer = face.post(request("resources/list", cursor=cursor)).json()
    assert answer["error"]["code"] == -32602


def test_a_list_has_pages(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antwort.server.mcp.resources._PAGE", 1)
    names, cursor = list[str](), None
    for _ in range(20):
        page = face.post(request("resources/list", **({} if cursor is None else {"cursor": cursor}))).json()["result"]
        names += [one["name"] for one in page["resources"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert sorted(names) == ["a.md", "a.md", "b.md", "b.md", "blob", "poem", "point"]
