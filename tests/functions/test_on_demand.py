"""Providers that another one brings, and those that sleep until somebody uses them."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from antwort import Antwort
from antwort.config import Config, ProviderConfig, StorageConfig
from antwort.config.installed import has_extra
from antwort.functions import Catalogue
from antwort.functions.discovery import default_providers, enabled_providers, sleeping_providers
from antwort.testing import RunningApp, ScriptedBackend, call, running, turn

FILE_SEARCH = "antwort.providers.file_search:FileSearch"
ON = ProviderConfig(enabled=True)

Client = Callable[..., httpx.Client]


@pytest.fixture
def client() -> Iterator[Client]:
    """Make clients of running apps."""
    made: list[httpx.Client] = []

    def client(served: RunningApp) -> httpx.Client:
        made.append(httpx.Client(base_url=f"{served.url}/v1", timeout=60))
        return made[-1]

    yield client
    for one in made:
        one.close()


def chosen(**providers: ProviderConfig) -> list[str]:
    return [*enabled_providers(Config(providers=providers), Catalogue())]


def test_enabling_file_search_brings_files(tmp_path: Path, client: Client) -> None:
    app = Antwort(Config(data_dir=tmp_path, providers={"file_search": ON}), backend=ScriptedBackend([]))
    with running(app) as served:
        uploaded = client(served).post("/files", files={"file": ("a.txt", b"Tea.")}, data={"purpose": "assistants"})
    assert uploaded.status_code == 200, uploaded.text


def test_what_a_provider_brings_comes_once_and_not_against_the_word_of_the_operator() -> None:
    assert chosen(file_search=ON) == ["file_search", "files"]
    assert chosen(files=ON, file_search=ON) == ["files", "file_search"]
    assert chosen(file_search=ON, files=ProviderConfig(enabled=False)) == ["file_search"]
    assert chosen(file_search=ProviderConfig(enabled=False)) == []
    assert chosen(mine=ProviderConfig(enabled=True, use=FILE_SEARCH)) == ["mine", "files"]


def test_a_server_without_configuration_has_file_search_as_soon_as_it_is_used(tmp_path: Path, client: Client) -> None:
    app = Antwort(Config(data_dir=tmp_path))
    with running(app) as served:
        asked = client(served)
        assert app.asleep.names == ["file_search"]
        made = asked.post("/vector_stores", json={"name": "docs"})
        assert made.status_code == 200, made.text
        assert app.asleep.names == []
        stored = asked.get(f"/vector_stores/{made.json()['id']}").json()
        assert (stored["name"], stored["status"]) == ("docs", "completed")
        assert asked.patch("/vector_stores").status_code == 405
        assert asked.get("/vector_storeys").status_code == 404
    later = Antwort(Config(data_dir=tmp_path))  # whoever has used it once has it from the start
    assert later.asleep.names == []
    assert {spec.name for spec in later.registry.list()} >= {"file_search", "calculate"}


@pytest.mark.parametrize("tool", [{"type": "file_search"}, {"type": "function", "name": "file_search"}])
@pytest.mark.parametrize("in_items", [False, True])
def test_a_request_that_names_the_tool_wakes_its_provider(
    tmp_path: Path, client: Client, tool: dict[str, Any], in_items: bool
) -> None:
    backend = ScriptedBackend([turn(calls=[call("file_search", query="tea")]), turn("Nothing.")])
    request: dict[str, Any] = {"input": "What about tea?", "tools": [tool]}
    if in_items:
        brought = {"type": "additional_tools", "role": "developer", "tools": [tool]}
        request = {"input": [brought, {"type": "message", "role": "user", "content": "What about tea?"}]}
    with running(Antwort(Config(data_dir=tmp_path), backend=backend)) as served:
        answer = client(served).post("/responses", json=request)
    assert answer.status_code == 200, answer.text
    assert [item["type"] for item in answer.json()["output"]] == ["file_search_call", "message"]
    assert backend.requests[0].tools[0]["name"] == "file_search"


def test_the_demo_model_is_offered_it_once_it_is_awake_and_others_on_request(tmp_path: Path, client: Client) -> None:
    for name, backend, offer in (("demo", None, "always"), ("real", ScriptedBackend([]), "on_request")):
        app = Antwort(Config(data_dir=tmp_path / name), backend=backend)
        with running(app) as served:
            assert client(served).get("/vector_stores").status_code == 200
            offers = {one.name: one.offer for one in app.registry.registrations()}
        assert offers["file_search"] == offer


def test_a_provider_that_cannot_be_woken_is_a_503_until_it_can(
    tmp_path: Path, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with running(Antwort(Config(data_dir=tmp_path))) as served:
        obstacle = tmp_path / "providers"
        obstacle.write_text("no folder")
        refused = client(served).get("/vector_stores")
        named = client(served).post("/responses", json={"input": "?", "tools": [{"type": "file_search"}]})
        obstacle.unlink()
        assert client(served).get("/vector_stores").status_code == 200
    for answer in (refused, named):
        assert (answer.status_code, str(tmp_path) in answer.text) == (503, False)
        assert "'file_search' cannot be started" in answer.json()["error"]["message"]
    assert "providers.file_search" in caplog.text


def test_many_who_come_at_once_wake_it_once(tmp_path: Path) -> None:
    program = f"""
import asyncio, httpx
from antwort import Antwort
from antwort.config import Config

async def main():
    async with Antwort(Config(data_dir={str(tmp_path)!r})) as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/v1") as client:
            answers = await asyncio.gather(*(client.get("/vector_stores") for _ in range(20)))
        print({{answer.status_code for answer in answers}}, len(app.registry.registrations()))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("{200} 7\n", "")


def test_what_nobody_uses_is_not_imported(tmp_path: Path) -> None:
    program = f"""
import asyncio, json, sys
from antwort import Antwort
from antwort.config import Config

def loaded():
    names = ("antwort.providers.file_search", "onnxruntime", "tokenizers", "numpy", "qdrant_edge")
    return [name for name in names if name in sys.modules]

async def main():
    app = Antwort(Config(data_dir={str(tmp_path)!r}))
    async with app:
        before = loaded()
        await app.run("What is 12*7?")
        print(json.dumps([before, loaded(), app.asleep.names]))
        await app.asleep.wake("file_search")
        print(json.dumps(loaded()))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    before, after = map(json.loads, done.stdout.splitlines())
    assert before == [[], [], ["file_search"]]
    assert "antwort.providers.file_search" in after
    assert "onnxruntime" not in after, "the model is read with the first text"


def test_only_a_server_that_is_one_process_anyway_has_something_on_demand(tmp_path: Path) -> None:
    catalogue = Catalogue()
    assert sleeping_providers(Config(data_dir=tmp_path), catalogue) == ["file_search"]
    several = Config(data_dir=tmp_path, storage=StorageConfig(url="postgresql://one@db/one"))
    assert sleeping_providers(several, catalogue) == []
    assert sleeping_providers(Config(data_dir=tmp_path, providers={}), catalogue) == []
    (tmp_path / "providers" / "file_search").mkdir(parents=True)
    assert sleeping_providers(Config(data_dir=tmp_path), catalogue) == []
    assert default_providers(Config(data_dir=tmp_path), catalogue)[-1] == "file_search"
    assert "file_search" not in default_providers(several, catalogue)


def test_an_extra_is_installed_if_all_that_it_asks_for_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sample-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: sample\nVersion: 1.0\n"
        "Requires-Dist: pydantic>=2; extra == 'some'\n"
        'Requires-Dist: Pydantic_Core ; python_version >= "3" and extra == "some"\n'
        "Requires-Dist: pydantic; extra == 'others'\n"
        "Requires-Dist: there-is-no-such-package<2; extra == 'others'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert [has_extra("sample", extra) for extra in ("some", "others", "none")] == [True, False, False]
