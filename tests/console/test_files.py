"""The functions and the files of the console."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from playwright.sync_api import FilePayload, expect
from tests.console.desk import KEY, KEYS, Desk, console, free_port, process
from tests.console.hostile import HOSTILE
from tests.console.test_hostile import check
from tests.providers.mcp.stage import running_server
from tests.support.embeddings import EmbeddingServer

from antwort import Context
from antwort.testing import ScriptServer, Turn, call, turn

Open = Callable[..., Desk]


async def pack(
    ctx: Context, name: str, count: int = 2, careful: bool = False, tags: list[str] | None = None
) -> dict[str, Any]:
    """Pack something.

    Args:
        name: What is packed.
        tags: What it is marked with.
    """
    return {"packed": [name] * count, "careful": careful, "tags": tags}


async def split(a: int) -> int:
    """Split a number."""
    raise ValueError(a)


def test_a_function_is_found_filled_in_and_called(tmp_path: Path, desk: Open) -> None:
    with console(tmp_path, offered=[pack, split]) as (server, _):
        tab = desk(server.url, "#/functions")
        tab.sees("sub_agents")
        tab.page.get_by_label("Find a function").fill("pack something")
        expect(tab.page.locator("section").first.locator("tbody tr")).to_have_count(1)
        tab.page.get_by_role("link", name="pack").click()
        tab.sees("What is packed.")
        tab.page.get_by_label("name").fill("tea")
        tab.page.get_by_label("count").fill("3")
        tab.page.get_by_label("careful").select_option("true")
        tab.page.get_by_label("tags").fill("[")
        tab.press("Call it")
        tab.sees("'tags' is no JSON")
        tab.page.get_by_label("tags").fill('["green"]')
        tab.press("Call it")
        result = tab.page.get_by_label("Result")
        expect(result).to_be_visible()
        assert json.loads(result.inner_text()) == {"packed": ["tea"] * 3, "careful": True, "tags": ["green"]}
        tab.sees("Since the server started: 1 success")
        tab.go("#/functions/split")
        tab.page.get_by_label("a integer").fill("7")
        tab.press("Call it")
        tab.sees("error")
        tab.go("#/functions/nothing")
        tab.sees("There is no function of this name.")


def test_who_may_not_see_providers_sees_the_functions(tmp_path: Path, desk: Open) -> None:
    keys = {"api_keys": [{**KEYS["api_keys"][0], "scopes": ["functions:call"]}]}
    with console(tmp_path, offered=[pack], auth=keys) as (server, _):
        tab = desk(server.url, "#/functions", key=KEY)
        tab.sees("Pack something.")
        expect(tab.page.get_by_role("heading", name="Providers")).to_have_count(0)


def test_what_descriptions_and_names_of_files_say_is_text(tmp_path: Path, desk: Open) -> None:
    properties = {f"p{number}": {"type": "string", "description": text} for number, text in enumerate(HOSTILE)}

    async def handle(ctx: Context, **given: Any) -> str:
        return ""

    spec = {
        "name": "hostile",
        "description": "\n".join(HOSTILE),
        "parameters": {"type": "object", "properties": properties},
        "handler": handle,
    }
    with console(tmp_path, offered=[spec]) as (server, _):
        for text in HOSTILE[:43]:
            name = text.replace("\n", " ").replace("\r", " ")
            httpx.post(
                f"{server.url}/v1/files", data={"purpose": "user_data"}, files={"file": (name, b"x")}, timeout=60
            ).raise_for_status()
        httpx.put(
            f"{server.url}/v1/variables",
            params={"key": "a", "scope": "tenant"},
            content="\n".join(HOSTILE),
            headers={"content-type": "text/plain"},
            timeout=60,
        ).raise_for_status()
        tab = desk(server.url, "#/functions")
        tab.sees("hostile")
        check(tab)
        tab.go("#/functions/hostile")
        tab.sees("Try it")
        check(tab)
        tab.go("#/files")
        expect(tab.page.get_by_role("heading", name="Variables")).to_be_visible()
        expect(tab.page.locator("tbody tr")).to_have_count(44)
        check(tab)
        tab.page.get_by_role("link", name="a", exact=True).click()
        tab.press("Show all") if tab.button("Show all").count() else None
        tab.sees("Delete")
        check(tab)


def test_files_are_kept_shown_and_deleted(tmp_path: Path, desk: Open) -> None:
    with console(tmp_path) as (server, _):
        tab = desk(server.url, "#/files")
        picker = tab.page.get_by_label("Files to upload")
        picker.set_input_files([FilePayload(name="tea.txt", mimeType="text/plain", buffer=b"Tea is a drink.")])
        tab.page.get_by_role("link", name="tea.txt").click()
        tab.sees("Tea is a drink.")
        tab.press("Delete")
        tab.sees("Drop files here")
        expect(tab.page.get_by_role("link", name="tea.txt")).to_have_count(0)
        tab.go("#/files/file/file-nothing")
        expect(tab.page.get_by_role("alert")).to_be_visible()


def searching(folder: Path, embeddings: EmbeddingServer) -> list[str]:
    """Write the configuration of a server with files that are searched; return the options that name it."""
    search = {"enabled": True, "settings": {"embedding_url": embeddings.url}}
    settings = {"providers": {"files": {"enabled": True}, "file_search": search}}
    (folder / "antwort.yaml").write_text(json.dumps(settings))
    return ["--config", str(folder / "antwort.yaml")]


def test_an_upload_becomes_a_cited_answer(tmp_path: Path, desk: Open) -> None:
    steps: list[Turn | str] = [turn(calls=[call("file_search", query="tea")]), "A drink [1]."]
    with (
        EmbeddingServer() as embeddings,
        ScriptServer(steps, models=["scripted"]) as model,
        process(free_port(), tmp_path, model, *searching(tmp_path, embeddings)) as url,
    ):
        tab = desk(url, "#/files")
        tab.page.get_by_label("Name of a new vector store").fill("Drinks")
        tab.press("Make")
        expect(tab.page.get_by_role("heading", name="Drinks")).to_be_visible()
        picker = tab.page.get_by_label("Files to upload")
        picker.set_input_files([FilePayload(name="tea.txt", mimeType="text/plain", buffer=b"Tea is a drink.")])
        row = tab.page.locator("tbody tr").filter(has_text="tea.txt")
        expect(row.locator(".state")).to_have_text("completed")
        tab.page.get_by_label("Search").fill("tea")
        tab.press("Search")
        tab.sees("Tea is a drink.", within="article")
        tab.go("#/chat")
        tab.press("Options")
        tab.page.get_by_label("Drinks").check()
        tab.page.get_by_label("Message").fill("What is tea?")
        tab.press("Send")
        source = tab.page.locator(".sources").get_by_role("link", name="tea.txt")
        expect(source).to_have_attribute("href", re.compile("^#/files/store/.*Tea%20is%20a%20drink"))
        tab.page.reload()  # it leads there all the same
        source.click()
        expect(tab.page.locator("mark")).to_have_text("Tea is a drink.")
        expect(tab.page.locator("mark")).to_be_in_viewport()
        tab.page.get_by_role("link", name="The file itself").click()
        tab.sees("Tea is a drink.")


def test_a_chunk_is_shown_where_it_stands_in_its_file(tmp_path: Path, desk: Open) -> None:
    parts = [f"Part {number} is of no interest at all, and long." for number in range(600)]
    parts[400] = "The treasure is buried under\n   the stairs (the old ones)."
    with EmbeddingServer() as embeddings, ScriptServer([], models=["scripted"]) as model:
        options = searching(tmp_path, embeddings)
        with process(free_port(), tmp_path, model, *options) as url, httpx.Client(base_url=url) as client:
            store = client.post("/v1/vector_stores", json={"name": "Maps"}).json()["id"]
            files = {"file": ("map.txt", "\n\n".join(parts).encode())}
            file = client.post("/v1/files", data={"purpose": "assistants"}, files=files).json()["id"]
            client.post(f"/v1/vector_stores/{store}/files", json={"file_id": file})
            tab = desk(url, f"#/files/store/{store}")
            expect(tab.page.locator("tbody .state")).to_have_text("completed")
            tab.page.get_by_label("Search").fill("treasure")
            tab.press("Search")
            found = tab.page.locator("article")
            expect(found).not_to_have_count(0)
            found.filter(has_text="The treasure").first.get_by_role("link").click()
            expect(tab.page.locator("mark")).to_be_in_viewport()
            tab.sees("The treasure is buried under")
            place = f"#/files/store/{store}/{file}"
            tab.go(f"{place}/{quote('Chapter 9 The treasure is buried under the stairs (the o')}")
            expect(tab.page.locator("mark")).to_have_text("The treasure is buried under the stairs (the old ones).")
            assert tab.page.locator("pre").inner_text().startswith("…")
            tab.go(f"{place}/{quote('Nobody has ever written these words')}")
            tab.sees("The passage is not found")


def test_what_became_of_a_function_is_shown(tmp_path: Path, desk: Open) -> None:
    steps: list[Turn | str] = [turn(calls=[call("split", a=7)]), "No.", turn(calls=[call("pack", name="tea")]), "Yes."]
    with console(tmp_path, *steps, offered=[pack, split]) as (server, _):
        tab = desk(server.url, "#/functions/split")
        tab.sees("It was not called since the server started.")
        for _again in range(2):
            httpx.post(f"{server.url}/v1/responses", json={"input": "Go!"}, timeout=60).raise_for_status()
        tab.page.reload()
        tab.sees("Since the server started: 1 error, median")
        failure = tab.page.locator(".past li")
        expect(failure).to_contain_text("ValueError")
        tab.go("#/functions")
        expect(tab.page.locator("tbody tr").filter(has_text="split")).to_contain_text("11 failed")
        tab.go("#/functions/pack")
        tab.sees("1 success")
        tab.sees("None of the latest runs has an error of it.")
        tab.go("#/functions/split")
        failure.get_by_role("link").click()
        expect(tab.page.get_by_label("Why it failed")).to_be_visible()


def test_mcp_servers_are_shown_with_their_tools_and_health(tmp_path: Path, desk: Open) -> None:
    with running_server() as calculator:
        servers = {
            "calc": {"url": calculator.url, "offer": "always", "prefix": "calc_"},
            "gone": {"url": "http://127.0.0.1:1/mcp", "offer": "always"},
        }
        providers = {"mcp": {"enabled": True, "settings": {"servers": servers}}}
        with console(tmp_path, providers=providers) as (server, _):
            tab = desk(server.url, "#/functions")
            rows = tab.page.locator(".services tr")
            expect(rows.filter(has_text="calc").first.locator(".state")).to_have_text("ok")
            expect(rows.filter(has_text="gone").locator(".state")).to_have_text("away")
            rows.get_by_role("link", name="calc_add", exact=True).click()
            tab.sees("Add two numbers.")
