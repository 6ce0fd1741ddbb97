"""The files of the console, as a browser gets them: the page itself is tried in `tests/console`."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from antwort import Antwort
from antwort.config import ApiKeyConfig, AuthConfig, Config, ServerConfig
from antwort.server.console.pages import FILES, FOLDER, POLICY
from antwort.testing import ScriptedBackend, running

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
MOST = 200_000


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    auth = AuthConfig(api_keys=[ApiKeyConfig.model_validate({"id": "tests", "key": "sk-tests"})])
    app = Antwort(Config(data_dir=tmp_path, auth=auth), backend=ScriptedBackend([]))
    with running(app) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def test_all_files_are_served_and_are_small_together(client: httpx.Client) -> None:
    assert {*FILES, "index.html"} == {path.name for path in FOLDER.iterdir()}
    page = client.get("/", headers=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>")
    total = len(page.content)
    for name in FILES:
        answer = client.get(f"/console/{name}")
        assert answer.status_code == 200
        assert answer.content == (FOLDER / name).read_bytes()
        total += len(answer.content)
    assert total < MOST


def test_the_page_may_do_nothing_but_run_its_own_files(client: httpx.Client) -> None:
    for path in ("/", *(f"/console/{name}" for name in FILES)):
        headers = client.get(path, headers=BROWSER).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert POLICY.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in POLICY
    page = client.get("/", headers=BROWSER).text
    assert "<style" not in page
    assert page.count("<script") == page.count('<script type="module" src="/console/app.js"></script>') == 1
    said = client.get("/", headers=BROWSER).headers["link"]
    assert said.count("rel=modulepreload") == len([name for name in FILES if name.endswith(".js")])


def test_a_browser_that_has_a_file_is_told_that_it_is_the_same(client: httpx.Client) -> None:
    first = client.get("/console/app.js")
    again = client.get("/console/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    assert client.get("/console/app.js", headers={"if-none-match": '"other"'}).status_code == 200
    assert client.head("/", headers=BROWSER).headers["content-type"].startswith("text/html")


def test_programs_are_told_where_to_go_and_nothing_else_is_open(client: httpx.Client) -> None:
    assert client.get("/").json()["name"] == "antwort"
    assert client.get("/", headers=BROWSER).headers["vary"] == "accept"
    for path in ("/console", "/console/", "/console/index.html", "/console/../pages.py", "/console/%2e%2e/pages.py"):
        assert client.get(path, headers=BROWSER).status_code == 401, path
    assert client.post("/console/app.js").status_code in {401, 405}
    assert client.get("/v1/models", headers=BROWSER).status_code == 401


def test_a_setting_takes_it_away(tmp_path: Path) -> None:
    app = Antwort(Config(data_dir=tmp_path, server=ServerConfig(console=False)), backend=ScriptedBackend([]))
    with running(app) as server:
        assert httpx.get(f"{server.url}/", headers=BROWSER).json()["name"] == "antwort"
        assert httpx.get(f"{server.url}/console/app.js").status_code == 404
